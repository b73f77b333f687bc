extern crate std;

use std::collections::HashMap;

use super::*;
use crate::{rule::Caller, unwind::step_on};

const SP: u64 = 0x7ffc_0000_1000;
const FP: u64 = SP + 0x100;
const LINK: u64 = 0x5555_0000_4560;
const AT: Registers = Registers {
    pc: 0x5555_0000_1230,
    sp: SP,
    fp: FP,
    extra: LINK,
    extra_is: held::VALUE,
};
/// A pointer authentication code, and a tag.
const SIGNED: u64 = 0x5a3f << 48;

/// Words by address; nothing else can be read.
struct Words(HashMap<u64, u64>);

impl Memory for Words {
    fn read(&self, abs_addr: u64) -> Option<u64> {
        self.0.get(&abs_addr).copied()
    }
}

fn step<const N: usize>(rule: Rule, at: &Registers, words: [(u64, u64); N]) -> Result<Caller, End> {
    step_on::<Native>(rule, at, &Words(HashMap::from(words)))
}

fn at_sp(cfa_offset: i32) -> Rule {
    Rule {
        cfa: cfa::SP,
        cfa_offset,
        ..Rule::default()
    }
}

fn caller(word: u64, slot: u64, sp: u64, fp: u64) -> Result<Caller, End> {
    Ok(Caller {
        registers: Registers {
            pc: word & ADDRESS,
            sp,
            fp,
            extra: slot,
            extra_is: held::UNKNOWN,
        },
        slot,
        word,
    })
}

#[test]
fn a_leaf_returns_by_the_link_register() {
    for size in [0, 32] {
        let expected = caller(LINK, IN_REGISTER, SP + size, FP);
        assert_eq!(step(at_sp(size as i32), &AT, []), expected);
    }
    let signed = Registers {
        extra: LINK | SIGNED,
        ..AT
    };
    let expected = caller(LINK | SIGNED, IN_REGISTER, SP, FP);
    assert_eq!(step(at_sp(0), &signed, []), expected);
}

#[test]
fn a_caller_has_no_link_register() {
    let caller = step(at_sp(0), &AT, []).unwrap().registers;
    assert_eq!(step(at_sp(0), &caller, []), Err(End::UnsupportedRule));
    assert_eq!(step(at_sp(16), &caller, []), Err(End::UnsupportedRule));
}

#[test]
fn a_saved_return_address_is_read() {
    let rule = with_extra_at(at_sp(48), -8);
    let words = [(SP + 40, LINK | SIGNED)];
    let expected = caller(LINK | SIGNED, SP + 40, SP + 48, FP);
    assert_eq!(step(rule, &AT, words), expected);
    assert_eq!(step(rule, &AT, []), Err(End::Unreadable));
    // Only the innermost frame can be empty.
    let empty = with_extra_at(at_sp(0), -8);
    assert_eq!(step(empty, &AT, [(SP - 8, LINK)]), Err(End::Unreadable));
    assert_eq!(step(at_sp(-16), &AT, []), Err(End::Unreadable));
}

#[test]
fn a_frame_record_may_lie_far_below_the_frame() {
    let frame = Rule {
        fp: fp::AT_CFA,
        fp_offset: fp_units(-0x3_0000).unwrap(),
        ..at_sp(0x3_0000)
    };
    let rule = with_extra_at(frame, -0x3_0000 + 8);
    let words = [(SP, FP + 0x40), (SP + 8, LINK)];
    let expected = caller(LINK, SP + 8, SP + 0x3_0000, FP + 0x40);
    assert_eq!(step(rule, &AT, words), expected);
    // Without a frame pointer beside it.
    let rule = with_extra_at(at_sp(0x3_0000), -0x2_fff0);
    let expected = caller(LINK, SP + 0x10, SP + 0x3_0000, FP);
    assert_eq!(step(rule, &AT, [(SP + 0x10, LINK)]), expected);
}

#[test]
fn places_that_no_rule_can_tell_are_unsupported() {
    let frame = Rule {
        fp: fp::AT_CFA,
        fp_offset: fp_units(-0x4000).unwrap(),
        ..at_sp(0x4000)
    };
    for rule in [
        with_extra_at(frame, -0x3000),
        with_extra_at(at_sp(16), 8),
        with_extra_at(at_sp(0x10_0000), -0x10_0000),
    ] {
        assert_eq!(step(rule, &AT, [(SP, FP)]), Err(End::UnsupportedRule));
    }
}

#[test]
fn after_a_signal_the_link_register_is_known_again() {
    let rule = Rule {
        cfa: cfa::SIGNAL,
        ..Rule::default()
    };
    let words = [
        (SP + SIGNAL_PC, 0xaa0),
        (SP + SIGNAL_SP, SP + 0x2000),
        (SP + SIGNAL_FP, FP + 0x2000),
        (SP + SIGNAL_EXTRA, LINK),
    ];
    let interrupted = step(rule, &AT, words).unwrap();
    assert_eq!((interrupted.slot, interrupted.registers.pc), (0, 0xaa0));
    let slot = SP + SIGNAL_EXTRA;
    let expected = caller(LINK, slot, SP + 0x2000, FP + 0x2000);
    assert_eq!(step(at_sp(0), &interrupted.registers, words), expected);
}

#[test]
fn a_frame_found_by_its_record_has_an_unknown_stack_pointer() {
    let words = [
        (FP, FP + 0x40),
        (FP + 8, LINK),
        (FP + 0x40, FP + 0x80),
        (FP + 0x48, LINK + 8),
    ];
    let at = Registers {
        extra_is: held::UNKNOWN,
        ..AT
    };
    let first = step(FRAME_POINTER, &at, words).unwrap();
    assert_eq!((first.registers.pc, first.slot), (LINK, FP + 8));
    let by_sp = with_extra_at(at_sp(64), -8);
    assert_eq!(
        step(by_sp, &first.registers, words),
        Err(End::BadFramePointer)
    );
    let by_fp = with_extra_at(
        Rule {
            cfa: cfa::FP,
            ..at_sp(16)
        },
        -8,
    );
    for rule in [by_fp, FRAME_POINTER] {
        let second = step(rule, &first.registers, words).unwrap();
        assert_eq!((second.registers.pc, second.slot), (LINK + 8, FP + 0x48));
    }
}
