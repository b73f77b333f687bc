//! Instructions: sites, and jump targets. The kernel decides which ones it simulates and which ones it refuses in its
//! arch/arm64/kernel/probes/decode-insn.c; a copy of everything else is single-stepped. Encodings are those of the Arm
//! Architecture Reference Manual, section C4.1.

mod effect;
mod instruction;
mod text;

use effect::Effect;
use instruction::{Flow, Instruction, decode};

use crate::arch::site::{ARGUMENTS, Cost, Forward, Places, ProbeSite, Reads, Why};

/// Number of instructions examined, from the first on.
const REACH: usize = 16;

/// The link register: the return address, until a function calls others or signs it.
const LINK: u8 = 30;
const FRAME: u8 = 29;

/// See [`crate::arch::probe_site`]. The rule is that of x86-64: the first simulated instruction at which an argument
/// register still holds each argument that is read, such that those before it leave memory, the stack pointer, the link
/// register and the control flow alone, and that no jump leads there.
///
/// A return probe changes the link register, so nothing before the site may copy it either. It must not be signed there:
/// what the kernel puts into it would not pass the check before the return.
pub(crate) fn probe_site(body: &[u8], size_known: bool, reads: Reads) -> ProbeSite {
    let Some(first) = decode(body, 0).next() else {
        return ProbeSite {
            offset: 0,
            instruction: String::new(),
            cost: Cost::Unknown,
            why: Why::NotDecoded,
            arguments: Places::UNMOVED,
        };
    };
    let site = |instruction: Instruction, cost, why, arguments| ProbeSite {
        offset: instruction.at,
        instruction: text::of(instruction),
        cost,
        why,
        arguments,
    };
    if first.is_emulated() {
        return site(first, Cost::Emulated, Why::FirstIsEmulated, Places::UNMOVED);
    }
    let why = match later_emulated(body, reads) {
        None => Why::NoneIsEmulated,
        Some(_) if !size_known => Why::SizeUnknown,
        Some((later, _)) if jumps(body, 0).any(|to| (1..=later.at).contains(&to)) => {
            Why::JumpTarget
        }
        Some((later, arguments)) => {
            return site(later, Cost::Emulated, Why::LaterIsEmulated, arguments);
        }
    };
    site(first, Cost::SingleStepped, why, Places::UNMOVED)
}

/// The site, and where the arguments are there.
fn later_emulated(body: &[u8], reads: Reads) -> Option<(Instruction, Places)> {
    // The arguments that the general registers hold.
    let mut values = [None; 31];
    for (index, value) in (0..ARGUMENTS as u8).zip(&mut values) {
        *value = Some(index);
    }
    for instruction in decode(body, 0).take(REACH) {
        if instruction.is_emulated()
            && let Some(places) = reads.found(std::array::from_fn(|register| values[register]))
        {
            return Some((instruction, places));
        }
        let effect = Effect::of(instruction)?;
        let touches_frame = reads.frame() && effect.writes(FRAME);
        if instruction.flow() != Flow::Next || effect.uses(LINK) || touches_frame {
            return None;
        }
        let copied = effect.copy_of.and_then(|from| values[usize::from(from)]);
        for register in (0..31).filter(|&register| effect.writes(register)) {
            values[usize::from(register)] = copied;
        }
    }
    None
}

/// See [`crate::arch::returns`].
pub(crate) fn returns(body: &[u8]) -> Vec<u64> {
    let end = body.len() as u64;
    let leaves = |instruction: Instruction| match instruction.flow() {
        Flow::Jump(to) | Flow::Branch(to) => to >= end,
        // `svc` and `brk` do not leave, but what else is refused may.
        Flow::Other => !instruction.is(0xff00_0000, 0xd400_0000),
        Flow::Indirect(_) => true,
        Flow::Next | Flow::Call | Flow::Return => false,
    };
    if decode(body, 0).any(leaves) {
        return Vec::new();
    }
    let ends = decode(body, 0).filter(|instruction| instruction.flow() == Flow::Return);
    ends.map(|instruction| instruction.at).collect()
}

/// See [`crate::arch::signs_returns`]: by `paciasp` or `pacibsp`.
pub(crate) fn signs_returns(code: &[u8]) -> bool {
    decode(code, 0).any(|instruction| instruction.is(0xffff_ffbf, 0xd503_233f))
}

/// See [`crate::arch::forwards`].
pub(crate) fn forwards(body: &[u8], start: u64) -> Option<Forward> {
    let mut code = decode(body, start).skip_while(|instruction| instruction.is_marker());
    let first = code.next()?;
    let distance = |to: u64| to.wrapping_sub(start).cast_signed();
    if let Flow::Jump(to) = first.flow() {
        return Some(Forward::To(distance(to)));
    }
    // A stub: adrp x16, PAGE; ldr x17, [x16, #SLOT]; add x16, x16, #SLOT; br x17.
    let page = first.address().filter(|_| first.is_page())?;
    let load = code.next().filter(|it| it.is(0xffc0_0000, 0xf940_0000))?;
    let jump = code.find(|instruction| instruction.flow() != Flow::Next)?;
    let is_stub = load.register(5) == first.register(0)
        && jump.flow() == Flow::Indirect(load.register(0))
        && jump.at <= load.at + 8;
    let slot = page.wrapping_add(u64::from(load.bits(10, 12)) * 8);
    is_stub.then(|| Forward::Through(distance(slot)))
}

/// Targets of the direct jumps of `body`, which begins at address `start`.
pub(crate) fn jumps(body: &[u8], start: u64) -> impl Iterator<Item = u64> {
    decode(body, start).filter_map(|instruction| match instruction.flow() {
        Flow::Jump(to) | Flow::Branch(to) => Some(to),
        _ => None,
    })
}

/// Addresses that `body`, which begins at address `start`, computes from its own: by `adr`, or by `adrp` and `add`.
pub(crate) fn addresses_taken(body: &[u8], start: u64) -> impl Iterator<Item = u64> {
    let near = decode(body, start).filter(|instruction| !instruction.is_page());
    // add Xd, Xn, #imm
    near.filter_map(Instruction::address)
        .chain(in_pages(body, start, 0x9100_0000, 1))
}

/// Addresses of the words that `body`, which begins at address `start`, loads from near it: by `adrp` and `ldr`.
pub(crate) fn words_loaded(body: &[u8], start: u64) -> impl Iterator<Item = u64> {
    // ldr Xt, [Xn, #imm]
    in_pages(body, start, 0xf940_0000, 8)
}

/// Addresses in the pages of `adrp`, by offsets that are given in `unit` bytes to instructions of this encoding.
fn in_pages(body: &[u8], start: u64, encoding: u32, unit: u64) -> impl Iterator<Item = u64> {
    let mut pages = [None; 32];
    decode(body, start).filter_map(move |instruction| {
        let destination = usize::from(instruction.register(0));
        let page: Option<u64> = pages[usize::from(instruction.register(5))];
        if instruction.address().is_some() {
            pages[destination] = instruction.address().filter(|_| instruction.is_page());
            return None;
        }
        if Effect::of(instruction).is_some_and(|effect| effect.writes(instruction.register(0))) {
            pages[destination] = None;
        }
        let offset = u64::from(instruction.bits(10, 12)) * unit;
        page.filter(|_| instruction.is(0xffc0_0000, encoding))
            .map(|page| page.wrapping_add(offset))
    })
}

#[cfg(test)]
mod tests;
