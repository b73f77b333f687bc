//! The rows of the table: live sites, alone or in groups, with their growth and age. Pure.

use std::{
    cmp::{Ordering, Reverse},
    collections::BTreeMap,
};

use super::reading::{Reading, Span};
use crate::{
    event::Layer,
    frames::{Frame, names},
    hash::FastMap,
    ledger::SiteKey,
    render,
    units::grouped,
    view::{By, Filter, Metric, Shown, group::program_line},
};

/// What makes sites one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grouping {
    By(By),
    Process,
    Layer,
}

impl Grouping {
    /// Every choice, in the order of the key that changes it.
    pub(crate) const ALL: [Grouping; 8] = [
        Grouping::By(By::ProgramLine),
        Grouping::By(By::Site),
        Grouping::Process,
        Grouping::Layer,
        Grouping::By(By::PythonLine),
        Grouping::By(By::NativeSite),
        Grouping::By(By::Module),
        Grouping::By(By::Thread),
    ];

    pub(crate) const fn noun(self) -> &'static str {
        match self {
            Grouping::By(by) => by.noun(),
            Grouping::Process => "process",
            Grouping::Layer => "layer",
        }
    }
}

/// The order of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// By live bytes, those with a leak before the others.
    Leaks,
    Live,
    Growth,
    Age,
    Blocks,
}

impl Sort {
    /// Every choice, in the order of the key that changes it.
    pub(crate) const ALL: [Sort; 5] = [
        Sort::Leaks,
        Sort::Live,
        Sort::Growth,
        Sort::Age,
        Sort::Blocks,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Sort::Leaks => "leaks first",
            Sort::Live => "by live bytes",
            Sort::Growth => "by growth",
            Sort::Age => "by age",
            Sort::Blocks => "by blocks",
        }
    }
}

/// Live bytes at a moment that the user marked.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    /// CLOCK_MONOTONIC ns.
    pub(crate) time_ns: u64,
    live: FastMap<SiteKey, u64>,
}

impl Mark {
    pub(crate) fn at(reading: &Reading) -> Mark {
        let sites = reading.snapshot.sites.iter();
        Mark {
            time_ns: reading.whole().to_ns,
            live: sites
                .filter(|site| site.totals.live_bytes > 0)
                .map(|site| (site.key, site.totals.live_bytes))
                .collect(),
        }
    }
}

/// What distinguishes a row from the others, also in later readings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowId {
    pub(crate) layer: Layer,
    /// Other rows have the memory, too.
    pub(crate) is_indirect: bool,
    key: String,
    site: Option<SiteKey>,
}

/// One row of the table. Its text comes from traced programs.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) id: RowId,
    /// A function, or the name of the group.
    pub(crate) name: String,
    /// Its source line or file.
    pub(crate) place: String,
    pub(crate) live_bytes: u64,
    pub(crate) live_count: u64,
    /// Change of the live bytes: since the mark if there is one, else per second.
    pub(crate) growth: f64,
    /// The age of the median live byte when blocks were last scanned, ns; `None`: not scanned yet.
    pub(crate) age_ns: Option<u64>,
    /// Sites of the row.
    pub(crate) sites: u64,
    /// Its processes.
    pub(crate) tgids: Vec<u32>,
    /// What keeps the blocks of the largest site, if that was searched for.
    pub(crate) keeper: Option<String>,
    /// One of its sites leaks, by the verdicts.
    pub(crate) is_leak: bool,
    /// Its site with the most live bytes, among those that leak if any does.
    pub(crate) largest: SiteKey,
}

/// The choice and the order of rows.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub(crate) grouping: Grouping,
    pub(crate) sort: Sort,
    pub(crate) layer: Option<Layer>,
    /// Rows have it in their text, in any case of letters.
    pub(crate) text: String,
}

/// The rows of a reading.
pub(crate) fn rows(reading: &Reading, choice: &Choice, mark: Option<&Mark>) -> Vec<Row> {
    let filter = Filter {
        layer: choice.layer,
        ..Filter::default()
    };
    // Without a bound on age, this cannot fail.
    let selection = filter.select(&reading.snapshot, Metric::LiveBytes);
    let selection = selection.unwrap_or_default();
    let recent = reading.recent();
    let mut groups: BTreeMap<RowId, Group> = BTreeMap::new();
    for shown in &selection.sites {
        let change = change(reading, shown, mark, recent);
        if shown.live_bytes == 0 && change == 0.0 {
            continue;
        }
        let group = groups.entry(id(choice.grouping, shown)).or_default();
        group.add(shown, change);
    }
    let mut rows: Vec<Row> = groups
        .into_iter()
        .filter_map(|(id, group)| group.row(id, reading, choice.grouping))
        // Memory that was freed is of interest since a mark only.
        .filter(|row| row.live_bytes > 0 || mark.is_some())
        .filter(|row| row.has(&choice.text))
        .collect();
    sort(&mut rows, choice.sort);
    rows
}

/// The change of a site's live bytes since the mark, or per second.
fn change(reading: &Reading, shown: &Shown, mark: Option<&Mark>, recent: Span) -> f64 {
    let key = &shown.site.key;
    let live = shown.live_bytes as f64;
    match mark {
        Some(mark) => live - mark.live.get(key).copied().unwrap_or(0) as f64,
        None if recent.seconds() <= 0.0 => 0.0,
        None => (live - reading.live_at(key, recent.from_ns) as f64) / recent.seconds(),
    }
}

