//! Frames in which a container grows. Its buffer is a block like any other, so the line that made it
//! grow is the line that puts something in.

use super::{
    Frame, innermost_of_program,
    own_line::is_of_language,
    symbol::{in_source, plain},
};
use std::iter;

/// Contents of a container's block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Holds {
    /// All elements, each of this many bytes: to grow, the block is replaced by a larger one.
    All(Span),
    /// This many elements: to grow, another block is added.
    Some(Span),
}

/// A number, perhaps known only within bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Span {
    pub(crate) least: f64,
    pub(crate) most: f64,
}

/// A container as its own code shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Container {
    pub(crate) name: &'static str,
    /// Its class, without template arguments; empty if functions have none.
    class: &'static str,
    /// Functions that allocate for it; of a class, the beginnings of their names.
    functions: &'static [&'static str],
    pub(crate) holds: Holds,
}

impl Span {
    pub(crate) const fn exactly(value: f64) -> Span {
        Span {
            least: value,
            most: value,
        }
    }

    /// Possible quotients of positive numbers.
    pub(crate) fn over(self, other: Span) -> Span {
        Span {
            least: self.least / other.most,
            most: self.most / other.least,
        }
    }
}

const POINTER: f64 = 8.0;

/// An element of unknown type: to keep a block it needs at least a pointer.
const ELEMENT: Span = Span {
    least: POINTER,
    most: 64.0,
};

/// Bytes of a node of libstdc++'s deque (`__deque_buf_size` of stl_deque.h).
const DEQUE_NODE: f64 = 512.0;

/// By language. Sizes of CPython: Objects/listobject.c, Objects/dictobject.c (an entry of 16 or 24
/// bytes, 2/3 of the table, and its index), Objects/setobject.c (16 bytes, at most 3/5 in use),
/// Modules/_collectionsmodule.c (`BLOCKLEN`). C++: libstdc++ and libc++; Rust: liballoc and
/// hashbrown (an element and a control byte), which do not show how large an element is, and channels without a limit
/// (`BLOCK_CAP` of std's mpmc and of crossbeam, and of tokio).
const CONTAINERS: &[Container] = &[
    container(
        "list",
        "",
        &[
            "list_resize",
            "_PyList_AppendTakeRefListResize",
            "list_concat",
        ],
        Holds::All(Span::exactly(POINTER)),
    ),
    container(
        "tuple",
        "",
        &["tuple_concat", "tupleconcat"],
        Holds::All(Span::exactly(POINTER)),
    ),
    container(
        "dict",
        "",
        &["dictresize", "insertion_resize", "dict_resize"],
        Holds::All(Span::exactly(30.0)),
    ),
    container(
        "set",
        "",
        &["set_table_resize", "set_add_entry"],
        Holds::All(Span::exactly(32.0)),
    ),
    container(
        "deque",
        "",
        &["deque_append_internal", "deque_append", "deque_appendleft"],
        Holds::Some(Span::exactly(64.0)),
    ),
    container(
        "std::vector",
        "std::vector",
        &[
            "_M_realloc_insert",
            "_M_realloc_append",
            "_M_default_append",
            "_M_fill_insert",
            "_M_range_insert",
            "__push_back_slow_path",
            "__emplace_back_slow_path",
            "push_back",
            "emplace_back",
        ],
        Holds::All(ELEMENT),
    ),
    container(
        "std::deque",
        "std::deque",
        &[
            "_M_push_back_aux",
            "_M_push_front_aux",
            "push_back",
            "emplace_back",
        ],
        Holds::Some(Span {
            least: DEQUE_NODE / ELEMENT.most,
            most: DEQUE_NODE / ELEMENT.least,
        }),
    ),
    container(
        "std::list",
        "std::list",
        &["_M_create_node", "_M_insert", "push_back", "emplace_back"],
        Holds::Some(Span::exactly(1.0)),
    ),
    container(
        "std::map or std::set",
        "std::_Rb_tree",
        &["_M_create_node", "_M_get_node", "_M_emplace", "_M_insert"],
        Holds::Some(Span::exactly(1.0)),
    ),
    container(
        "std::unordered_map or set",
        "std::_Hashtable",
        &[
            "_M_allocate_node",
            "_Scoped_node",
            "_M_emplace",
            "_M_insert",
            "_M_rehash",
        ],
        Holds::Some(Span::exactly(1.0)),
    ),
    container(
        "std::unordered_map or set",
        "std::__detail::_Hashtable_alloc",
        &["_M_allocate_node"],
        Holds::Some(Span::exactly(1.0)),
    ),
    container(
        "std::unordered_map or set",
        "std::__detail::_Map_base",
        &["operator[]"],
        Holds::Some(Span::exactly(1.0)),
    ),
    container(
        "Vec",
        "alloc::raw_vec::RawVec",
        &["grow_one", "grow_amortized", "reserve", "finish_grow"],
        Holds::All(ELEMENT),
    ),
    container(
        "HashMap",
        "hashbrown::raw::RawTable",
        &["reserve_rehash", "resize"],
        Holds::All(Span {
            least: ELEMENT.least + 1.0,
            most: ELEMENT.most + 1.0,
        }),
    ),
    container(
        "BTreeMap",
        "alloc::collections::btree",
        &["insert", "new"],
        Holds::Some(Span {
            least: 5.0,
            most: 11.0,
        }),
    ),
    container(
        "channel",
        "mpmc::list::",
        &["send", "start_send", "new"],
        Holds::Some(Span::exactly(31.0)),
    ),
    container(
        "channel",
        "crossbeam_channel::flavors::list::",
        &["send", "start_send", "new"],
        Holds::Some(Span::exactly(31.0)),
    ),
    container(
        "channel",
        "tokio::sync::mpsc::block::Block",
        &["new", "grow"],
        Holds::Some(Span::exactly(32.0)),
    ),
];

