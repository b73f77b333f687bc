//! Collapsed stacks, one line each (`process;layer;root;…;leaf value`).

use std::{collections::BTreeMap, io::Write};

use super::{Error, group_name, until_closed};
use crate::{
    escape::clean,
    event::Layer,
    frames::names,
    recording::{Snapshot, Stack},
    view::{Filter, Metric, Shown, group::UNKNOWN_THREAD},
};
use memtrace_common::unwind::End;

/// Writes the collapsed stacks of the sites that pass `filter` and whose `metric` is not zero, and returns how many
/// these are.
///
/// # Errors
///
/// When ages are requested but unknown, or when the output cannot be written.
pub(crate) fn collapsed(
    out: &mut impl Write,
    snapshot: &Snapshot,
    filter: &Filter,
    metric: Metric,
) -> Result<usize, Error> {
    let lines = lines(snapshot, filter, metric)?;
    let written = lines
        .iter()
        .try_for_each(|line| writeln!(out, "{line}"))
        .and_then(|()| out.flush());
    until_closed(written)?;
    Ok(lines.len())
}

fn lines(snapshot: &Snapshot, filter: &Filter, metric: Metric) -> Result<Vec<String>, Error> {
    let selection = filter.select(snapshot, metric)?;
    Ok(of_sites(&selection.sites, filter, metric))
}

/// The lines of these sites, in order of their stacks.
pub(super) fn of_sites(sites: &[Shown], filter: &Filter, metric: Metric) -> Vec<String> {
    let mut stacks: BTreeMap<String, u64> = BTreeMap::new();
    for site in sites {
        let value = metric.of(&site.totals());
        if value > 0 {
            *stacks.entry(stack(site, filter)).or_default() += value;
        }
    }
    let lines = stacks
        .iter()
        .map(|(stack, value)| format!("{stack} {value}"));
    lines.collect()
}

fn stack(shown: &Shown, filter: &Filter) -> String {
    let mut parts = vec![part(&process(shown))];
    if filter.by_thread {
        let thread = shown.stack.thread();
        parts.push(match thread {
            Some(name) => part(&format!("thread {}", clean(name))),
            None => UNKNOWN_THREAD.into(),
        });
    }
    parts.push(layer(shown));
    parts.extend(missing(shown.stack));
    for frame in filter.frames(shown.stack).iter().rev() {
        parts.push(part(&names::label(frame)));
    }
    parts.join(";")
}

/// The name of a process and its pid, or the name of a group of them.
pub(super) fn process(shown: &Shown) -> String {
    let name = program(shown);
    match shown.process.is_some_and(|process| process.row.is_group()) {
        true => name,
        false => format!("{name} ({})", shown.tgid()),
    }
}

/// The name of a process, or of a group of them.
pub(super) fn program(shown: &Shown) -> String {
    match shown.process.map(|process| &process.row) {
        None => "unknown".into(),
        Some(row) if row.is_group() => group_name(row),
        Some(row) => clean(&row.comm),
    }
}

/// The layer of a site.
pub(super) fn layer(shown: &Shown) -> String {
    layer_name(shown.site.key.layer, shown.site.key.by_allocator)
}

/// The name of a layer. An allocator's mappings contain the heap: they are kept apart, because the two overlap.
pub(super) fn layer_name(layer: Layer, by_allocator: bool) -> String {
    match by_allocator {
        true => format!("{} (by allocator)", layer.name()),
        false => layer.name().into(),
    }
}

/// What stands for the frames that a stack lacks, outermost, in place of the callers.
pub(super) fn missing(stack: Stack) -> Vec<String> {
    let none = stack.is_empty().then(|| "[no stack]".into());
    let end = stack.end().filter(|end| *end != End::Complete);
    let incomplete = end.map(|end| format!("[incomplete: {}]", end.name()));
    none.into_iter().chain(incomplete).collect()
}

