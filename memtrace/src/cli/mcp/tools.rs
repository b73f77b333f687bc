//! The tools: what they are called, what they take, and their answers.

use std::{path::PathBuf, str::FromStr, time::Duration};

use anyhow::{Context, bail};
use serde::{Deserialize, Deserializer, de::Error};
use serde_json::{Value, json};

use super::recorder::Recorder;
use crate::{
    analysis::{suppressions::Suppressions, system::SystemSeries, verdict},
    cli::{
        diff::compared,
        reading::{check_pid, parse_at, parse_layer},
    },
    diff::{Options, Per},
    event::Layer,
    recording::{At, Recording, Snapshot, budget},
    render::brief::{self, Brief},
    units,
    view::{By, Filter, Metric},
};

/// Entries of an answer, unless a limit is given.
const LIMIT: usize = 10;

pub(super) struct Tools {
    recorder: Option<Recorder>,
}

/// One tool.
struct Tool {
    name: &'static str,
    description: &'static str,
    /// Properties that every call has.
    required: &'static [&'static str],
    properties: fn() -> Value,
    call: fn(&Tools, Value) -> anyhow::Result<(String, Value)>,
}

const TOOLS: [Tool; 6] = [
    Tool {
        name: "diagnose",
        description: "Classify the memory growth in a recording: for each finding its class (leak, cache, allocator \
            retention, GPU cache, …), a grade, the rate, the line that allocates the memory, the line or object that \
            keeps it, and what to do next. Begin here.",
        required: &["file"],
        properties: || {
            json!({
                "file": FILE.value(),
                "pid": PID.value(),
                "suppressions": {
                    "type": "array", "items": { "type": "string" },
                    "description": "Lines `leak:PATTERN`; sites that match are hidden",
                },
                "limit": limit(),
            })
        },
        call: |_, arguments| diagnose(&read(arguments)?),
    },
    Tool {
        name: "sites",
        description: "List the lines that hold the most live memory at one moment of a recording, by the program's \
            own line, a Python line, a native function, a module or a thread, or each call stack separately.",
        required: &["file"],
        properties: || {
            let mut properties = selection();
            properties["by"] = choice(
                "Grouping; `site` is each stack separately",
                &By::ALL.map(By::name),
            );
            properties["limit"] = limit();
            properties
        },
        call: |_, arguments| sites(&read(arguments)?),
    },
    Tool {
        name: "stack",
        description: "Show the call stack of one allocation site: the largest whose stack contains the text `match`, \
            or the one with `rank` among those that match (ranks as in `sites` with by=site and the same filters).",
        required: &["file"],
        properties: || {
            let mut properties = selection();
            properties["rank"] = json!({ "type": "integer", "minimum": 1, "default": 1 });
            properties["full"] = json!({
                "type": "boolean", "default": false,
                "description": "Every frame of libraries, and C++ names with their arguments",
            });
            properties
        },
        call: |_, arguments| stack(&read(arguments)?),
    },
    Tool {
        name: "holders",
        description: "Show what keeps the blocks of growing sites alive: paths of references from a module, a frame \
            or a global variable to the blocks, as recorded at the end of the recording.",
        required: &["file"],
        properties: || json!({ "file": FILE.value(), "match": MATCH.value(), "pid": PID.value(), "limit": limit() }),
        call: |_, arguments| holders(&read(arguments)?),
    },
    Tool {
        name: "compare",
        description: "Compare a new recording with one or several baselines: which sites grow faster, and which facts \
            of the machines and processes differ.",
        required: &["baselines", "new"],
        properties: || {
            json!({
                "baselines": {
                    "type": "array", "items": { "type": "string" }, "minItems": 1,
                    "description": "Recordings without the growth",
                },
                "new": string("The recording that grows"),
                "per": string("Unit of growth: seconds, count, or alloc-of=FUNCTION, which allocates once per iteration"),
                "limit": limit(),
            })
        },
        call: |_, arguments| compare(&read(arguments)?),
    },
    Tool {
        name: RECORD,
        description: "Attach to a running process and its descendants for some seconds, and write a recording. The \
            process keeps running; each malloc costs it a few microseconds meanwhile. Then call `diagnose`.",
        required: &["pid", "seconds"],
        properties: || {
            json!({
                "pid": PID.value(),
                "seconds": {
                    "type": "integer", "minimum": 1, "maximum": super::recorder::LONGEST,
                    "description": "15 at least for a verdict; 60 is better",
                },
                "output": string("The file to write, NAME.mtr; it must not exist. By default one in the current folder"),
                "heap": {
                    "type": "boolean", "default": true,
                    "description": "false: leave malloc out, at a fraction of the cost",
                },
            })
        },
        call: |tools, arguments| match &tools.recorder {
            Some(recorder) => recorder.record(&read(arguments)?),
            None => bail!(
                "recording is not allowed: start the server with `memtrace mcp --allow-record`"
            ),
        },
    },
];

