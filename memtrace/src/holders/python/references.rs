//! All references of one object, whatever its type.

use super::{
    super::{
        memory::Memory,
        reference::{Check, Label, Name, Reference, Visit, cost},
    },
    Length, Python, attributes, containers, dict,
    frames::{self, code_of},
    known::Kind,
    layout::{OB_SIZE, OB_TYPE, flag},
    types::Type,
    words::{Words, is_pointer},
};
use std::rc::Rc;

/// Most items of an object of a type of C: more are a sign of torn memory.
const MOST_ITEMS: u64 = 1 << 20;

/// An object of a known type.
pub(in super::super) struct Object<'a> {
    python: &'a Python,
    address: u64,
    ty: Rc<Type>,
}

impl Object<'_> {
    pub(in super::super) fn address(&self) -> u64 {
        self.address
    }

    /// Whether nothing is referred to from it.
    pub(in super::super) fn is_leaf(&self) -> bool {
        self.ty.is_leaf()
    }

    /// See [`Python::references`].
    pub(in super::super) fn references(&self, memory: &dyn Memory, visit: &mut Visit<'_>) {
        if !self.is_leaf() {
            self.python
                .references_of(memory, self.address, &self.ty, visit);
        }
    }

    /// Bytes that it needs at least: for a tuple, which contains its items, all of them.
    pub(in super::super) fn least_size(&self, memory: &dyn Memory) -> Option<u64> {
        if self.ty.kind != Kind::Tuple {
            return Some(OB_SIZE);
        }
        let items = memory.word(self.address + OB_SIZE)?;
        let of_items = items.saturating_mul(8);
        Some(of_items.saturating_add(self.python.layout.tuple_items))
    }

    /// Number of elements of a container, its own or a subclass of it.
    pub(in super::super) fn length(&self, memory: &dyn Memory) -> Option<Length> {
        let offset = match self.ty.kind {
            // `ob_size`, `ma_used`.
            Kind::List | Kind::Tuple | Kind::Dict | Kind::Deque => OB_SIZE,
            Kind::Set => containers::SET_USED,
            _ => return None,
        };
        let place = self.address + offset;
        let value = memory.word(place)?;
        Some(Length { value, place })
    }

    /// Number of elements that it holds at most, if it drops others beyond that.
    fn limit(&self, memory: &dyn Memory) -> Option<u64> {
        let offset = match self.ty.kind {
            Kind::Deque => containers::DEQUE_LIMIT,
            Kind::Lru => containers::LRU_LIMIT,
            _ => return None,
        };
        let limit = memory.word(self.address + offset)?;
        (limit <= containers::MOST).then_some(limit)
    }
}

