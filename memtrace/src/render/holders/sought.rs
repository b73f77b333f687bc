//! What `memtrace holders` found, for people and for scripts.

use std::{io, time::Duration};

use serde_json::{Value, json};

use super::{CYCLE, NOTHING, json_of_way, whole};
use crate::{
    escape::clean,
    recording::{Found, Held, Sample, Stacks, Way},
    units::{grouped, seconds},
};

const UNKNOWN: &str =
    "not known: no live object or block is there, or no path to it held long enough";

/// The answer to each question, as text.
///
/// # Errors
/// The output cannot be written.
pub(crate) fn holders(found: &Found<Vec<Sample>>, out: &mut impl io::Write) -> io::Result<()> {
    for sample in &found.holders {
        writeln!(out, "{}", title(sample))?;
        if sample.ways.is_empty() && sample.sampled > 0 {
            writeln!(out, "  {UNKNOWN}")?;
        }
        for way in &sample.ways {
            for line in lines(way, sample) {
                writeln!(out, "  {line}")?;
            }
        }
        writeln!(out)?;
    }
    for note in &found.notes {
        writeln!(out, "Note: {}.", clean(note))?;
    }
    if found.longest_stop.is_zero() {
        return Ok(());
    }
    writeln!(
        out,
        "Each reference was read again while the process was stopped, for {:.1} ms at most; the search took {}.",
        found.longest_stop.as_secs_f64() * 1e3,
        seconds(nanoseconds(found.took)),
    )
}

fn title(sample: &Sample) -> String {
    let what = clean(&sample.what);
    match (sample.sampled, sample.known) {
        (0, 0) => format!("{what}: none was found"),
        (1, _) => format!("{what}:"),
        (sampled, known) if u64::from(sampled) < known => {
            format!("{what}: {sampled} of {} looked at", grouped(known))
        }
        (sampled, _) => format!("{what}: {sampled} looked at"),
    }
}

fn lines(way: &Way, sample: &Sample) -> Vec<String> {
    let share = match sample.sampled {
        0 | 1 => String::new(),
        _ => format!("{} of {}: ", way.blocks, sample.sampled),
    };
    match &way.held {
        Held::Path(path) => {
            let whole = format!("{share}{}", whole(path, None));
            let expression = path.expression.as_deref();
            let example = expression.map(|text| format!("in Python: {}", clean(text)));
            std::iter::once(whole).chain(example).collect()
        }
        Held::Cycle => vec![format!("{share}{CYCLE}")],
        Held::Nothing => vec![format!("{share}{NOTHING}")],
    }
}

/// The answer as JSON.
pub(crate) fn holders_json(found: &Found<Vec<Sample>>, pid: u32) -> Value {
    let sought = found.holders.iter().map(|sample| {
        let addresses = sample.addresses.iter();
        let ways = sample.ways.iter();
        json!({
            "what": sample.what,
            "known": sample.known,
            "looked_at": sample.sampled,
            "addresses": addresses.map(|at| format!("{at:#x}")).collect::<Vec<String>>(),
            "ways": ways.map(|way| json_of_way(way, &Stacks::default())).collect::<Vec<Value>>(),
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

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