const RECORD: &str = "record";

/// A property that several tools have.
struct Property(&'static str, &'static str);

const FILE: Property = Property("string", "The recording (.mtr), an absolute path");
const PID: Property = Property("integer", "A process ID");
const MATCH: Property = Property(
    "string",
    "Only sites with this text in their stack: a function, a file such as `server.py:20`, or a library",
);

impl Property {
    fn value(&self) -> Value {
        json!({ "type": self.0, "description": self.1 })
    }
}

fn string(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

fn choice(description: &str, values: &[&str]) -> Value {
    json!({ "type": "string", "enum": values, "description": description })
}

fn limit() -> Value {
    json!({ "type": "integer", "minimum": 1, "default": LIMIT, "description": "Most entries of the answer" })
}

/// Properties that choose sites.
fn selection() -> Value {
    json!({
        "file": FILE.value(),
        "match": MATCH.value(),
        "layer": choice("Layers are views of the same memory", &Layer::ALL.map(Layer::name)),
        "pid": PID.value(),
        "at": string("The moment: `end`, `peak` or a time since the start such as `90s`"),
        "older": string("Only blocks at least this old at the end, such as `60s`"),
        "sort": choice("Order", &["live-bytes", "live-count", "alloc-bytes", "alloc-count", "peak"]),
    })
}

impl Tool {
    /// Refuses arguments that the tool would ignore, and calls without those that it needs.
    fn check(&self, arguments: &Value) -> anyhow::Result<()> {
        let arguments = arguments
            .as_object()
            .context("`arguments` is not an object")?;
        let properties = (self.properties)();
        if let Some(name) = arguments.keys().find(|name| properties.get(name).is_none()) {
            let known = properties
                .as_object()
                .into_iter()
                .flat_map(|known| known.keys());
            let known: Vec<_> = known.map(String::as_str).collect();
            bail!(
                "`{}` has no argument `{name}`, expected some of {}",
                self.name,
                known.join(", ")
            );
        }
        match self
            .required
            .iter()
            .find(|name| !arguments.contains_key(**name))
        {
            Some(name) => bail!("`{name}` is missing: {}", properties[name]["description"]),
            None => Ok(()),
        }
    }
}

impl Tools {
    pub(super) fn new(recorder: Option<Recorder>) -> Self {
        Self { recorder }
    }

    fn offered(&self) -> impl Iterator<Item = &'static Tool> {
        TOOLS
            .iter()
            .filter(|tool| tool.name != RECORD || self.recorder.is_some())
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.offered().map(|tool| tool.name)
    }

    /// Descriptions for the client.
    pub(super) fn list(&self) -> Vec<Value> {
        let described = self.offered().map(|tool| {
            json!({
                "name": tool.name,
                "description": tool.description,
                "inputSchema": {
                    "type": "object",
                    "properties": (tool.properties)(),
                    "required": tool.required,
                    "additionalProperties": false,
                },
                "annotations": {
                    "readOnlyHint": tool.name != RECORD,
                    "destructiveHint": false,
                    "openWorldHint": false,
                },
            })
        });
        described.collect()
    }

    /// The result of a call, which may be an error for the model to act on; `None`: there is no such tool.
    pub(super) fn call(&self, name: &str, arguments: Value) -> Option<Value> {
        let tool = self.offered().find(|tool| tool.name == name)?;
        budget::renew();
        let result = tool
            .check(&arguments)
            .and_then(|()| (tool.call)(self, arguments));
        Some(match result {
            Ok((text, data)) => json!({
                "content": [{ "type": "text", "text": text }],
                "structuredContent": data,
                "isError": false,
            }),
            Err(error) => json!({
                "content": [{ "type": "text", "text": format!("{error:#}") }],
                "isError": true,
            }),
        })
    }

    /// Ends the recording that runs.
    pub(super) fn stop_recording(&self) {
        if let Some(recorder) = &self.recorder {
            recorder.interrupt();
        }
    }

    /// The client has gone: ends the recording that runs, and begins no other.
    pub(super) fn stop(&self) {
        if let Some(recorder) = &self.recorder {
            recorder.close();
        }
    }
}

