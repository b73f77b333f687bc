//! Elements of hash maps, read and written for user space.
//!
//! While bpf(2) reads or writes an element, the kernel skips the programs of perf's tracepoints on that processor
//! (kernel/bpf/syscall.c, `bpf_disable_instrumentation`). A kernel that preempts may run other tasks there in the
//! meantime, whose events are then lost. A program that user space runs is not preempted, and disables nothing.

use aya_ebpf::{
    bindings::BPF_F_MMAPABLE,
    helpers::generated::bpf_probe_read_kernel,
    macros::{map, raw_tracepoint},
    maps::{Array, HashMap},
    programs::RawTracePointContext,
};
use memtrace_common::element::{Element, KEY_WORDS, Operation, Table, VALUE_WORDS, slot};

use crate::maps::{
    CODE_ENDS, FILES, IMPORTS, INTERPRETER_OF, LOGS, PROCESSES, REQUESTS, SNAPSHOTS, STOPPED,
    THREADS_CREATED, UNWINDING,
};

#[map]
static ELEMENTS: Array<Element> = Array::with_max_entries(slot::COUNT, BPF_F_MMAPABLE);

/// From errno(3).
const ENOENT: u64 = 2;
const EINVAL: u64 = 22;

/// Run by BPF_PROG_RUN only, with the arguments of `memtrace_common::element`.
#[raw_tracepoint]
pub fn element(context: RawTracePointContext) -> i32 {
    let (table, operation, slot): (u64, u64, u64) =
        (context.arg(0), context.arg(1), context.arg(2));
    if let Some(element) = ELEMENTS.get_ptr_mut(slot as u32) {
        let result = operate(table as u32, operation as u32, element);
        // SAFETY: a live map value, which its user leaves alone during the operation.
        unsafe { (*element).result = result };
    }
    0
}

#[inline(always)]
fn operate(table: u32, operation: u32, element: *mut Element) -> u64 {
    let (Ok(table), Ok(operation)) = (Table::try_from(table), Operation::try_from(operation))
    else {
        return EINVAL;
    };
    match table {
        Table::Processes => in_map(&PROCESSES, operation, element),
        Table::ThreadsCreated => in_map(&THREADS_CREATED, operation, element),
        Table::Files => in_map(&FILES, operation, element),
        Table::Stopped => in_map(&STOPPED, operation, element),
        Table::Unwinding => in_map(&UNWINDING, operation, element),
        Table::Snapshots => in_map(&SNAPSHOTS, operation, element),
        Table::Logs => in_map(&LOGS, operation, element),
        Table::InterpreterOf => in_map(&INTERPRETER_OF, operation, element),
        Table::Imports => in_map(&IMPORTS, operation, element),
        Table::CodeEnds => in_map(&CODE_ENDS, operation, element),
        Table::Requests => in_map(&REQUESTS, operation, element),
    }
}

#[inline(always)]
fn in_map<K, V>(map: &HashMap<K, V>, operation: Operation, element: *mut Element) -> u64 {
    const {
        assert!(size_of::<K>() <= KEY_WORDS * 8 && align_of::<K>() <= 8);
        assert!(size_of::<V>() <= VALUE_WORDS * 8 && align_of::<V>() <= 8);
    }
    // SAFETY: a live map value with room for both, of types for which any bytes are valid.
    let (key, value) = unsafe {
        (
            &*(&raw const (*element).key).cast::<K>(),
            (&raw mut (*element).value).cast::<V>(),
        )
    };
    let done = match operation {
        Operation::Get => {
            let Some(found) = map.get_ptr(key) else {
                return ENOENT;
            };
            // SAFETY: both are live map values of this size.
            match unsafe {
                bpf_probe_read_kernel(value.cast(), size_of::<V>() as u32, found.cast())
            } {
                0 => Ok(()),
                error => Err(error as i32),
            }
        }
        // SAFETY: as above.
        Operation::Insert => map.insert(key, unsafe { &*value }, 0),
        Operation::Remove => map.remove(key),
    };
    done.map_or_else(|error| u64::from(error.unsigned_abs()), |()| 0)
}
