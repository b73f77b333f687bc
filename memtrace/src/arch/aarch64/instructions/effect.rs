//! What an instruction does to registers.

use super::instruction::Instruction;

/// The effect of an instruction that changes general registers only, if anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Effect {
    /// Registers written and read, a bit each. Some that are neither may be among them.
    written: u32,
    read: u32,
    /// The register of which the written one becomes a copy.
    pub(super) copy_of: Option<u8>,
}

/// Number of the zero register, and of the stack pointer.
const ZERO: u8 = 31;

impl Effect {
    /// `None`: it may write memory or the stack pointer, or is not known.
    pub(super) fn of(instruction: Instruction) -> Option<Effect> {
        // Top-level encodings, by bits 28 to 25.
        match instruction.bits(25, 4) {
            0b1000 | 0b1001 => Self::of_immediate(instruction),
            0b1010 | 0b1011 => Self::of_system(instruction),
            0b0100 | 0b0110 | 0b1100 | 0b1110 => Self::of_load(instruction),
            0b0101 | 0b1101 => Self::of_registers(instruction),
            // Of floating-point registers, some from or to a general one.
            0b0111 | 0b1111 => {
                let effect = Self::default().writing(instruction.register(0));
                Some(effect.reading(instruction.register(5)))
            }
            _ => None,
        }
    }

    pub(super) fn writes(&self, register: u8) -> bool {
        self.written & bit(register) != 0
    }

    pub(super) fn uses(&self, register: u8) -> bool {
        (self.written | self.read) & bit(register) != 0
    }

    fn writing(self, register: u8) -> Self {
        Self {
            written: self.written | bit(register),
            ..self
        }
    }

    fn reading(self, register: u8) -> Self {
        Self {
            read: self.read | bit(register),
            ..self
        }
    }

    /// Data processing with an immediate operand.
    fn of_immediate(instruction: Instruction) -> Option<Self> {
        let to = instruction.register(0);
        let effect = Self::default().writing(to);
        // `adds` and `subs`, `ands`: the destination 31 is the zero register, otherwise the stack pointer.
        let (is_sum, is_logical) = (
            instruction.bits(23, 3) == 0b010 || instruction.bits(23, 3) == 0b011,
            instruction.bits(23, 3) == 0b100,
        );
        let sets_flags = match is_sum {
            true => instruction.bits(29, 1) == 1,
            false => instruction.bits(29, 2) == 0b11,
        };
        if to == ZERO && (is_sum || is_logical) && !sets_flags {
            return None;
        }
        Some(match instruction.bits(23, 3) {
            // `adr`, `adrp`; `movz`, `movn`, `movk`.
            0b000 | 0b001 | 0b101 => effect,
            // `extr` has a second operand.
            0b111 => effect
                .reading(instruction.register(5))
                .reading(instruction.register(16)),
            _ => effect.reading(instruction.register(5)),
        })
    }

    /// Data processing with registers.
    fn of_registers(instruction: Instruction) -> Option<Self> {
        let (to, first, second) = (
            instruction.register(0),
            instruction.register(5),
            instruction.register(16),
        );
        let read = Self::default().reading(first).reading(second);
        // `ccmp`, `ccmn`: flags in place of a destination.
        if instruction.is(0x1fe0_0000, 0x1a40_0000) {
            return Some(read);
        }
        // `add` and `sub` of an extended register.
        let is_extended = instruction.is(0x1fe0_0000, 0x0b20_0000);
        if is_extended && to == ZERO && instruction.bits(29, 1) == 0 {
            return None;
        }
        // `madd` and its like.
        let read = match instruction.is(0x1f00_0000, 0x1b00_0000) {
            true => read.reading(instruction.register(10)),
            false => read,
        };
        // `mov`: `orr Xd, xzr, Xm`.
        let is_copy = instruction.is(0xffe0_ffe0, 0xaa00_03e0) && second != ZERO;
        Some(Self {
            copy_of: is_copy.then_some(second),
            ..read.writing(to)
        })
    }

    fn of_system(instruction: Instruction) -> Option<Self> {
        // `mrs`.
        if instruction.is(0xfff0_0000, 0xd530_0000) {
            return Some(Self::default().writing(instruction.register(0)));
        }
        instruction.is_marker().then(Self::default)
    }

    fn of_load(instruction: Instruction) -> Option<Self> {
        let (to, base) = (instruction.register(0), instruction.register(5));
        let is_vector = instruction.bits(26, 1) == 1;
        let to = if is_vector { ZERO } else { to };
        let effect = Self::default().writing(to);
        // `ldr` of a literal.
        if instruction.is(0x3b00_0000, 0x1800_0000) {
            return Some(effect);
        }
        let effect = effect.reading(base);
        // `ldp`; without the forms that change the base.
        if instruction.is(0x3a00_0000, 0x2800_0000) {
            let is_load = instruction.bits(22, 1) == 1 && instruction.bits(23, 1) == 0;
            let second = instruction.register(10);
            let second = if is_vector { ZERO } else { second };
            return is_load.then(|| effect.writing(second));
        }
        let opcode = instruction.bits(22, 2);
        // For 16-byte vectors, 2 is a store.
        let is_load = opcode % 2 == 1 || (opcode == 2 && !is_vector);
        // An offset of 12 bits; one of 9 bits, without those that change the base; one in a register.
        let has_register = instruction.is(0x3b20_0c00, 0x3820_0800);
        let is_known = instruction.is(0x3b00_0000, 0x3900_0000)
            || instruction.is(0x3b20_0c00, 0x3800_0000)
            || has_register;
        let effect = match has_register {
            true => effect.reading(instruction.register(16)),
            false => effect,
        };
        (is_load && is_known).then_some(effect)
    }
}

/// None for the zero register. What changes the stack pointer has no [`Effect`].
const fn bit(register: u8) -> u32 {
    match register {
        ZERO => 0,
        _ => 1 << register,
    }
}
