//! Attributes of instances: in a dict, or beside the object until a dict is requested.

use super::{
    super::reference::{Check, Label, Name, Reference, Visit, cost},
    dict::{Keys, each_shared},
    layout::{Layout, Managed, OB_SIZE, flag},
    types::{Attributes, Type},
    words::{Words, is_pointer},
};

/// For an object with `Py_TPFLAGS_MANAGED_DICT`, in bytes before it.
const DICT_BEFORE: u64 = 24;
const VALUES_BEFORE: u64 = 32;

/// The attributes of an object, see the module.
pub(super) fn references(
    layout: &Layout,
    words: &mut Words<'_>,
    object: u64,
    ty: &Type,
    visit: &mut Visit<'_>,
) -> Option<()> {
    match ty.attributes {
        Attributes::None => None,
        Attributes::At(offset) => dict(words, object + offset, visit),
        Attributes::BeforeEnd(offset) => {
            const MOST: u64 = 1 << 36;
            let count = words.at(object + OB_SIZE)?.cast_signed().unsigned_abs();
            let items = count.min(MOST).checked_mul(ty.item_size)?;
            let end = (object + ty.size).checked_add(items)?;
            dict(
                words,
                end.checked_next_multiple_of(8)?.checked_sub(offset)?,
                visit,
            )
        }
        Attributes::Managed => managed(layout, words, object, ty, visit),
    }
}

fn dict(words: &mut Words<'_>, at: u64, visit: &mut Visit<'_>) -> Option<()> {
    let dict = words.at(at)?;
    is_pointer(dict).then(|| {
        visit(&Reference {
            target: dict,
            label: Label::Namespace,
            cost: cost::TYPED,
            checks: &[Check::equal(at, dict)],
        });
    })
}

fn managed(
    layout: &Layout,
    words: &mut Words<'_>,
    object: u64,
    ty: &Type,
    visit: &mut Visit<'_>,
) -> Option<()> {
    let dict_at = object - DICT_BEFORE;
    match layout.managed {
        Managed::No => None,
        Managed::Two => {
            let values = words.at(object - VALUES_BEFORE)?;
            if is_pointer(values) {
                let check = Check::equal(object - VALUES_BEFORE, values);
                buffer(values, check, visit);
                return inline(layout, words, ty, values, check, visit);
            }
            dict(words, dict_at, visit)
        }
        Managed::Tagged => {
            let word = words.at(dict_at)?;
            if word & 1 == 0 {
                return dict(words, dict_at, visit);
            }
            let values = word.checked_add(1).filter(|&it| is_pointer(it))?;
            let check = Check::equal(dict_at, word);
            buffer(values, check, visit);
            inline(layout, words, ty, values, check, visit)
        }
        Managed::Inline => {
            const VALID: u64 = 0xff << 24;
            if ty.flags & flag::INLINE_VALUES != 0 {
                let values = (object + ty.size).next_multiple_of(8);
                if words.at(values)? & VALID != 0 {
                    let check = Check {
                        mask: VALID,
                        ..Check::equal(values, 1 << 24)
                    };
                    inline(layout, words, ty, values + layout.values, check, visit);
                }
            }
            dict(words, dict_at, visit)
        }
    }
}

/// The values have a block of their own.
fn buffer(values: u64, check: Check, visit: &mut Visit<'_>) {
    visit(&Reference {
        target: values,
        label: Label::Buffer,
        cost: cost::TYPED,
        checks: &[check],
    });
}

/// Values in the order of the keys that the class has.
fn inline(
    layout: &Layout,
    words: &mut Words<'_>,
    ty: &Type,
    values: u64,
    are_there: Check,
    visit: &mut Visit<'_>,
) -> Option<()> {
    let mut apart = words.again();
    let keys_at = ty.address + layout.cached_keys;
    let address = apart.at(keys_at)?;
    let keys = Keys::read(layout, &mut apart, address)?;
    let mut checks = [are_there; 4];
    checks[1] = Check::equal(keys_at, address);
    each_shared(
        &keys,
        values,
        &mut apart,
        &mut |key, slot, value, key_at| {
            checks[2] = Check::equal(key_at, key);
            checks[3] = Check::equal(slot, value);
            visit(&Reference {
                target: value,
                label: Label::Attribute(Name::Object(key)),
                cost: cost::TYPED,
                checks: &checks,
            });
        },
    );
    Some(())
}
