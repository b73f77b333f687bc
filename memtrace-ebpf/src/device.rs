//! Probes on functions of devices' libraries: CUDA's driver and runtime, HIP, PyTorch's caching allocator. As in
//! [`crate::calls`], the cookie says how to read the function at hand.
//!
//! The device of a call is the one that the thread chose before (cudaSetDevice, contexts of the driver), unless it is
//! in the arguments.

use aya_ebpf::{
    EbpfContext,
    bindings::pt_regs,
    helpers::{
        bpf_probe_read_user, bpf_probe_read_user_str_bytes, generated::bpf_probe_read_kernel,
    },
    macros::{uprobe, uretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use memtrace_common::{
    Layer,
    device::{Alloc, ContextKey, Current, EntryPoint, NAME, Range, Report},
    event::{Kind, Stop, flags},
    function::{Cookie, NESTED, NO_ARGUMENT, Operation, Outcome},
    loss::Reason,
    unwind::Registers,
    usdt::{Operand, operand},
};

use crate::{
    arch::{
        after_return, argument, arguments, at_entry, entry_stack_pointer, return_address,
        return_value, stack_pointer,
    },
    caller::Caller,
    calls::release,
    cookie::cookie,
    emit::{Wake, emit, emit_in_place, header, lost, now},
    kernel_stack, lifecycle,
    maps::{CONTEXTS, ENTRY_POINTS},
    measure, stack,
    thread::{Call, Thread},
};

/// Device types of PyTorch (c10/core/DeviceType.h): CUDA, which ROCm builds use as well.
const TORCH_CUDA: u64 = 1;

/// CU_MEM_LOCATION_TYPE_DEVICE of CUmemLocation (cuda.h).
const LOCATION_DEVICE: u32 = 1;

/// cudaMemPoolAttrReservedMemCurrent to …UsedMemHigh (driver_types.h; the driver's have the same
/// values): the size of a pool, and the part of it that is handed out.
const POOL_FIGURES: core::ops::RangeInclusive<u64> = 5..=8;

/// A function of a device's library was entered.
#[uprobe]
pub fn device_entry(context: ProbeContext) -> u32 {
    enter(&context);
    0
}

#[inline(always)]
fn enter(context: &ProbeContext) -> Option<()> {
    // SAFETY: the context of a uprobe is the thread's registers.
    kernel_stack::use_own(context, unsafe { &*context.regs });
    let packed = cookie(context)?;
    if Cookie(packed).operation() == Operation::Report as u8 {
        report(context, Cookie(packed))
    } else {
        begin(context, packed)
    }
}

// VERIFIER: a function of its own, and `done` below: their stack does not count where stacks are walked.
/// Any other function was entered.
#[inline(never)]
fn begin(context: &ProbeContext, packed: u64) -> Option<()> {
    let (caller, thread) = &mut traced()?;
    // SAFETY: the context of a uprobe is the thread's registers.
    let registers = unsafe { &*context.regs };
    let cookie = Cookie(packed);
    let operation = cookie.operation();
    let sp = stack_pointer(registers);
    let arguments = arguments(registers);
    thread.drop_stale(sp, packed);
    let gives = operation == Operation::Alloc as u8;
    let own = 1u32 << cookie.layer();
    let before = thread.inside();
    let nested = before & own != 0;
    let block = argument(&arguments, cookie.block());

    if operation == Operation::Free as u8 {
        if block != 0 && !nested {
            let repeated = thread.released_already(block, sp, packed);
            let record = release(Kind::Free, caller, now(), cookie, block, repeated);
            emit(&record, Reason::RingFullFree, Wake::Lazily);
        }
        return None;
    }
    if operation == Operation::Unmap as u8 {
        if !nested {
            range(
                Kind::DeviceUnmap,
                caller,
                cookie,
                arguments[0],
                arguments[1],
                0,
                0,
            );
        }
        return None;
    }
    let mut call = Call {
        sp,
        cookie: packed,
        size: arguments[0],
        pointer: arguments[0],
        inside: before,
        ..Call::EMPTY
    };
    if gives {
        thread.forget_released(packed);
        call.inside |= own;
        if nested {
            call.cookie |= NESTED;
        }
        if cookie.outcome() == Outcome::ErrorAndBlock as u8 {
            call.pointer = block;
        }
        measure::block(cookie, &arguments, sp, &mut call);
        if measure::is_physical(cookie) {
            call.device = location(arguments[2]);
        }
    } else if operation == Operation::RetainContext as u8
        || operation == Operation::CreateContext as u8
    {
        call.size = argument(&arguments, cookie.size());
    } else if operation == Operation::Map as u8 {
        (call.size, call.factor) = (arguments[1], arguments[3]);
    } else if operation == Operation::Resolve as u8 {
        call.pointer = arguments[1];
    } else if operation == Operation::PoolAttribute as u8 {
        (call.size, call.pointer) = (arguments[1], arguments[2]);
    }
    thread.push(call);
    None
}

/// The current thread; `None` (counted) if it is not to be traced.
#[inline(always)]
fn traced() -> Option<(Caller, &'static mut Thread)> {
    Thread::current().map_err(lost).ok()
}

/// PyTorch's allocator reports that it has handed out or taken back a block, or that it is out of memory: bytes, then
/// its totals in blocks and held, then the device. It makes this call itself, at the end.
#[inline(always)]
fn report(context: &ProbeContext, cookie: Cookie) -> Option<()> {
    let (caller, thread) = &mut traced()?;
    // SAFETY: the context of a uprobe is the thread's registers.
    let registers = unsafe { &*context.regs };
    // The block comes first. Where no argument is one: out of memory.
    // VERIFIER: not by an index into the arguments, which would have to be on the stack for it.
    let [a, b, c, d, e, ..] = arguments(registers);
    let (addr, [size, allocated, reserved, device]) = if cookie.block() == NO_ARGUMENT {
        (0, [a, b, c, d])
    } else {
        (a, [b, c, d, e])
    };
    // Type in the low byte, index in the next.
    if device & 0xff != TORCH_CUDA || size == 0 {
        return None;
    }
    let device = (device >> 8) as u32 & 0xff;
    let taken = (size as i64) < 0;
    let stack = if taken {
        0
    } else {
        let at = |at: &mut Registers| *at = at_entry(registers, return_address(registers));
        stack::take(context.as_ptr(), caller, Some(thread), at)
    };
    let mut header = header(Kind::DeviceReport, caller);
    header.layer = cookie.layer();
    let reason = if taken {
        Reason::RingFullFree
    } else {
        Reason::RingFullAlloc
    };
    emit_in_place(Some(reason), Wake::Lazily, |to: *mut Report| {
        let record = Report {
            header,
            addr,
            size: size as i64,
            stack,
            allocated,
            reserved,
            device,
            pad: 0,
        };
        // SAFETY: the pointer is to room for one.
        unsafe { to.write(record) };
    });
    None
}

#[inline(always)]
fn range(
    kind: Kind,
    caller: &Caller,
    cookie: Cookie,
    addr: u64,
    len: u64,
    handle: u64,
    device: Current,
) {
    let mut header = header(kind, caller);
    header.layer = cookie.layer();
    let record = Range {
        header,
        addr,
        len,
        handle,
        device,
        pad: 0,
    };
    emit(&record, Reason::RingFullFree, Wake::Lazily);
}

/// A function of a device's library returned.
#[uretprobe]
pub fn device_return(context: RetProbeContext) -> u32 {
    leave(&context);
    0
}

#[inline(always)]
fn leave(context: &RetProbeContext) -> Option<()> {
    // SAFETY: the context of a uprobe is the thread's registers.
    let registers = unsafe { &*context.regs };
    kernel_stack::use_own(context, registers);
    let (caller, thread) = Thread::current().ok()?;
    let sp = entry_stack_pointer(registers);
    let Some(call) = thread.pop(sp) else {
        thread.lost_call(sp);
        return None;
    };
    // Every function here returns an error code, an int; 0 is success.
    let error = return_value(registers) as u32;
    if call.cookie & NESTED != 0 {
        return None;
    }
    let cookie = Cookie(call.cookie);
    if cookie.operation() != Operation::Alloc as u8 {
        return if error == 0 {
            done(context, thread, call)
        } else {
            None
        };
    }
    let mut addr = call.pointer;
    let mut size = call.size;
    if error == 0 && cookie.outcome() != Outcome::ErrorAndBlock as u8 {
        addr = word_at(call.pointer)?;
    }
    if call.factor != 0 {
        let factor = if error == 0 {
            word_at(call.factor)?
        } else {
            call.row
        };
        size = measure::product(size, factor);
    }
    if error != 0 {
        addr = 0;
    } else if addr == 0 {
        // Nothing was requested, and nothing allocated.
        return None;
    }
    let at = |at: &mut Registers| *at = after_return(registers);
    let stack = stack::take(context.as_ptr(), &caller, Some(thread), at);
    let mut header = header(Kind::DeviceAlloc, &caller);
    header.layer = cookie.layer();
    let above = call.inside & (1 << Layer::CudaRuntime as u32);
    if cookie.layer() == Layer::CudaDriver as u8 && above != 0 {
        header.flags |= flags::BELOW;
    }
    if cookie.stream_ordered() {
        header.flags |= flags::STREAM_ORDERED;
    }
    if measure::is_physical(cookie) {
        header.flags |= flags::PHYSICAL;
    }
    let device = if call.device != 0 {
        call.device
    } else {
        thread.devices as u32 & 0xff
    };
    emit_in_place(
        Some(Reason::RingFullAlloc),
        Wake::Lazily,
        |to: *mut Alloc| {
            let record = Alloc {
                header,
                addr,
                size,
                stack,
                device,
                error,
            };
            // SAFETY: the pointer is to room for one.
            unsafe { to.write(record) };
        },
    );
    None
}

/// The effect of a successful call that allocated no memory.
#[inline(never)]
fn done(context: &RetProbeContext, thread: &mut Thread, call: &Call) -> Option<()> {
    let caller = &Caller::current()?;
    let cookie = Cookie(call.cookie);
    let operation = cookie.operation();
    if operation == Operation::Map as u8 {
        let (addr, len, handle) = (call.pointer, call.size, call.factor);
        range(Kind::DeviceMap, caller, cookie, addr, len, handle, 0);
    } else if operation == Operation::Retain as u8 {
        let handle = word_at(call.pointer)?;
        range(Kind::DeviceRetain, caller, cookie, 0, 0, handle, 0);
    } else if operation == Operation::SetDevice as u8 {
        thread.replace_device(current(call.size));
    } else if operation == Operation::RetainContext as u8 {
        learn(caller, word_at(call.pointer)?, call.size);
    } else if operation == Operation::CreateContext as u8 {
        learn(caller, word_at(call.pointer)?, call.size);
        thread.push_device(current(call.size));
    } else if operation == Operation::SetContext as u8 {
        thread.replace_device(device_of(caller, call.size));
    } else if operation == Operation::PushContext as u8 {
        thread.push_device(device_of(caller, call.size));
    } else if operation == Operation::PopContext as u8 {
        thread.devices >>= 8;
    } else if operation == Operation::PoolAttribute as u8 {
        if POOL_FIGURES.contains(&call.size) {
            let bytes = word_at(call.pointer)?;
            let device = thread.devices as u32 & 0xff;
            let attribute = call.size;
            range(
                Kind::DevicePool,
                caller,
                cookie,
                0,
                bytes,
                attribute,
                device,
            );
        }
    } else if operation == Operation::Resolve as u8 {
        resolved(context, caller, cookie, call)?;
    }
    None
}

/// The driver returned the address of a function. If that function has probes, the collector must handle it before the
/// process can call it.
#[inline(always)]
fn resolved(context: &RetProbeContext, caller: &Caller, cookie: Cookie, call: &Call) -> Option<()> {
    let addr = word_at(call.pointer)?;
    let mut key = EntryPoint { name: [0; NAME] };
    // SAFETY: the helper checks the address and fails on a bad one.
    unsafe { bpf_probe_read_user_str_bytes(call.size as *const u8, &mut key.name) }.ok()?;
    // SAFETY: copied before anything could remove it.
    let number = *unsafe { ENTRY_POINTS.get(&key) }?;
    if addr != 0 {
        let number = u64::from(number);
        range(Kind::EntryPoint, caller, cookie, addr, 0, number, 0);
        lifecycle::stop(context, caller, Stop::EntryPoint);
    }
    None
}

/// A word of the process, where a function has written it.
#[inline(always)]
fn word_at(addr: u64) -> Option<u64> {
    // SAFETY: the helper checks the address and fails on a bad one.
    match unsafe { bpf_probe_read_user(addr as *const u64) } {
        Ok(word) => Some(word),
        Err(_) => {
            lost(Reason::OutPointerUnreadable);
            None
        }
    }
}

/// An invalid index is an unknown device.
#[inline(always)]
fn current(index: u64) -> Current {
    let index = index as u32;
    if index < 255 { index + 1 } else { 0 }
}

#[inline(always)]
fn context_key(caller: &Caller, context: u64) -> ContextKey {
    ContextKey {
        context,
        tgid: caller.tgid,
        pad: 0,
    }
}

#[inline(always)]
fn learn(caller: &Caller, context: u64, index: u64) {
    let _ = CONTEXTS.insert(&context_key(caller, context), &current(index), 0);
}

#[inline(always)]
fn device_of(caller: &Caller, context: u64) -> Current {
    // SAFETY: copied before anything could remove it.
    unsafe { CONTEXTS.get(&context_key(caller, context)) }.map_or(0, |device| *device)
}

impl Thread {
    #[inline(always)]
    fn push_device(&mut self, device: Current) {
        self.devices = self.devices << 8 | u64::from(device);
    }

    #[inline(always)]
    fn replace_device(&mut self, device: Current) {
        self.devices = self.devices & !0xff | u64::from(device);
    }
}

/// A statically defined probe (USDT) that PyTorch's allocator fires for a block that it has handed out and reported:
/// block, requested bytes, stream. The cookie says where they are.
#[uprobe]
pub fn device_request(context: ProbeContext) -> u32 {
    requested(&context);
    0
}

#[inline(always)]
fn requested(context: &ProbeContext) -> Option<()> {
    // SAFETY: the context of a uprobe is the thread's registers.
    kernel_stack::use_own(context, unsafe { &*context.regs });
    let (caller, _) = traced()?;
    let cookie = cookie(context)?;
    // Copied, because an index into the context itself is refused.
    let mut registers = [0u64; 32];
    // SAFETY: both are as large at least; the context of a uprobe is a `pt_regs`.
    let copied = unsafe {
        bpf_probe_read_kernel(
            registers.as_mut_ptr().cast(),
            COPIED as u32,
            context.as_ptr(),
        )
    };
    if copied != 0 {
        return None;
    }
    let value = |index: u32| {
        let Operand { register, offset } = operand(cookie, index);
        let word = registers[(register & 31) as usize];
        match offset {
            None => Some(word),
            Some(offset) => word_at(word.wrapping_add_signed(i64::from(offset))),
        }
    };
    let mut header = header(Kind::DeviceRequest, &caller);
    header.layer = Layer::TorchCuda as u8;
    let record = Range {
        header,
        addr: value(0)?,
        len: value(1)?,
        handle: value(2)?,
        device: 0,
        pad: 0,
    };
    // No allocation is missing, but a full ring loses those as well.
    emit(&record, Reason::RingFullAlloc, Wake::Lazily);
    Some(())
}

/// Bytes of the registers that operands can name.
const COPIED: usize = match size_of::<pt_regs>() {
    all @ ..256 => all,
    _ => 256,
};

/// The device that a `CUmemAllocationProp` names, where it names one (cuda.h).
#[inline(always)]
fn location(prop: u64) -> Current {
    let field = |offset: u64| {
        // SAFETY: the helper checks the address and fails on a bad one.
        unsafe { bpf_probe_read_user((prop + offset) as *const u32) }.unwrap_or(0)
    };
    if field(8) == LOCATION_DEVICE {
        current(u64::from(field(12)))
    } else {
        0
    }
}

const _: () = assert!(NO_ARGUMENT as usize >= 8);
