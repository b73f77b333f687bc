//! The sites of a report: the top ones with their figures and stacks, and a summary of the rest.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use super::{
    super::{group_name, holders, stack},
    TextReport,
    health::ends_here,
};
use crate::{
    escape::clean,
    event::Layer,
    units::{duration, grouped, plural, seconds, size},
    view::{Selection, Shown},
};

/// The heading of sites that the program did not request itself.
pub(super) const INDIRECT: &str = "  Mappings that allocators and the dynamic linker requested; blocks of other layers are in them, so do not add both:";

impl TextReport<'_> {
    pub(super) fn sites(&self, out: &mut impl Write, selection: &Selection) -> io::Result<()> {
        let sort = self.options.sort;
        let nonzero = selection
            .sites
            .iter()
            .filter(|site| sort.of(&site.totals()) > 0);
        let listed: Vec<_> = nonzero.take(self.options.top).collect();
        let all = selection.sites.len() as u64;
        match all {
            0 => writeln!(out, "\nNo sites")?,
            _ => writeln!(
                out,
                "\nTop {} of {} by {sort}",
                listed.len(),
                plural(all, "site")
            )?,
        }
        self.ages(out, selection)?;
        let filter = &self.options.filter;
        let wrappers = |site: &&Shown| filter.folded_wrappers(site.stack);
        if listed.iter().any(|site| wrappers(site) > 0) {
            writeln!(
                out,
                "  stacks begin with the allocator's caller (--show-wrappers shows its own frames)"
            )?;
        }
        let interpreters = |site: &&Shown| {
            filter.frames(site.stack).len() + wrappers(site) < site.stack.frames().count()
        };
        if listed.iter().any(interpreters) {
            writeln!(
                out,
                "  without the Python interpreter's own frames (--show-interpreter shows them)"
            )?;
        }
        let is_shortened = |site: &&Shown| {
            let frames = filter.frames(site.stack);
            stack::lines(&frames, filter.full) != stack::lines(&frames, true)
        };
        if listed.iter().any(is_shortened) {
            writeln!(
                out,
                "  with frames of libraries folded, and C++ names without arguments (--full shows them)"
            )?;
        }
        let indirect = listed.iter().position(|site| site.is_indirect());
        for (rank, site) in listed.iter().enumerate() {
            if indirect == Some(rank) {
                writeln!(out, "\n{INDIRECT}")?;
            }
            self.site(out, rank + 1, site)?;
        }
        let rest = selection.sites.get(listed.len()..).unwrap_or_default();
        let (unlisted, without): (Vec<_>, Vec<_>) =
            rest.iter().partition(|site| sort.of(&site.totals()) > 0);
        if !unlisted.is_empty() {
            let sites = plural(unlisted.len() as u64, "more site");
            let mut live = BTreeMap::new();
            for site in unlisted {
                *live.entry(site.site.key.layer).or_default() += site.live_bytes;
            }
            let live = by_layer(&live);
            writeln!(out, "\n  {sites} not listed (-T lists more); live: {live}")?;
        }
        if !without.is_empty() {
            let sites = plural(without.len() as u64, "more site");
            writeln!(out, "\n  {sites} with no {sort}, not listed")?;
        }
        self.hidden(out, selection)
    }

    /// How `--older` was applied, if it was given.
    pub(super) fn ages(&self, out: &mut impl Write, selection: &Selection) -> io::Result<()> {
        let Some(ages) = selection.ages else {
            return Ok(());
        };
        let age = seconds(u64::try_from(ages.older.as_nanos()).unwrap_or(u64::MAX));
        writeln!(
            out,
            "  only blocks at least {age} old at the scan at {}; birth times are known to a second (coarser at sites with many blocks), and doubtful blocks are left out",
            self.since(ages.time_ns)
        )
    }

    /// Summary of the sites hidden by filters.
    pub(super) fn hidden(&self, out: &mut impl Write, selection: &Selection) -> io::Result<()> {
        if selection.hidden_sites == 0 {
            return Ok(());
        }
        let sites = plural(selection.hidden_sites, "site");
        let live = by_layer(&selection.hidden_bytes);
        writeln!(out, "\n  {sites} hidden by filters; live: {live}")
    }

    fn site(&self, out: &mut impl Write, rank: usize, shown: &Shown) -> io::Result<()> {
        let (site, totals) = (shown.site, &shown.totals());
        let process = match self.snapshot.processes.len() {
            0 | 1 => String::new(),
            _ => match shown.process.filter(|process| process.row.is_group()) {
                Some(group) => format!(" of {}", group_name(&group.row)),
                None => format!(" of pid {}", shown.tgid()),
            },
        };
        let thread = match shown.stack.thread() {
            Some(name) => format!(", thread {}", clean(name)),
            None => String::new(),
        };
        let device = match site.key.device {
            Some(index) => format!(", device {index}"),
            None => String::new(),
        };
        let by = if site.key.by_allocator {
            ", taken by an allocator"
        } else {
            ""
        };
        writeln!(
            out,
            "\n{rank:>3}. {} in {} ({}{device}{process}{thread}{by})",
            size(totals.live_bytes),
            plural(totals.live_count, "block"),
            site.key.layer.name(),
        )?;
        let inherited = match totals.inherited_count {
            0 => String::new(),
            n => format!(", inherited {} in {n}", size(totals.inherited_bytes)),
        };
        writeln!(
            out,
            "     allocated {} in {}, freed {} in {}, peak {}{inherited}",
            size(totals.alloc_bytes),
            grouped(totals.alloc_count),
            size(totals.free_bytes),
            grouped(totals.free_count),
            size(totals.peak_bytes),
        )?;
        let last = match site.last_ns {
            Some(time) => format!(", last {}", self.since(time)),
            None => String::new(),
        };
        let lived = site
            .lifetimes
            .as_deref()
            .and_then(|counts| lifetimes(counts, self.length()))
            .unwrap_or_default();
        writeln!(out, "     first {}{last}{lived}", self.since(site.first_ns))?;
        let filter = &self.options.filter;
        for line in stack::lines(&filter.frames(shown.stack), filter.full) {
            writeln!(out, "       {line}")?;
        }
        if shown.stack.is_empty() {
            writeln!(out, "       [no stack]")?;
        }
        if let Some(why) = ends_here(shown.stack) {
            writeln!(out, "       {why}")?;
        }
        let held = self.snapshot.holders.get(&site.key);
        let mut lines = held.into_iter().flat_map(|held| holders::lines(held, None));
        lines.try_for_each(|line| writeln!(out, "     {line}"))
    }
}

