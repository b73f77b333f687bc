//! Recordings of many hosts, for people and for programs. The names in JSON are stable: they are only added to.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::{stack, until_closed};
use crate::{
    escape::{clean, cut, in_json},
    fleet::{Cause, Condition, Decisive, Fleet, Group, Is, Separation, Share},
    units::{per_second, plural},
};

/// Most hosts and conditions listed by name.
const NAMES: usize = 6;
const CONDITIONS: usize = 5;

/// Characters of a value that are shown.
const WIDTH: usize = 60;

/// Writes it for people.
///
/// # Errors
/// The output fails.
pub(crate) fn text(out: &mut impl Write, fleet: &Fleet) -> io::Result<()> {
    until_closed(write(out, fleet).and_then(|()| out.flush()))
}

fn write(out: &mut impl Write, fleet: &Fleet) -> io::Result<()> {
    let all = fleet.separation.all;
    let open = match fleet.open.len() {
        0 => String::new(),
        n => format!(", {n} undetermined and left out"),
    };
    writeln!(
        out,
        "memtrace: {}: memory grows on {}, and does not on {}{open}",
        plural(fleet.recordings as u64, "recording"),
        plural(all.grow as u64, "host"),
        all.of - all.grow,
    )?;
    for group in &fleet.groups {
        writeln!(out, "\n  {}", headline(group))?;
        writeln!(out, "    on {}", hosts(group.hosts.iter()))?;
    }
    if all.grow == 0 || all.grow == all.of {
        let missing = match all.grow {
            0 => "whose memory grows",
            _ => "whose memory does not grow",
        };
        return writeln!(
            out,
            "\nNothing can be compared without a host {missing}: record the same program on more hosts."
        );
    }
    writeln!(out, "\nWhat separates the hosts that grow from the others")?;
    separation(out, &fleet.separation)?;
    for (group, of) in &fleet.of_groups {
        writeln!(out, "\nThe same for {}", headline(&fleet.groups[*group]))?;
        separation(out, of)?;
    }
    writeln!(
        out,
        "\nChance: how often the best of all facts separates the hosts as well if growth is given to other hosts at \
         random.\nThis is association: to prove a cause, change it on one host and record again."
    )
}

fn headline(group: &Group) -> String {
    let line = group.line.as_ref().map(|frame| stack::line(frame, false));
    let line = line.unwrap_or_else(|| "no line known".into());
    let rates = group.rates.map(
        |(least, most)| match per_second(least) == per_second(most) {
            true => format!("  {}", per_second(most)),
            false => format!("  {} to {}", per_second(least), per_second(most)),
        },
    );
    let rates = rates.unwrap_or_default();
    format!("{}  {line}{rates}", group.class.name())
}

