//! Types: the fields of their objects. A type is read once.

use super::{
    super::{
        memory::Memory,
        reference::{Label, Name, cost},
    },
    base::{Base, LARGEST_TYPE},
    dict,
    known::{Kind, Known, Rest, is_incidental, known},
    layout::{Layout, Managed, OB_TYPE, flag, tp},
    text,
    words::is_pointer,
};
use crate::hash::FastMap;
use std::{
    cell::{OnceCell, RefCell},
    collections::{BTreeMap, HashSet},
    rc::Rc,
};

/// Most types that are cached, including addresses that turned out not to be types, as most in torn memory are.
const MOST_TYPES: usize = 1 << 20;
/// Longest chain of base classes, or of classes of classes.
const DEEPEST: usize = 64;
/// Largest object that is looked at word by word, bytes.
const LARGEST: u64 = 4096;

/// A type, and the fields of its objects.
#[derive(Debug)]
pub(super) struct Type {
    pub(super) address: u64,
    pub(super) kind: Kind,
    pub(super) flags: u64,
    pub(super) size: u64,
    pub(super) item_size: u64,
    /// In the order of their offsets.
    pub(super) fields: Box<[(u64, Label, u32)]>,
    /// Where `ob_size` references follow, and the cost of each.
    pub(super) items: Option<(u64, u32)>,
    pub(super) attributes: Attributes,
    pub(super) is_heap: bool,
    /// `tp_name`.
    pub(super) tp_name: Box<str>,
    name: OnceCell<Box<str>>,
}

/// Where the attributes of an instance are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attributes {
    None,
    /// A dict at this offset.
    At(u64),
    /// A dict this many bytes before the end of an object of variable size.
    BeforeEnd(u64),
    /// As the version has them, see [`Managed`].
    Managed,
}

impl Type {
    /// Whether nothing is referred to from it.
    pub(super) fn is_leaf(&self) -> bool {
        self.fields.is_empty()
            && self.items.is_none()
            && !self.is_heap
            && self.kind == Kind::Plain
            && self.attributes == Attributes::None
    }
}

/// Types by their addresses.
pub(super) struct Types {
    layout: Layout,
    /// `type` itself.
    meta: u64,
    known: RefCell<FastMap<u64, Option<Rc<Type>>>>,
}

impl Types {
    pub(super) fn new(layout: Layout, meta: u64) -> Self {
        Self {
            layout,
            meta,
            known: RefCell::default(),
        }
    }

    /// The type of the object at an address; `None`: there is no object.
    pub(super) fn of(&self, memory: &dyn Memory, object: u64) -> Option<Rc<Type>> {
        if !is_pointer(object) {
            return None;
        }
        let mut head = [0; 16];
        if !memory.read(object, &mut head) {
            return None;
        }
        let [count, ty] = [0, 8].map(|at| head[at..].first_chunk().copied().unwrap_or_default());
        self.is_alive(u64::from_le_bytes(count))
            .then(|| self.get(memory, u64::from_le_bytes(ty)))?
    }

    /// The name of the type at an address, see [`Types::name`].
    pub(super) fn name_at(&self, memory: &dyn Memory, ty: u64) -> Option<String> {
        let ty = self.get(memory, ty)?;
        Some(self.name_of(memory, &ty).to_owned())
    }

    /// Whether it is the reference count of a live object: a freed one has a pointer there, or zero. Since 3.14 the
    /// upper half has flags and 16 bits that are 0.
    pub(super) fn is_alive(&self, count: u64) -> bool {
        let upper = if self.layout.minor >= 14 {
            count >> 32 & 0xffff
        } else {
            count >> 40
        };
        count as u32 != 0 && upper == 0
    }

    /// The type at an address.
    pub(super) fn get(&self, memory: &dyn Memory, address: u64) -> Option<Rc<Type>> {
        if let Some(known) = self.known.borrow().get(&address) {
            return known.clone();
        }
        let ty = self.read(memory, address).map(Rc::new);
        let mut known = self.known.borrow_mut();
        if known.len() >= MOST_TYPES {
            known.clear();
        }
        known.insert(address, ty.clone());
        ty
    }

