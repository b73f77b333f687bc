//! Where the arguments of a statically defined probe (USDT) are: packed into
//! the cookie of the uprobe that sits there.

/// Arguments that a cookie describes.
pub const OPERANDS: usize = 3;

/// An argument of 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Which of the words of the kernel's `struct pt_regs`, below 32.
    pub register: u8,
    /// In memory this far from where the register points, -4096 to 4095; `None`: in the register.
    pub offset: Option<i16>,
}

/// Bits of an operand, and those of its offset.
const BITS: u32 = 20;
const OFFSET_BITS: u32 = 13;

impl Operand {
    /// Offsets that fit.
    pub const OFFSETS: core::ops::Range<i64> = -(1 << (OFFSET_BITS - 1))..1 << (OFFSET_BITS - 1);

    const fn packed(self) -> u64 {
        let offset = match self.offset {
            Some(offset) => 1 << 5 | ((offset as u64) & ((1 << OFFSET_BITS) - 1)) << 6,
            None => 0,
        };
        (self.register & 31) as u64 | offset
    }
}

/// A cookie; of operands in their order.
pub const fn cookie(operands: [Operand; OPERANDS]) -> u64 {
    let [first, second, third] = operands;
    first.packed() | second.packed() << BITS | third.packed() << (2 * BITS)
}

/// Operand number `index` of a cookie.
#[inline(always)]
pub const fn operand(cookie: u64, index: u32) -> Operand {
    let packed = cookie >> (index * BITS);
    let offset = (packed >> 6 & ((1 << OFFSET_BITS) - 1)) as i16;
    // Its highest bit is the sign.
    let signed = (offset << (16 - OFFSET_BITS)) >> (16 - OFFSET_BITS);
    Operand {
        register: (packed & 31) as u8,
        offset: if packed >> 5 & 1 == 0 {
            None
        } else {
            Some(signed)
        },
    }
}

const _: () = assert!(BITS * OPERANDS as u32 <= 64 && 6 + OFFSET_BITS <= BITS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_gives_back_its_operands() {
        let operands = [
            Operand {
                register: 20,
                offset: None,
            },
            Operand {
                register: 31,
                offset: Some(-4096),
            },
            Operand {
                register: 0,
                offset: Some(4095),
            },
        ];
        let cookie = cookie(operands);
        for (index, expected) in (0..).zip(operands) {
            assert_eq!(operand(cookie, index), expected);
        }
        let near = Operand {
            register: 4,
            offset: Some(-56),
        };
        assert_eq!(operand(super::cookie([near; 3]), 1), near);
    }
}
