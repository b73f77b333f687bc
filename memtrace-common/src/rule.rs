//! What the step of a walk is made of: rules, registers, memory, and the ends of walks.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::wire::wire_enum;

/// How to find the caller of one range of code. Eight bytes, deduplicated over
/// all files.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct Rule {
    /// A [`cfa`] kind: where the canonical frame address (CFA) is.
    pub cfa: u8,
    /// An [`fp`] kind, for the frame pointer, and above it an [`extra`] kind.
    pub fp: u8,
    /// See [`fp`], in units of [`Frames::FP_UNIT`].
    pub fp_offset: i16,
    /// Bytes, see [`cfa`].
    pub cfa_offset: i32,
}

/// Values of [`Rule::cfa`]; `o` is [`Rule::cfa_offset`].
pub mod cfa {
    /// No call frame information covers the code.
    pub const NO_ROW: u8 = 0;
    /// CFA = sp + o.
    pub const SP: u8 = 1;
    /// CFA = fp + o.
    pub const FP: u8 = 2;
    /// Of a PLT: CFA = sp + 8, and 8 more from byte `o` of each 16-byte entry on.
    pub const PLT: u8 = 3;
    /// CFA = \*(fp + low) + high, the 16-bit halves of `o`, both signed (see [`super::Rule::deref`]).
    pub const DEREF_FP: u8 = 4;
    /// CFA = \*(sp + low) + high, as above.
    pub const DEREF_SP: u8 = 5;
    /// A signal handler's return code: the interrupted registers are on the stack.
    pub const SIGNAL: u8 = 6;
    /// The return address is undefined: the outermost frame.
    pub const STOP: u8 = 7;
    /// Call frame information that these rules cannot express.
    pub const UNSUPPORTED: u8 = 8;
    /// No tables: the code is assumed to keep a frame pointer, which is checked. `o` is 1 if its callee is such code
    /// too: only then is a zero the mark of the outermost frame (psABI, section 3.4.1), and not just a register that
    /// was 0.
    pub const FRAME_POINTER: u8 = 9;
    /// CFA = the extra register + o. On x86-64: of glibc's trampoline to functions that are bound when first called.
    pub const EXTRA: u8 = 10;
}

/// Values of [`Rule::fp`]; `o` is [`Rule::fp_offset`].
pub mod fp {
    /// Unchanged.
    pub const SAME: u8 = 0;
    /// Saved at CFA + o.
    pub const AT_CFA: u8 = 1;
    /// Saved at fp + o.
    pub const AT_FP: u8 = 2;
    /// The bits of [`super::Rule::fp`] that hold the above.
    pub const MASK: u8 = 3;
}

/// Values of [`Rule::fp`] above [`fp::MASK`]: for the extra register. Other values, times 8, are how far below the
/// CFA it was saved.
pub mod extra {
    pub const SHIFT: u32 = 2;
    /// Unchanged.
    pub const SAME: u8 = 0;
    /// Not known.
    pub const LOST: u8 = 63;
}

impl Rule {
    /// `*(register + offset) + addend` as a [`Rule::cfa_offset`]; `None` if either does not fit 16 bits.
    pub fn deref(offset: i64, addend: i64) -> Option<i32> {
        let (offset, addend) = (i16::try_from(offset).ok()?, i16::try_from(addend).ok()?);
        Some(i32::from(addend) << 16 | i32::from(offset.cast_unsigned()))
    }

    /// An [`extra`] kind below `end` for a register saved at CFA + `offset`.
    pub(crate) fn extra_at(offset: i64, end: u8) -> u8 {
        let slots = offset.checked_neg().filter(|below| below % 8 == 0);
        let slots = slots.and_then(|below| u8::try_from(below / 8).ok());
        slots
            .filter(|slots| (1..end).contains(slots))
            .unwrap_or(extra::LOST)
    }

    /// [`Rule::fp_offset`] in bytes.
    #[inline(always)]
    pub(crate) fn fp_bytes<A: Frames>(self) -> u64 {
        (i64::from(self.fp_offset) * A::FP_UNIT) as u64
    }

    /// Where a frame at `cfa` has saved its caller's frame pointer; 0: it has not.
    #[inline(always)]
    pub(crate) fn fp_slot<A: Frames>(self, at: &Registers, cfa: u64) -> u64 {
        let offset = self.fp_bytes::<A>();
        match self.fp & fp::MASK {
            fp::AT_CFA => cfa.wrapping_add(offset),
            fp::AT_FP => at.fp.wrapping_add(offset),
            _ => 0,
        }
    }
}

