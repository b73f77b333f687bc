//! Offsets of the references in CPython's structures, by minor version. Since 3.13 some come from
//! `_Py_DebugOffsets`, which has few of them. x86-64, with the GIL.

use super::super::memory::Memory;
use memtrace_common::python::Interpreter;
use std::ops::Range;

/// See the module. Offsets in bytes; structures are named as in CPython's sources.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) minor: u32,
    /// `PyInterpreterState.modules`, since 3.12 `.imports.modules`.
    pub(super) modules: u64,
    /// `PyInterpreterState.gc`.
    pub(super) gc: u64,
    /// Parts of `PyInterpreterState` that own objects. Between them are caches that borrow, free lists, and the
    /// allocator's state.
    pub(super) interpreter_words: &'static [Range<u64>],
    /// `PyInterpreterState.atexit.callbacks`, which its length follows; 3.10 to 3.13.
    pub(super) atexit: Option<u64>,
    /// Bytes of `PyThreadState` that own objects.
    pub(super) thread_size: u64,
    /// Data of a compact string: ASCII, and otherwise.
    pub(super) ascii_data: u64,
    pub(super) compact_data: u64,
    pub(super) tuple_items: u64,
    /// `PyHeapTypeObject.ht_cached_keys`.
    pub(super) cached_keys: u64,
    /// Where attributes without a dict are.
    pub(super) managed: Managed,
    /// Where a `PyDictValues` has its values.
    pub(super) values: u64,
    pub(super) function: Function,
    /// `PyCodeObject.co_stacksize`.
    pub(super) code_stack_size: u64,
    pub(super) frame: Frame,
    /// `PyGenObject.gi_iframe`, since 3.11; `gi_frame` before.
    pub(super) generator_frame: u64,
}

/// The meaning of `Py_TPFLAGS_MANAGED_DICT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Managed {
    /// Up to 3.10 there is no such flag.
    No,
    /// 3.11: a word each for the values and for the dict.
    Two,
    /// 3.12: one word, whose lowest bit marks values.
    Tagged,
    /// Since 3.13: a word for the dict, and values inside the object.
    Inline,
}

/// `PyFunctionObject`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Function {
    pub(super) code: u64,
    pub(super) globals: u64,
    pub(super) defaults: u64,
    pub(super) keyword_defaults: u64,
    pub(super) closure: u64,
    pub(super) module: u64,
    pub(super) annotations: u64,
}

/// `_PyInterpreterFrame`; up to 3.10 `PyFrameObject`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) function: Option<u64>,
    pub(super) locals_dict: u64,
    /// Where the values that it is working with end: see `frames`.
    pub(super) stack_top: u64,
    /// `f_localsplus`.
    pub(super) locals: u64,
    /// `f_frame` of the object that stands for a frame, since 3.11.
    pub(super) of_object: u64,
}

const FUNCTION_3_9: Function = Function {
    code: 16,
    globals: 24,
    defaults: 32,
    keyword_defaults: 40,
    closure: 48,
    module: 88,
    annotations: 96,
};

const FUNCTION_3_10: Function = Function {
    code: 48,
    globals: 16,
    defaults: 56,
    keyword_defaults: 64,
    closure: 72,
    module: 104,
    annotations: 112,
};

const V3_9: Layout = Layout {
    minor: 9,
    modules: 856,
    gc: 616,
    interpreter_words: &[Range {
        start: 0,
        end: 3552,
    }],
    atexit: None,
    thread_size: 264,
    ascii_data: 0,
    compact_data: 0,
    tuple_items: 24,
    cached_keys: 864,
    managed: Managed::No,
    values: 0,
    function: FUNCTION_3_9,
    code_stack_size: 32,
    frame: Frame {
        function: None,
        locals_dict: 56,
        stack_top: 72,
        locals: 360,
        of_object: 0,
    },
    generator_frame: 16,
};

const V3_10: Layout = Layout {
    minor: 10,
    interpreter_words: &[0..3512, 13336..15216],
    atexit: Some(3488),
    thread_size: 280,
    cached_keys: 872,
    function: FUNCTION_3_10,
    frame: Frame {
        stack_top: 80,
        locals: 352,
        ..V3_9.frame
    },
    ..V3_9
};

const V3_11: Layout = Layout {
    minor: 11,
    interpreter_words: &[0..3560, 7160..9056, 107_360..107_392],
    atexit: Some(3536),
    thread_size: 360,
    modules: 888,
    gc: 648,
    managed: Managed::Two,
    code_stack_size: 68,
    frame: Frame {
        function: Some(0),
        locals_dict: 24,
        stack_top: 64,
        locals: 72,
        of_object: 24,
    },
    generator_frame: 80,
    ..V3_10
};