impl Python {
    /// The object at an address, if there is one.
    pub(in super::super) fn object(&self, memory: &dyn Memory, address: u64) -> Option<Object<'_>> {
        let ty = self.types.of(memory, address)?;
        Some(Object {
            python: self,
            address,
            ty,
        })
    }

    /// The references of the object at an address; without an object there are none.
    ///
    /// Each may be to an object, or to a block: [`Label::Buffer`] always is, [`Label::Word`] may be. Nothing was read of
    /// the target yet.
    pub(in super::super) fn references(
        &self,
        memory: &dyn Memory,
        address: u64,
        visit: &mut Visit<'_>,
    ) {
        if let Some(object) = self.object(memory, address) {
            object.references(memory, visit);
        }
    }

    fn references_of(&self, memory: &dyn Memory, address: u64, ty: &Type, visit: &mut Visit<'_>) {
        let words = &mut Words::new(memory);
        // A class keeps its instances' keys and lives as long as they do; a static type lives for ever.
        if ty.is_heap {
            visit(&Reference {
                target: ty.address,
                label: Label::Attribute(Name::Known("__class__")),
                cost: cost::INCIDENTAL,
                checks: &[Check::equal(address + OB_TYPE, ty.address)],
            });
        }
        for &(offset, label, cost) in &ty.fields {
            word(words, address + offset, label, cost, visit);
        }
        if let Some((offset, cost)) = ty.items {
            let count = words.at(address + OB_SIZE).unwrap_or(0).min(MOST_ITEMS);
            // The size of a type may be any number while it is written.
            for offset in (offset..=u64::MAX).step_by(8).take(count as usize) {
                let Some(at) = address.checked_add(offset) else {
                    break;
                };
                word(words, at, Label::Word(offset), cost, visit);
            }
        }
        let layout = &self.layout;
        attributes::references(layout, words, address, ty, visit);
        match ty.kind {
            Kind::Plain | Kind::Lru => {}
            Kind::List => {
                containers::list(words, address, visit);
            }
            Kind::Tuple => {
                containers::tuple(layout, words, address, visit);
            }
            Kind::Dict => dict::references(layout, words, address, visit),
            Kind::Set => {
                containers::set(words, address, visit);
            }
            Kind::Deque => {
                containers::deque(words, address, visit);
            }
            Kind::Type => {
                self.class(words, address, visit);
            }
            Kind::Module => {
                module_state(words, address, visit);
            }
            Kind::Function => {
                self.closure(words, address, visit);
            }
            Kind::ContextNode => {
                containers::context_node(words, address, visit);
            }
            Kind::Frame => {
                self.frame_object(words, address, visit);
            }
            Kind::Generator => {
                self.generator(words, address, ty, visit);
            }
        }
    }

    /// Whether a container has weak references for elements: it keeps nothing.
    pub(in super::super) fn is_weak(&self, memory: &dyn Memory, container: u64) -> bool {
        /// Of a dict, some of these are keys.
        const LOOKED_AT: usize = 8;
        const WEAK: [&str; 4] = ["weakref", "ReferenceType", "KeyedRef", "WeakMethod"];
        let (mut seen, mut weak) = (0, 0);
        self.references(memory, container, &mut |reference| {
            let is_element = matches!(
                reference.label,
                Label::Item(_) | Label::Value(_) | Label::Key | Label::Element
            );
            if is_element && seen < LOOKED_AT {
                seen += 1;
                let is_weak = |name: &&str| self.is_of_type(memory, reference.target, name);
                weak += usize::from(WEAK.iter().any(is_weak));
            }
        });
        // Either the keys or the values.
        weak > 0 && 2 * weak >= seen
    }

    /// Bytes of an object by its type, without the objects it refers to and the text of a `str`.
    pub(in super::super) fn size(&self, memory: &dyn Memory, address: u64) -> Option<u64> {
        let ty = self.types.of(memory, address)?;
        let items = match ty.item_size {
            0 => 0,
            _ => memory.word(address + OB_SIZE)?.min(MOST_ITEMS),
        };
        Some(ty.size.saturating_add(items.saturating_mul(ty.item_size)))
    }

    /// See [`Object::limit`].
    pub(in super::super) fn limit(&self, memory: &dyn Memory, address: u64) -> Option<u64> {
        self.object(memory, address)?.limit(memory)
    }

    /// See [`Object::length`].
    pub(in super::super) fn length(&self, memory: &dyn Memory, address: u64) -> Option<Length> {
        self.object(memory, address)?.length(memory)
    }

    /// The references of a class made in Python besides its dict and its bases.
    fn class(&self, words: &mut Words<'_>, class: u64, visit: &mut Visit<'_>) -> Option<()> {
        let flags = words.at(class + super::layout::tp::FLAGS)?;
        if flags & flag::HEAP_TYPE == 0 {
            return None;
        }
        let keys = self.layout.cached_keys;
        let named = |name| Label::Attribute(Name::Known(name));
        for (offset, label, cost) in [
            (keys - 24, named("__name__"), cost::INCIDENTAL),
            (keys - 16, named("__slots__"), cost::TYPED),
            (keys - 8, named("__qualname__"), cost::INCIDENTAL),
            (keys, Label::Buffer, cost::TYPED),
            (keys + 8, Label::Internal("its module"), cost::INCIDENTAL),
        ] {
            // 3.9 has the module of classes of C there as well.
            word(words, class + offset, label, cost, visit);
        }
        Some(())
    }

    /// The values of a closure's variables, by name.
    fn closure(&self, words: &mut Words<'_>, function: u64, visit: &mut Visit<'_>) -> Option<()> {
        /// `PyCellObject.ob_ref`.
        const CONTENTS: u64 = 16;
        let layout = &self.layout;
        let closure_at = function + layout.function.closure;
        let closure = words.at(closure_at).filter(|&it| is_pointer(it))?;
        let code = words.at(function + layout.function.code)?;
        if !is_pointer(code) {
            return None;
        }
        let mut others = words.again();
        let count = others.at(closure + OB_SIZE)?;
        let names = frames::free_variables(layout, &mut others, code, count)?;
        for index in 0..count.min(MOST_ITEMS) {
            let slot = closure + layout.tuple_items + index * 8;
            let cell = others.at(slot).filter(|&it| is_pointer(it))?;
            let contents = words.at(cell + CONTENTS)?;
            let name = words.at(names + index * 8).unwrap_or(0);
            if !is_pointer(contents) {
                continue;
            }
            visit(&Reference {
                target: contents,
                label: Label::Closure(index, Name::Object(name)),
                cost: cost::TYPED,
                checks: &[
                    Check::equal(closure_at, closure),
                    Check::equal(slot, cell),
                    Check::equal(cell + CONTENTS, contents),
                ],
            });
        }
        Some(())
    }

    fn frame_object(
        &self,
        words: &mut Words<'_>,
        object: u64,
        visit: &mut Visit<'_>,
    ) -> Option<()> {
        let layout = &self.layout;
        let (frame, prefix) = if layout.minor >= 11 {
            let at = object + layout.frame.of_object;
            let frame = words.at(at).filter(|&it| is_pointer(it))?;
            (frame, Some(Check::equal(at, frame)))
        } else {
            (object, None)
        };
        let (code, of_code) = code_of(words, frame, self.at.frame_code.into())?;
        let prefix = [prefix.unwrap_or(of_code), of_code];
        if layout.minor >= 11 {
            visit(&Reference {
                target: code,
                label: Label::Attribute(Name::Known("f_code")),
                cost: cost::TYPED,
                checks: &prefix,
            });
        }
        frames::references(layout, words, frame, code, &prefix, visit)
    }

    fn generator(
        &self,
        words: &mut Words<'_>,
        generator: u64,
        ty: &Type,
        visit: &mut Visit<'_>,
    ) -> Option<()> {
        let layout = &self.layout;
        let is_alive = frames::is_alive(layout, words, generator)?;
        let frame = generator + layout.generator_frame;
        let (code, of_code) = code_of(words, frame, self.at.frame_code.into())?;
        let name = match &*ty.tp_name {
            "coroutine" => "cr_code",
            "async_generator" => "ag_code",
            _ => "gi_code",
        };
        visit(&Reference {
            target: code,
            label: Label::Attribute(Name::Known(name)),
            cost: cost::TYPED,
            checks: &[of_code],
        });
        frames::references(layout, words, frame, code, &[is_alive, of_code], visit)
    }
}

