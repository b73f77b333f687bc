//! Instructions: sites, and jump targets. The kernel decides which ones it simulates and which ones it refuses in its
//! arch/arm64/kernel/probes/decode-insn.c; a copy of everything else is single-stepped. Encodings are those of the Arm
//! Architecture Reference Manual, section C4.1.

mod effect;
mod text;

use effect::Effect;

use crate::arch::site::{ARGUMENTS, Cost, Forward, Places, ProbeSite, Reads, Why};

/// Number of instructions examined, from the first on.
const REACH: usize = 16;

/// The link register: the return address, until a function calls others or signs it.
const LINK: u8 = 30;
const FRAME: u8 = 29;

/// An instruction and its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instruction {
    at: u64,
    word: u32,
}

/// What is done with the next instruction's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Next,
    /// `b`.
    Jump(u64),
    /// `b.cond`, `cbz`, `tbz` and their like.
    Branch(u64),
    /// `bl`, `blr`.
    Call,
    /// `br`: to the address in a register.
    Indirect(u8),
    /// `ret`.
    Return,
    /// Others that the kernel refuses to probe, as `retaa` and `svc`.
    Other,
}

impl Instruction {
    /// Whether the bits of `mask` have these values.
    const fn is(self, mask: u32, value: u32) -> bool {
        self.word & mask == value
    }

    /// The bits from `low` on, `count` of them.
    const fn bits(self, low: u32, count: u32) -> u32 {
        self.word >> low & ((1 << count) - 1)
    }

    /// A register's number, 31 for the zero register or the stack pointer.
    const fn register(self, low: u32) -> u8 {
        self.bits(low, 5) as u8
    }

    /// The same as a signed number.
    const fn signed(self, low: u32, count: u32) -> i64 {
        let unused = 64 - count;
        ((self.bits(low, count) as i64) << unused) >> unused
    }

    /// The address at a distance of so many instructions.
    const fn target(self, low: u32, count: u32) -> u64 {
        self.at.wrapping_add_signed(self.signed(low, count) * 4)
    }

    const fn flow(self) -> Flow {
        match self.word {
            _ if self.is(0xfc00_0000, 0x1400_0000) => Flow::Jump(self.target(0, 26)),
            _ if self.is(0xff00_0010, 0x5400_0000) => Flow::Branch(self.target(5, 19)),
            _ if self.is(0x7e00_0000, 0x3400_0000) => Flow::Branch(self.target(5, 19)),
            _ if self.is(0x7e00_0000, 0x3600_0000) => Flow::Branch(self.target(5, 14)),
            _ if self.is(0xfc00_0000, 0x9400_0000) => Flow::Call,
            _ if self.is(0xffff_fc1f, 0xd63f_0000) => Flow::Call,
            _ if self.is(0xffff_fc1f, 0xd61f_0000) => Flow::Indirect(self.register(5)),
            _ if self.is(0xffff_fc1f, 0xd65f_0000) => Flow::Return,
            _ if self.is(0x1c00_0000, 0x1400_0000) && !self.is_system() => Flow::Other,
            _ => Flow::Next,
        }
    }

    /// `mrs`, `msr`, hints and barriers.
    const fn is_system(self) -> bool {
        self.is(0xff00_0000, 0xd500_0000)
    }

    /// `nop`, or `bti`, which marks a place that may be jumped to.
    const fn is_marker(self) -> bool {
        self.is(0xffff_ffff, 0xd503_201f) || self.is(0xffff_ff3f, 0xd503_241f)
    }

    /// The address that `adr` or `adrp` computes.
    const fn address(self) -> Option<u64> {
        if !self.is(0x1f00_0000, 0x1000_0000) {
            return None;
        }
        let distance = self.signed(5, 19) << 2 | self.bits(29, 2) as i64;
        Some(match self.is_page() {
            true => (self.at & !0xfff).wrapping_add_signed(distance << 12),
            false => self.at.wrapping_add_signed(distance),
        })
    }

    /// Whether it is `adrp`, if one of the two. Its pages have 4 KiB, whatever the kernel's have.
    const fn is_page(self) -> bool {
        self.is(0x8000_0000, 0x8000_0000)
    }

    /// Whether the kernel simulates it under a uprobe. From Linux 6.13 on `nop` too.
    const fn is_emulated(self) -> bool {
        let simulated = !matches!(self.flow(), Flow::Next | Flow::Other);
        simulated || self.address().is_some()
    }
}

/// The instructions of `body`, which begins at address `start`.
fn decode(body: &[u8], start: u64) -> impl Iterator<Item = Instruction> {
    let (words, _) = body.as_chunks();
    let addresses = (start..).step_by(4);
    words.iter().zip(addresses).map(|(&word, at)| Instruction {
        at,
        word: u32::from_le_bytes(word),
    })
}

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
