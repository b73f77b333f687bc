//! An instruction: its fields, its address, and where it leads.

/// An instruction and its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) at: u64,
    pub(super) word: u32,
}

/// What is done with the next instruction's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
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
    pub(super) const fn is(self, mask: u32, value: u32) -> bool {
        self.word & mask == value
    }

    /// The bits from `low` on, `count` of them.
    pub(super) const fn bits(self, low: u32, count: u32) -> u32 {
        self.word >> low & ((1 << count) - 1)
    }

    /// A register's number, 31 for the zero register or the stack pointer.
    pub(super) const fn register(self, low: u32) -> u8 {
        self.bits(low, 5) as u8
    }

    /// The same as a signed number.
    pub(super) const fn signed(self, low: u32, count: u32) -> i64 {
        let unused = 64 - count;
        ((self.bits(low, count) as i64) << unused) >> unused
    }

    /// The address at a distance of so many instructions.
    pub(super) const fn target(self, low: u32, count: u32) -> u64 {
        self.at.wrapping_add_signed(self.signed(low, count) * 4)
    }

    pub(super) const fn flow(self) -> Flow {
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
    pub(super) const fn is_system(self) -> bool {
        self.is(0xff00_0000, 0xd500_0000)
    }

    /// `nop`, or `bti`, which marks a place that may be jumped to.
    pub(super) const fn is_marker(self) -> bool {
        self.is(0xffff_ffff, 0xd503_201f) || self.is(0xffff_ff3f, 0xd503_241f)
    }

    /// The address that `adr` or `adrp` computes.
    pub(super) const fn address(self) -> Option<u64> {
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
    pub(super) const fn is_page(self) -> bool {
        self.is(0x8000_0000, 0x8000_0000)
    }

    /// Whether the kernel simulates it under a uprobe. From Linux 6.13 on `nop` too.
    pub(super) const fn is_emulated(self) -> bool {
        let simulated = !matches!(self.flow(), Flow::Next | Flow::Other);
        simulated || self.address().is_some()
    }
}

/// The instructions of `body`, which begins at address `start`.
pub(super) fn decode(body: &[u8], start: u64) -> impl Iterator<Item = Instruction> {
    let (words, _) = body.as_chunks();
    let addresses = (start..).step_by(4);
    words.iter().zip(addresses).map(|(&word, at)| Instruction {
        at,
        word: u32::from_le_bytes(word),
    })
}