fn read<'a, T: Deserialize<'a>>(arguments: Value) -> anyhow::Result<T> {
    T::deserialize(arguments).map_err(|error| anyhow::anyhow!("wrong arguments: {error}"))
}

/// A value by its name on the command line.
fn named<'a, D: Deserializer<'a>, T>(
    from: D,
    parse: fn(&str) -> Result<T, String>,
) -> Result<Option<T>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    text.map(|text| parse(&text).map_err(D::Error::custom))
        .transpose()
}

fn layer<'a, D: Deserializer<'a>>(from: D) -> Result<Option<Layer>, D::Error> {
    named(from, parse_layer)
}

fn at<'a, D: Deserializer<'a>>(from: D) -> Result<Option<At>, D::Error> {
    named(from, parse_at)
}

fn duration<'a, D: Deserializer<'a>>(from: D) -> Result<Option<Duration>, D::Error> {
    named(from, units::parse_duration)
}

fn by<'a, D: Deserializer<'a>>(from: D) -> Result<Option<By>, D::Error> {
    named(from, By::from_str)
}

fn metric<'a, D: Deserializer<'a>>(from: D) -> Result<Option<Metric>, D::Error> {
    named(from, Metric::from_str)
}

fn per<'a, D: Deserializer<'a>>(from: D) -> Result<Option<Per>, D::Error> {
    named(from, Per::from_str)
}

/// Arguments of the tools that read one recording.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Choice {
    file: PathBuf,
    #[serde(rename = "match")]
    text: Option<String>,
    #[serde(deserialize_with = "layer")]
    layer: Option<Layer>,
    pid: Option<u32>,
    #[serde(deserialize_with = "at")]
    at: Option<At>,
    #[serde(deserialize_with = "duration")]
    older: Option<Duration>,
    #[serde(deserialize_with = "by")]
    by: Option<By>,
    #[serde(deserialize_with = "metric")]
    sort: Option<Metric>,
    suppressions: Vec<String>,
    rank: Option<usize>,
    full: bool,
    limit: Option<usize>,
}

impl Choice {
    fn filter(&self) -> Filter {
        Filter {
            layer: self.layer,
            pid: self.pid,
            older: self.older,
            full: self.full,
            ..Filter::default()
        }
    }

    /// The recording at the moment that is to be shown.
    fn snapshot(&self) -> anyhow::Result<Snapshot> {
        let moment = self.filter().moment(self.at.unwrap_or_default());
        let snapshot = Recording::open(&self.file)?.snapshot(moment)?;
        check_pid(&snapshot, self.pid)?;
        Ok(snapshot)
    }

    fn sort(&self) -> Metric {
        self.sort.unwrap_or_default()
    }

    fn limit(&self) -> usize {
        self.limit.unwrap_or(LIMIT)
    }
}

fn diagnose(of: &Choice) -> anyhow::Result<(String, Value)> {
    let suppressions = Suppressions::parse(&of.suppressions.join("\n"))?;
    let recording = Recording::open(&of.file)?;
    if of.pid.is_some() {
        check_pid(&recording.snapshot(At::End)?, of.pid)?;
    }
    let found = verdict::diagnose(&recording, &SystemSeries::read(&recording)?, &suppressions)?;
    Ok(brief::findings(&found, recording.cut_off()?, &of.filter()).fit(of.limit()))
}