/// The registers that a walk needs.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct Registers {
    /// Of a caller: the return address.
    pub pc: u64,
    pub sp: u64,
    pub fp: u64,
    /// The extra register, or where it was saved: few walks need it, so it is not read before. It is rbx on x86-64, and
    /// the link register on aarch64.
    pub extra: u64,
    /// The meaning of `extra`: a [`held`] kind.
    pub extra_is: u64,
}

/// Values of [`Registers::extra_is`].
pub mod held {
    pub const VALUE: u64 = 0;
    /// Absolute address of the value.
    pub const ADDRESS: u64 = 1;
    pub const UNKNOWN: u64 = 2;
    /// Nor is the stack pointer, which is higher.
    pub const NO_SP: u64 = 3;
}

/// A caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    pub registers: Registers,
    /// Where its return address was; 0 for code that a signal interrupted, whose `pc` is not a return address.
    pub slot: u64,
    /// The return address as it was there.
    pub word: u64,
}

/// A return address as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returned {
    /// Its place on the stack, or [`IN_REGISTER`].
    pub slot: u64,
    pub word: u64,
}

/// Stands for a place on the stack, which is a multiple of 8.
pub const IN_REGISTER: u64 = 1;

/// The memory of the walked thread.
pub trait Memory {
    /// Eight bytes at an absolute address; `None` if they cannot be read.
    fn read(&self, abs_addr: u64) -> Option<u64>;
}

/// The value of the extra register.
///
/// # Errors
/// It is not known, or cannot be read.
#[inline(always)]
pub fn held_value(at: &Registers, memory: &impl Memory) -> Result<u64, End> {
    match at.extra_is {
        held::VALUE => Ok(at.extra),
        held::ADDRESS => memory.read(at.extra).ok_or(End::Unreadable),
        _ => Err(End::UnsupportedRule),
    }
}

/// The frames of an architecture, as far as they differ.
pub trait Frames {
    /// Bytes that a call pushes: from the canonical frame address down to the stack pointer at a function's entry.
    const PUSHED_BY_CALL: u64;
    /// Bytes of a unit of [`Rule::fp_offset`].
    const FP_UNIT: i64;
    /// A frame found by its frame pointer does not tell its caller's stack pointer.
    const RECORDS_LACK_SP: bool;
    /// Where a signal frame keeps the interrupted `pc`, `sp`, `fp` and extra register, from the stack pointer in its
    /// return code.
    const IN_SIGNAL_FRAME: [u64; 4];

    /// The return address of a frame whose caller's frame pointer was saved at `fp_slot` (0: was not).
    ///
    /// # Errors
    /// Why it cannot be found.
    fn returned(
        rule: Rule,
        at: &Registers,
        cfa: u64,
        fp_slot: u64,
        memory: &impl Memory,
    ) -> Result<Returned, End>;

    /// The address of code that a return address means.
    fn code_address(word: u64) -> u64;

    /// [`Registers::extra`] and [`Registers::extra_is`] of the caller. `slot`: where the return address was.
    fn extra_of_caller(rule: Rule, at: &Registers, cfa: u64, slot: u64) -> (u64, u64);
}

wire_enum! {
    /// Why a walk ended.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[repr(u32)]
    pub enum End: u32 {
        /// At the thread's outermost frame.
        Complete = 0,
        /// At [`crate::limits::MAX_FRAMES`].
        Truncated = 1,
        /// An address in no executable mapping, as far as known.
        NoMapping = 2,
        /// The file's tables are not loaded.
        NoTable = 3,
        /// The file has tables, but none covers the code (assembler without CFI).
        NoRow = 4,
        /// Call frame information that is not supported.
        UnsupportedRule = 5,
        /// Stack memory that could not be read, or a frame below its callee's.
        Unreadable = 6,
        /// The mappings changed during the walk, or too often since they were last read.
        Stale = 7,
        /// Code without tables that keeps no frame pointer.
        BadFramePointer = 8,
        /// Not walked by tables: frame pointers were followed, and end where one is missing.
        FramePointersOnly = 9,
    }
}

impl End {
    /// Stable name in reports, JSON and recordings.
    pub const fn name(self) -> &'static str {
        match self {
            End::Complete => "complete",
            End::Truncated => "truncated",
            End::NoMapping => "no_mapping",
            End::NoTable => "no_table",
            End::NoRow => "no_row",
            End::UnsupportedRule => "unsupported_rule",
            End::Unreadable => "unreadable",
            End::Stale => "stale",
            End::BadFramePointer => "bad_frame_pointer",
            End::FramePointersOnly => "frame_pointers_only",
        }
    }
}
