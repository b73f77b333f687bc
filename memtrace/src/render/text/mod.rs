//! The report as text: its header, and the commands to run next. The parts between, on processes
//! and on sites, have their own files.

mod groups;
mod health;
mod processes;
mod sites;

use std::{
    collections::BTreeSet,
    io::{self, Write},
    path::PathBuf,
};

pub(crate) use health::stack_health;

use super::{Error, device_table, diagnosis, findings, incomplete, losses, until_closed};
use crate::{
    analysis::verdict::Diagnosis,
    escape::{clean, for_shell},
    frames::Runtime,
    recording::{At, Moment, ProcessSnapshot, Snapshot},
    units::{date, duration, seconds},
    view::{By, Filter, Metric, group, health::Health},
};

/// Options of a report.
#[derive(Clone, Debug)]
pub(crate) struct TextOptions {
    pub filter: Filter,
    /// List sites, or groups of them.
    pub by: By,
    pub sort: Metric,
    /// Most sites or groups to list.
    pub top: usize,
    /// The recording's file, for the commands that the report proposes.
    pub path: Option<PathBuf>,
}

impl Default for TextOptions {
    fn default() -> Self {
        TextOptions {
            filter: Filter::default(),
            by: By::default(),
            sort: Metric::default(),
            top: 10,
            path: None,
        }
    }
}

/// Writes the report, with the verdicts of the same recording.
///
/// # Errors
///
/// When ages are requested but unknown, or groups in the order of their peaks, or when the output
/// cannot be written.
pub(crate) fn text(
    out: &mut impl Write,
    snapshot: &Snapshot,
    options: &TextOptions,
    verdicts: &Diagnosis,
) -> Result<(), Error> {
    let selection = options.filter.select(snapshot, options.sort)?;
    let groups = match options.by {
        By::Site => None,
        by => Some(group::groups(&selection, by, options.sort)?),
    };
    let report = TextReport {
        snapshot,
        options,
        health: Health::of(snapshot, &options.filter),
    };
    let written = findings::section(out, verdicts, &options.filter)
        .and_then(|()| match verdicts.verdicts.is_empty() {
            true => Ok(()),
            false => writeln!(out),
        })
        .and_then(|()| report.header(out))
        .and_then(|()| report.processes(out))
        .and_then(|()| match &groups {
            Some(groups) => report.groups(out, &selection, groups),
            None => report.sites(out, &selection),
        })
        .and_then(|()| writeln!(out))
        .and_then(|()| health::line(out, &report.health, &options.filter))
        .and_then(|()| report.runtimes(out))
        .and_then(|()| device_table::libraries(out, snapshot))
        .and_then(|()| losses::section(out, snapshot))
        .and_then(|()| match options.by {
            By::Site => diagnosis::section(out, verdicts, &options.filter),
            _ => Ok(()),
        })
        .and_then(|()| report.next(out))
        .and_then(|()| out.flush());
    Ok(until_closed(written)?)
}

struct TextReport<'a> {
    snapshot: &'a Snapshot,
    options: &'a TextOptions,
    health: Health,
}

