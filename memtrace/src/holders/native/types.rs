//! Which C++ class a block is an object of, named by its virtual table: no debug information is needed, and
//! stripped files have it too (Itanium C++ ABI, sections 2.5.2 and 2.9).

use super::super::memory::Memory;
use super::Modules;
use crate::hash::FastMap;
use std::{cell::RefCell, rc::Rc};

/// Longest name of a class that is read.
const MAX_NAME: usize = 4 << 10;

/// Names of classes. A search depends on mangled ones only: another process makes them readable, which may take too long.
pub(in crate::holders) struct Types {
    /// Mangled, by the address of the virtual table.
    known: RefCell<FastMap<u64, Option<Rc<str>>>>,
    /// By the mangled name.
    readable: RefCell<FastMap<Rc<str>, Option<Rc<str>>>>,
}

impl Types {
    pub(in crate::holders) fn new() -> Self {
        Self {
            known: RefCell::default(),
            readable: RefCell::default(),
        }
    }

    /// The class of the object at the start of a block, mangled: `N3app6WidgetE`. `None`: it is not an object of a class
    /// with virtual functions, or the class was compiled without its name.
    pub(in crate::holders) fn class_of(
        &self,
        memory: &(impl Memory + ?Sized),
        modules: &Modules,
        start: u64,
    ) -> Option<Rc<str>> {
        let table = memory.word(start)?;
        if !table.is_multiple_of(8) {
            return None;
        }
        modules.containing(table)?;
        if let Some(known) = self.known.borrow().get(&table) {
            return known.clone();
        }
        let name: Option<Rc<str>> = class_of(memory, modules, table).map(Into::into);
        self.known.borrow_mut().insert(table, name.clone());
        name
    }

    /// The same, readable. `None`: also if that takes too long.
    pub(in crate::holders) fn type_of(
        &self,
        memory: &(impl Memory + ?Sized),
        modules: &Modules,
        start: u64,
    ) -> Option<Rc<str>> {
        let class = self.class_of(memory, modules, start)?;
        let mut known = self.readable.borrow_mut();
        let name = known.entry(class).or_insert_with_key(|class| {
            let name = modules.demangle(&format!("_ZTS{class}"));
            let name = name.strip_prefix("typeinfo name for ")?;
            Some(readable(name).into())
        });
        name.clone()
    }
}

/// The class of a virtual table, mangled.
fn class_of(memory: &(impl Memory + ?Sized), modules: &Modules, table: u64) -> Option<String> {
    // Not the table of a base that lies inside of the object.
    if memory.word(table.checked_sub(16)?)? != 0 {
        return None;
    }
    let info = memory.word(table.checked_sub(8)?)?;
    if info == 0 {
        // Compiled with -fno-rtti.
        let symbol = modules.symbol_at(table.checked_sub(16)?)?;
        return symbol.strip_prefix("_ZTV").map(str::to_owned);
    }
    // A type_info is an object of a class with virtual functions itself, and its name follows.
    modules.containing(info)?;
    modules.containing(memory.word(info)?)?;
    let name = memory.word(info.checked_add(8)?)?;
    modules.containing(name)?;
    let name = text(memory, name)?;
    // GCC marks names that other files may use for other classes.
    Some(name.strip_prefix('*').unwrap_or(&name).to_owned())
}

/// A mangled name in memory.
fn text(memory: &(impl Memory + ?Sized), start: u64) -> Option<String> {
    let mut text = String::new();
    while text.len() < MAX_NAME {
        let byte = memory.byte(start.checked_add(text.len() as u64)?)?;
        match byte {
            0 => return (!text.is_empty()).then_some(text),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'$' | b'.' | b'*' => {
                text.push(byte.into());
            }
            _ => return None,
        }
    }
    None
}

/// The allocation of a shared pointer is named by its object.
fn readable(class: &str) -> String {
    let of = |prefixes: &[&str]| {
        let rest = prefixes
            .iter()
            .find_map(|prefix| class.strip_prefix(prefix))?;
        let argument = first_argument(rest)?;
        Some(argument.trim_end_matches('*').trim_end().to_owned())
    };
    if let Some(object) = of(&[
        "std::_Sp_counted_ptr_inplace<",
        "std::__1::__shared_ptr_emplace<",
    ]) {
        return format!("{object} (make_shared)");
    }
    match of(&[
        "std::_Sp_counted_ptr<",
        "std::_Sp_counted_deleter<",
        "std::__1::__shared_ptr_pointer<",
    ]) {
        Some(object) => format!("control block of shared_ptr<{object}>"),
        None => class.to_owned(),
    }
}

/// The first template argument, of a list that has been opened.
fn first_argument(list: &str) -> Option<&str> {
    let mut depth = 0_usize;
    for (at, character) in list.char_indices() {
        match character {
            '<' | '(' | '[' => depth += 1,
            ',' | '>' if depth == 0 => return list.get(..at),
            '>' | ')' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_blocks_of_shared_pointers_are_named_by_their_object() {
        for (class, name) in [
            ("foo::Bar", "foo::Bar"),
            (
                "std::_Sp_counted_ptr_inplace<std::map<int, Foo>, std::allocator<std::map<int, Foo> >, (__gnu_cxx::_Lock_policy)2>",
                "std::map<int, Foo> (make_shared)",
            ),
            (
                "std::_Sp_counted_ptr<Foo*, (__gnu_cxx::_Lock_policy)2>",
                "control block of shared_ptr<Foo>",
            ),
            ("std::_Sp_counted_ptr<Foo", "std::_Sp_counted_ptr<Foo"),
        ] {
            assert_eq!(readable(class), name);
        }
    }
}
