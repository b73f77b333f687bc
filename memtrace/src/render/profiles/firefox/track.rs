//! A track: a thread of the format, which has tables of its own.

use std::collections::HashMap;

use super::{
    format::{
        Frames, Functions, Markers, NONE, Resources, Stacks, Symbols, Thread, Weights, category,
        milliseconds,
    },
    libraries::Libraries,
};
use crate::{
    recording::Meta,
    render::{
        collapsed,
        profiles::labels::{Label, Labels},
    },
    view::{Filter, Shown},
};

/// A file of code, in the viewer's numbers of resources.
const LIBRARY: u32 = 1;

pub(super) struct Track<'a> {
    thread: Thread,
    /// Of the recording, CLOCK_MONOTONIC ns.
    started_ns: u64,
    labels: Labels<'a>,
    stacks: HashMap<(Option<usize>, usize), usize>,
    strings: HashMap<String, usize>,
    functions: HashMap<(usize, Option<usize>, i64), usize>,
    /// By place in the list of libraries.
    resources: HashMap<usize, i64>,
}

impl<'a> Track<'a> {
    /// Of the layer and the process of a site.
    pub(super) fn new(shown: &Shown, meta: &Meta, number: usize) -> Track<'a> {
        let started_ns = meta.started_ns;
        let since = |time_ns: u64| milliseconds(time_ns.saturating_sub(started_ns));
        let process = shown.process.map(|process| &process.row);
        let started = since(process.map_or(started_ns, |row| row.started_ns));
        let ended = process.and_then(|row| row.ended_ns).map(since);
        let thread = Thread {
            name: collapsed::layer(shown),
            process_name: collapsed::program(shown),
            process_type: "default",
            is_main_thread: false,
            // Groups of processes and reused ones differ only by the number of their row.
            pid: format!("{}.{}", shown.tgid(), shown.site.key.process.0),
            tid: number.to_string(),
            process_startup_time: started,
            process_shutdown_time: ended,
            register_time: started,
            unregister_time: ended,
            paused_ranges: [],
            samples: Weights::default(),
            native_allocations: Weights::default(),
            markers: Markers::default(),
            stack_table: Stacks::default(),
            frame_table: Frames::default(),
            func_table: Functions::default(),
            resource_table: Resources::default(),
            native_symbols: Symbols::default(),
            string_array: Vec::new(),
        };
        Track {
            thread,
            started_ns,
            labels: Labels::default(),
            stacks: HashMap::new(),
            strings: HashMap::new(),
            functions: HashMap::new(),
            resources: HashMap::new(),
        }
    }

    /// Adds a site, whose first allocation is not before that of the site added before.
    pub(super) fn add(&mut self, shown: &Shown<'a>, filter: &Filter, libraries: &mut Libraries) {
        let labels = self.labels.stack(shown, filter);
        for at in self.thread.frame_table.length..self.labels.all.len() {
            self.add_frame(at, libraries);
        }
        let mut stack = None;
        for frame in labels {
            stack = Some(self.stack(stack, frame));
        }
        let since_start = shown.site.first_ns.saturating_sub(self.started_ns);
        let time = milliseconds(since_start);
        let thread = &mut self.thread;
        for (table, bytes) in [
            (&mut thread.samples, shown.live_bytes),
            (
                &mut thread.native_allocations,
                shown.site.totals.alloc_bytes,
            ),
        ] {
            if bytes > 0 {
                table.add(time, stack, bytes);
            }
        }
    }

    pub(super) fn live_bytes(&self) -> u64 {
        self.thread.samples.weight.iter().sum()
    }

    pub(super) fn into_thread(self) -> Thread {
        self.thread
    }

    /// The row of a label in the table of frames is its number.
    fn add_frame(&mut self, label: usize, libraries: &mut Libraries) {
        let label = self.labels.all[label].clone();
        let func = self.function(&label, libraries);
        let frames = &mut self.thread.frame_table;
        frames.length += 1;
        frames.address.push(NONE);
        frames.inline_depth.push(0);
        frames.category.push(category(label.code));
        frames.subcategory.push(0);
        frames.func.push(func);
        frames.native_symbol.push(None);
        frames.inner_window_id.push(0);
        frames.line.push(label.line);
        frames.column.push(None);
    }

    fn function(&mut self, label: &Label, libraries: &mut Libraries) -> usize {
        let name = self.string(&label.name);
        let file = label.file.as_deref().map(|file| self.string(file));
        let resource = label.module.map(|path| self.resource(path, libraries));
        let key = (name, file, resource.unwrap_or(NONE));
        let functions = &mut self.thread.func_table;
        *self.functions.entry(key).or_insert_with(|| {
            functions.length += 1;
            functions.name.push(name);
            functions.is_js.push(false);
            functions.relevant_for_js.push(false);
            functions.resource.push(key.2);
            functions.file_name.push(file);
            functions.line_number.push(None);
            functions.column_number.push(None);
            functions.length - 1
        })
    }

    fn resource(&mut self, path: &str, libraries: &mut Libraries) -> i64 {
        let library = libraries.place(path);
        if let Some(resource) = self.resources.get(&library) {
            return *resource;
        }
        let name = self.string(&libraries.all[library].name);
        let resources = &mut self.thread.resource_table;
        let resource = resources.length as i64;
        resources.length += 1;
        resources.lib.push(library);
        resources.name.push(name);
        resources.host.push(None);
        resources.r#type.push(LIBRARY);
        self.resources.insert(library, resource);
        resource
    }

    fn stack(&mut self, prefix: Option<usize>, frame: usize) -> usize {
        let stacks = &mut self.thread.stack_table;
        *self.stacks.entry((prefix, frame)).or_insert_with(|| {
            stacks.length += 1;
            stacks.prefix.push(prefix);
            stacks.frame.push(frame);
            stacks.length - 1
        })
    }

    fn string(&mut self, text: &str) -> usize {
        if let Some(place) = self.strings.get(text) {
            return *place;
        }
        let strings = &mut self.thread.string_array;
        strings.push(text.to_owned());
        self.strings.insert(text.to_owned(), strings.len() - 1);
        strings.len() - 1
    }
}