const fn container(
    name: &'static str,
    class: &'static str,
    functions: &'static [&'static str],
    holds: Holds,
) -> Container {
    Container {
        name,
        functions,
        class,
        holds,
    }
}

/// C++ types of known size, by the beginnings of their names; for libstdc++ and libc++ if these
/// differ.
const TYPES: &[(&str, Span)] = &[
    ("std::shared_ptr<", Span::exactly(16.0)),
    ("std::weak_ptr<", Span::exactly(16.0)),
    ("std::vector<", Span::exactly(24.0)),
    (
        "std::basic_string<",
        Span {
            least: 24.0,
            most: 32.0,
        },
    ),
    (
        "std::function<",
        Span {
            least: 32.0,
            most: 48.0,
        },
    ),
];

/// Functions of CPython between a container and the allocation, in all its allocators.
const BELOW: &[&str] = &[
    "PyMem_",
    "PyObject_Malloc",
    "PyObject_Realloc",
    "_PyMem_",
    "_PyObject_Malloc",
    "_PyObject_Realloc",
    "new_keys_object",
    "newblock",
    "pymalloc_",
];

/// Functions that enlarge a block when it is full, the beginnings of their names by class; those of CPython have none.
const ENLARGE: &[(&str, &[&str])] = &[
    ("basic_string", &["_M_mutate", "_M_append", "__grow_by"]),
    ("basic_stringbuf", &["overflow"]),
    (
        "std::vector",
        &[
            "_M_realloc_insert",
            "_M_realloc_append",
            "__push_back_slow",
            "__emplace_back_slow",
        ],
    ),
    ("alloc::raw_vec::RawVec", &["grow_one", "grow_amortized"]),
    (
        "",
        &[
            "PyByteArray_Resize",
            "list_resize",
            "dictresize",
            "insertion_resize",
            "dict_resize",
        ],
    ),
];

