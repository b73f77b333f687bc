//! The DWARF description of an address according to gimli, and its consequences for given registers
//! and memory, by DWARF 5, section 6.4, without [`Rule`]s.

use crate::unwind::{
    image::{Cfi, Image, Slice},
    rules::{NO_ROW, UNSUPPORTED, rule},
};
use gimli::{
    CfaRule, CieOrFde, Encoding, EvaluationResult, FrameDescriptionEntry, Register, RegisterRule,
    UnwindContext, UnwindExpression, UnwindSection, UnwindTableRow, Value, X86_64,
};
use memtrace_common::unwind::{Caller, End, Memory, Registers, Rule, held};

/// The description of an image.
pub(super) struct Oracle<'i, 'data> {
    image: &'i Image<'data>,
    /// Start, end and offset of each FDE, by address.
    fdes: Vec<(u64, u64, usize)>,
    context: UnwindContext<usize>,
}

/// Runs `$body` with `$section` as the section that the image has.
macro_rules! with_section {
    ($image:expr, $section:ident => $body:expr) => {
        match &$image.cfi {
            Cfi::Eh($section) => $body,
            Cfi::Debug($section) => $body,
        }
    };
}

impl<'i, 'data> Oracle<'i, 'data> {
    pub(super) fn new(image: &'i Image<'data>) -> Self {
        let mut fdes = with_section!(image, section => fdes(section, image));
        fdes.sort_unstable();
        Oracle {
            image,
            fdes,
            context: UnwindContext::new(),
        }
    }

    pub(super) fn fdes(&self) -> &[(u64, u64, usize)] {
        &self.fdes
    }

    /// For code without overlapping FDEs: the row for `addr`, as a rule, and its result for the
    /// caller of code with these registers.
    pub(super) fn ask(
        &mut self,
        addr: u64,
        at: &Registers,
        memory: &impl Memory,
    ) -> (Rule, Result<Caller, End>) {
        let index = self.fdes.partition_point(|fde| fde.0 <= addr);
        let fde = index.checked_sub(1).map(|last| self.fdes[last]);
        let Some((_, _, offset)) = fde.filter(|&(_, end, _)| addr < end) else {
            return (NO_ROW, Err(End::NoRow));
        };
        let bases = &self.image.bases;
        with_section!(self.image, section => {
            let fde = section
                .fde_from_offset(bases, offset.into(), UnwindSection::cie_from_offset)
                .unwrap();
            match fde.unwind_info_for_address(section, bases, &mut self.context, addr) {
                Ok(row) => {
                    let rule = rule(section, fde.cie(), row);
                    let caller = if rule == UNSUPPORTED {
                        Err(End::UnsupportedRule)
                    } else {
                        caller(section, &fde, row, at, memory)
                    };
                    (rule, caller)
                }
                Err(_) => (UNSUPPORTED, Err(End::UnsupportedRule)),
            }
        })
    }

    /// The row for `addr` that gimli finds on its own, as a rule. Slow: reads all FDEs.
    pub(super) fn slowly(&mut self, addr: u64) -> Rule {
        let bases = &self.image.bases;
        with_section!(self.image, section => {
            let found = section.fde_for_address(bases, addr, UnwindSection::cie_from_offset);
            let Ok(fde) = found else { return NO_ROW };
            section
                .unwind_info_for_address(
                    bases,
                    &mut self.context,
                    addr,
                    UnwindSection::cie_from_offset,
                )
                .map_or(UNSUPPORTED, |row| rule(section, fde.cie(), row))
        })
    }

    /// The beginnings of an FDE's rows, and the end of the last one.
    pub(super) fn boundaries(&mut self, offset: usize) -> Vec<u64> {
        let bases = &self.image.bases;
        with_section!(self.image, section => {
            let fde = section
                .fde_from_offset(bases, offset.into(), UnwindSection::cie_from_offset)
                .unwrap();
            let mut boundaries = vec![fde.initial_address()];
            let mut rows = fde.rows(section, bases, &mut self.context).unwrap();
            while let Ok(Some(row)) = rows.next_row() {
                boundaries.push(row.end_address());
            }
            boundaries
        })
    }
}

fn fdes<'data>(
    section: &impl UnwindSection<Slice<'data>>,
    image: &Image<'data>,
) -> Vec<(u64, u64, usize)> {
    let mut fdes = Vec::new();
    let mut entries = section.entries(&image.bases);
    while let Ok(Some(entry)) = entries.next() {
        if let CieOrFde::Fde(partial) = entry
            && let Ok(fde) = partial.parse(UnwindSection::cie_from_offset)
            && fde.len() > 0
        {
            fdes.push((fde.initial_address(), fde.end_address(), fde.offset()));
        }
    }
    fdes
}

