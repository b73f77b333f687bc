//! The completeness of stacks, in words: a line of every report, the table of `--stack-health`, and
//! the last line of a stack that ends early.

use std::{
    cmp::Reverse,
    io::{self, Write},
};

use super::super::{Error, until_closed};
use crate::{
    escape::clean,
    event::Layer,
    recording::{Snapshot, Stack},
    units::grouped,
    view::{
        Filter,
        health::{self, Health, UNKNOWN_MODULE, module},
    },
};
use memtrace_common::{limits::MAX_FRAMES, unwind::End};

/// Failures named in the line of a report.
const NAMED: usize = 3;

/// Writes how the stacks of the allocations that pass `filter` ended, in which files, and how to
/// improve them.
pub(crate) fn stack_health(
    out: &mut impl Write,
    snapshot: &Snapshot,
    filter: &Filter,
) -> Result<(), Error> {
    let health = Health::of(snapshot, filter);
    let written = line(out, &health, filter)
        .and_then(|()| reasons(out, &health))
        .and_then(|()| modules(out, &health))
        .and_then(|()| out.flush());
    Ok(until_closed(written)?)
}

/// One line: the number of complete stacks, and the most frequent reason for the others.
pub(super) fn line(out: &mut impl Write, health: &Health, filter: &Filter) -> io::Result<()> {
    let total = health.total();
    if total == 0 {
        let of = of_selection(filter.layer, filter.pid);
        return writeln!(out, "Stacks  none: no allocation was recorded{of}");
    }
    write!(
        out,
        "Stacks  {} complete ({} of {}), {} truncated, {} failed",
        share(health.complete, total),
        grouped(health.complete),
        grouped(total),
        grouped(health.truncated),
        grouped(health.failures()),
    )?;
    let mut failures: Vec<_> = health
        .modules
        .iter()
        .flat_map(|module| module.ends.iter().map(|(end, n)| (&module.path, *end, *n)))
        .filter(|(_, end, _)| *end != Some(End::Truncated))
        .collect();
    failures.sort_by_key(|(_, _, n)| Reverse(*n));
    let more = failures.len() > NAMED;
    failures.truncate(NAMED);
    let mut named: Vec<_> = failures
        .into_iter()
        .map(|(path, end, n)| {
            let place = match path.as_str() {
                UNKNOWN_MODULE => String::new(),
                path => format!(" in {}", file_name(path)),
            };
            format!("{} {}{place}", health::name(end), grouped(n))
        })
        .collect();
    if more {
        named.push("…".into());
    }
    match named.is_empty() {
        true => writeln!(out),
        false => writeln!(out, " ({})", named.join(", ")),
    }
}

/// ` in layer heap of process 1234`: what a report was limited to.
pub(super) fn of_selection(layer: Option<Layer>, pid: Option<u32>) -> String {
    let layer = layer.map(|layer| format!(" in layer {}", layer.name()));
    let pid = pid.map(|pid| format!(" of process {pid}"));
    [layer, pid].into_iter().flatten().collect()
}

fn reasons(out: &mut impl Write, health: &Health) -> io::Result<()> {
    let total = health.total();
    let truncated = (Some(End::Truncated), health.truncated);
    let mut counts: Vec<_> = [truncated]
        .into_iter()
        .chain(health.failed.clone())
        .collect();
    counts.retain(|(_, count)| *count > 0);
    counts.sort_by_key(|(_, count)| Reverse(*count));
    if !counts.is_empty() {
        writeln!(out, "\nWhy stacks are incomplete")?;
    }
    for (end, count) in &counts {
        row(out, *count, total, health::name(*end))?;
        let (meaning, remedy) = explain(*end);
        writeln!(out, "      {meaning}\n      → {remedy}")?;
    }
    Ok(())
}

fn modules(out: &mut impl Write, health: &Health) -> io::Result<()> {
    if health.modules.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nWhere they end (the file of the outermost frame)")?;
    for module in &health.modules {
        row(out, module.total(), health.total(), &clean(&module.path))?;
        let ends = module.ends.iter();
        let ends: Vec<_> = ends
            .map(|(end, count)| format!("{} {}", health::name(*end), grouped(*count)))
            .collect();
        writeln!(out, "      {}", ends.join(", "))?;
    }
    Ok(())
}

fn row(out: &mut impl Write, count: u64, total: u64, name: &str) -> io::Result<()> {
    let (count, share) = (grouped(count), share(count, total));
    writeln!(out, "  {count:>15} {share:>9}  {name}")
}

