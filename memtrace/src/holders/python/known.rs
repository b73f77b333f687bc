//! C types whose fields Python does not describe, or describes by unhelpful names.

use super::{
    super::reference::{Label, Name, cost},
    base::Base,
    dict,
    layout::{Layout, tp},
};

/// Objects that need code of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Plain,
    List,
    Tuple,
    Dict,
    Set,
    Deque,
    /// A function with `functools.lru_cache`.
    Lru,
    Type,
    Module,
    Function,
    /// An object that stands for a frame.
    Frame,
    Generator,
    /// Keys and values of contexts (Python/hamt.c).
    ContextNode,
}

/// How to treat words without a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// No references, or only those that the kind's code reads.
    Nothing,
    /// Some may be references.
    Untyped,
    UntypedUpTo(u64),
    /// If they are objects, they are held.
    Typed,
}

/// `PyContextVar.var_name`.
pub(super) const CONTEXT_VARIABLE_NAME: u64 = 16;

/// How the function of an `lru_cache` refers to the dict that is the cache.
pub(in super::super) const OF_LRU: Label = Label::Internal("its cache");

/// The known fields of a type.
pub(super) struct Known {
    pub(super) kind: Kind,
    pub(super) fields: Vec<(u64, Label, u32)>,
    pub(super) rest: Rest,
}

impl Known {
    pub(super) const UNKNOWN: Known = Known {
        kind: Kind::Plain,
        fields: Vec::new(),
        rest: Rest::Untyped,
    };
}

/// Names that every object of a type has, or that lead anywhere.
const INCIDENTAL: [&str; 17] = [
    "__base__",
    "__bases__",
    "__builtins__",
    "__class__",
    "__doc__",
    "__globals__",
    "__module__",
    "__mro__",
    "__name__",
    "__objclass__",
    "__qualname__",
    "__self_class__",
    "__thisclass__",
    "f_back",
    "f_builtins",
    "f_globals",
    "f_locals",
];

pub(super) fn is_incidental(name: &str) -> bool {
    INCIDENTAL.contains(&name)
}

type Field = (u64, Label, u32);

fn attribute(offset: u64, name: &'static str) -> Field {
    let price = if is_incidental(name) {
        cost::INCIDENTAL
    } else {
        cost::TYPED
    };
    (offset, Label::Attribute(Name::Known(name)), price)
}

/// A field that Python has no name for.
fn internal(offset: u64, what: &'static str) -> Field {
    (offset, Label::Internal(what), cost::TYPED)
}

fn buffer(offset: u64) -> Field {
    (offset, Label::Buffer, cost::TYPED)
}

/// The known fields of the type with that name. A class made in Python has no dot in `tp_name`, and a builtin type of a
/// name without one is static.
pub(super) fn known(layout: &Layout, base: &Base) -> Option<Known> {
    if base.is_heap && !base.name.contains('.') {
        return None;
    }
    let of = |kind, fields, rest| Some(Known { kind, fields, rest });
    let plain = |fields, rest| of(Kind::Plain, fields, rest);
    let own = |kind| of(kind, Vec::new(), Rest::Nothing);
    match &*base.name {
        "object" | "int" | "bool" | "float" | "complex" | "str" | "bytes" | "NoneType"
        | "ellipsis" | "NotImplementedType" => plain(vec![], Rest::Nothing),
        "list" => own(Kind::List),
        "tuple" => own(Kind::Tuple),
        "dict" => own(Kind::Dict),
        "set" | "frozenset" => own(Kind::Set),
        "collections.deque" => own(Kind::Deque),
        // The table of its order is also enlarged where something is looked up.
        "collections.OrderedDict" => plain(
            vec![(dict::SIZE, Label::Buffer, cost::INCIDENTAL)],
            Rest::Nothing,
        ),
        "type" => of(
            Kind::Type,
            vec![
                attribute(tp::BASE, "__base__"),
                attribute(tp::BASES, "__bases__"),
                attribute(tp::MRO, "__mro__"),
                // A dict of weak references.
                (
                    tp::SUBCLASSES,
                    Label::Internal("its subclasses"),
                    cost::INCIDENTAL,
                ),
            ],
            Rest::Nothing,
        ),
        "module" => of(
            Kind::Module,
            vec![attribute(48, "__name__"), buffer(32)],
            Rest::Nothing,
        ),
        "function" => {
            let at = &layout.function;
            let fields = vec![
                attribute(at.code, "__code__"),
                attribute(at.globals, "__globals__"),
                attribute(at.defaults, "__defaults__"),
                attribute(at.keyword_defaults, "__kwdefaults__"),
                attribute(at.closure, "__closure__"),
                attribute(at.module, "__module__"),
                attribute(at.annotations, "__annotations__"),
            ];
            of(Kind::Function, fields, Rest::Untyped)
        }
        "frame" => frame(layout, base),
        "generator" => generator(layout, "gi_frame"),
        "coroutine" => generator(layout, "cr_frame"),
        "async_generator" => generator(layout, "ag_frame"),
        "cell" => plain(vec![attribute(16, "cell_contents")], Rest::Nothing),
        "traceback" => plain(
            vec![attribute(16, "tb_next"), attribute(24, "tb_frame")],
            Rest::Nothing,
        ),
        "builtin_function_or_method" => plain(
            vec![attribute(24, "__self__"), attribute(32, "__module__")],
            Rest::Untyped,
        ),
        "BaseException" => exception(layout),
        "weakref"
        | "weakref.ReferenceType"
        | "weakproxy"
        | "weakref.ProxyType"
        | "weakcallableproxy"
        | "weakref.CallableProxyType" => plain(vec![attribute(24, "__callback__")], Rest::Nothing),
        "bytearray" => plain(vec![buffer(32)], Rest::Nothing),
        "array.array" => plain(vec![buffer(24)], Rest::Nothing),
        "mmap.mmap" => plain(vec![buffer(16)], Rest::Nothing),
        "memoryview" => plain(
            vec![internal(24, "its buffer"), attribute(64, "obj")],
            Rest::Nothing,
        ),
        "managedbuffer" => plain(vec![internal(40, "its object")], Rest::Nothing),
        "_io.BytesIO" => plain(vec![internal(16, "its bytes")], Rest::Nothing),
        "_io.StringIO" => plain(vec![buffer(16)], Rest::Untyped),
        "hamt" => plain(vec![internal(16, "its nodes")], Rest::Nothing),
        "hamt_array_node" => plain(vec![], Rest::Typed),
        "hamt_bitmap_node" | "hamt_collision_node" => own(Kind::ContextNode),
        // In 3.9 without their module.
        "Context" | "_contextvars.Context" => plain(
            vec![
                internal(24, "its variables"),
                internal(16, "the one before"),
            ],
            Rest::Nothing,
        ),
        "ContextVar" | "_contextvars.ContextVar" => plain(
            vec![
                attribute(CONTEXT_VARIABLE_NAME, "name"),
                internal(24, "its default"),
            ],
            Rest::Nothing,
        ),
        // A semaphore: the rest of its block is not cleared.
        "_thread.lock" | "_thread.RLock" => plain(vec![buffer(16)], Rest::Nothing),
        "_thread._localdummy" => plain(vec![internal(16, "its variables")], Rest::Nothing),
        "functools._lru_cache_wrapper" => of(
            Kind::Lru,
            vec![(72, OF_LRU, cost::TYPED), attribute(88, "__wrapped__")],
            Rest::Nothing,
        ),
        "functools._lru_list_elem" => plain(
            vec![internal(40, "arguments"), internal(48, "result")],
            Rest::Nothing,
        ),
        "_asyncio.Future" => future(layout),
        "_asyncio.Task" => task(layout),
        "numpy.ndarray" => plain(
            vec![
                buffer(16),
                buffer(32),
                attribute(48, "base"),
                attribute(56, "dtype"),
            ],
            Rest::Nothing,
        ),
        _ => None,
    }
}