/// A list that does not get long.
fn hosts<'a>(names: impl ExactSizeIterator<Item = &'a String>) -> String {
    let more = names.len().saturating_sub(NAMES);
    let shown: Vec<String> = names.take(NAMES).map(|name| clean(name)).collect();
    let more = match more {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    shown.join(", ") + &more
}

fn separation(out: &mut impl Write, of: &Separation) -> io::Result<()> {
    if of.facts == 0 {
        return writeln!(out, "  no recorded fact differs between them");
    }
    if let Some(nearest) = &of.nearest {
        writeln!(
            out,
            "  none of {} that differ does so better than chance. The nearest:",
            plural(of.facts as u64, "fact")
        )?;
        return cause(out, nearest);
    }
    of.causes.iter().try_for_each(|of| cause(out, of))
}

fn cause(out: &mut impl Write, cause: &Cause) -> io::Result<()> {
    let Some((first, others)) = cause.conditions.split_first() else {
        return Ok(());
    };
    let among: Vec<String> = cause
        .among
        .iter()
        .map(|(of, meets)| {
            format!(
                "{} {}",
                if *meets { "where" } else { "unless" },
                condition(of)
            )
        })
        .collect();
    let among = match among.is_empty() {
        true => String::new(),
        false => format!("{}: ", among.join(", ")),
    };
    let and = cause
        .and
        .first()
        .map(|of| format!(" and {}", condition(of)));
    writeln!(
        out,
        "  {among}{}{}",
        condition(first),
        and.unwrap_or_default()
    )?;
    writeln!(
        out,
        "    {} of {} grow, of the others {} of {}; chance: {}",
        cause.with.grow,
        cause.with.of,
        cause.without.grow,
        cause.without.of,
        percent(cause.chance)
    )?;
    // Of two facts together, the others of either are those of more hosts.
    let others = if cause.and.is_empty() { others } else { &[] };
    for other in others.iter().take(CONDITIONS) {
        writeln!(out, "    the same hosts: {}", condition(other))?;
    }
    if let Some(more) = others
        .len()
        .checked_sub(CONDITIONS)
        .filter(|more| *more > 0)
    {
        writeln!(
            out,
            "    and {more} more facts of the same hosts (`--format json`)"
        )?;
    }
    if let Some(Decisive([first, rival])) = &cause.decisive {
        writeln!(
            out,
            "    to decide, record a host with {} but not with {}, and one the other way round",
            condition(first),
            condition(rival)
        )?;
    }
    Ok(())
}

fn condition(of: &Condition) -> String {
    let field = clean(&of.field);
    let value = |value: &str| clean(&cut(value, WIDTH));
    match &of.is {
        Is::Value(is) => format!("{field} = {}", value(is)),
        Is::Not(is) => format!("{field} other than {}", value(is)),
        Is::AtLeast(is) => format!("{field} at least {}", value(is)),
        Is::Below(is) => format!("{field} below {}", value(is)),
        Is::Absent => format!("no {field}"),
        Is::Present => format!("any {field}"),
    }
}

fn percent(chance: f64) -> String {
    match chance * 100.0 {
        percent if percent < 0.15 => "at most 0.1 %".into(),
        percent => format!("{percent:.1} %"),
    }
}

/// Writes it for programs.
///
/// # Errors
/// The output fails.
pub(crate) fn json(out: &mut impl Write, fleet: &Fleet) -> io::Result<()> {
    let groups = fleet.groups.iter().map(|group| {
        json!({
            "class": group.class.name(),
            "line": group.line.as_ref().map(|frame| stack::line(frame, false)),
            "hosts": group.hosts,
            "rates": group.rates.map(|(least, most)| [least, most]),
        })
    });
    let of_groups = fleet
        .of_groups
        .iter()
        .map(|(group, of)| json!({ "group": group, "separation": separation_json(of) }));
    let value = json!({
        "recordings": fleet.recordings,
        "groups": groups.collect::<Vec<_>>(),
        "flat": fleet.flat,
        "undetermined": fleet.open,
        "separation": separation_json(&fleet.separation),
        "of_groups": of_groups.collect::<Vec<_>>(),
    });
    let text = serde_json::to_string_pretty(&value)?;
    until_closed(writeln!(out, "{}", in_json(&text)).and_then(|()| out.flush()))
}

fn separation_json(of: &Separation) -> Value {
    json!({
        "hosts": share(of.all),
        "facts": of.facts,
        "causes": of.causes.iter().map(cause_json).collect::<Vec<_>>(),
        "nearest": of.nearest.as_ref().map(cause_json),
    })
}

fn cause_json(cause: &Cause) -> Value {
    let among = cause
        .among
        .iter()
        .map(|(of, meets)| json!({ "condition": condition_json(of), "meets": meets }));
    json!({
        "conditions": cause.conditions.iter().map(condition_json).collect::<Vec<_>>(),
        "and": cause.and.iter().map(condition_json).collect::<Vec<_>>(),
        "among": among.collect::<Vec<_>>(),
        "with": share(cause.with),
        "without": share(cause.without),
        "chance": cause.chance,
        "decisive": cause.decisive.as_ref().map(|Decisive(of)| of.each_ref().map(condition_json)),
    })
}

fn share(share: Share) -> Value {
    json!({ "grow": share.grow, "of": share.of })
}

fn condition_json(of: &Condition) -> Value {
    let (is, value) = match &of.is {
        Is::Value(value) => ("value", Some(value)),
        Is::Not(value) => ("not", Some(value)),
        Is::AtLeast(value) => ("at_least", Some(value)),
        Is::Below(value) => ("below", Some(value)),
        Is::Absent => ("absent", None),
        Is::Present => ("present", None),
    };
    json!({ "field": of.field, "is": is, "value": value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::{Reading, fixture::readings, judge};

    fn screen(readings: &[Reading]) -> String {
        let mut out = Vec::new();
        text(&mut out, &judge(readings)).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_fleet_has_its_groups_and_what_separates_them() {
        let screen = screen(&readings());
        let expected = "\
memtrace: 16 recordings: memory grows on 8 hosts, and does not on 7, 1 undetermined and left out

  leak  handle  /srv/app.py:4  [Python]  1.0 KiB/s to 5.0 KiB/s
    on host-00, host-01, host-02, host-03, host-04

  retention  handle  /srv/app.py:4  [Python]  6.0 KiB/s to 8.0 KiB/s
    on host-05, host-06, host-07

What separates the hosts that grow from the others
  env.MALLOC_ARENA_MAX = 8
    8 of 8 grow, of the others 0 of 7; chance: 0.2 %
    the same hosts: kernel.release = 6.8
    to decide, record a host with env.MALLOC_ARENA_MAX = 8 but not with kernel.release = 6.8, and one the other way round
";
        assert!(screen.starts_with(expected), "{screen}");
        assert!(
            screen.contains("\nThe same for leak  handle  /srv/app.py:4"),
            "{screen}"
        );
    }

    #[test]
    fn a_single_kind_of_host_cannot_be_compared() {
        let mut readings = readings();
        readings.truncate(8);
        let screen = screen(&readings);
        assert!(
            screen.contains("without a host whose memory does not grow"),
            "{screen}"
        );
    }
}
