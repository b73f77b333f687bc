//! One row of call frame information as a [`Rule`].
//!
//! A description that no rule can express exactly becomes UNSUPPORTED: a walk that ends early is
//! reported, one that goes astray is not.

use super::image::Slice;
use crate::arch;
use gimli::{
    CfaRule, CommonInformationEntry, Encoding, Expression, Operation, Register, RegisterRule,
    UnitOffset, UnwindExpression, UnwindSection, UnwindTableRow,
};
use memtrace_common::{
    arch::{RETURN_ADDRESS_SIZE, fp_units, with_extra_at},
    unwind::{Rule, cfa, extra, fp},
};

pub(super) const NO_ROW: Rule = bare(cfa::NO_ROW);
pub(super) const STOP: Rule = bare(cfa::STOP);
pub(super) const UNSUPPORTED: Rule = bare(cfa::UNSUPPORTED);
const SIGNAL: Rule = bare(cfa::SIGNAL);

/// An operand of an address's size, without a type of its own.
const GENERIC: UnitOffset<usize> = UnitOffset(0);

/// Operations of the longest expression that is understood.
const MAX_OPERATIONS: usize = 9;

const fn bare(kind: u8) -> Rule {
    Rule {
        cfa: kind,
        fp: fp::SAME,
        fp_offset: 0,
        cfa_offset: 0,
    }
}

/// The rule for `row`, of a function described with `cie` in `section`.
pub(super) fn rule<'data>(
    section: &impl UnwindSection<Slice<'data>>,
    cie: &CommonInformationEntry<Slice<'data>>,
    row: &UnwindTableRow<usize>,
) -> Rule {
    if cie.return_address_register() != arch::PC {
        return UNSUPPORTED;
    }
    let return_address = row.register(arch::PC);
    if return_address == Some(RegisterRule::Undefined) {
        return STOP;
    }
    let shape = |expression: &UnwindExpression<usize>| {
        Shape::of(expression.get(section).ok()?, cie.encoding())
    };
    if cie.is_signal_trampoline() {
        // Other return codes than the C library's may have another layout.
        let known = arch::IN_SIGNAL_FRAME.iter().all(|&(register, offset)| {
            let Some(RegisterRule::Expression(expression)) = row.register(register) else {
                return false;
            };
            shape(&expression) == Some(Shape::Offset(arch::SP, offset.cast_signed()))
        });
        return if known || is_kernels(row) {
            SIGNAL
        } else {
            UNSUPPORTED
        };
    }
    // By convention the caller's stack pointer is the CFA.
    let sp_is_cfa = matches!(
        row.register(arch::SP),
        None | Some(RegisterRule::ValOffset(0))
    );
    if !returns_as_usual(return_address) || !sp_is_cfa {
        return UNSUPPORTED;
    }
    let extra = row.register(arch::EXTRA);
    let pushed = match extra {
        Some(RegisterRule::Offset(offset)) => pushed_by_jump(offset),
        _ => 0,
    };
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            cfa_of(Shape::Offset(*register, offset.saturating_add(pushed)))
        }
        CfaRule::Expression(_) if pushed != 0 => None,
        CfaRule::Expression(expression) => shape(expression).and_then(cfa_of),
    };
    let fp = match row.register(arch::FP) {
        // Without a rule a register that callees save is unchanged; unwinders take `Undefined` so too.
        None | Some(RegisterRule::SameValue | RegisterRule::Undefined) => Some((fp::SAME, 0)),
        Some(RegisterRule::Offset(offset)) => fp_at(fp::AT_CFA, offset.saturating_sub(pushed)),
        Some(RegisterRule::Expression(expression)) => match shape(&expression) {
            Some(Shape::Offset(arch::FP, offset)) => fp_at(fp::AT_FP, offset),
            _ => None,
        },
        Some(_) => None,
    };
    match (cfa, fp) {
        (Some((cfa, cfa_offset)), Some((fp, fp_offset))) => {
            let rule = Rule {
                cfa,
                fp,
                fp_offset,
                cfa_offset,
            };
            with_extra(rule, extra, pushed)
        }
        _ => UNSUPPORTED,
    }
}

/// Bytes from the CFA to the caller's stack pointer, for the place of a return address that calls leave in a register.
/// An entry of the PLT pushes it with another word, and `_dl_runtime_resolve`, to which it jumps, counts both as the
/// caller's (sysdeps/aarch64/dl-trampoline.S of glibc).
fn pushed_by_jump(offset: i64) -> i64 {
    match (RETURN_ADDRESS_SIZE, offset) {
        (0, 8) => 16,
        _ => 0,
    }
}

