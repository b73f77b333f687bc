//! A table of strings, as protobuf formats have it.

use std::collections::HashMap;

/// Distinct texts by place; the first is empty.
pub(super) struct Strings {
    all: Vec<String>,
    places: HashMap<String, i64>,
}

impl Default for Strings {
    fn default() -> Self {
        Strings::from(vec![String::new()])
    }
}

impl From<Vec<String>> for Strings {
    /// The texts of another table keep their places.
    fn from(all: Vec<String>) -> Self {
        let places = all.iter().cloned().zip(0..).collect();
        Strings { all, places }
    }
}

impl Strings {
    pub(super) fn place(&mut self, text: &str) -> i64 {
        if let Some(place) = self.places.get(text) {
            return *place;
        }
        let place = self.all.len() as i64;
        self.all.push(text.to_owned());
        self.places.insert(text.to_owned(), place);
        place
    }

    pub(super) fn get(&self, place: i64) -> Option<&str> {
        let text = self.all.get(usize::try_from(place).ok()?)?;
        Some(text)
    }

    pub(super) fn into_list(self) -> Vec<String> {
        self.all
    }
}
