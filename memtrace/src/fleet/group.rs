//! Recordings of many hosts, by what was found in them.

use std::collections::BTreeSet;

use super::{
    host::{Facts, Host},
    separate::{Separation, separate},
};
use crate::{
    analysis::verdict::Class,
    diff::is_of_session,
    frames::{Frame, names},
};

/// Groups whose hosts are compared with those that do not grow, beside all of them together.
const MOST_GROUPS: usize = 5;

/// A recording.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) host: String,
    pub(crate) facts: Facts,
    pub(crate) class: Class,
    /// The line behind it.
    pub(crate) line: Option<Frame>,
    /// Bytes per second.
    pub(crate) rate: Option<f64>,
    /// Whether the reader says that memory grows there. `None`: the class decides.
    pub(crate) given: Option<bool>,
}

/// Hosts that grow in the same way.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    pub(crate) class: Class,
    pub(crate) line: Option<Frame>,
    pub(crate) hosts: BTreeSet<String>,
    /// The least and the most, bytes per second.
    pub(crate) rates: Option<(f64, f64)>,
}

/// All hosts.
#[derive(Clone, Debug)]
pub(crate) struct Fleet {
    pub(crate) recordings: usize,
    /// Those with most hosts first.
    pub(crate) groups: Vec<Group>,
    pub(crate) flat: Vec<String>,
    /// Undetermined: they are left out.
    pub(crate) open: Vec<String>,
    /// Of all hosts that grow and those that do not.
    pub(crate) separation: Separation,
    /// The same of the hosts of one group, if there are several.
    pub(crate) of_groups: Vec<(usize, Separation)>,
}

/// A host, with the groups of its recordings.
struct Judged {
    host: Host,
    state: State,
    groups: BTreeSet<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Open,
    Flat,
    Grows,
}

impl State {
    fn of(reading: &Reading) -> Self {
        match (reading.given, reading.class) {
            (Some(true), _) => State::Grows,
            (Some(false), _) => State::Flat,
            (None, Class::Undetermined) => State::Open,
            // Of these, memory has a limit, is harmless, or is that of other programs.
            (
                None,
                Class::None
                | Class::Cache
                | Class::GpuUnused
                | Class::ThreadChurn
                | Class::Pressure
                | Class::PageCache,
            ) => State::Flat,
            (None, _) => State::Grows,
        }
    }
}

/// Groups recordings, and looks for what separates the hosts.
pub(crate) fn judge(readings: &[Reading]) -> Fleet {
    let mut groups: Vec<Group> = Vec::new();
    let mut hosts: Vec<Judged> = Vec::new();
    for reading in readings {
        let state = State::of(reading);
        let group = (state == State::Grows).then(|| group(&mut groups, reading));
        // Recordings of one host under the same conditions say what one of them says.
        let known = hosts.iter_mut().find(|known| {
            known.host.name == reading.host
                && (reading.given.is_none() || known.state == state)
                && is_same(&known.host.facts, &reading.facts)
        });
        match known {
            Some(known) => {
                known.state = known.state.max(state);
                known.groups.extend(group);
            }
            None => hosts.push(Judged {
                host: Host {
                    name: reading.host.clone(),
                    grows: false,
                    facts: reading.facts.clone(),
                },
                state,
                groups: group.into_iter().collect(),
            }),
        }
    }
    let names = |state| {
        let of = hosts.iter().filter(|of| of.state == state);
        of.map(|of| of.host.name.clone()).collect()
    };
    let against_flat = |grows: &dyn Fn(&Judged) -> bool| {
        let compared = hosts
            .iter()
            .filter(|of| of.state == State::Flat || grows(of));
        let compared: Vec<Host> = compared
            .map(|of| Host {
                grows: grows(of),
                ..of.host.clone()
            })
            .collect();
        separate(&compared)
    };
    let is_growing = |of: &Judged| of.state == State::Grows;
    let mut largest: Vec<usize> = (0..groups.len()).collect();
    largest.sort_by_key(|group| std::cmp::Reverse(groups[*group].hosts.len()));
    let several = largest.iter().filter(|_| groups.len() > 1);
    let several = several.filter(|group| groups[**group].hosts.len() > 1);
    let of_groups = several.take(MOST_GROUPS).map(|&group| {
        let is_in = |of: &Judged| of.groups.contains(&group);
        (group, against_flat(&is_in))
    });
    Fleet {
        recordings: readings.len(),
        of_groups: of_groups.collect(),
        separation: against_flat(&is_growing),
        flat: names(State::Flat),
        open: names(State::Open),
        groups,
    }
}

/// The number of the group that a recording belongs to.
fn group(groups: &mut Vec<Group>, reading: &Reading) -> usize {
    let is_same = |known: &Group| {
        known.class == reading.class && place(known.line.as_ref()) == place(reading.line.as_ref())
    };
    let number = groups.iter().position(is_same).unwrap_or_else(|| {
        groups.push(Group {
            class: reading.class,
            line: reading.line.clone(),
            hosts: BTreeSet::new(),
            rates: None,
        });
        groups.len() - 1
    });
    let group = &mut groups[number];
    group.hosts.insert(reading.host.clone());
    if let Some(rate) = reading.rate {
        let (least, most) = group.rates.unwrap_or((rate, rate));
        group.rates = Some((least.min(rate), most.max(rate)));
    }
    number
}

/// A function and its file, without folders and lines: they differ between versions and hosts.
fn place(line: Option<&Frame>) -> Option<(String, String)> {
    let line = line?;
    let file = line.file.as_deref().or(line.module.as_deref());
    let file = file.and_then(|path| path.rsplit('/').next());
    Some((names::plain(line), file.unwrap_or_default().to_owned()))
}

/// Whether facts are the same, but for those that differ with each start of a program.
fn is_same(a: &Facts, b: &Facts) -> bool {
    let lasting = |facts: &Facts| {
        let facts = facts.clone().into_iter();
        let of_start = |field: &str| is_of_session(field) || field == "cgroup.path";
        facts
            .filter(|(field, _)| !of_start(field))
            .collect::<Facts>()
    };
    lasting(a) == lasting(b)
}