fn sites(of: &Choice) -> anyhow::Result<(String, Value)> {
    let (snapshot, filter) = (of.snapshot()?, of.filter());
    let text = of.text.as_deref();
    let brief: Brief = match of.by.unwrap_or(By::ProgramLine) {
        By::Site => brief::sites(&snapshot, &filter, of.sort(), text)?,
        by => brief::groups(&snapshot, &filter, by, of.sort(), text)?,
    };
    Ok(brief.fit(of.limit()))
}

fn stack(of: &Choice) -> anyhow::Result<(String, Value)> {
    let (snapshot, filter) = (of.snapshot()?, of.filter());
    let rank = of.rank.unwrap_or(1);
    let brief = brief::of_stack(&snapshot, &filter, of.sort(), of.text.as_deref(), rank)?;
    Ok(brief.fit(usize::MAX))
}

fn holders(of: &Choice) -> anyhow::Result<(String, Value)> {
    let (snapshot, filter) = (of.snapshot()?, of.filter());
    Ok(brief::holders(&snapshot, &filter, of.text.as_deref())?.fit(of.limit()))
}

#[derive(Debug, Deserialize)]
struct Compare {
    baselines: Vec<PathBuf>,
    new: PathBuf,
    #[serde(default, deserialize_with = "per")]
    per: Option<Per>,
    limit: Option<usize>,
}

fn compare(of: &Compare) -> anyhow::Result<(String, Value)> {
    if of.baselines.is_empty() {
        bail!("`baselines` is empty: name a recording without the growth");
    }
    let options = Options {
        per: of.per.clone().unwrap_or(Per::Seconds),
        templates: true,
    };
    let comparison = compared(&of.baselines, &of.new, &options)?;
    Ok(brief::comparison(&comparison)?.fit(of.limit.unwrap_or(LIMIT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(tool: &str, arguments: Value) -> String {
        let result = Tools::new(None).call(tool, arguments).unwrap();
        assert_eq!(result["isError"], true, "{result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    #[test]
    fn recording_is_offered_only_if_allowed() {
        let names = |tools: &Tools| tools.names().collect::<Vec<_>>();
        let reading = Tools::new(None);
        assert!(!names(&reading).contains(&RECORD));
        assert_eq!(
            reading.call(RECORD, json!({ "pid": 1, "seconds": 1 })),
            None
        );
        assert!(names(&Tools::new(Some(Recorder::default()))).contains(&RECORD));
    }

    #[test]
    fn schemas_have_what_is_required() {
        for tool in Tools::new(Some(Recorder::default())).list() {
            let schema = &tool["inputSchema"];
            for name in schema["required"].as_array().unwrap() {
                let property = &schema["properties"][name.as_str().unwrap()];
                assert!(property["type"].is_string(), "{tool}");
            }
        }
    }

    #[test]
    fn errors_name_the_argument_and_the_remedy() {
        for (tool, arguments, words) in [
            ("diagnose", json!({}), "`file` is missing"),
            (
                "diagnose",
                json!({ "file": "/no/such.mtr" }),
                "/no/such.mtr",
            ),
            ("sites", json!({ "file": "a", "layer": "gpu" }), "vm, heap"),
            (
                "sites",
                json!({ "file": "a", "color": 1 }),
                "`sites` has no argument `color`",
            ),
            ("sites", json!([1]), "`arguments` is not an object"),
            ("stack", json!({ "file": "a", "at": "noon" }), "`peak`"),
            (
                "compare",
                json!({ "baselines": [], "new": "a" }),
                "`baselines` is empty",
            ),
            (
                "compare",
                json!({ "new": "a" }),
                "`baselines` is missing: \"Recordings without",
            ),
            (
                "diagnose",
                json!({ "file": "a", "layer": "vm" }),
                "no argument `layer`",
            ),
            (
                "diagnose",
                json!({ "file": "a", "pid": -1 }),
                "wrong arguments",
            ),
        ] {
            let error = error(tool, arguments);
            assert!(error.contains(words), "{error}");
        }
    }
}
