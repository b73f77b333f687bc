//! The report as text: what was recorded, totals, the top sites with their
//! stacks, what is missing, and what to run next.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use super::{
    Error, Filter, Metric, clean, frame_name, losses,
    select::{Selection, Shown},
    units::{date, duration, plural, seconds, size},
    until_closed,
};
use crate::{
    event::Layer,
    ledger::LIFETIME_BUCKETS,
    recording::{At, LayerSnapshot, Moment, Origin, ProcessSnapshot, Snapshot},
    symbolize::Frame,
};

/// Processes listed with their totals; the rest is summed up.
const PROCESSES: usize = 20;

/// How to write a report.
#[derive(Clone, Debug)]
pub struct TextOptions {
    pub filter: Filter,
    pub sort: Metric,
    /// Most sites to list.
    pub top: usize,
    /// The recording's file, for the commands that the report proposes.
    pub path: Option<PathBuf>,
}

impl Default for TextOptions {
    fn default() -> Self {
        TextOptions {
            filter: Filter::default(),
            sort: Metric::default(),
            top: 10,
            path: None,
        }
    }
}

/// Writes the report.
///
/// # Errors
///
/// When ages are asked for and not known, or when the output cannot be written.
pub fn text(out: &mut impl Write, snapshot: &Snapshot, options: &TextOptions) -> Result<(), Error> {
    let selection = options.filter.select(snapshot, options.sort)?;
    let report = Report { snapshot, options };
    let written = report
        .header(out)
        .and_then(|()| report.processes(out))
        .and_then(|()| report.sites(out, &selection))
        .and_then(|()| losses::section(out, snapshot))
        .and_then(|()| report.next(out))
        .and_then(|()| out.flush());
    Ok(until_closed(written)?)
}

struct Report<'a> {
    snapshot: &'a Snapshot,
    options: &'a TextOptions,
}