impl TextReport<'_> {
    /// Time since the start of the recording.
    fn since(&self, time_ns: u64) -> String {
        seconds(time_ns.saturating_sub(self.snapshot.meta.started_ns))
    }

    /// Length of the recording up to the moment shown, ns.
    fn length(&self) -> u64 {
        let end = self.snapshot.time_ns;
        end.map_or(u64::MAX, |end| {
            end.saturating_sub(self.snapshot.meta.started_ns)
        })
    }

    fn header(&self, out: &mut impl Write) -> io::Result<()> {
        let meta = &self.snapshot.meta;
        let program = match self.snapshot.processes.first() {
            Some(first) => format!("{} (pid {})", clean(&first.row.comm), first.row.tgid),
            None => "no process".into(),
        };
        let processes = self.snapshot.processes.iter();
        let all: u64 = processes.map(|process| process.row.processes()).sum();
        let others = match all {
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
            let reaches = last.saturating_sub(meta.started_ns);
            writeln!(out, "  ended     {}", incomplete(reaches))?;
        } else {
            writeln!(out, "  ended     normally")?;
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
                    "{}, the last interval up to {}",
                    self.since(time),
                    seconds(asked)
                ),
                None => format!(
                    "{}, before the first interval: no data",
                    seconds(asked)
                ),
            },
            At::Default => "the end for processes still running when recording stopped, the peak for processes that exited by themselves"
                .into(),
        }
    }

    /// Limitations for the languages' runtimes that were found.
    fn runtimes(&self, out: &mut impl Write) -> io::Result<()> {
        let frames = self.snapshot.stacks.frames();
        let runtimes: BTreeSet<Runtime> = frames.filter_map(Runtime::of).collect();
        for runtime in runtimes {
            writeln!(out, "  {}", runtime.explanation())?;
        }
        Ok(())
    }

    fn next(&self, out: &mut impl Write) -> io::Result<()> {
        let Some(path) = &self.options.path else {
            return Ok(());
        };
        let path = for_shell(&path.display().to_string());
        writeln!(out, "\nNext")?;
        let peak = |process: &ProcessSnapshot| process.moment == Moment::Peak;
        if self.snapshot.at == At::Default && self.snapshot.processes.iter().any(peak) {
            writeln!(out, "  memtrace report {path} --at end")?;
        }
        if self.options.by == By::Site && !self.snapshot.sites.is_empty() {
            writeln!(out, "  memtrace report {path} --by program-line")?;
        }
        if self.health.complete < self.health.total() {
            writeln!(out, "  memtrace report {path} --stack-health")?;
        }
        writeln!(out, "  memtrace diagnose {path}")?;
        writeln!(out, "  memtrace flamegraph {path} -o flamegraph.svg")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{frames::fixture::native, view::fixture};
    use memtrace_common::{loss::Reason, unwind::End};

    pub(super) fn render(snapshot: &Snapshot, options: &TextOptions) -> String {
        let mut out = Vec::new();
        text(&mut out, snapshot, options, &Diagnosis::default()).unwrap();
        String::from_utf8(out).unwrap()
    }

    pub(super) fn assert_parts(text: &str, parts: &[&str]) {
        for part in parts {
            assert!(text.contains(part), "`{part}` is missing in:\n{text}");
        }
    }

    #[test]
    fn a_report_shows_known_and_unknown_parts() {
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
                "ended     normally",
                "the peak for processes that exited by themselves",
                "Process 4242 leaker, attached at 0.0 s\n",
                "command   ./leaker two\\u{1b}[31m",
                "shown at  the end of the recording (the process was still running)",
                "8.0 MiB resident when tracing began",
                "plus 6.0 MiB mapped before tracing began",
                "ended at 5.0 s with status 3",
                "shown at  its peak",
                "memtrace report 'a b.mtr' --at end",
                "memtrace flamegraph 'a b.mtr' -o flamegraph.svg",
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
                "live figures are UPPER BOUNDS",
                "Losses\n  5 of 100 records\n",
                "releases lost: live figures are upper bounds\n              5  releases while the ring buffer was full (ring_full_free)",
            ],
        );
        for (reason, count) in &snapshot.losses {
            let listed = report.contains(reason.name());
            assert_eq!(listed, *count > 0, "{}", reason.name());
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
    fn limitations_of_a_runtime_are_shown() {
        let mut snapshot = fixture::snapshot();
        assert!(!render(&snapshot, &TextOptions::default()).contains("Go has a heap"));
        let stack = snapshot.sites[0].key.stack;
        let frame = native("runtime.asmcgocall", "/srv/server");
        snapshot.stacks.put(stack, End::Complete, None, [frame]);
        let report = render(&snapshot, &TextOptions::default());
        assert_parts(
            &report,
            &["\n  Go has a heap of its own", "end at `asmcgocall`"],
        );
    }

    #[test]
    fn lines_of_the_program_are_proposed_where_there_are_any() {
        let proposal = "memtrace report a.mtr --by program-line\n";
        let report = |snapshot: &Snapshot, by| {
            let options = TextOptions {
                by,
                path: Some("a.mtr".into()),
                ..TextOptions::default()
            };
            render(snapshot, &options)
        };
        for mut snapshot in [fixture::snapshot_of_python(), fixture::snapshot()] {
            assert_parts(&report(&snapshot, By::Site), &[proposal]);
            assert!(!report(&snapshot, By::ProgramLine).contains(proposal));
            snapshot.sites.clear();
            assert!(!report(&snapshot, By::Site).contains(proposal));
        }
    }

    #[test]
    fn an_incomplete_recording_is_marked() {
        let mut snapshot = fixture::snapshot();
        snapshot.finished_ns = None;
        let report = render(&snapshot, &TextOptions::default());
        assert_parts(&report, &["INCOMPLETE", "data up to 10.0 s"]);
    }
}