    /// The name of an object's type as Python's messages have it: `module.Class`, without the module for a builtin.
    pub(super) fn name(&self, memory: &dyn Memory, object: u64) -> Option<Box<str>> {
        let ty = self.of(memory, object)?;
        Some(self.name_of(memory, &ty).into())
    }

    fn name_of<'a>(&self, memory: &dyn Memory, ty: &'a Type) -> &'a str {
        ty.name.get_or_init(|| {
            self.qualified(memory, ty)
                .map_or_else(|| ty.tp_name.clone(), Into::into)
        })
    }

    /// Whether an object is of the type of that name, with its module or without.
    pub(super) fn is_named(&self, memory: &dyn Memory, object: u64, name: &str) -> bool {
        self.of(memory, object).is_some_and(|ty| {
            let of_type = self.name_of(memory, &ty);
            of_type == name || of_type.rsplit('.').next() == Some(name)
        })
    }

    /// The `tp_name` of a class made in Python has no module.
    fn qualified(&self, memory: &dyn Memory, ty: &Type) -> Option<String> {
        if !ty.is_heap || ty.tp_name.contains('.') {
            return None;
        }
        let layout = &self.layout;
        let dict = memory.word(ty.address.checked_add(tp::DICT)?)?;
        let module = dict::get(layout, memory, dict, "__module__")?;
        if self.of(memory, module)?.flags & flag::STR == 0 {
            return None;
        }
        let module = text::name(layout, memory, module)?;
        let qualified = memory.word(ty.address + layout.qualified_name())?;
        let name = text::name(layout, memory, qualified)?;
        Some(match &*module {
            "builtins" => name,
            module => format!("{module}.{name}"),
        })
    }

    fn is_type(&self, memory: &dyn Memory, address: u64) -> bool {
        if !is_pointer(address) {
            return false;
        }
        let class_of = |it: u64| memory.word(it.checked_add(OB_TYPE)?);
        let Some(meta) = class_of(address).filter(|&meta| is_pointer(meta)) else {
            return false;
        };
        if meta == self.meta {
            return true;
        }
        let flags = memory.word(meta + tp::FLAGS);
        let mut chain = std::iter::successors(Some(meta), |&it| class_of(it));
        flags.is_some_and(|flags| flags & flag::TYPE != 0)
            && chain.by_ref().take(DEEPEST).any(|it| it == self.meta)
    }

    fn read(&self, memory: &dyn Memory, address: u64) -> Option<Type> {
        if !self.is_type(memory, address) {
            return None;
        }
        let word = |offset: u64| memory.word(address.checked_add(offset)?);
        let flags = word(tp::FLAGS)?;
        let size = word(tp::BASICSIZE)?;
        let item_size = word(tp::ITEMSIZE)?;
        // 3.9 has static types that were never readied.
        let is_made = flags & (flag::READY | flag::HEAP_TYPE) != flag::HEAP_TYPE;
        if !is_made || !(16..LARGEST_TYPE).contains(&size) {
            return None;
        }
        let tp_name = text::c_string(memory, word(tp::NAME)?)?;
        let mut ty = Type {
            address,
            kind: Kind::Plain,
            flags,
            size,
            item_size,
            fields: Box::default(),
            items: None,
            attributes: self.attributes(flags, word(tp::DICTOFFSET)?.cast_signed()),
            is_heap: flags & flag::HEAP_TYPE != 0,
            tp_name: tp_name.into(),
            name: OnceCell::new(),
        };
        let weak = word(tp::WEAKLISTOFFSET)?;
        self.describe(memory, &mut ty, weak);
        Some(ty)
    }

    fn attributes(&self, flags: u64, offset: i64) -> Attributes {
        if flags & flag::MANAGED_DICT != 0 && self.layout.managed != Managed::No {
            return Attributes::Managed;
        }
        match offset {
            0 => Attributes::None,
            _ if offset.unsigned_abs() >= LARGEST_TYPE => Attributes::None,
            1.. => Attributes::At(offset.unsigned_abs()),
            _ => Attributes::BeforeEnd(offset.unsigned_abs()),
        }
    }

    /// Collects the fields that the type and its bases describe, from `object` on.
    fn describe(&self, memory: &dyn Memory, ty: &mut Type, weak: u64) {
        let mut fields = BTreeMap::new();
        let mut covered = 16;
        let mut has_items = false;
        for base in self.bases(memory, ty.address).into_iter().rev() {
            let known = known(&self.layout, &base).unwrap_or(Known::UNKNOWN);
            if known.kind != Kind::Plain {
                ty.kind = known.kind;
            }
            for (offset, label, cost) in known.fields {
                fields.insert(offset, (label, cost));
            }
            for (offset, label, cost) in members(memory, &base) {
                fields.entry(offset).or_insert((label, cost));
            }
            let (end, price) = match known.rest {
                Rest::Nothing => (0, 0),
                Rest::Untyped => (base.size, cost::UNTYPED),
                Rest::UntypedUpTo(end) => (end, cost::UNTYPED),
                Rest::Typed => (base.size, cost::TYPED),
            };
            for offset in (covered..end.min(LARGEST)).step_by(8) {
                let word = (Label::Word(offset), price);
                fields.entry(offset).or_insert(word);
            }
            covered = covered.max(base.size.next_multiple_of(8));
            // The base that adds the items knows their type.
            if base.item_size == 8 && !has_items {
                has_items = true;
                let are_references = matches!(known.rest, Rest::Untyped | Rest::Typed);
                ty.items = are_references.then_some((base.size, price));
            }
        }
        fields.remove(&weak);
        if let Attributes::At(offset) = ty.attributes {
            fields.remove(&offset);
        }
        let end = ty.size;
        ty.fields = fields
            .into_iter()
            .filter(|&(offset, _)| offset >= 16 && offset + 8 <= end && offset % 8 == 0)
            .map(|(offset, (label, cost))| (offset, label, cost))
            .collect();
    }

    /// The type and its bases.
    fn bases(&self, memory: &dyn Memory, ty: u64) -> Vec<Base> {
        let mut bases = Vec::new();
        let mut seen = HashSet::new();
        let mut next = Some(ty);
        while let Some(base) = next.filter(|&it| bases.len() < DEEPEST && seen.insert(it)) {
            if !self.is_type(memory, base) {
                break;
            }
            let Some(it) = Base::read(memory, base) else {
                break;
            };
            bases.push(it);
            next = memory.word(base + tp::BASE);
        }
        bases
    }
}

/// `tp_members` has the offsets of some fields of C types, and of `__slots__`.
fn members(memory: &dyn Memory, base: &Base) -> Vec<(u64, Label, u32)> {
    /// `PyMemberDef`.
    const SIZE: u64 = 40;
    /// `T_OBJECT` and `T_OBJECT_EX`.
    const OBJECTS: [u32; 2] = [6, 16];
    const MOST: u64 = 1000;
    let mut members = Vec::new();
    let Some(table) = memory
        .word(base.address + tp::MEMBERS)
        .filter(|&it| is_pointer(it))
    else {
        return members;
    };
    for at in (table..).step_by(SIZE as usize).take(MOST as usize) {
        let (Some(name), Some(kind), Some(offset)) =
            (memory.word(at), memory.half(at + 8), memory.word(at + 16))
        else {
            break;
        };
        if name == 0 {
            break;
        }
        if OBJECTS.contains(&kind) && offset < base.size {
            let text = text::c_string(memory, name);
            let price = match text {
                Some(text) if is_incidental(&text) => cost::INCIDENTAL,
                Some(_) => cost::TYPED,
                None => break,
            };
            members.push((offset, Label::Attribute(Name::Text(name)), price));
        }
    }
    members
}