/// The meaning of an end, and the remedy.
fn explain(end: Option<End>) -> (String, &'static str) {
    let (meaning, remedy) = match end {
        Some(End::Complete) => (
            "the stack reaches the thread's outermost frame",
            "nothing to do",
        ),
        Some(End::Truncated) => {
            let meaning = format!("the stack is deeper than the {MAX_FRAMES} frames that are kept");
            return (
                meaning,
                "the frames next to the allocation are recorded; look for endless recursion",
            );
        }
        Some(End::NoMapping) => (
            "a caller's address is in no executable mapping known at that moment",
            "record without --no-stop; if it persists, the program overwrites its stack, or the \
             unwind information of the file below is wrong",
        ),
        Some(End::NoTable) => (
            "the file's unwind tables were not loaded when the stack was taken",
            "record without --no-stop; if it persists, look for a warning of `memtrace record` about \
             the file",
        ),
        Some(End::NoRow) => (
            "the file has unwind tables, but not for this code, as with assembler without CFI directives",
            "use a build of the file with unwind information for it (.cfi_* directives, \
             -fasynchronous-unwind-tables)",
        ),
        Some(End::UnsupportedRule) => (
            "the file's unwind information for this code is of a kind that memtrace does not \
             support",
            "report the file's name and version to memtrace's developers",
        ),
        Some(End::Unreadable) => (
            "stack memory could not be read, or a caller's frame was not above its callee's",
            "a few are normal if stacks are swapped out; if it persists for one file, its unwind information is wrong: update or rebuild it",
        ),
        Some(End::Stale) => (
            "the process was mapping or unmapping code while the stack was taken",
            "a few are normal while libraries are loaded or memtrace attaches, more if code is generated all the time",
        ),
        Some(End::BadFramePointer) => (
            "the code has no unwind tables and keeps no frame pointer",
            "rebuild it with -fasynchronous-unwind-tables or -fno-omit-frame-pointer; run Java \
             with -XX:+PreserveFramePointer",
        ),
        Some(End::FramePointersOnly) => (
            "only frame pointers were followed, so callers may be missing",
            "record without --frame-pointers, or build program and libraries with \
             -fno-omit-frame-pointer",
        ),
        None => (
            "no stack was taken, or its record was lost",
            "see scratch_busy, stack_unreadable, ring_full_stack and unknown_stack under Losses \
             in the report; a larger --ring-buffer helps against the last two",
        ),
    };
    (meaning.into(), remedy)
}

/// The last line of a stack; `None` for a complete one, and if there is no stack.
pub(super) fn ends_here(stack: Stack<'_>) -> Option<String> {
    let (file, of_file) = match module(stack) {
        UNKNOWN_MODULE => ("its file".into(), String::new()),
        path => (file_name(path), format!(" of {}", file_name(path))),
    };
    let why = match stack.end()? {
        End::Complete => return None,
        End::Truncated => "more frames than are kept".into(),
        End::NoMapping => "the caller is in no code known at that moment".into(),
        End::NoTable => format!("the unwind information of {file} was not loaded"),
        End::NoRow => format!("{file} has no unwind information for this code"),
        End::UnsupportedRule => {
            format!("the unwind information of {file} for this code is not supported")
        }
        End::Unreadable => "the stack could not be read further".into(),
        End::Stale => "code was being mapped or unmapped at that moment".into(),
        End::BadFramePointer => {
            format!("this code{of_file} has neither unwind information nor a frame pointer")
        }
        End::FramePointersOnly => {
            "only frame pointers were followed, callers may be missing".into()
        }
    };
    Some(format!("[ends here: {why}]"))
}

fn file_name(path: &str) -> String {
    clean(path.rsplit('/').next().unwrap_or(path))
}