/// Whether it is the row of the kernel's own return code on aarch64, which tells no more than the frame record that the
/// kernel leaves for unwinders (arch/arm64/kernel/vdso/sigreturn.S).
fn is_kernels(row: &UnwindTableRow<usize>) -> bool {
    let record = CfaRule::RegisterAndOffset {
        register: arch::FP,
        offset: 0,
    };
    RETURN_ADDRESS_SIZE == 0
        && *row.cfa() == record
        && row.register(arch::FP) == Some(RegisterRule::Offset(0))
        && row.register(arch::PC) == Some(RegisterRule::Offset(8))
}

/// Whether the return address is where a step finds it: where calls push it, or else where the extra register is.
fn returns_as_usual(rule: Option<RegisterRule<usize>>) -> bool {
    match RETURN_ADDRESS_SIZE.cast_signed() {
        0 => matches!(
            rule,
            None | Some(RegisterRule::SameValue | RegisterRule::Offset(_))
        ),
        pushed => rule == Some(RegisterRule::Offset(-pushed)),
    }
}

/// A kind and an offset of [`cfa`].
fn cfa_of(shape: Shape) -> Option<(u8, i32)> {
    Some(match shape {
        Shape::Offset(arch::SP, offset) => (cfa::SP, i32::try_from(offset).ok()?),
        Shape::Offset(arch::FP, offset) => (cfa::FP, i32::try_from(offset).ok()?),
        Shape::Offset(arch::EXTRA, offset) => (cfa::EXTRA, i32::try_from(offset).ok()?),
        Shape::Deref(arch::SP, offset, addend) => (cfa::DEREF_SP, Rule::deref(offset, addend)?),
        Shape::Deref(arch::FP, offset, addend) => (cfa::DEREF_FP, Rule::deref(offset, addend)?),
        Shape::Plt(from) => (cfa::PLT, from),
        _ => return None,
    })
}

/// The rule that also says where the extra register is.
fn with_extra(rule: Rule, extra: Option<RegisterRule<usize>>, pushed: i64) -> Rule {
    match extra {
        None | Some(RegisterRule::SameValue | RegisterRule::Undefined) => rule,
        Some(RegisterRule::Offset(offset)) => with_extra_at(rule, offset.saturating_sub(pushed)),
        Some(_) => Rule {
            fp: rule.fp | extra::LOST << extra::SHIFT,
            ..rule
        },
    }
}

/// A kind and an offset of [`fp`].
fn fp_at(kind: u8, offset: i64) -> Option<(u8, i16)> {
    Some((kind, fp_units(offset)?))
}

/// The expressions that compilers and linkers emit (DWARF 5, section 2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// register + offset
    Offset(Register, i64),
    /// \*(register + offset) + addend
    Deref(Register, i64, i64),
    /// sp + 8 + ((pc & 15) >= from) * 8, of PLT entries
    Plt(i32),
}

impl Shape {
    fn of(expression: Expression<Slice<'_>>, encoding: Encoding) -> Option<Shape> {
        let mut operations = Vec::with_capacity(MAX_OPERATIONS);
        let mut rest = expression.operations(encoding);
        while let Some(operation) = rest.next().ok()? {
            if operations.len() == MAX_OPERATIONS {
                return None;
            }
            operations.push(operation);
        }
        let [
            Operation::RegisterOffset {
                register,
                offset,
                base_type: GENERIC,
            },
            rest @ ..,
        ] = operations.as_slice()
        else {
            return None;
        };
        match rest {
            [] => Some(Shape::Offset(*register, *offset)),
            [
                Operation::Deref {
                    base_type: GENERIC,
                    size: 8,
                    space: false,
                },
                rest @ ..,
            ] => {
                let addend = match rest {
                    [] => 0,
                    [Operation::PlusConstant { value }] => *value,
                    [Operation::UnsignedConstant { value }, Operation::Plus] => *value,
                    _ => return None,
                };
                let addend = i64::try_from(addend).ok()?;
                Some(Shape::Deref(*register, *offset, addend))
            }
            [
                Operation::RegisterOffset {
                    register: arch::PC,
                    offset: 0,
                    base_type: GENERIC,
                },
                Operation::UnsignedConstant { value: 15 },
                Operation::And,
                Operation::UnsignedConstant { value: from },
                Operation::Ge,
                Operation::UnsignedConstant { value: 3 },
                Operation::Shl,
                Operation::Plus,
            ] if (*register, *offset) == (arch::SP, 8) => {
                Some(Shape::Plt(i32::try_from(*from).ok()?))
            }
            _ => None,
        }
    }
}
