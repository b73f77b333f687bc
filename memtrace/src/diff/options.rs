//! The options of a comparison, among them the unit of growth.

use std::str::FromStr;

/// The unit of growth.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Per {
    #[default]
    Seconds,
    /// Any allocation.
    Count,
    /// An allocation at this place: a function's name, or `file:line`.
    AllocOf(String),
}

impl Per {
    /// The unit, for people.
    pub(crate) fn unit(&self) -> String {
        match self {
            Per::Seconds => "s".into(),
            Per::Count => "allocation".into(),
            Per::AllocOf(place) => format!("allocation of {place}"),
        }
    }
}

impl FromStr for Per {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "seconds" => Ok(Per::Seconds),
            "count" => Ok(Per::Count),
            _ => match text.strip_prefix("alloc-of=") {
                Some(place) if !place.is_empty() => Ok(Per::AllocOf(place.into())),
                _ => Err(format!(
                    "`{text}` is not a unit; give `seconds`, `count` or `alloc-of=FUNCTION`"
                )),
            },
        }
    }
}

/// Options of a comparison.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub per: Per,
    /// Functions that differ in template arguments only are different functions.
    pub templates: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            per: Per::Seconds,
            templates: true,
        }
    }
}