fn caller<'data>(
    section: &impl UnwindSection<Slice<'data>>,
    fde: &FrameDescriptionEntry<Slice<'data>>,
    row: &UnwindTableRow<usize>,
    at: &Registers,
    memory: &impl Memory,
) -> Result<Caller, End> {
    let encoding = fde.cie().encoding();
    let evaluate = |expression: &UnwindExpression<usize>, initial| {
        let expression = expression.get(section).unwrap();
        evaluate(expression, encoding, initial, at, memory)
    };
    if row.register(X86_64::RA) == Some(RegisterRule::Undefined) {
        return Err(End::Complete);
    }
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            value(at, *register, memory)?.wrapping_add_signed(*offset)
        }
        CfaRule::Expression(expression) => evaluate(expression, None)?,
    };
    let signal = fde.is_signal_trampoline();
    if cfa <= at.sp && !signal {
        return Err(End::Unreadable);
    }
    let read = |addr| memory.read(addr).ok_or(End::Unreadable);
    let restored = |register, default| match row.register(register) {
        None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => Ok(default),
        Some(RegisterRule::Offset(offset)) => read(cfa.wrapping_add_signed(offset)),
        Some(RegisterRule::ValOffset(offset)) => Ok(cfa.wrapping_add_signed(offset)),
        Some(RegisterRule::Expression(expression)) => read(evaluate(&expression, Some(cfa))?),
        Some(RegisterRule::ValExpression(expression)) => evaluate(&expression, Some(cfa)),
        Some(other) => panic!("a rule for {other:?}"),
    };
    let (extra, extra_is) = match row.register(X86_64::RBX) {
        None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => (at.extra, at.extra_is),
        // Farther away there is none, in practice.
        Some(RegisterRule::Offset(offset @ -496..)) => {
            (cfa.wrapping_add_signed(offset), held::ADDRESS)
        }
        Some(RegisterRule::Expression(expression)) if signal => {
            (evaluate(&expression, Some(cfa))?, held::ADDRESS)
        }
        Some(_) => (0, held::UNKNOWN),
    };
    let registers = Registers {
        pc: restored(X86_64::RA, 0)?,
        sp: restored(X86_64::RSP, cfa)?,
        fp: restored(X86_64::RBP, at.fp)?,
        extra,
        extra_is,
    };
    if registers.pc == 0 && !signal {
        return Err(End::Complete);
    }
    let slot = match row.register(X86_64::RA) {
        Some(RegisterRule::Offset(offset)) => cfa.wrapping_add_signed(offset),
        _ => 0,
    };
    Ok(Caller {
        registers,
        slot,
        word: if slot == 0 { 0 } else { registers.pc },
    })
}

fn evaluate(
    expression: gimli::Expression<Slice<'_>>,
    encoding: Encoding,
    initial: Option<u64>,
    at: &Registers,
    memory: &impl Memory,
) -> Result<u64, End> {
    let mut evaluation = expression.evaluation(encoding);
    if let Some(initial) = initial {
        evaluation.set_initial_value(initial);
    }
    let mut state = evaluation.evaluate().unwrap();
    loop {
        state = match state {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => {
                evaluation.resume_with_register(Value::Generic(value(at, register, memory)?))
            }
            EvaluationResult::RequiresMemory {
                address, size: 8, ..
            } => {
                let word = memory.read(address).ok_or(End::Unreadable)?;
                evaluation.resume_with_memory(Value::Generic(word))
            }
            other => panic!("an expression that wants {other:?}"),
        }
        .unwrap();
    }
    // A single piece without a location description: an address.
    match evaluation.as_result() {
        [
            gimli::Piece {
                location: gimli::Location::Address { address },
                ..
            },
        ] => Ok(*address),
        other => panic!("an expression that gives {other:?}"),
    }
}

fn value(at: &Registers, register: Register, memory: &impl Memory) -> Result<u64, End> {
    match register {
        X86_64::RSP => Ok(at.sp),
        X86_64::RBP => Ok(at.fp),
        X86_64::RA => Ok(at.pc),
        X86_64::RBX => match at.extra_is {
            held::VALUE => Ok(at.extra),
            held::ADDRESS => memory.read(at.extra).ok_or(End::Unreadable),
            _ => Err(End::UnsupportedRule),
        },
        other => panic!("a supported rule wants register {other:?}"),
    }
}
