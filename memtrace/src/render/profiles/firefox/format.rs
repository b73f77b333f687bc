//! The parts of Firefox Profiler's processed profile, version 55; newer viewers read it. Tables are columns of the same
//! length, and refer to rows of each other.

use serde::Serialize;

use crate::render::profiles::labels::Code;

/// No row.
pub(super) const NONE: i64 = -1;

/// A time or a duration as the format has it.
pub(super) fn milliseconds(ns: u64) -> f64 {
    ns as f64 / 1e6
}

#[derive(Serialize)]
pub(super) struct Profile {
    pub meta: Meta,
    pub libs: Vec<Library>,
    pub pages: [(); 0],
    pub counters: [(); 0],
    pub threads: Vec<Thread>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Meta {
    pub preprocessed_profile_version: u32,
    /// Gecko's version of the format, ignored.
    pub version: u32,
    pub product: String,
    pub oscpu: String,
    /// Unix time, ms: the zero of all times.
    pub start_time: f64,
    /// ms.
    pub interval: f64,
    pub process_type: u32,
    pub symbolicated: bool,
    pub uses_only_one_stack_type: bool,
    pub source_code_is_not_on_searchfox: bool,
    pub categories: [Category; 3],
    pub marker_schema: [(); 0],
    pub initial_visible_threads: Vec<usize>,
    pub initial_selected_threads: Vec<usize>,
}

#[derive(Serialize)]
pub(super) struct Category {
    name: &'static str,
    color: &'static str,
    subcategories: [&'static str; 1],
}

/// By [`category`]. The viewer needs a grey one.
pub(super) const CATEGORIES: [Category; 3] = [
    Category::new("Other", "grey"),
    Category::new("Program", "orange"),
    Category::new("Library", "blue"),
];

impl Category {
    const fn new(name: &'static str, color: &'static str) -> Self {
        Category {
            name,
            color,
            subcategories: ["Other"],
        }
    }
}

pub(super) fn category(code: Code) -> usize {
    match code {
        Code::Note => 0,
        Code::Program => 1,
        Code::Library => 2,
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Library {
    pub name: String,
    pub path: String,
    pub debug_name: String,
    pub debug_path: String,
    pub breakpad_id: &'static str,
    pub code_id: Option<String>,
    pub arch: Option<&'static str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Thread {
    pub name: String,
    pub process_name: String,
    pub process_type: &'static str,
    pub is_main_thread: bool,
    pub pid: String,
    pub tid: String,
    pub process_startup_time: f64,
    pub process_shutdown_time: Option<f64>,
    pub register_time: f64,
    pub unregister_time: Option<f64>,
    pub paused_ranges: [(); 0],
    pub samples: Weights,
    pub native_allocations: Weights,
    pub markers: Markers,
    pub stack_table: Stacks,
    pub frame_table: Frames,
    pub func_table: Functions,
    pub resource_table: Resources,
    pub native_symbols: Symbols,
    pub string_array: Vec<String>,
}

/// Bytes by time and stack.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Weights {
    pub length: usize,
    /// Ascending.
    pub time: Vec<f64>,
    pub stack: Vec<Option<usize>>,
    pub weight: Vec<u64>,
    pub weight_type: &'static str,
}

impl Default for Weights {
    fn default() -> Self {
        Weights {
            length: 0,
            time: Vec::new(),
            stack: Vec::new(),
            weight: Vec::new(),
            weight_type: "bytes",
        }
    }
}

impl Weights {
    pub(super) fn add(&mut self, time: f64, stack: Option<usize>, weight: u64) {
        self.length += 1;
        self.time.push(time);
        self.stack.push(stack);
        self.weight.push(weight);
    }
}

/// There are none.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Markers {
    length: usize,
    category: [(); 0],
    data: [(); 0],
    name: [(); 0],
    phase: [(); 0],
    start_time: [(); 0],
    end_time: [(); 0],
}

#[derive(Default, Serialize)]
pub(super) struct Stacks {
    pub length: usize,
    pub prefix: Vec<Option<usize>>,
    pub frame: Vec<usize>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Frames {
    pub length: usize,
    pub address: Vec<i64>,
    pub inline_depth: Vec<u32>,
    pub category: Vec<usize>,
    pub subcategory: Vec<usize>,
    pub func: Vec<usize>,
    pub native_symbol: Vec<Option<usize>>,
    #[serde(rename = "innerWindowID")]
    pub inner_window_id: Vec<u32>,
    pub line: Vec<Option<u32>>,
    pub column: Vec<Option<u32>>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Functions {
    pub length: usize,
    pub name: Vec<usize>,
    #[serde(rename = "isJS")]
    pub is_js: Vec<bool>,
    #[serde(rename = "relevantForJS")]
    pub relevant_for_js: Vec<bool>,
    pub resource: Vec<i64>,
    pub file_name: Vec<Option<usize>>,
    pub line_number: Vec<Option<u32>>,
    pub column_number: Vec<Option<u32>>,
}

/// Files of code.
#[derive(Default, Serialize)]
pub(super) struct Resources {
    pub length: usize,
    pub lib: Vec<usize>,
    pub name: Vec<usize>,
    pub host: Vec<Option<usize>>,
    pub r#type: Vec<u32>,
}

/// There are none: functions have names already.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Symbols {
    length: usize,
    address: [(); 0],
    function_size: [(); 0],
    lib_index: [(); 0],
    name: [(); 0],
}