impl Report<'_> {
    /// Time since the start of the recording.
    fn since(&self, time_ns: u64) -> String {
        seconds(time_ns.saturating_sub(self.snapshot.meta.started_ns))
    }

    fn header(&self, out: &mut impl Write) -> io::Result<()> {
        let meta = &self.snapshot.meta;
        let program = match self.snapshot.processes.first() {
            Some(first) => format!("{} (pid {})", clean(&first.row.comm), first.row.tgid),
            None => "no process".into(),
        };
        let others = match self.snapshot.processes.len() {
            0 | 1 => String::new(),
            n => format!(" and {} more", n - 1),
        };
        let version = clean(&meta.version);
        writeln!(out, "Recording of {program}{others}, by memtrace {version}")?;
        let (host, kernel) = (clean(&meta.host), clean(&meta.kernel));
        writeln!(out, "  host      {host}, Linux {kernel}")?;
        writeln!(out, "  command   {}", clean(&meta.command.join(" ")))?;
        let last = self.snapshot.time_ns.unwrap_or(meta.started_ns);
        let end = self.snapshot.finished_ns.unwrap_or(last).max(last);
        writeln!(
            out,
            "  started   {}, recorded for {}, every {}",
            date(meta.started_unix_ns),
            self.since(end),
            duration(meta.interval_ns)
        )?;
        if self.snapshot.finished_ns.is_none() {
            writeln!(
                out,
                "  ended     CUT OFF (killed, or still recording): figures go up to {}",
                self.since(last)
            )?;
        } else {
            writeln!(out, "  ended     as intended")?;
        }
        writeln!(out, "  moment    {}", self.moment())
    }

    fn moment(&self) -> String {
        let last = self.snapshot.time_ns;
        match self.snapshot.at {
            At::End => "end of each process, or of the recording (--at end)".into(),
            At::Peak => "peak of each layer of each process (--at peak)".into(),
            At::Time(asked) => match last {
                Some(time) => format!(
                    "{}, the last interval by {}",
                    self.since(time),
                    seconds(asked)
                ),
                None => format!(
                    "{}, before the first interval: nothing is known",
                    seconds(asked)
                ),
            },
            At::Default => "the end for processes that still ran when recording stopped, the peak \
                            for those that ended by themselves"
                .into(),
        }
    }

    fn processes(&self, out: &mut impl Write) -> io::Result<()> {
        let mut shown: Vec<_> = self
            .snapshot
            .processes
            .iter()
            .filter(|process| {
                self.options
                    .filter
                    .pid
                    .is_none_or(|pid| pid == process.row.tgid)
            })
            .collect();
        let live = |process: &ProcessSnapshot| -> u64 {
            let layers = self.layers(process);
            layers
                .iter()
                .map(|layer| layer.totals.totals.live_bytes)
                .sum()
        };
        let rest = if shown.len() > PROCESSES {
            shown.sort_by_key(|process| (std::cmp::Reverse(live(process)), process.row.id));
            shown.split_off(PROCESSES)
        } else {
            vec![]
        };
        if let Some(words) = losses::bounds(self.snapshot) {
            writeln!(out, "\n{words}")?;
        }
        if shown.is_empty() {
            writeln!(out, "\nNo process to show.")?;
        }
        for process in shown {
            self.process(out, process)?;
        }
        if !rest.is_empty() {
            let bytes = rest.iter().map(|process| live(process)).sum();
            writeln!(
                out,
                "\nProcesses not listed: {}, {} live in all layers together (--pid shows one)",
                rest.len(),
                size(bytes)
            )?;
        }
        Ok(())
    }

    fn layers(&self, process: &ProcessSnapshot) -> Vec<&LayerSnapshot> {
        let layers = self.snapshot.layers.iter();
        layers
            .filter(|layer| layer.process == process.row.id)
            .filter(|layer| self.options.filter.covers(Some(process), layer.layer))
            .collect()
    }

    fn process(&self, out: &mut impl Write, process: &ProcessSnapshot) -> io::Result<()> {
        let row = &process.row;
        let origin = match row.origin {
            Origin::Attached => "attached",
            Origin::Launched => "launched",
            Origin::Child => "child",
        };
        writeln!(
            out,
            "\nProcess {} {}, {origin} at {}{}",
            row.tgid,
            clean(&row.comm),
            self.since(row.started_ns),
            match row.ended_ns {
                Some(time) => format!(", ended at {}{}", self.since(time), status(row.exit_status)),
                None => String::new(),
            }
        )?;
        writeln!(out, "  command   {}", clean(&row.cmdline.join(" ")))?;
        let shown = match (process.moment, row.ended_ns) {
            (Moment::End, Some(_)) => "the end of the process".into(),
            (Moment::End, None) => "the end of the recording, the process was still running".into(),
            (Moment::Peak, _) => "its peak".into(),
            (Moment::Time(time), _) => self.since(time),
        };
        writeln!(out, "  shown at  {shown}")?;
        if let (Some(rss), Origin::Attached) = (row.rss_at_start, row.origin) {
            writeln!(
                out,
                "  before    {} resident when tracing began: allocations of before are unknown here",
                size(rss)
            )?;
        }
        let layers = self.layers(process);
        if layers.is_empty() {
            return writeln!(out, "  no allocation seen");
        }
        writeln!(
            out,
            "  {:<6} {:>11} {:>9} {:>11} {:>11} {:>10} {:>11} {:>10}  {:>11} at",
            "layer", "live", "blocks", "inherited", "allocated", "allocs", "freed", "frees", "peak"
        )?;
        for layer in layers {
            self.layer(out, layer)?;
        }
        Ok(())
    }

    fn layer(&self, out: &mut impl Write, layer: &LayerSnapshot) -> io::Result<()> {
        let totals = &layer.totals.totals;
        writeln!(
            out,
            "  {:<6} {:>11} {:>9} {:>11} {:>11} {:>10} {:>11} {:>10}  {:>11} {}",
            layer.layer.name(),
            size(totals.live_bytes),
            totals.live_count,
            size(totals.inherited_bytes),
            size(totals.alloc_bytes),
            totals.alloc_count,
            size(totals.free_bytes),
            totals.free_count,
            size(totals.peak_bytes),
            if totals.peak_ns > 0 {
                self.since(totals.peak_ns)
            } else {
                "-".into()
            }
        )?;
        if layer.layer == Layer::Vm && layer.totals.before_attach_bytes > 0 {
            let bytes = size(layer.totals.before_attach_bytes);
            writeln!(
                out,
                "         besides {bytes} mapped before tracing began and still mapped"
            )?;
        }
        if layer.totals.cleared_by_exec_count > 0 {
            let bytes = size(layer.totals.cleared_by_exec_bytes);
            let blocks = plural(layer.totals.cleared_by_exec_count, "block");
            writeln!(
                out,
                "         {bytes} in {blocks} were outstanding at an exec, which cleared them"
            )?;
        }
        Ok(())
    }

    fn sites(&self, out: &mut impl Write, selection: &Selection) -> io::Result<()> {
        let sort = self.options.sort;
        let nonzero = selection
            .sites
            .iter()
            .filter(|site| sort.of(&site.totals) > 0);
        let listed: Vec<_> = nonzero.take(self.options.top).collect();
        let all = selection.sites.len() as u64;
        writeln!(
            out,
            "\nTop {} of {} by {sort}",
            listed.len(),
            plural(all, "site")
        )?;
        if let Some(ages) = selection.ages {
            let age = seconds(u64::try_from(ages.older.as_nanos()).unwrap_or(u64::MAX));
            writeln!(
                out,
                "  only blocks that were outstanding for {age} or longer when they were scanned, at {}; \
                 births are known to a second (coarser at sites with many), and blocks of doubt are left out",
                self.since(ages.time_ns)
            )?;
        }
        for (rank, site) in listed.iter().enumerate() {
            self.site(out, rank + 1, site)?;
        }
        let unlisted = selection.sites.get(listed.len()..).unwrap_or_default();
        let bytes = unlisted
            .iter()
            .map(|site| site.totals.live_bytes)
            .sum::<u64>();
        if !unlisted.is_empty() {
            let sites = plural(unlisted.len() as u64, "more site");
            writeln!(
                out,
                "\n  {sites}, {} live, not listed (-T lists more)",
                size(bytes)
            )?;
        }
        if selection.hidden_sites > 0 {
            let sites = plural(selection.hidden_sites, "site");
            let bytes = size(selection.hidden_bytes);
            writeln!(
                out,
                "\n  {sites}, {bytes} live, not shown: the filters leave them out"
            )?;
        }
        Ok(())
    }

    fn site(&self, out: &mut impl Write, rank: usize, shown: &Shown) -> io::Result<()> {
        let (site, totals) = (shown.site, &shown.totals);
        let process = match self.snapshot.processes.len() {
            0 | 1 => String::new(),
            _ => format!(" of pid {}", shown.tgid()),
        };
        let by = if site.key.by_allocator {
            ", by an allocator"
        } else {
            ""
        };
        writeln!(
            out,
            "\n{rank:>3}. {} in {} ({}{process}{by})",
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
            totals.alloc_count,
            size(totals.free_bytes),
            totals.free_count,
            size(totals.peak_bytes),
        )?;
        let last = match site.last_ns {
            Some(time) => format!(", last {}", self.since(time)),
            None => String::new(),
        };
        let lived = site
            .lifetimes
            .as_ref()
            .and_then(lifetimes)
            .unwrap_or_default();
        writeln!(out, "     first {}{last}{lived}", self.since(site.first_ns))?;
        for frame in &site.stack.frames {
            writeln!(out, "       {}", frame_line(frame))?;
        }
        if site.stack.frames.is_empty() {
            writeln!(out, "       [no stack]")?;
        }
        if site.stack.truncated {
            writeln!(out, "       [truncated: more frames than are kept]")?;
        }
        Ok(())
    }

    fn next(&self, out: &mut impl Write) -> io::Result<()> {
        let Some(path) = &self.options.path else {
            return Ok(());
        };
        let path = quoted(&path.display().to_string());
        writeln!(out, "\nNext")?;
        let peak = |process: &ProcessSnapshot| process.moment == Moment::Peak;
        if self.snapshot.at == At::Default && self.snapshot.processes.iter().any(peak) {
            writeln!(out, "  memtrace report {path} --at end")?;
        }
        writeln!(out, "  memtrace flamegraph {path} -o flamegraph.svg")
    }
}