fn exception(layout: &Layout) -> Option<Known> {
    // 3.11 added `notes`.
    let more = if layout.minor >= 11 { 8 } else { 0 };
    Some(Known {
        kind: Kind::Plain,
        fields: vec![
            attribute(24, "args"),
            attribute(32 + more, "__traceback__"),
            attribute(40 + more, "__context__"),
            attribute(48 + more, "__cause__"),
        ],
        rest: Rest::Untyped,
    })
}

/// `FutureObj` (Modules/_asynciomodule.c).
fn future(layout: &Layout) -> Option<Known> {
    // 3.10 added the traceback of the exception.
    let result = if layout.minor >= 10 { 64 } else { 56 };
    Some(Known {
        kind: Kind::Plain,
        fields: vec![
            attribute(16, "_loop"),
            internal(24, "its callback"),
            internal(32, "its callback's context"),
            internal(40, "its callbacks"),
            attribute(48, "_exception"),
            attribute(result, "_result"),
        ],
        rest: Rest::Typed,
    })
}

/// `TaskObj`.
fn task(layout: &Layout) -> Option<Known> {
    let waiter = match layout.minor {
        9 => 144,
        10 => 152,
        11 | 12 => 128,
        13 => 112,
        _ => 120,
    };
    Some(Known {
        kind: Kind::Plain,
        fields: vec![
            attribute(waiter, "_fut_waiter"),
            attribute(waiter + 8, "_coro"),
        ],
        rest: Rest::Typed,
    })
}

fn frame(layout: &Layout, base: &Base) -> Option<Known> {
    let (fields, rest) = if layout.minor >= 11 {
        let fields = vec![attribute(16, "f_back")];
        // The frame itself may follow.
        let end = base.size.saturating_sub(layout.frame.locals);
        (fields, Rest::UntypedUpTo(end))
    } else {
        let fields = vec![
            attribute(24, "f_back"),
            attribute(32, "f_code"),
            attribute(40, "f_builtins"),
            attribute(48, "f_globals"),
            attribute(56, "f_locals"),
        ];
        (fields, Rest::Nothing)
    };
    Some(Known {
        kind: Kind::Frame,
        fields,
        rest,
    })
}

fn generator(layout: &Layout, frame: &'static str) -> Option<Known> {
    Some(if layout.minor >= 11 {
        Known {
            kind: Kind::Generator,
            fields: Vec::new(),
            rest: Rest::UntypedUpTo(layout.generator_frame),
        }
    } else {
        Known {
            kind: Kind::Plain,
            fields: vec![attribute(layout.generator_frame, frame)],
            rest: Rest::Untyped,
        }
    })
}