const V3_12: Layout = Layout {
    minor: 12,
    interpreter_words: &[
        0..3960,
        267_208..267_344,
        273_432..275_384,
        373_696..383_264,
    ],
    atexit: Some(3944),
    thread_size: 288,
    modules: 944,
    gc: 112,
    cached_keys: 880,
    managed: Managed::Tagged,
    code_stack_size: 64,
    frame: Frame {
        function: Some(16),
        locals_dict: 40,
        ..V3_11.frame
    },
    generator_frame: 72,
    ..V3_11
};

const V3_13: Layout = Layout {
    minor: 13,
    interpreter_words: &[0..10952, 82_696..84_648, 182_960..194_624],
    atexit: Some(10712),
    thread_size: 304,
    managed: Managed::Inline,
    values: 8,
    ..V3_12
};

const V3_14: Layout = Layout {
    minor: 14,
    interpreter_words: &[0..11120, 79_944..81_920, 180_232..224_928],
    atexit: None,
    thread_size: 936,
    tuple_items: 32,
    frame: Frame {
        locals: 80,
        ..V3_12.frame
    },
    ..V3_13
};

impl Layout {
    pub(super) fn of(at: &Interpreter, memory: &dyn Memory) -> Option<Layout> {
        /// Words of `_Py_DebugOffsets`: size of the interpreter's state, and fields of it.
        const INTERPRETER_SIZE: u64 = 6;
        const GC: u64 = 10;
        const MODULES: u64 = 11;
        /// 3.14 has `threads_main` before them.
        const ADDED_IN_3_14: u64 = 1;
        const MAX_SIZE: u64 = 1 << 24;
        let layout = match at.minor {
            9 => V3_9,
            10 => V3_10,
            11 => V3_11,
            12 => V3_12,
            13 => V3_13,
            14 => V3_14,
            _ => return None,
        };
        let layout = Layout {
            ascii_data: at.str_ascii_data.into(),
            compact_data: at.str_compact_data.into(),
            ..layout
        };
        if at.minor < 13 {
            return Some(layout);
        }
        let described = |index: u64| memory.word(at.runtime.checked_add(index * 8)?);
        let size = described(INTERPRETER_SIZE).filter(|&size| size <= MAX_SIZE)?;
        let added = if at.minor >= 14 { ADDED_IN_3_14 } else { 0 };
        let field = |index| described(index + added).filter(|&offset| offset < size);
        Some(Layout {
            modules: field(MODULES)?,
            gc: field(GC)?,
            ..layout
        })
    }

    /// `PyHeapTypeObject.ht_qualname`, which is always before the keys.
    pub(super) fn qualified_name(&self) -> u64 {
        self.cached_keys - 8
    }
}

/// `PyObject.ob_type`.
pub(super) const OB_TYPE: u64 = 8;
/// `PyVarObject.ob_size`.
pub(super) const OB_SIZE: u64 = 16;

/// `PyTypeObject`; the same in all versions.
pub(super) mod tp {
    pub(in super::super) const NAME: u64 = 24;
    pub(in super::super) const BASICSIZE: u64 = 32;
    pub(in super::super) const ITEMSIZE: u64 = 40;
    pub(in super::super) const FLAGS: u64 = 168;
    pub(in super::super) const WEAKLISTOFFSET: u64 = 208;
    pub(in super::super) const MEMBERS: u64 = 240;
    pub(in super::super) const BASE: u64 = 256;
    pub(in super::super) const DICT: u64 = 264;
    pub(in super::super) const DICTOFFSET: u64 = 288;
    pub(in super::super) const BASES: u64 = 336;
    pub(in super::super) const MRO: u64 = 344;
    pub(in super::super) const SUBCLASSES: u64 = 360;
}

/// `Py_TPFLAGS_...`
pub(super) mod flag {
    pub(in super::super) const INLINE_VALUES: u64 = 1 << 2;
    /// Since 3.12.
    pub(in super::super) const MANAGED_WEAKREF: u64 = 1 << 3;
    pub(in super::super) const MANAGED_DICT: u64 = 1 << 4;
    pub(in super::super) const HEAP_TYPE: u64 = 1 << 9;
    pub(in super::super) const READY: u64 = 1 << 12;
    pub(in super::super) const HAVE_GC: u64 = 1 << 14;
    pub(in super::super) const LONG: u64 = 1 << 24;
    pub(in super::super) const TUPLE: u64 = 1 << 26;
    pub(in super::super) const BYTES: u64 = 1 << 27;
    pub(in super::super) const STR: u64 = 1 << 28;
    pub(in super::super) const TYPE: u64 = 1 << 31;
}