fn frame_line(frame: &Frame) -> String {
    let mut line = frame_name(frame);
    if frame.inlined {
        line += " (inlined)";
    }
    match (&frame.file, frame.line) {
        (Some(file), Some(number)) => line += &format!("  {}:{number}", clean(file)),
        (Some(file), None) => line += &format!("  {}", clean(file)),
        (None, _) => {}
    }
    if let (Some(module), true) = (&frame.module, frame.function.is_some()) {
        line += &format!("  [{}]", clean(module.rsplit('/').next().unwrap_or(module)));
    }
    if let (Some(why), None) = (&frame.unresolved, &frame.function) {
        line += &format!(" ({})", clean(why));
    }
    line
}

/// How a process ended, from its wait status (waitpid(2)).
fn status(wait_status: Option<u32>) -> String {
    match wait_status {
        None => String::new(),
        Some(status) if status & 0x7f == 0 => format!(" with status {}", status >> 8 & 0xff),
        Some(status) => format!(" by signal {}", status & 0x7f),
    }
}

/// The range and the median of the lifetimes of freed blocks, to a power of two.
fn lifetimes(counts: &[u64; LIFETIME_BUCKETS]) -> Option<String> {
    let first = counts.iter().position(|count| *count > 0)?;
    let last = counts.iter().rposition(|count| *count > 0)?;
    let half = counts.iter().sum::<u64>().div_ceil(2);
    let mut seen = 0;
    let median = counts.iter().position(|count| {
        seen += count;
        seen >= half
    })?;
    Some(format!(
        ", freed blocks lived {} to {} (half of them less than {})",
        duration(if first == 0 { 0 } else { 1 << first }),
        duration(2 << last),
        duration(2 << median),
    ))
}