/// `heap 1.2 MiB, vm 3.4 MiB`: layers overlap, so their bytes have no sum.
pub(super) fn by_layer(live: &BTreeMap<Layer, u64>) -> String {
    let layers = live
        .iter()
        .map(|(layer, bytes)| format!("{} {}", layer.name(), size(*bytes)));
    layers.collect::<Vec<_>>().join(", ")
}

/// Calls in one tick of the kernel share a time, so shorter lifetimes are not known. The longest that Linux has, ns.
const TICK: u64 = 10_000_000;

/// The range and the median of the lifetimes of freed blocks, to a power of two; none is above `longest`, ns.
fn lifetimes(counts: &[u64], longest: u64) -> Option<String> {
    let first = counts.iter().position(|count| *count > 0)?;
    let last = counts.iter().rposition(|count| *count > 0)?;
    if 2 << last <= TICK {
        return Some(format!(", freed blocks lived less than {}", duration(TICK)));
    }
    let half = counts.iter().sum::<u64>().div_ceil(2);
    let mut seen = 0;
    let median = counts.iter().position(|count| {
        seen += count;
        seen >= half
    })?;
    Some(format!(
        ", freed blocks lived about {} to {}, half of them less than about {}",
        duration(if 1 << first < TICK { 0 } else { 1 << first }),
        duration(longest.min(2 << last)),
        duration(longest.min((2 << median).max(TICK))),
    ))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{
        TextOptions,
        tests::{assert_parts, render},
    };
    use crate::{
        recording::{
            Snapshot, WayKind,
            fixture::{holders, tree},
        },
        view::{Filter, fixture},
    };

    fn filtered(snapshot: &Snapshot, filter: Filter) -> String {
        let options = TextOptions {
            filter,
            ..TextOptions::default()
        };
        render(snapshot, &options)
    }

    #[test]
    fn lifetimes_are_known_to_a_tick() {
        let told = |counts: &[(usize, u64)]| {
            let mut all = [0; 48];
            counts.iter().for_each(|(i, count)| all[*i] = *count);
            super::lifetimes(&all, 1 << 33).unwrap_or_default()
        };
        assert_eq!(
            told(&[(0, 3), (22, 1)]),
            ", freed blocks lived less than 10 ms"
        );
        assert_eq!(
            told(&[(0, 3), (32, 1)]),
            ", freed blocks lived about 0 ns to 8.6 s, half of them less than about 10 ms"
        );
        assert_eq!(
            told(&[(26, 1), (30, 3)]),
            ", freed blocks lived about 67 ms to 2.1 s, half of them less than about 2.1 s"
        );
    }

    #[test]
    fn sites_have_figures_and_whole_stacks() {
        let report = render(&fixture::snapshot(), &TextOptions::default());
        assert_parts(
            &report,
            &[
                "Top 3 of 4 sites by live-bytes",
                "  1. 1.0 MiB in 4 blocks (heap of pid 4242)",
                "allocated 1.0 MiB in 5, freed 64 B in 1, peak 1.0 MiB",
                "first 1.0 s, last 9.0 s, freed blocks lived less than 10 ms",
                "grow;it (inlined)  /src/leaker.c:7  [leaker]",
                "leaker+0x1234 (no symbols)",
                "[ends here: more frames than are kept]",
                "  2. 100 B in 10 blocks (heap of pid 4243",
                "[no stack]",
                "  3. 8.0 KiB in 1 block (vm of pid 4242, taken by an allocator)",
                "1 more site with no live-bytes, not listed",
            ],
        );
    }

    #[test]
    fn holders_are_below_the_stack() {
        let mut snapshot = fixture::snapshot();
        let key = snapshot.sites[1].key;
        let ways = vec![(3, WayKind::Path(tree())), (1, WayKind::Nothing)];
        snapshot.holders.insert(key, holders(key, 4, ways));
        assert_parts(
            &render(&snapshot, &TextOptions::default()),
            &["[ends here: more frames than are kept]\n\
                \x20    held, 3 of 4 blocks examined: libfoo.so: g_cache + 0x10 → std::map node ×12,345 → block\n\
                \x20    also, 1: nothing points to it: lost\n\n"],
        );
    }

    #[test]
    fn an_allocators_frames_are_folded_with_a_note() {
        let snapshot = fixture::snapshot_with_wrappers();
        let folded = render(&snapshot, &TextOptions::default());
        let whole = filtered(
            &snapshot,
            Filter {
                show_wrappers: true,
                ..Filter::default()
            },
        );
        assert_eq!(folded.matches("operator new").count(), 1, "{folded}");
        assert_eq!(whole.matches("operator new").count(), 3, "{whole}");
        assert!(folded.contains("--show-wrappers"));
        assert!(!whole.contains("--show-wrappers"));
    }

    #[test]
    fn python_frames_replace_the_interpreters() {
        let snapshot = fixture::snapshot_of_python();
        let folded = render(&snapshot, &TextOptions::default());
        let whole = filtered(
            &snapshot,
            Filter {
                show_interpreter: true,
                ..Filter::default()
            },
        );
        assert_parts(
            &folded,
            &[
                "(heap of pid 4242, thread worker)",
                "       list_resize  /src/leaker.c:7  [leaker]\n\
                 \x20      Cache.fill  /src/cache;1.py:41  [Python]\n\
                 \x20      <module>  /src/main.py:7  [Python]\n\n",
                "--show-wrappers",
                "--show-interpreter",
            ],
        );
        assert_parts(
            &whole,
            &["cfunction_vectorcall_O  /src/leaker.c:7  [leaker]\n\
                 \x20      Cache.fill  /src/cache;1.py:41  [Python]\n\
                 \x20      leaker+0x1234 (no symbols)\n"],
        );
        assert!(!whole.contains("--show-interpreter"), "{whole}");
    }

    #[test]
    fn filters_report_hidden_sites() {
        let options = TextOptions {
            top: 1,
            filter: Filter {
                pid: Some(fixture::PARENT),
                ..Filter::default()
            },
            ..TextOptions::default()
        };
        let report = render(&fixture::snapshot(), &options);
        assert_parts(
            &report,
            &[
                "Top 1 of 3 sites",
                "1 more site not listed (-T lists more); live: vm 8.0 KiB",
                "1 more site with no live-bytes, not listed",
                "1 site hidden by filters; live: heap 100 B",
            ],
        );
        assert!(!report.contains("Process 4243"), "{report}");
        let report = filtered(
            &fixture::snapshot(),
            Filter {
                older: Some(Duration::from_secs(9)),
                ..Filter::default()
            },
        );
        assert_parts(
            &report,
            &["only blocks at least 9.0 s old", "512.0 KiB in 2 blocks"],
        );
    }
}
