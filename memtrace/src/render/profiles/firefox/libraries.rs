//! The list of a profile's libraries: the files that the code is in.

use std::collections::BTreeMap;

use super::format::Library;
use crate::escape::clean;

/// Files of code, which all tracks share.
#[derive(Default)]
pub(super) struct Libraries {
    pub(super) all: Vec<Library>,
    places: BTreeMap<String, usize>,
}

impl Libraries {
    pub(super) fn place(&mut self, path: &str) -> usize {
        if let Some(place) = self.places.get(path) {
            return *place;
        }
        let shown = clean(path);
        let name = shown.rsplit('/').next().unwrap_or(&shown);
        self.all.push(Library {
            name: name.to_owned(),
            debug_name: name.to_owned(),
            path: shown.clone(),
            debug_path: shown.clone(),
            breakpad_id: "",
            code_id: None,
            arch: None,
        });
        self.places.insert(path.to_owned(), self.all.len() - 1);
        self.all.len() - 1
    }
}
