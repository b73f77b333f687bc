//! Return addresses of a stopped thread that the kernel has replaced.

use std::{fs::File, io, ops::Range, os::unix::fs::FileExt, path::Path};

use memtrace_common::{
    arch::{RETURN_ADDRESS_SIZE, code_address},
    event::{PendingReturn, Unwinding},
};

use crate::{
    arch,
    process::{
        maps::{self, Mapping},
        ptrace,
    },
    unwind::trampoline::NAME,
};

/// Puts the return addresses of a stopped thread back.
pub(super) fn restore(tid: u32, unwinding: &Unwinding) -> io::Result<()> {
    let path = format!("/proc/{}/mem", unwinding.tgid);
    let memory = File::options().read(true).write(true).open(path)?;
    let returns = unwinding.returns.iter().take(unwinding.n as usize);
    if RETURN_ADDRESS_SIZE != 0 {
        for entry in returns {
            memory.write_all_at(&entry.original.to_ne_bytes(), entry.slot)?;
        }
        return Ok(());
    }
    let Some(replacement) = replacement(unwinding.tgid)? else {
        return Ok(());
    };
    let mut from = arch::unwinding_from(&ptrace::registers(tid)?).sp;
    for entry in returns {
        let frame = frame(entry, from);
        from = entry.slot;
        let mut bytes = vec![0; (frame.end - frame.start) as usize];
        memory.read_exact_at(&mut bytes, frame.start)?;
        for slot in saved(&bytes, replacement)? {
            memory.write_all_at(&entry.original.to_ne_bytes(), frame.start + slot)?;
        }
    }
    Ok(())
}

/// The address that replaces return addresses of a process: its page of uprobes begins with a breakpoint. `None`: it has
/// none.
fn replacement(tgid: u32) -> io::Result<Option<u64>> {
    let mappings = maps::read(tgid).map_err(io::Error::other)?;
    let is_theirs = |mapping: &&Mapping| mapping.path.as_deref() == Some(Path::new(NAME));
    Ok(mappings.iter().find(is_theirs).map(|page| page.start))
}

/// Most bytes of a frame: those of allocators are small.
const FRAME: u64 = 64 << 10;

/// Where a function may have saved the return address that it got in a register: below the stack pointer at its entry, and
/// above `from`, where the frames of its callees end. Whole words; empty if the frame is empty.
fn frame(entry: &PendingReturn, from: u64) -> Range<u64> {
    let end = entry.slot & !7;
    let lowest = end.saturating_sub(FRAME);
    match (lowest..=end).contains(&from) {
        true => from.next_multiple_of(8).min(end)..end,
        // Of another stack.
        false => lowest..end,
    }
}

/// Offsets of the words that hold a replaced return address. Of several, some are left from earlier calls: a function
/// writes those before it reads them.
///
/// # Errors
/// The only one is signed (Documentation/arch/arm64/pointer-authentication.rst): the original would have to be, too, and
/// only the thread can do that.
fn saved(frame: &[u8], replacement: u64) -> io::Result<Vec<u64>> {
    let words = frame
        .chunks_exact(8)
        .filter_map(|word| word.first_chunk().copied());
    let words = words.map(u64::from_ne_bytes);
    let mut slots = Vec::new();
    let mut has_signed = false;
    for (slot, word) in (0..).step_by(8).zip(words) {
        if word == replacement {
            slots.push(slot);
        } else {
            has_signed |= code_address(word) == code_address(replacement);
        }
    }
    match slots.is_empty() && has_signed {
        true => Err(io::ErrorKind::Unsupported.into()),
        false => Ok(slots),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: PendingReturn = PendingReturn {
        slot: 0x7fff_0100_0000,
        original: 0x40_1234,
    };

    #[test]
    fn a_frame_is_above_its_callees_and_below_its_entry() {
        let end = ENTRY.slot;
        assert_eq!(frame(&ENTRY, end - 0x60), end - 0x60..end);
        assert_eq!(frame(&ENTRY, end), end..end);
        assert_eq!(frame(&ENTRY, end - 0x5c), end - 0x58..end);
        // Too large a frame, or other stacks.
        for from in [0, end - FRAME - 8, end + 8, u64::MAX] {
            assert_eq!(frame(&ENTRY, from), end - FRAME..end);
        }
        let lowest = PendingReturn { slot: 4, ..ENTRY };
        assert_eq!(frame(&lowest, 4), 0..0);
    }

    #[test]
    fn every_word_with_the_replacement_is_found() {
        let replacement = 0x7fff_ffff_f000_u64;
        let words = [replacement, 1, replacement, replacement + 8];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(saved(&bytes, replacement).unwrap(), [0, 16]);
        assert!(saved(&[], replacement).unwrap().is_empty());
    }
}
