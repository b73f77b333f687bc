//! Reports of Python's code objects.

use memtrace_common::{
    event::Kind,
    hash::mix,
    limits::MAX_FRAMES,
    loss::Reason,
    python::{Code, FILENAME, Interpreter, LINETABLE, NAME, Text, characters},
    unwind::Word,
};

#[cfg(feature = "legacy")]
use crate::{
    argument::{Argument, As},
    loops::ROUND,
};
use crate::{
    caller::Caller,
    code,
    emit::{Wake, emit_in_place, header},
    loops::{BREAK, CONTINUE, repeat},
    maps::{INTERPRETERS, SEEN_CODE},
    memory::{copy, word_or_zero},
    scratch::Scratch,
};

/// A [`Code`] and its areas.
#[derive(Clone, Copy)]
#[repr(C)]
struct Record {
    code: Code,
    filename: [u8; FILENAME],
    name: [u8; NAME],
    linetable: [u8; LINETABLE],
}

/// The input of [`report_code`].
struct Report {
    scratch: *const Scratch,
    python: *const Interpreter,
}

/// Reports the code objects of a new stack, before the stack.
#[inline(always)]
pub(crate) fn report(scratch: &Scratch) {
    if scratch.walk.python.thread == 0 && !scratch.walk.memo.is_forgotten() {
        return;
    }
    let Some(python) = INTERPRETERS.get(code::interpreter(scratch.caller.space)) else {
        return;
    };
    let mut report = Report { scratch, python };
    #[cfg(not(feature = "legacy"))]
    repeat(MAX_FRAMES as u32, report_code, &mut report);
    #[cfg(feature = "legacy")]
    repeat(
        (MAX_FRAMES as u32).div_ceil(ROUND),
        report_codes,
        &mut report,
    );
}

/// Callback of [`repeat`]: reports the code objects of some frames.
#[cfg(feature = "legacy")]
unsafe extern "C" fn report_codes(round: u64, report: *mut Report) -> u64 {
    // SAFETY: the pointers are those that `report` passed.
    let slot = unsafe { (*(*report).scratch).slot };
    report_codes_by_number(round * u64::from(ROUND), slot)
}

/// Calls [`report_code_by_number`] from a frame on until it breaks.
#[cfg(feature = "legacy")]
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn report_codes_by_number(first: u64, scratch: As<Scratch>) -> u64 {
    for index in 0..u64::from(ROUND) {
        if report_code_by_number(first + index, scratch) != CONTINUE {
            return BREAK;
        }
    }
    CONTINUE
}

/// As [`report_code`].
#[cfg(feature = "legacy")]
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn report_code_by_number(index: u64, scratch: As<Scratch>) -> u64 {
    let Some(scratch) = Scratch::of(scratch) else {
        return BREAK;
    };
    let Some(python) = INTERPRETERS.get(scratch.walk.memo.of.interpreter) else {
        return BREAK;
    };
    let mut report = Report { scratch, python };
    // SAFETY: live map values.
    unsafe { report_code(index, &mut report) }
}

/// Callback of [`repeat`]: reports the code object of frame `index`, if it is one.
#[cfg_attr(feature = "legacy", inline(always))]
unsafe extern "C" fn report_code(index: u64, report: *mut Report) -> u64 {
    // SAFETY: the pointers are those that `report` passed.
    let (scratch, python) = unsafe { (&*(*report).scratch, &*(*report).python) };
    let caller = &scratch.caller;
    if index + 1 >= u64::from(scratch.len()) {
        return BREAK;
    }
    let word = scratch.frame(index as usize);
    if !Word::is_python(word) {
        return CONTINUE;
    }
    let address = Word::address(word);
    let print = scratch.frame(index as usize + 1) as u32;
    let key = mix(address, caller.image) ^ u64::from(print);
    // SAFETY: the value is not kept.
    if unsafe { SEEN_CODE.get(&key) }.is_some() {
        return CONTINUE;
    }
    let sent = emit_in_place::<Record>(Some(Reason::RingFullStack), Wake::Lazily, |record| {
        // SAFETY: reserved for one record; plain bytes.
        capture(unsafe { &mut *record }, caller, python, address, print);
    });
    if sent {
        let _ = SEEN_CODE.insert(&key, &1, 0);
    }
    CONTINUE
}

#[inline(always)]
fn capture(record: &mut Record, caller: &Caller, python: &Interpreter, address: u64, print: u32) {
    let field = |offset: u32| word_or_zero(address.wrapping_add(u64::from(offset)));
    let linetable = field(python.code_linetable);
    let linetable_len = word_or_zero(linetable.wrapping_add(u64::from(python.bytes_size))) as u32;
    // VERIFIER: a field at a time, or all of it is on the stack first.
    let code = &mut record.code;
    code.header = header(Kind::PythonCode, caller);
    code.image = caller.image;
    code.code = address;
    code.filename = text(python, field(python.code_filename), &mut record.filename);
    code.name = text(python, field(python.code_name), &mut record.name);
    code.linetable = linetable;
    code.linetable_len = linetable_len;
    code.first_line = field(python.code_first_line) as u32;
    code.fingerprint = print;
    code.pad = 0;
    copy(
        &mut record.linetable,
        linetable.wrapping_add(u64::from(python.bytes_data)),
        u64::from(linetable_len),
    );
}

/// A string object; its characters go into `area`, as far as they fit.
#[inline(always)]
fn text<const N: usize>(python: &Interpreter, object: u64, area: &mut [u8; N]) -> Text {
    let length = word_or_zero(object.wrapping_add(u64::from(python.str_length))) as u32;
    let state = word_or_zero(object.wrapping_add(u64::from(python.str_state))) as u32;
    let (width, ascii) = characters(state);
    let data = if ascii {
        python.str_ascii_data
    } else {
        python.str_compact_data
    };
    let copied = copy(
        area,
        object.wrapping_add(u64::from(data)),
        u64::from(length) * u64::from(width),
    );
    Text {
        object,
        length,
        width: if copied { width as u16 } else { 0 },
        ascii: u16::from(ascii),
    }
}