/// Whether a stack without its wrappers (leaf first) enlarges a block that has all of a string or a container.
pub(crate) fn enlarges<'a>(frames: impl IntoIterator<Item = &'a Frame>) -> bool {
    let enlarges = |frame: &Frame| {
        let name = plain(frame.function.as_deref().unwrap_or_default());
        let own = name.rsplit("::").next().unwrap_or_default();
        ENLARGE
            .iter()
            .any(|(class, functions)| match class.is_empty() {
                true => functions.contains(&name.as_str()),
                false => {
                    name.contains(class) && functions.iter().any(|begin| own.starts_with(begin))
                }
            })
    };
    let mut library = frames
        .into_iter()
        .take_while(|frame| is_library(frame) || enlarges(frame));
    library.any(enlarges)
}

/// Whether a stack without its wrappers (leaf first) allocates for a map of Rust that gets what another one has.
pub(crate) fn moves<'a>(frames: impl IntoIterator<Item = &'a Frame>) -> bool {
    let mut library = frames.into_iter().take_while(|frame| is_library(frame));
    library.any(|frame| {
        let name = plain(frame.function.as_deref().unwrap_or_default());
        let is_move = name.ends_with("::split_off") || name.ends_with("::append");
        is_move && name.contains("::btree::")
    })
}

/// The container for which a stack without its wrappers (leaf first) allocates, and the frame that
/// put something in: the program's innermost of Python, or the first that is none of a language's library.
pub(crate) fn filled<'a>(
    frames: impl IntoIterator<Item = &'a Frame>,
) -> Option<(Container, &'a Frame)> {
    let mut frames = frames.into_iter();
    let mut container = None;
    let line = frames.find(|frame| {
        container = container.or_else(|| of(frame));
        !is_library(frame)
    })?;
    let container = container?;
    match container.class {
        "" => innermost_of_program(
            iter::once(line)
                .chain(frames)
                .filter(|frame| frame.is_python()),
        ),
        _ => Some(line),
    }
    .map(|line| (container, line))
}

fn of(frame: &Frame) -> Option<Container> {
    let name = frame.function.as_deref()?;
    let function = plain(name);
    let mut containers = CONTAINERS.iter();
    let container = containers.find(|container| match container.class {
        "" => container.functions.contains(&function.as_str()),
        class => function.split_once(class).is_some_and(|(_, rest)| {
            let name = rest.rsplit("::").next().unwrap_or(rest);
            let mut own = container.functions.iter();
            own.any(|own| name.starts_with(own))
        }),
    })?;
    Some(Container {
        holds: holds(container, name),
        ..*container
    })
}

/// Its contents, more exactly if the name of its function contains the type of an element.
fn holds(container: &Container, function: &str) -> Holds {
    let size = match container.class {
        "std::vector" | "std::deque" => size_of_element(container.class, function),
        _ => None,
    };
    match (container.holds, size) {
        (Holds::All(_), Some(size)) => Holds::All(size),
        (Holds::Some(_), Some(size)) => Holds::Some(Span::exactly(DEQUE_NODE).over(size)),
        (holds, None) => holds,
    }
}

/// Bytes of the first template argument of `class`; `None`: not known.
fn size_of_element(class: &str, function: &str) -> Option<Span> {
    let function = in_source(function, true);
    let arguments = function.split_once(class)?.1.strip_prefix('<')?;
    let mut depth = 0usize;
    let end = arguments.find(|c| {
        match c {
            '<' | '(' => depth += 1,
            '>' | ')' if depth > 0 => depth -= 1,
            '>' | ',' => return depth == 0,
            _ => {}
        }
        false
    });
    let element = arguments[..end?].trim_end();
    // One with a deleter of its own may be larger.
    let is_unique =
        element.starts_with("std::unique_ptr<") && element.contains("std::default_delete<");
    if element.ends_with('*') || is_unique {
        return Some(Span::exactly(POINTER));
    }
    let mut types = TYPES.iter();
    types
        .find(|(name, _)| element.starts_with(name) && element.ends_with('>'))
        .map(|(_, size)| *size)
}