fn word(words: &mut Words<'_>, at: u64, label: Label, cost: u32, visit: &mut Visit<'_>) {
    let Some(target) = words.at(at).filter(|&word| is_pointer(word)) else {
        return;
    };
    visit(&Reference {
        target,
        label,
        cost,
        checks: &[Check::equal(at, target)],
    });
}

/// The private memory of a C module; its definition has the size.
fn module_state(words: &mut Words<'_>, module: u64, visit: &mut Visit<'_>) -> Option<()> {
    /// `PyModuleObject`.
    const DEFINITION: u64 = 24;
    const STATE: u64 = 32;
    /// `PyModuleDef.m_size`.
    const SIZE: u64 = 56;
    const LARGEST: u64 = 1 << 16;
    let state = words.at(module + STATE).filter(|&it| is_pointer(it))?;
    let definition = words.at(module + DEFINITION).filter(|&it| is_pointer(it))?;
    let size = words.again().at(definition + SIZE)?;
    let size = (size <= LARGEST).then_some(size)?;
    for offset in (0..size & !7).step_by(8) {
        let at = state + offset;
        let target = words.at(at)?;
        if is_pointer(target) {
            visit(&Reference {
                target,
                label: Label::Internal("its state"),
                cost: cost::UNTYPED,
                checks: &[
                    Check::equal(module + STATE, state),
                    Check::equal(at, target),
                ],
            });
        }
    }
    Some(())
}