fn id(grouping: Grouping, shown: &Shown) -> RowId {
    let (key, site) = match grouping {
        Grouping::By(By::Site) => (String::new(), Some(shown.site.key)),
        Grouping::By(by) => (by.key(shown.stack), None),
        Grouping::Process => (format!("{:010}", shown.site.key.process.0), None),
        Grouping::Layer => (String::new(), None),
    };
    RowId {
        layer: shown.site.key.layer,
        is_indirect: shown.is_indirect(),
        key,
        site,
    }
}

fn sort(rows: &mut [Row], by: Sort) {
    rows.sort_by(|a, b| {
        let order = match by {
            Sort::Leaks => b.is_leak.cmp(&a.is_leak),
            Sort::Live => Ordering::Equal,
            Sort::Growth => b.growth.total_cmp(&a.growth),
            Sort::Age => b.age_ns.cmp(&a.age_ns),
            Sort::Blocks => b.live_count.cmp(&a.live_count),
        };
        // Mappings of allocators hold the blocks of the other rows.
        let indirect = a.id.is_indirect.cmp(&b.id.is_indirect);
        let live = Reverse(a.live_bytes).cmp(&Reverse(b.live_bytes));
        indirect.then(order).then(live).then(a.id.cmp(&b.id))
    });
}

/// The sites of a row.
#[derive(Default)]
struct Group<'a> {
    sites: Vec<&'a Shown<'a>>,
    growth: f64,
}

impl<'a> Group<'a> {
    fn add(&mut self, shown: &'a Shown<'a>, change: f64) {
        self.sites.push(shown);
        self.growth += change;
    }

    fn row(mut self, id: RowId, reading: &Reading, grouping: Grouping) -> Option<Row> {
        // Empty sites count for the change only, unless all are.
        if self.sites.iter().any(|shown| shown.live_bytes > 0) {
            self.sites.retain(|shown| shown.live_bytes > 0);
        }
        let mut sites = self.sites.iter();
        let leaks = |shown: &&&Shown| reading.is_leak(&shown.site.key);
        let live = |shown: &&&Shown| shown.live_bytes;
        let leak = sites.clone().filter(leaks).max_by_key(live);
        let largest = leak.or_else(|| sites.clone().max_by_key(live))?;
        let (name, place) = label(grouping, &id, largest);
        let mut tgids: Vec<u32> = sites.clone().map(|shown| shown.tgid()).collect();
        tgids.sort_unstable();
        tgids.dedup();
        let kept = reading.kept_by(&largest.site.key);
        let kept = kept.or_else(|| sites.find_map(|shown| reading.kept_by(&shown.site.key)));
        Some(Row {
            name,
            place,
            live_bytes: self.sites.iter().map(|shown| shown.live_bytes).sum(),
            live_count: self.sites.iter().map(|shown| shown.live_count).sum(),
            growth: self.growth,
            age_ns: age(&self.sites),
            sites: self.sites.len() as u64,
            tgids,
            keeper: kept.map(|kept| render::kept_by(&kept)),
            is_leak: leak.is_some(),
            largest: largest.site.key,
            id,
        })
    }
}

/// A row's name and place.
fn label(grouping: Grouping, id: &RowId, largest: &Shown) -> (String, String) {
    let Grouping::By(by) = grouping else {
        return match grouping {
            Grouping::Layer => (format!("all of {}", id.layer.name()), String::new()),
            _ => process(largest),
        };
    };
    let frame = match by {
        // Sites of one line differ in their callees.
        By::Site => Filter::default().frames(largest.stack).first().copied(),
        By::ProgramLine => program_line(largest.stack),
        By::PythonLine => largest.stack.frames().find(|frame| frame.is_python()),
        By::NativeSite | By::Module | By::Thread => None,
    };
    match frame {
        Some(frame) => (names::plain(frame), place(frame)),
        None => (by.key(largest.stack), String::new()),
    }
}

fn process(shown: &Shown) -> (String, String) {
    match shown.process.map(|process| &process.row) {
        Some(row) if row.is_group() => (
            format!("{} ×{}, ended", row.comm, grouped(row.processes())),
            String::new(),
        ),
        Some(row) => (format!("{} {}", row.tgid, row.comm), row.cmdline.join(" ")),
        None => ("unknown process".into(), String::new()),
    }
}

fn place(frame: &Frame) -> String {
    let source = names::source_line(frame);
    let source = source.or_else(|| frame.module_name().map(Into::into));
    source.unwrap_or_default()
}

/// The age of the median byte, by the last scan.
fn age(sites: &[&Shown]) -> Option<u64> {
    let mut births: Vec<(u64, u64)> = Vec::new();
    for at in sites.iter().filter_map(|shown| shown.site.births.as_ref()) {
        let rows = at.births.rows.iter();
        births.extend(rows.map(|(born, bytes, _)| (at.time_ns.saturating_sub(*born), *bytes)));
    }
    births.sort_unstable();
    let half = births
        .iter()
        .map(|(_, bytes)| bytes)
        .sum::<u64>()
        .div_ceil(2);
    let mut seen = 0;
    let median = births.iter().find(|(_, bytes)| {
        seen += bytes;
        seen >= half
    })?;
    Some(median.0)
}

impl Row {
    /// Whether a text is in it.
    fn has(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        let tgids = self.tgids.iter().map(ToString::to_string);
        let own = [&*self.name, &*self.place, self.id.layer.name()].map(str::to_lowercase);
        let kept = self.keeper.iter().map(|kept| kept.to_lowercase());
        let mut all = own.into_iter().chain(kept).chain(tgids);
        text.is_empty() || all.any(|of| of.contains(&text))
    }
}
