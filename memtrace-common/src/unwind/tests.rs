extern crate std;

use super::*;
use crate::arch::x86_64::{Native, SIGNAL_EXTRA, SIGNAL_FP, SIGNAL_PC, SIGNAL_SP, with_extra_at};
use std::collections::HashMap;

const SP: u64 = 0x7ffc_0000_1000;
const FP: u64 = SP + 0x100;
const PC: u64 = 0x5555_0000_1230;
const EXTRA: u64 = SP + 0x200;
const AT: Registers = Registers {
    pc: PC,
    sp: SP,
    fp: FP,
    extra: EXTRA,
    extra_is: held::VALUE,
};

/// Recorded words by address; nothing else can be read.
struct Recorded(HashMap<u64, u64>);

impl Memory for Recorded {
    fn read(&self, abs_addr: u64) -> Option<u64> {
        self.0.get(&abs_addr).copied()
    }
}

fn memory<const N: usize>(words: [(u64, u64); N]) -> Recorded {
    Recorded(HashMap::from(words))
}

fn rule(cfa: u8, cfa_offset: i32) -> Rule {
    Rule {
        cfa,
        cfa_offset,
        ..Rule::default()
    }
}

fn saved(cfa_offset: i32, fp: u8, fp_offset: i16) -> Rule {
    Rule {
        fp,
        fp_offset,
        ..rule(cfa::SP, cfa_offset)
    }
}

/// Of x86-64. Those of other architectures are tested beside them.
fn step(rule: Rule, at: &Registers, memory: &impl Memory) -> Result<Caller, End> {
    step_on::<Native>(rule, at, memory)
}

fn caller(pc: u64, sp: u64, fp: u64) -> Result<Caller, End> {
    Ok(Caller {
        registers: Registers { pc, sp, fp, ..AT },
        slot: sp - 8,
        word: pc,
    })
}

#[test]
fn the_frame_lies_off_a_register() {
    let memory = memory([(SP + 24, 0xaa), (FP + 8, 0xbb)]);
    let step = |rule| step(rule, &AT, &memory);
    assert_eq!(step(rule(cfa::SP, 32)), caller(0xaa, SP + 32, FP));
    assert_eq!(step(rule(cfa::FP, 16)), caller(0xbb, FP + 16, FP));
    assert_eq!(step(rule(cfa::FP, -0x100 + 32)), caller(0xaa, SP + 32, FP));
}

#[test]
fn the_frame_of_a_plt_entry_grows_with_its_push() {
    let memory = memory([(SP, 0xaa), (SP + 8, 0xbb)]);
    for from in [10, 11] {
        for byte in 0..16 {
            let at = Registers {
                pc: PC + byte,
                ..AT
            };
            let expected = if byte < from {
                caller(0xaa, SP + 8, FP)
            } else {
                caller(0xbb, SP + 16, FP)
            };
            let rule = rule(cfa::PLT, from as i32);
            assert_eq!(step(rule, &at, &memory), expected, "byte {byte} of {from}");
        }
    }
}

#[test]
fn the_frame_lies_off_a_word_in_memory() {
    let frame = SP + 0x400;
    let memory = memory([
        (FP - 8, frame),
        (SP + 40, frame),
        (frame - 8, 0xaa),
        (frame + 8, 0xbb),
        (frame - 24, 0xcc),
    ]);
    let step = |kind, offset, addend| {
        let offset = Rule::deref(offset, addend).unwrap();
        step(rule(kind, offset), &AT, &memory)
    };
    assert_eq!(step(cfa::DEREF_FP, -8, 0), caller(0xaa, frame, FP));
    assert_eq!(step(cfa::DEREF_SP, 40, 16), caller(0xbb, frame + 16, FP));
    assert_eq!(step(cfa::DEREF_FP, -8, -16), caller(0xcc, frame - 16, FP));
    assert_eq!(step(cfa::DEREF_SP, 48, 0), Err(End::Unreadable));
}

