//! What heap profiles refer to: the tables of pprof's format, as Perfetto has them.

use std::collections::{BTreeSet, HashMap};

use super::message::{Callstack, Frame, InternedData, InternedString, Mapping};
use crate::render::profiles::pprof::message as pb;

pub(super) struct Tables {
    /// Frames of each location, root first; a location may have inlined calls.
    frames: HashMap<u64, Vec<u64>>,
    data: InternedData,
    callstacks: HashMap<Vec<u64>, u64>,
}

impl Tables {
    pub(super) fn new(profile: &pb::Profile) -> Self {
        let mut data = InternedData::default();
        let [mut names, mut files, mut paths, mut build_ids] = [const { BTreeSet::new() }; 4];
        let mut starts = HashMap::new();
        // For frames without a file, such as those of Python.
        let mut no_mapping = 1;
        for mapping in &profile.mapping {
            paths.insert(mapping.filename);
            build_ids.extend(Some(mapping.build_id).filter(|place| *place != 0));
            no_mapping = no_mapping.max(mapping.id + 1);
            starts.insert(mapping.id, mapping.memory_start);
            data.mappings.push(Mapping {
                iid: mapping.id,
                build_id: iid(mapping.build_id),
                start: mapping.memory_start,
                end: mapping.memory_limit,
                path_string_ids: vec![iid(mapping.filename)],
            });
        }
        data.mappings.push(Mapping {
            iid: no_mapping,
            ..Mapping::default()
        });
        let functions = profile.function.iter();
        let functions: HashMap<u64, &pb::Function> = functions.map(|of| (of.id, of)).collect();
        let mut frames: HashMap<u64, Vec<u64>> = HashMap::new();
        for location in &profile.location {
            let start = starts.get(&location.mapping_id);
            for line in location.line.iter().rev() {
                let function = functions.get(&line.function_id);
                let (name, file) = function.map_or((0, 0), |of| (of.name, of.filename));
                names.extend(Some(name).filter(|place| *place != 0));
                files.extend(Some(file).filter(|place| *place != 0));
                let frame = data.frames.len() as u64 + 1;
                data.frames.push(Frame {
                    iid: frame,
                    function_name_id: iid(name),
                    mapping_id: start.map_or(no_mapping, |_| location.mapping_id),
                    rel_pc: start.map_or(0, |start| location.address - start),
                    source_path_iid: iid(file),
                    line_number: u32::try_from(line.line).unwrap_or(0),
                });
                frames.entry(location.id).or_default().push(frame);
            }
        }
        let texts = |places: BTreeSet<i64>| {
            let places = places.into_iter();
            let texts = places.map(|place| InternedString {
                iid: iid(place),
                str: profile.text(place).into(),
            });
            texts.collect()
        };
        data.function_names = texts(names);
        data.source_paths = texts(files);
        data.mapping_paths = texts(paths);
        data.build_ids = build_ids
            .into_iter()
            .map(|place| InternedString {
                iid: iid(place),
                str: from_hex(profile.text(place)),
            })
            .collect();
        Tables {
            frames,
            data,
            callstacks: HashMap::new(),
        }
    }

    /// The id of a stack of locations, leaf first.
    pub(super) fn callstack(&mut self, locations: &[u64]) -> u64 {
        let next = self.data.callstacks.len() as u64 + 1;
        if let Some(known) = self.callstacks.get(locations) {
            return *known;
        }
        let frames = locations.iter().rev();
        let frames = frames.filter_map(|id| self.frames.get(id)).flatten();
        self.data.callstacks.push(Callstack {
            iid: next,
            frame_ids: frames.copied().collect(),
        });
        self.callstacks.insert(locations.to_vec(), next);
        next
    }

    pub(super) fn into_data(self) -> InternedData {
        self.data
    }
}

/// The id of a text in the table of strings. 0 is the empty text.
fn iid(place: i64) -> u64 {
    place.cast_unsigned()
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|digit| Some(digit.to_digit(16)? as u8))
        .collect();
    digits
        .chunks_exact(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}
