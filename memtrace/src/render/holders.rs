//! What holds objects or blocks of a running process, for people and for scripts.

use std::io;

use serde_json::{Value, json};

use crate::{
    escape::clean,
    holders::{Found, Sample},
    recording::{Held, Path, Step, StepKind, Way},
    units::{grouped, plural, seconds},
};

/// The answer to each question, as text.
///
/// # Errors
/// The output cannot be written.
pub(crate) fn holders(found: &Found<Vec<Sample>>, out: &mut impl io::Write) -> io::Result<()> {
    for sample in &found.holders {
        writeln!(out, "{}", title(sample))?;
        for way in &sample.ways {
            writeln!(out)?;
            for line in way_lines(way, sample) {
                writeln!(out, "  {line}")?;
            }
        }
        writeln!(out)?;
    }
    for note in &found.notes {
        writeln!(out, "Note: {}.", clean(note))?;
    }
    let (took, stop) = (found.took, found.longest_stop);
    writeln!(
        out,
        "Each reference was read again while the process was stopped, for {:.1} ms at most; the search took {}.",
        stop.as_secs_f64() * 1e3,
        seconds(took.as_nanos().try_into().unwrap_or(u64::MAX)),
    )
}

fn title(sample: &Sample) -> String {
    let what = clean(&sample.what);
    match (sample.sampled, sample.known) {
        (0, 0) => format!("{what}: not found"),
        (1, _) => format!("{what}:"),
        (sampled, known) if u64::from(sampled) < known => {
            format!("{what}: {sampled} of {} looked at", grouped(known))
        }
        (sampled, _) => format!("{what}: {sampled} looked at"),
    }
}

fn way_lines(way: &Way, sample: &Sample) -> Vec<String> {
    let share = match sample.sampled {
        0 | 1 => String::new(),
        _ => format!("{} of {}: ", way.blocks, sample.sampled),
    };
    match &way.held {
        Held::Path(path) => {
            let mut lines = path_lines(path);
            if let Some(first) = lines.first_mut() {
                first.insert_str(0, &share);
            }
            if let Some(expression) = &path.expression {
                lines.push(format!("in Python: {}", clean(expression)));
            }
            lines
        }
        Held::Cycle => vec![format!(
            "{share}only a cycle of objects keeps it: `gc.collect()` would free it"
        )],
        Held::Nothing => vec![format!("{share}nothing that was found points to it: lost")],
    }
}

/// A line for the way to the container, or to the first object, and one for each further object.
fn path_lines(path: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for (index, step) in path.steps.iter().enumerate() {
        line += &name(step, index == 0);
        let is_container = path.container == Some(index);
        let is_last = index + 1 == path.steps.len();
        if is_container || is_last || path.container.is_none_or(|container| index > container) {
            let facts = facts(step);
            if !facts.is_empty() {
                line += &format!("  ({})", facts.join(", "));
            }
            lines.push(std::mem::take(&mut line));
            line = "  ".repeat(lines.len());
        }
    }
    lines
}

fn name(step: &Step, is_first: bool) -> String {
    let name = clean(&step.name);
    match (&step.kind, is_first) {
        (StepKind::Module, true) => name,
        (_, true) => format!("{name} "),
        (StepKind::Block, false) if name.is_empty() => "→ block".to_owned(),
        (StepKind::Block, false) => format!("{name} → block"),
        _ if name.is_empty() => "→ ".to_owned(),
        _ => name,
    }
}

fn facts(step: &Step) -> Vec<String> {
    let mut facts = Vec::new();
    facts.extend(step.type_name.as_deref().map(clean));
    facts.extend(step.length.map(|length| plural(length, "item")));
    let growth = step.growth_per_s.filter(|growth| *growth != 0.0);
    facts.extend(growth.map(|growth| format!("{growth:+.0}/s")));
    if step.repeated > 1 {
        facts.push(format!("{} in a row", grouped(step.repeated)));
    }
    facts
}

/// The answer as JSON.
pub(crate) fn holders_json(found: &Found<Vec<Sample>>, pid: u32) -> Value {
    let nanoseconds =
        |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let sought = found.holders.iter().map(|sample| {
        json!({
            "what": sample.what,
            "known": sample.known,
            "looked_at": sample.sampled,
            "addresses": sample.addresses.iter().map(|at| format!("{at:#x}")).collect::<Vec<String>>(),
            "ways": sample.ways.iter().map(way_json).collect::<Vec<Value>>(),
        })
    });
    json!({
        "pid": pid,
        "sought": sought.collect::<Vec<Value>>(),
        "longest_stop_ns": nanoseconds(found.longest_stop),
        "took_ns": nanoseconds(found.took),
        "notes": found.notes,
    })
}

fn way_json(way: &Way) -> Value {
    let mut value = json!({"blocks": way.blocks, "held": held_name(&way.held)});
    if let Held::Path(path) = &way.held {
        value["path"] = path.steps.iter().map(step_json).collect();
        value["container"] = json!(path.container);
        value["expression"] = json!(path.expression);
    }
    value
}

fn held_name(held: &Held) -> &'static str {
    match held {
        Held::Path(_) => "path",
        Held::Cycle => "cycle",
        Held::Nothing => "nothing",
    }
}

fn step_json(step: &Step) -> Value {
    json!({
        "kind": step.kind.name(),
        "name": step.name,
        "type": step.type_name,
        "length": step.length,
        "growth_per_s": step.growth_per_s,
        "repeated": step.repeated,
    })
}
