//! The output of `memtrace holders`, for people and for scripts.

use std::{io, time::Duration};

use serde_json::{Value, json};

use super::{absent, json_of_way, way as in_words, whole};
use crate::{
    escape::clean,
    recording::{Answer, AsOf, Found, Kept, Retainer, Retainers, Sample, Stacks, Way, WayKind},
    units::{self, grouped, seconds},
};

const UNKNOWN: &str = "there is no live object or block, or no path to it held long enough";

/// The answer to each question, as text.
pub(crate) fn holders(found: &Found<Answer>, out: &mut impl io::Write) -> io::Result<()> {
    if let Some(retainers) = &found.holders.retainers {
        table(retainers, out)?;
    }
    if found.holders.samples.is_empty() && found.holders.retainers.is_none() {
        writeln!(out, "No container grew.")?;
    }
    for sample in &found.holders.samples {
        writeln!(out, "{}", title(sample))?;
        if let Some(kept) = &sample.kept {
            writeln!(out, "  {}", sentence(kept, sample.known))?;
        }
        if sample.ways.is_empty() && sample.sampled > 0 {
            let why = sample.unknown.map_or(UNKNOWN, absent::unknown);
            writeln!(out, "  unknown: {why}")?;
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
    writeln!(out, "{}", how(found))
}

/// How the answers were found, and the cost for the process.
fn how<T>(found: &Found<T>) -> String {
    let stop = found.longest_stop.as_secs_f64() * 1e3;
    let took = seconds(nanoseconds(found.took));
    match found.as_of {
        AsOf::Running if found.longest_stop.is_zero() => format!("The search took {took}."),
        AsOf::Running => format!(
            "Each reference was read again while the process was stopped, for {stop:.1} ms at most; the search took {took}."
        ),
        AsOf::Stopped => {
            let stop = seconds(nanoseconds(found.longest_stop));
            format!("The process was stopped for {stop}, so all of this is from one moment.")
        }
    }
}

/// The nodes that keep most, one per line.
fn table(retainers: &Retainers, out: &mut impl io::Write) -> io::Result<()> {
    if retainers.reachable.blocks == 0 && retainers.lost.blocks == 0 {
        return writeln!(out, "No block of this process is known.\n");
    }
    let all = retainers.reachable.bytes;
    writeln!(
        out,
        "Reachable: {}; lost: {}",
        amount(&retainers.reachable),
        amount(&retainers.lost)
    )?;
    writeln!(out, "{:>10}  {:>5}  {:>11}  by", "KEPT", "SHARE", "BLOCKS")?;
    for Retainer { kept, depth, held } in &retainers.largest {
        let share = 100.0 * kept.bytes as f64 / all.max(1) as f64;
        let name = in_words(held, |path| whole(path, None));
        let (size, blocks) = (units::size(kept.bytes), grouped(kept.blocks));
        let indent = 2 * depth;
        writeln!(
            out,
            "{size:>10}  {share:>3.0} %  {blocks:>11}  {:indent$}{name}",
            ""
        )?;
    }
    writeln!(out)
}

/// `3.1 GiB in 41,000 blocks`
fn amount(kept: &Kept) -> String {
    let ending = if kept.blocks == 1 { "" } else { "s" };
    let (size, blocks) = (units::size(kept.bytes), grouped(kept.blocks));
    format!("{size} in {blocks} block{ending}")
}

/// The bytes that objects keep, in words.
fn sentence(kept: &Kept, of: u64) -> String {
    match of {
        1 => format!("it keeps {}", amount(kept)),
        _ => format!("all {} together keep {}", grouped(of), amount(kept)),
    }
}

fn title(sample: &Sample) -> String {
    let what = clean(&sample.what);
    match (sample.sampled, sample.known) {
        (0, 0) => format!("{what}: none found"),
        (1, _) => format!("{what}:"),
        (sampled, known) if u64::from(sampled) < known => {
            format!("{what}: {sampled} of {} examined", grouped(known))
        }
        (sampled, _) => format!("{what}: {sampled} examined"),
    }
}

fn lines(way: &Way, sample: &Sample) -> Vec<String> {
    let share = match sample.sampled {
        0 | 1 => String::new(),
        _ => format!("{} of {}: ", way.blocks, sample.sampled),
    };
    let held = in_words(&way.held, |path| whole(path, None));
    let path = match &way.held {
        WayKind::Path(path) => path.expression.as_deref(),
        _ => None,
    };
    let example = path.map(|text| format!("in Python: {}", clean(text)));
    std::iter::once(format!("{share}{held}"))
        .chain(example)
        .collect()
}

/// The answer as JSON.
pub(crate) fn holders_json(found: &Found<Answer>, pid: u32) -> Value {
    let sought = found.holders.samples.iter().map(|sample| {
        let addresses = sample.addresses.iter();
        let ways = sample.ways.iter();
        json!({
            "what": sample.what,
            "known": sample.known,
            "looked_at": sample.sampled,
            "addresses": addresses.map(|at| format!("{at:#x}")).collect::<Vec<String>>(),
            "kept": sample.kept.as_ref().map(kept_json),
            "ways": ways.map(|way| json_of_way(way, &Stacks::default())).collect::<Vec<Value>>(),
        })
    });
    let retainers = found.holders.retainers.as_ref();
    json!({
        "pid": pid,
        "sought": sought.collect::<Vec<Value>>(),
        "retained": retainers.map(retainers_json),
        "as_of": found.as_of.name(),
        "longest_stop_ns": nanoseconds(found.longest_stop),
        "took_ns": nanoseconds(found.took),
        "notes": found.notes,
    })
}

fn retainers_json(retainers: &Retainers) -> Value {
    let largest = retainers.largest.iter().map(|retainer| {
        let way = Way {
            blocks: 1,
            held: retainer.held.clone(),
        };
        let mut value = json_of_way(&way, &Stacks::default());
        value["blocks"] = json!(retainer.kept.blocks);
        value["bytes"] = json!(retainer.kept.bytes);
        value["depth"] = json!(retainer.depth);
        value
    });
    json!({
        "reachable": kept_json(&retainers.reachable),
        "lost": kept_json(&retainers.lost),
        "largest": largest.collect::<Vec<Value>>(),
    })
}

fn kept_json(kept: &Kept) -> Value {
    json!({ "bytes": kept.bytes, "blocks": kept.blocks })
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