#[test]
fn offsets_of_such_a_word_fit_16_bits_or_not_at_all() {
    for fits in [0, 1, -1, i64::from(i16::MAX), i64::from(i16::MIN)] {
        assert!(Rule::deref(fits, fits).is_some(), "{fits}");
    }
    for too_far in [i64::from(i16::MAX) + 1, i64::from(i16::MIN) - 1, i64::MAX] {
        assert_eq!(Rule::deref(too_far, 0), None);
        assert_eq!(Rule::deref(0, too_far), None);
    }
}

#[test]
fn the_frame_pointer_is_restored_from_where_it_was_saved() {
    let memory = memory([(SP + 24, 0xaa), (SP + 16, 0x10), (FP - 16, 0x20)]);
    let step = |rule| step(rule, &AT, &memory);
    assert_eq!(step(saved(32, fp::SAME, 0)), caller(0xaa, SP + 32, FP));
    assert_eq!(
        step(saved(32, fp::AT_CFA, -16)),
        caller(0xaa, SP + 32, 0x10)
    );
    assert_eq!(step(saved(32, fp::AT_FP, -16)), caller(0xaa, SP + 32, 0x20));
    assert_eq!(step(saved(32, fp::AT_CFA, -24)), Err(End::Unreadable));
    assert_eq!(step(saved(32, fp::AT_FP, 0)), Err(End::Unreadable));
}

#[test]
fn the_frame_lies_off_a_register_which_a_callee_may_have_saved() {
    let memory = memory([
        (EXTRA + 8, 0xaa),
        (SP + 24, 0xbb),
        (SP + 8, EXTRA),
        (0x10, 0xcc),
    ]);
    let by_extra = |at: &Registers| step(rule(cfa::EXTRA, 16), at, &memory);
    assert_eq!(by_extra(&AT), caller(0xaa, EXTRA + 16, FP));

    let frame = rule(cfa::SP, 32);
    let after = |rule| step(rule, &AT, &memory).unwrap().registers;
    assert_eq!(
        (after(frame).extra, after(frame).extra_is),
        (EXTRA, held::VALUE)
    );
    let saved = after(with_extra_at(frame, -24));
    assert_eq!((saved.extra, saved.extra_is), (SP + 8, held::ADDRESS));
    // The frame pointer's rule beside it is not disturbed.
    assert_eq!(saved.fp, FP);
    assert_eq!(by_extra(&saved).unwrap().registers.pc, 0xaa);
    let after = |offset| after(with_extra_at(frame, offset));
    assert_eq!(by_extra(&after(-16)), Err(End::Unreadable));
    assert_eq!(by_extra(&after(-20)), Err(End::UnsupportedRule));
}

#[test]
fn places_of_the_extra_register_that_do_not_fit_are_lost() {
    let kind = |offset| with_extra_at(Rule::default(), offset).fp >> extra::SHIFT;
    assert_eq!(kind(-16), 2);
    assert_eq!(kind(-8 * 62), 62);
    for lost in [-8 * 63, -8 * 64, -8 * 256, -20, 0, 16, i64::MIN, i64::MAX] {
        assert_eq!(kind(lost), extra::LOST, "{lost}");
    }
}

#[test]
fn a_signal_frame_holds_all_registers() {
    let words = [
        (SP + SIGNAL_FP, 0x10),
        (SP + SIGNAL_SP, SP - 0x1000),
        (SP + SIGNAL_PC, 0xaa),
    ];
    // Of code on another stack, which may be below.
    let interrupted = Caller {
        registers: Registers {
            pc: 0xaa,
            sp: SP - 0x1000,
            fp: 0x10,
            extra: SP + SIGNAL_EXTRA,
            extra_is: held::ADDRESS,
        },
        slot: 0,
        word: 0,
    };
    let rule = rule(cfa::SIGNAL, 0);
    assert_eq!(step(rule, &AT, &memory(words)), Ok(interrupted));
    for (missing, _) in words {
        let mut memory = memory(words);
        memory.0.remove(&missing);
        assert_eq!(step(rule, &AT, &memory), Err(End::Unreadable));
    }
}