/// A language's library, or a container of the interpreter's.
fn is_library(frame: &Frame) -> bool {
    let is_below = |function: &String| BELOW.iter().any(|below| function.starts_with(below));
    !frame.is_python()
        && (is_of_language(frame)
            || of(frame).is_some()
            || frame.function.as_ref().is_some_and(is_below))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::fixture::{self, python};

    fn native(function: &str) -> Frame {
        fixture::native(function, "/srv/program")
    }

    fn found<'a>(frames: &[&'a Frame]) -> Option<(&'static str, &'a str)> {
        let (container, line) = filled(frames.iter().copied())?;
        Some((container.name, line.function.as_deref().unwrap()))
    }

    #[test]
    fn the_line_that_fills_a_container_is_the_first_outside_of_it() {
        let log = python("Service.log", "server.py", 38);
        let eval = native("_PyEval_EvalFrameDefault");
        let main = native("main");
        for (functions, name) in [
            (
                &["list_resize", "_PyList_AppendTakeRefListResize"][..],
                "list",
            ),
            (
                &[
                    "_PyObject_Malloc",
                    "new_keys_object",
                    "dictresize",
                    "insertion_resize",
                ],
                "dict",
            ),
            (
                &["newblock", "deque_append_internal", "deque_append"],
                "deque",
            ),
        ] {
            let natives: Vec<Frame> = functions.iter().map(|name| native(name)).collect();
            let mut frames: Vec<&Frame> = natives.iter().collect();
            frames.extend([&log, &eval, &main]);
            assert_eq!(found(&frames), Some((name, "Service.log")));
        }
        let inner = native(
            "void std::vector<Block*, std::allocator<Block*> >::_M_realloc_insert<Block*>(__gnu_cxx::__normal_iterator<Block**, std::vector<Block*> >, Block*&&)",
        );
        let outer = native("std::vector<Block*, std::allocator<Block*> >::push_back(Block*&&)");
        let keep = native("Cache::keep(std::vector<int> const&)");
        assert_eq!(
            found(&[&inner, &outer, &keep, &main]),
            Some(("std::vector", "Cache::keep(std::vector<int> const&)"))
        );
        let insert = native(
            "std::_Hashtable<int, std::pair<int const, int> >::_M_insert_unique_node(unsigned long, unsigned long)",
        );
        assert_eq!(
            found(&[&insert, &keep]).map(|(name, _)| name),
            Some("std::unordered_map or set")
        );
    }

    #[test]
    fn the_tables_of_a_map_are_those_of_its_parts() {
        let keep = native("Cache::keep(int)");
        for function in [
            "std::__detail::_Hashtable_alloc<std::allocator<int> >::_M_allocate_node<int>(int&&)",
            "std::_Hashtable<int, int>::_Scoped_node::_Scoped_node<int>(int&&)",
            "std::__detail::_Map_base<int, std::pair<int const, A> >::operator[](int const&)",
        ] {
            let found = found(&[&native(function), &keep]).map(|(name, _)| name);
            assert_eq!(found, Some("std::unordered_map or set"), "{function}");
        }
    }

    #[test]
    fn what_copies_or_moves_items_does_not_fill_a_container() {
        let new = native("alloc::collections::btree::node::NodeRef<K,V>::new_leaf");
        let split = native("alloc::collections::btree::map::BTreeMap<K,V,A>::split_off");
        let insert = native("alloc::collections::btree::map::BTreeMap<K,V,A>::insert");
        let reap = native("app::reap");
        assert!(moves([&new, &split, &reap]));
        assert!(!moves([&new, &insert, &reap]));
        assert!(!moves([&new, &reap, &split]));
    }

    #[test]
    fn strings_and_vectors_are_enlarged_when_they_are_full() {
        let log = native("Access::log");
        for function in [
            "std::__cxx11::basic_string<char, A>::_M_mutate(unsigned long, unsigned long)",
            "std::__cxx11::basic_stringbuf<char, A>::overflow(int)",
            "std::vector<int, A>::_M_realloc_insert<int>(int*)",
            "PyByteArray_Resize",
        ] {
            assert!(enlarges([&native(function), &log]), "{function}");
        }
        for function in [
            "std::__cxx11::basic_string<char, A>::basic_string(char const*)",
            "std::__cxx11::basic_string<char, A>::reserve(unsigned long)",
            "std::vector<int, A>::_M_default_append(unsigned long)",
            "std::_Hashtable<int, int>::_M_insert_unique_node(unsigned long)",
            "Log::append",
            "reserve",
        ] {
            assert!(!enlarges([&native(function), &log]), "{function}");
        }
    }

    #[test]
    fn channels_of_rust_are_filled_by_their_senders() {
        let run = native("gateway::run");
        for functions in [
            &[
                "std::sync::mpmc::list::Block<T>::new",
                "std::sync::mpmc::list::Channel<T>::send",
            ][..],
            &["crossbeam_channel::flavors::list::Block<T>::new"],
            &[
                "tokio::sync::mpsc::block::Block<T>::new",
                "tokio::sync::mpsc::list::Tx<T>::push",
            ],
        ] {
            let natives: Vec<Frame> = functions.iter().map(|name| native(name)).collect();
            let frames: Vec<&Frame> = natives.iter().chain([&run]).collect();
            let line = found(&frames).map(|(name, _)| name);
            assert_eq!(line, Some("channel"), "{functions:?}");
        }
    }

    #[test]
    fn a_container_filled_through_the_library_is_filled_by_the_program() {
        let put = python("Queue._put", "/usr/lib/python3.11/queue.py", 214);
        let submit = python("Audit.submit", "/srv/audit.py", 18);
        let main = python("<module>", "/srv/audit.py", 30);
        let [newblock, append] = ["newblock", "deque_append"].map(native);
        assert_eq!(
            found(&[&newblock, &append, &put, &submit, &main]),
            Some(("deque", "Audit.submit"))
        );
    }

    #[test]
    fn an_elements_size_is_that_of_its_type() {
        let main = native("main");
        let holds = |function: &str| {
            let frame = native(function);
            filled([&frame, &main]).unwrap().0.holds
        };
        for (element, least, most) in [
            ("Block*", 8.0, 8.0),
            ("void (*)(int)", 8.0, 64.0),
            ("std::unique_ptr<Job, std::default_delete<Job> >", 8.0, 8.0),
            ("std::unique_ptr<FILE, int (*)(FILE*)>", 8.0, 64.0),
            ("std::shared_ptr<std::pair<int, A*> >", 16.0, 16.0),
            ("std::__cxx11::basic_string<char>", 24.0, 32.0),
            ("std::function<unsigned long (int, int)>", 32.0, 48.0),
            ("std::vector<int>::iterator", 8.0, 64.0),
            ("Job", 8.0, 64.0),
        ] {
            let span = Span { least, most };
            let of = format!("<{element}, std::allocator<{element} > >");
            let insert = format!("void std::vector{of}::_M_realloc_insert<{element} >(int)");
            assert_eq!(holds(&insert), Holds::All(span), "{element}");
            let push = format!("void std::deque{of}::_M_push_back_aux<{element} >(int)");
            let nodes = Span {
                least: 512.0 / most,
                most: 512.0 / least,
            };
            assert_eq!(holds(&push), Holds::Some(nodes), "{element}");
        }
        let vec = "alloc::raw_vec::RawVec<T,A>::grow_one";
        assert_eq!(holds(vec), Holds::All(ELEMENT));
    }

    #[test]
    fn direct_allocations_fill_no_container() {
        let [keep, main, make] = ["keep", "main", "std::make_unique<int>(int&&)"].map(native);
        assert_eq!(found(&[&keep, &main]), None);
        assert_eq!(found(&[&make, &main]), None);
        // Beyond the program's own frame containers do not count.
        let inner = native("std::vector<int>::_M_realloc_insert(int)");
        assert_eq!(found(&[&keep, &inner, &main]), None);
        assert_eq!(found(&[]), None);
    }
}