/// A name must not look like two frames.
pub(super) fn part(name: &str) -> String {
    name.replace(';', ":")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{analysis::verdict::Diagnosis, view::fixture};

    fn render(metric: Metric) -> String {
        let mut out = Vec::new();
        collapsed(&mut out, &fixture::snapshot(), &Filter::default(), metric).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_goes_from_process_to_leaf() {
        assert_eq!(
            render(Metric::LiveBytes),
            "leaker (4242);heap;[incomplete: truncated];main;leaker+0x1234;fill;grow:it (inlined) 1048576\n\
             leaker (4242);vm (by allocator);main;leaker+0x1234;fill;grow:it (inlined) 8192\n\
             leaker (4243);heap;[no stack] 100\n"
        );
    }

    #[test]
    fn an_allocators_frames_are_folded_unless_asked_for() {
        let render = |show_wrappers| {
            let filter = Filter {
                show_wrappers,
                ..Filter::default()
            };
            let mut out = Vec::new();
            let snapshot = fixture::snapshot_with_wrappers();
            collapsed(&mut out, &snapshot, &filter, Metric::LiveBytes).unwrap();
            String::from_utf8(out).unwrap()
        };
        let (folded, whole) = (render(false), render(true));
        assert!(folded.contains("grow:it (inlined) 1048576\n"), "{folded}");
        let last = "grow:it (inlined);operator new(unsigned long) 1048576\n";
        assert!(whole.contains(last), "{whole}");
        // If it is the only frame, it stays.
        let only = "heap;operator new(unsigned long) 100\n";
        assert!(folded.contains(only) && whole.contains(only), "{folded}");
    }

    #[test]
    fn python_frames_have_lines_and_threads_are_separate_on_request() {
        let render = |by_thread| {
            let filter = Filter {
                by_thread,
                ..Filter::default()
            };
            let mut out = Vec::new();
            let snapshot = fixture::snapshot_of_python();
            collapsed(&mut out, &snapshot, &filter, Metric::LiveBytes).unwrap();
            String::from_utf8(out).unwrap()
        };
        let frames =
            "heap;<module> (/src/main.py:7);Cache.fill (/src/cache:1.py:41);list_resize 1048576\n";
        let (whole, by_thread) = (render(false), render(true));
        assert!(
            whole.contains(&format!("leaker (4242);{frames}")),
            "{whole}"
        );
        for line in [
            &format!("leaker (4242);thread worker;{frames}"),
            "leaker (4243);[unknown thread];heap;[no stack] 100\n",
        ] {
            assert!(by_thread.contains(line), "{by_thread}");
        }
    }

    #[test]
    fn a_group_is_drawn_as_one() {
        let mut snapshot = fixture::snapshot();
        snapshot.processes[1].row.folded = Some(12);
        snapshot.processes[1].row.cmdline = ["sh", "-c", "a;b"].map(Into::into).to_vec();
        let mut out = Vec::new();
        collapsed(&mut out, &snapshot, &Filter::default(), Metric::LiveBytes).unwrap();
        let lines = String::from_utf8(out).unwrap();
        let line = "12 ended processes of `sh -c a:b`;heap;[no stack] 100\n";
        assert!(lines.contains(line), "{lines}");
    }

    #[test]
    fn every_metric_has_its_value() {
        for (metric, expected) in Metric::ALL.into_iter().zip([100, 10, 164, 11, 132]) {
            let line = format!("leaker (4243);heap;[no stack] {expected}\n");
            assert!(render(metric).contains(&line), "{metric}");
            assert_eq!(metric.name().parse(), Ok(metric));
        }
    }

    #[test]
    fn a_closed_pipe_is_not_an_error() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        drop(reader);
        let snapshot = fixture::snapshot();
        collapsed(&mut writer, &snapshot, &Filter::default(), Metric::Peak).unwrap();
        let filter = Filter::default();
        super::super::flamegraph(
            &mut writer,
            &snapshot,
            &Diagnosis::default(),
            &filter,
            Metric::Peak,
        )
        .unwrap();
        super::super::export(&mut writer, &snapshot, &Default::default()).unwrap();
        let options = super::super::TextOptions::default();
        super::super::text(&mut writer, &snapshot, &options, &Diagnosis::default()).unwrap();
    }
}
