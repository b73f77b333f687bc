//! Values that cross the kernel boundary as integers.

/// An enum that travels as an integer: every value, the largest one, and the way back.
macro_rules! wire_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident: $integer:ty {
            $($(#[$doc:meta])* $variant:ident = $value:literal,)*
        }
    ) => {
        $(#[$meta])*
        pub enum $name {
            $($(#[$doc])* $variant = $value,)*
        }

        impl $name {
            /// Every value, in the order in which reports list them.
            pub const ALL: [Self; { [$($value as u64),*].len() }] = [$(Self::$variant),*];

            /// The largest integer.
            pub const MAX: u64 = {
                let (values, mut at, mut max) = ([$($value as u64),*], 0, 0);
                while at < values.len() {
                    if values[at] > max {
                        max = values[at];
                    }
                    at += 1;
                }
                max
            };
        }

        impl TryFrom<$integer> for $name {
            type Error = $integer;

            fn try_from(value: $integer) -> Result<Self, $integer> {
                match value {
                    $($value => Ok(Self::$variant),)*
                    other => Err(other),
                }
            }
        }
    };
}

pub(crate) use wire_enum;

/// A range of bits in a word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bits {
    shift: u32,
    width: u32,
}

impl Bits {
    /// The lowest `width` bits.
    pub(crate) const fn lowest(width: u32) -> Self {
        Self { shift: 0, width }
    }

    /// The `width` bits above these.
    pub(crate) const fn then(self, width: u32) -> Self {
        let shift = self.shift + self.width;
        assert!(shift + width <= u64::BITS, "the word is full");
        Self { shift, width }
    }

    /// Whether every value up to `max` fits.
    pub(crate) const fn hold(self, max: u64) -> bool {
        max <= self.mask()
    }

    const fn mask(self) -> u64 {
        u64::MAX >> (u64::BITS - self.width)
    }

    /// A word with this value here and zeroes elsewhere.
    pub(crate) const fn of(self, value: u64) -> u64 {
        (value & self.mask()) << self.shift
    }

    /// The value here in a word.
    #[inline(always)]
    pub(crate) const fn get(self, word: u64) -> u64 {
        word >> self.shift & self.mask()
    }
}