/// `text` for a shell.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./+:@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.into()
    } else {
        format!("'{}'", clean(text).replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{super::fixture, *};
    use memtrace_common::loss::Reason;

    fn render(snapshot: &Snapshot, options: &TextOptions) -> String {
        let mut out = Vec::new();
        text(&mut out, snapshot, options).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn assert_parts(text: &str, parts: &[&str]) {
        for part in parts {
            assert!(text.contains(part), "`{part}` is missing in:\n{text}");
        }
    }

    #[test]
    fn a_report_tells_what_was_recorded_and_what_is_unknown() {
        let options = TextOptions {
            path: Some("a b.mtr".into()),
            ..TextOptions::default()
        };
        let report = render(&fixture::snapshot(), &options);
        assert_parts(
            &report,
            &[
                "Recording of leaker (pid 4242) and 1 more, by memtrace 0.1.0",
                "testhost, Linux 6.18.0",
                "2026-12-31 23:59:59 UTC, recorded for 10.0 s, every 1.0 s",
                "ended     as intended",
                "the peak for those that ended by themselves",
                "Process 4242 leaker, attached at 0.0 s\n",
                "command   ./leaker two\\u{1b}[31m",
                "shown at  the end of the recording, the process was still running",
                "8.0 MiB resident when tracing began",
                "besides 6.0 MiB mapped before tracing began",
                "ended at 5.0 s with status 3",
                "shown at  its peak",
                "memtrace report 'a b.mtr' --at end",
                "memtrace flamegraph 'a b.mtr' -o flamegraph.svg",
            ],
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
                "first 1.0 s, last 9.0 s, freed blocks lived 1 ms to 2 ms",
                "grow;it (inlined)  /src/leaker.c:7  [leaker]",
                "leaker+0x1234 (no symbols)",
                "[truncated: more frames than are kept]",
                "  2. 8.0 KiB in 1 block (vm of pid 4242, by an allocator)",
                "[no stack]",
                "1 more site, 0 B live, not listed",
            ],
        );
    }

    #[test]
    fn losses_are_grouped_named_and_weighed() {
        let mut snapshot = fixture::snapshot();
        let report = render(&snapshot, &TextOptions::default());
        assert_parts(
            &report,
            &[
                "outstanding figures are UPPER BOUNDS",
                "95 of 100 records received, 5 dropped",
                "releases lost: outstanding figures are upper bounds\n    ring_full_free           5",
                "none: ring_full_alloc, ring_full_lifecycle",
            ],
        );
        for reason in Reason::ALL {
            assert!(report.contains(reason.name()), "{}", reason.name());
        }
        snapshot.losses[Reason::RingFullAlloc as usize].1 = 1;
        assert_parts(
            &render(&snapshot, &TextOptions::default()),
            &["off either way"],
        );
        snapshot.losses[Reason::RingFullFree as usize].1 = 0;
        assert_parts(
            &render(&snapshot, &TextOptions::default()),
            &["LOWER BOUNDS"],
        );
        snapshot.losses[Reason::RingFullAlloc as usize].1 = 0;
        let exact = render(&snapshot, &TextOptions::default());
        assert!(!exact.contains("BOUNDS"), "{exact}");
    }

    #[test]
    fn a_recording_that_was_cut_off_says_so() {
        let mut snapshot = fixture::snapshot();
        snapshot.finished_ns = None;
        let report = render(&snapshot, &TextOptions::default());
        assert_parts(&report, &["CUT OFF", "figures go up to 10.0 s"]);
    }

    #[test]
    fn filters_say_what_they_hide() {
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
                "2 more sites, 8.0 KiB live, not listed",
                "1 site, 100 B live, not shown: the filters leave them out",
            ],
        );
        assert!(!report.contains("Process 4243"), "{report}");
        let options = TextOptions {
            filter: Filter {
                older: Some(Duration::from_secs(9)),
                ..Filter::default()
            },
            ..TextOptions::default()
        };
        let report = render(&fixture::snapshot(), &options);
        assert_parts(
            &report,
            &["outstanding for 9.0 s or longer", "512.0 KiB in 2 blocks"],
        );
    }

    #[test]
    fn many_processes_are_summed_up() {
        let mut snapshot = fixture::snapshot();
        for id in 3..=30 {
            let mut next = snapshot.processes[1].clone();
            next.row.id = crate::ledger::ProcessId(id);
            next.row.tgid = 9000 + id;
            snapshot.processes.push(next);
        }
        let report = render(&snapshot, &TextOptions::default());
        assert_parts(
            &report,
            &["Process 4242", "Processes not listed: 10, 0 B live"],
        );
    }

    #[test]
    fn wait_statuses_are_told_in_words() {
        assert_eq!(status(Some(0)), " with status 0");
        assert_eq!(status(Some(2 << 8)), " with status 2");
        assert_eq!(status(Some(9)), " by signal 9");
        assert_eq!(status(Some(11 | 0x80)), " by signal 11");
    }
}
