//! The tables of a profile to which its samples refer.

use std::collections::{BTreeMap, HashMap};

use super::message::{Function, Line, Location, Mapping, Profile};
use crate::{
    escape::clean,
    frames::{Frame, names},
    render::profiles::strings::Strings,
};

/// Start of the first mapping, and the room between two: none begins at 0 or where another ends, so that no reader
/// takes two files for one.
const GAP: u64 = 1 << 16;

#[derive(Default)]
pub(super) struct Tables<'a> {
    pub strings: Strings,
    functions: HashMap<(i64, i64), u64>,
    modules: HashMap<Module<'a>, usize>,
    /// In the order of `modules`.
    mappings: Vec<Mapping>,
    locations: Vec<Location>,
    /// Stacks share their frames, so their addresses identify them.
    by_frames: HashMap<Vec<*const Frame>, u64>,
    notes: BTreeMap<String, u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Module<'a> {
    path: &'a str,
    build_id: Option<&'a str>,
}

impl<'a> Tables<'a> {
    /// The locations of a stack, leaf first. Inlined frames share the one of the frame that they are part of.
    pub(super) fn locations(&mut self, frames: &[&'a Frame]) -> Vec<u64> {
        let locations = frames.chunk_by(|inner, outer| {
            inner.inlined && inner.file_offset == outer.file_offset && inner.module == outer.module
        });
        locations.map(|frames| self.location(frames)).collect()
    }

    /// A location that is no code.
    pub(super) fn note(&mut self, text: &str) -> u64 {
        if let Some(id) = self.notes.get(text) {
            return *id;
        }
        let line = Line {
            function_id: self.function(text, ""),
            line: 0,
        };
        let id = self.add(0, 0, vec![line]);
        self.notes.insert(text.to_owned(), id);
        id
    }

    fn location(&mut self, frames: &[&'a Frame]) -> u64 {
        let key: Vec<_> = frames
            .iter()
            .map(|frame| std::ptr::from_ref(*frame))
            .collect();
        if let Some(id) = self.by_frames.get(&key) {
            return *id;
        }
        let lines = frames.iter().map(|frame| Line {
            function_id: self.function_of(frame),
            line: frame.line.map_or(0, i64::from),
        });
        let lines = lines.collect();
        let outermost = frames.last();
        let mapping_id = outermost.map_or(0, |frame| self.mapping(frame, frames.len() > 1));
        let offset = outermost.and_then(|frame| frame.file_offset);
        let id = self.add(mapping_id, offset.unwrap_or(0), lines);
        self.by_frames.insert(key, id);
        id
    }

    /// Its address is the offset in its file until the mappings are complete.
    fn add(&mut self, mapping_id: u64, address: u64, line: Vec<Line>) -> u64 {
        let id = self.locations.len() as u64 + 1;
        self.locations.push(Location {
            id,
            mapping_id,
            address,
            line,
        });
        id
    }

    fn function_of(&mut self, frame: &Frame) -> u64 {
        let file = frame.file.as_deref().map(clean);
        self.function(&names::name(frame), file.as_deref().unwrap_or(""))
    }

    fn function(&mut self, name: &str, file: &str) -> u64 {
        let next = self.functions.len() as u64 + 1;
        let key = (self.strings.place(name), self.strings.place(file));
        *self.functions.entry(key).or_insert(next)
    }

    /// The mapping of a frame's file, 0 if it has none.
    fn mapping(&mut self, frame: &'a Frame, inlines: bool) -> u64 {
        let Some(path) = frame.module.as_deref() else {
            return 0;
        };
        let module = Module {
            path,
            build_id: frame.build_id.as_deref(),
        };
        let at = *self.modules.entry(module).or_insert(self.mappings.len());
        if at == self.mappings.len() {
            self.mappings.push(Mapping {
                id: at as u64 + 1,
                filename: self.strings.place(&clean(path)),
                build_id: self.strings.place(module.build_id.unwrap_or("")),
                // Those without a name have their place for one: readers need not look for symbols.
                has_functions: true,
                ..Mapping::default()
            });
        }
        let mapping = &mut self.mappings[at];
        mapping.has_filenames |= frame.file.is_some();
        mapping.has_line_numbers |= frame.line.is_some();
        mapping.has_inline_frames |= inlines;
        // For now, its length.
        let needed = frame.file_offset.unwrap_or(0).saturating_add(1);
        mapping.memory_limit = mapping.memory_limit.max(needed);
        mapping.id
    }

    /// A profile with these tables. Its addresses are made up: processes have different ones for the same code. Each is
    /// that of its mapping plus the offset in the file.
    pub(super) fn into_profile(mut self) -> Profile {
        let mut start = GAP;
        for mapping in &mut self.mappings {
            mapping.memory_start = start;
            mapping.memory_limit = mapping.memory_limit.saturating_add(start);
            start = (mapping.memory_limit / GAP + 2).saturating_mul(GAP);
        }
        for location in &mut self.locations {
            let mapping = (location.mapping_id as usize).checked_sub(1);
            let mapping = mapping.and_then(|at| self.mappings.get(at));
            let start = mapping.map_or(0, |mapping| mapping.memory_start);
            location.address = location.address.saturating_add(start);
        }
        // Viewers take the first one for the program.
        self.mappings.sort_by_key(|mapping| {
            let file = self.strings.get(mapping.filename);
            file.is_some_and(|file| file.contains(".so") || file.starts_with('['))
        });
        let functions = self.functions.into_iter();
        let functions = functions.map(|((name, filename), id)| Function {
            id,
            name,
            system_name: name,
            filename,
        });
        let mut functions: Vec<Function> = functions.collect();
        functions.sort_unstable_by_key(|function| function.id);
        Profile {
            mapping: self.mappings,
            location: self.locations,
            function: functions,
            string_table: self.strings.into_list(),
            ..Profile::default()
        }
    }
}