/// A share to a hundredth of a percent, cut and not rounded: only all is `100.00 %`, and only
/// nothing is `0.00 %`.
fn share(part: u64, total: u64) -> String {
    let hundredths = u128::from(part) * 10_000 / u128::from(total.max(1));
    match (part, hundredths) {
        (1.., 0) => "< 0.01 %".into(),
        _ => format!("{}.{:02} %", hundredths / 100, hundredths % 100),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            TextOptions,
            tests::{assert_parts, render},
        },
        *,
    };
    use crate::view::fixture;

    fn table(snapshot: &Snapshot) -> String {
        let mut out = Vec::new();
        stack_health(&mut out, snapshot, &Filter::default()).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// All sites end so, in a file or in none.
    fn ending(end: Option<End>, path: Option<&str>) -> Snapshot {
        let mut snapshot = fixture::snapshot();
        for site in &snapshot.sites {
            let mut frames = fixture::frames(&snapshot, site);
            for frame in &mut frames {
                frame.module = path.map(Into::into);
            }
            match end {
                Some(end) => snapshot.stacks.put(site.key.stack, end, None, frames),
                None => snapshot.stacks.remove(site.key.stack),
            }
        }
        snapshot
    }

    #[test]
    fn every_report_has_the_line() {
        let report = render(&fixture::snapshot(), &TextOptions::default());
        assert_parts(
            &report,
            &[
                "\nStacks  10.52 % complete (2 of 19), 5 truncated, 12 failed \
                 (no_stack 11, no_row 1 in leaker)\n",
            ],
        );
        let complete = render(&ending(Some(End::Complete), None), &TextOptions::default());
        assert_parts(
            &complete,
            &["Stacks  100.00 % complete (19 of 19), 0 truncated, 0 failed\n"],
        );
    }

    #[test]
    fn an_incomplete_report_proposes_the_table() {
        let options = TextOptions {
            path: Some("a.mtr".into()),
            ..TextOptions::default()
        };
        let proposal = "memtrace report a.mtr --stack-health\n";
        assert_parts(&render(&fixture::snapshot(), &options), &[proposal]);
        let complete = render(&ending(Some(End::Complete), None), &options);
        assert!(!complete.contains(proposal), "{complete}");
    }

    #[test]
    fn the_table_lists_reasons_and_files_by_weight() {
        assert_eq!(
            table(&fixture::snapshot()),
            "Stacks  10.52 % complete (2 of 19), 5 truncated, 12 failed (no_stack 11, no_row 1 in leaker)\n\
             \n\
             Why stacks are incomplete\n\
             \x20              11   57.89 %  no_stack\n\
             \x20     no stack was taken, or its record was lost\n\
             \x20     → see scratch_busy, stack_unreadable, ring_full_stack and unknown_stack under Losses in the report; a larger --ring-buffer helps against the last two\n\
             \x20               5   26.31 %  truncated\n\
             \x20     the stack is deeper than the 2047 frames that are kept\n\
             \x20     → the frames next to the allocation are recorded; look for endless recursion\n\
             \x20               1    5.26 %  no_row\n\
             \x20     the file has unwind tables, but not for this code, as with assembler without CFI directives\n\
             \x20     → use a build of the file with unwind information for it (.cfi_* directives, -fasynchronous-unwind-tables)\n\
             \n\
             Where they end (the file of the outermost frame)\n\
             \x20              11   57.89 %  [unknown]\n\
             \x20     no_stack 11\n\
             \x20               6   31.57 %  /usr/bin/leaker\n\
             \x20     truncated 5, no_row 1\n"
        );
    }

    #[test]
    fn every_end_is_explained_and_shown_at_its_stacks() {
        for end in End::ALL.into_iter().skip(1) {
            let snapshot = ending(Some(end), Some("/lib/libevil\x1b.so"));
            let table = table(&snapshot);
            let (meaning, remedy) = explain(Some(end));
            assert_parts(
                &table,
                &[end.name(), &meaning, remedy, "/lib/libevil\\u{1b}.so"],
            );
            let report = render(&snapshot, &TextOptions::default());
            let last = ends_here(snapshot.stacks.get(snapshot.sites[0].key.stack)).unwrap();
            assert_parts(&report, &[&last]);
            assert!(!report.contains('\x1b'), "{report}");
        }
        let last = |end, path| {
            let snapshot = ending(end, path);
            ends_here(snapshot.stacks.get(snapshot.sites[0].key.stack))
        };
        assert_eq!(
            last(Some(End::NoRow), Some("/lib/libfoo.so")).unwrap(),
            "[ends here: libfoo.so has no unwind information for this code]"
        );
        assert_eq!(
            last(Some(End::BadFramePointer), None).unwrap(),
            "[ends here: this code has neither unwind information nor a frame pointer]"
        );
        assert_eq!(last(Some(End::Complete), None), None);
        assert_eq!(last(None, None), None);
    }

    #[test]
    fn many_failures_are_cut_short_in_the_line() {
        let mut snapshot = fixture::snapshot();
        for (n, end) in End::ALL.into_iter().enumerate().skip(2) {
            let mut site = snapshot.sites[0].clone();
            site.totals.alloc_count = 1000 * n as u64;
            let frames = fixture::frames(&snapshot, &site);
            site.key.stack.0 = 100 + n as u32;
            snapshot.stacks.put(site.key.stack, end, None, frames);
            snapshot.sites.push(site);
        }
        let mut out = Vec::new();
        let filter = Filter::default();
        line(&mut out, &Health::of(&snapshot, &filter), &filter).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "Stacks  < 0.01 % complete (2 of 44,019), 5 truncated, 44,012 failed (frame_pointers_only \
             9,000 in leaker, bad_frame_pointer 8,000 in leaker, stale 7,000 in leaker, …)\n"
        );
    }

    #[test]
    fn shares_never_round_to_all_or_nothing() {
        assert_eq!(share(1_234_567, 1_234_568), "99.99 %");
        assert_eq!(share(7, 7), "100.00 %");
        assert_eq!(share(1, 1_000_000), "< 0.01 %");
        assert_eq!(share(0, 5), "0.00 %");
        assert_eq!(share(u64::MAX, u64::MAX), "100.00 %");
    }

    #[test]
    fn without_allocations_nothing_is_claimed() {
        let mut snapshot = fixture::snapshot();
        snapshot.sites.clear();
        assert_parts(
            &table(&snapshot),
            &["Stacks  none: no allocation was recorded\n"],
        );
    }
}