#[test]
fn code_without_tables_must_keep_a_frame_pointer() {
    let memory = memory([(FP, FP + 0x40), (FP + 8, 0xaa)]);
    let mut rule = rule(cfa::FRAME_POINTER, 0);
    (rule.fp, rule.fp_offset) = (fp::AT_CFA, -16);
    let zero = Registers { fp: 0, ..AT };
    assert_eq!(step(rule, &zero, &memory), Err(End::BadFramePointer));
    rule.cfa_offset = 1;
    let step = |fp| step(rule, &Registers { fp, ..AT }, &memory);
    let without_bx = |caller: Caller| Registers {
        extra: 0,
        extra_is: held::UNKNOWN,
        ..caller.registers
    };
    assert_eq!(
        step(FP).map(|caller| caller.registers),
        caller(0xaa, FP + 16, FP + 0x40).map(without_bx)
    );
    assert_eq!(step(0), Err(End::Complete));
    for wrong in [FP + 4, SP - 8, SP + MAX_FRAME, u64::MAX] {
        assert_eq!(step(wrong), Err(End::BadFramePointer), "{wrong:#x}");
    }
    // At the stack pointer is where a prologue leaves it.
    assert_eq!(step(SP), Err(End::Unreadable));
}

#[test]
fn rules_without_a_frame_give_the_end_of_the_walk() {
    let memory = memory([]);
    let ends = [
        (cfa::NO_ROW, End::NoRow),
        (cfa::STOP, End::Complete),
        (cfa::UNSUPPORTED, End::UnsupportedRule),
        (200, End::UnsupportedRule),
    ];
    for (kind, end) in ends {
        assert_eq!(step(rule(kind, 0), &AT, &memory), Err(end), "kind {kind}");
    }
}

#[test]
fn frames_only_go_up() {
    let memory = memory([(SP - 8, 0xaa), (SP - 16, 0xaa), (SP, 0xaa)]);
    let step = |offset| step(rule(cfa::SP, offset), &AT, &memory);
    assert_eq!(step(0), Err(End::Unreadable));
    assert_eq!(step(-8), Err(End::Unreadable));
    assert_eq!(step(8), caller(0xaa, SP + 8, FP));
    assert_eq!(step(i32::MIN), Err(End::Unreadable));
}

#[test]
fn a_return_address_of_zero_ends_the_stack() {
    let step = |word| step(rule(cfa::SP, 8), &AT, &memory([(SP, word)]));
    assert_eq!(step(0), Err(End::Complete));
    assert_eq!(step(1), caller(1, SP + 8, FP));
    let unreadable = super::step(rule(cfa::SP, 8), &AT, &memory([]));
    assert_eq!(unreadable, Err(End::Unreadable));
}

#[test]
fn words_are_decoded_as_they_were_made() {
    let file = Word::File {
        exec: EXECS - 1,
        vaddr: 0x1234_5678,
    };
    assert_eq!(Word::decode(Word::file(EXECS - 1, 0x1234_5678)), Some(file));
    let top = 0xffff_ffff_ff60_0000;
    let absolute = Word::Absolute(top & ((1 << TAG_SHIFT) - 1));
    assert_eq!(Word::decode(Word::absolute(top)), Some(absolute));
    assert_eq!(Word::decode(0), None);
    assert_eq!(Word::decode(u64::MAX), None);
}

#[test]
fn ends_are_decoded_as_they_were_made() {
    for end in End::ALL {
        assert_eq!(End::try_from(end as u32), Ok(end), "{}", end.name());
    }
    assert_eq!(End::try_from(10), Err(10));
}
