//! The processes of a report: how each began and ended, and the totals of its layers.

use std::io::{self, Write};

use super::{
    super::{device_table, group_name, losses},
    TextReport,
    health::of_selection,
};
use memtrace_common::loss::Reason;

use crate::{
    escape::clean,
    event::Layer,
    recording::{LayerSnapshot, Moment, Origin, ProcessSnapshot},
    units::{grouped, plural, size},
};

/// Processes listed with their totals; the rest is summed up.
const PROCESSES: usize = 20;

impl TextReport<'_> {
    pub(super) fn processes(&self, out: &mut impl Write) -> io::Result<()> {
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
                rest.iter()
                    .map(|process| process.row.processes())
                    .sum::<u64>(),
                size(bytes)
            )?;
        }
        if self.snapshot.left_out > 0 {
            writeln!(
                out,
                "\nEnded processes that were folded and are not shown at this moment: {}",
                self.snapshot.left_out
            )?;
        }
        Ok(())
    }

    fn layers(&self, process: &ProcessSnapshot) -> Vec<&LayerSnapshot> {
        // Sorted by process; there may be thousands.
        let (all, id) = (&self.snapshot.layers, process.row.id);
        let first = all.partition_point(|layer| layer.process < id);
        let layers = all[first..].iter();
        layers
            .take_while(|layer| layer.process == id)
            .filter(|layer| self.options.filter.covers(Some(process), layer.layer))
            .collect()
    }

    fn process(&self, out: &mut impl Write, process: &ProcessSnapshot) -> io::Result<()> {
        let row = &process.row;
        if row.is_group() {
            return self.group_of_processes(out, process);
        }
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
            (Moment::End, None) => {
                "the end of the recording (the process was still running)".into()
            }
            (Moment::Peak, _) => "its peak".into(),
            (Moment::Time(time), _) => self.since(time),
        };
        writeln!(out, "  shown at  {shown}")?;
        if let Some(kills) = out_of_memory(process.oom_kills) {
            writeln!(out, "  killed    {kills}")?;
        }
        if let (Some(rss), Origin::Attached) = (row.rss_at_start, row.origin) {
            writeln!(
                out,
                "  before    {} resident when tracing began; allocations made before that are not listed",
                size(rss)
            )?;
        }
        self.layer_table(out, process)?;
        match self.options.filter.layer {
            Some(layer) if !layer.of_device() => Ok(()),
            _ => device_table::text(out, self.snapshot, process),
        }
    }

    /// Processes that were folded into one row.
    fn group_of_processes(&self, out: &mut impl Write, group: &ProcessSnapshot) -> io::Result<()> {
        let row = &group.row;
        writeln!(
            out,
            "\n{}, the first started at {}, the last ended at {}",
            group_name(row),
            self.since(row.started_ns),
            self.since(row.ended_ns.unwrap_or(row.started_ns))
        )?;
        let shown = match group.moment {
            Moment::Peak => "the peak of the largest of them in each layer",
            _ => "the end of each, summed up",
        };
        writeln!(
            out,
            "  shown at  {shown}; peaks are the largest, inherited, allocated and freed are sums"
        )?;
        self.layer_table(out, group)
    }

    fn layer_table(&self, out: &mut impl Write, process: &ProcessSnapshot) -> io::Result<()> {
        let layers = self.layers(process);
        if layers.is_empty() {
            let not_supported = self
                .snapshot
                .losses
                .iter()
                .any(|&(reason, count)| reason == Reason::Program32Bit && count > 0);
            let why = match not_supported {
                true => "; a 32-bit program ran, and 32-bit programs are not supported",
                false => "",
            };
            let of = of_selection(self.options.filter.layer, None);
            return writeln!(out, "  no allocations{of}{why}");
        }
        writeln!(
            out,
            "  {:<12} {:>11} {:>9} {:>11} {:>11} {:>10} {:>11} {:>10}  {:>11} at",
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
            "  {:<12} {:>11} {:>9} {:>11} {:>11} {:>10} {:>11} {:>10}  {:>11} {}",
            layer.layer.name(),
            size(totals.live_bytes),
            grouped(totals.live_count),
            size(totals.inherited_bytes),
            size(totals.alloc_bytes),
            grouped(totals.alloc_count),
            size(totals.free_bytes),
            grouped(totals.free_count),
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
                "         plus {bytes} mapped before tracing began and still mapped"
            )?;
        }
        if layer.layer == Layer::Python {
            writeln!(
                out,
                "         arenas of Python's object allocator, which hold many small objects; record with --python-objects to see each"
            )?;
        }
        if layer.totals.cleared_by_exec_count > 0 {
            let bytes = size(layer.totals.cleared_by_exec_bytes);
            let blocks = plural(layer.totals.cleared_by_exec_count, "block");
            writeln!(out, "         {bytes} in {blocks} was discarded by exec")?;
        }
        Ok(())
    }
}

/// The end of a process, from its wait status (waitpid(2)).
fn status(wait_status: Option<u32>) -> String {
    match wait_status {
        None => String::new(),
        Some(status) if status & 0x7f == 0 => format!(" with status {}", status >> 8 & 0xff),
        Some(status) => format!(" by signal {}", status & 0x7f),
    }
}

/// Whether the kernel may have killed a process, and what is known of that.
fn out_of_memory(kills: u64) -> Option<String> {
    match kills {
        0 => None,
        1 => Some("memory ran out: the kernel killed 1 process about then".to_owned()),
        n => Some(format!(
            "memory ran out: the kernel killed {n} processes about then"
        )),
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
    use crate::view::{Filter, fixture};

    #[test]
    fn a_process_that_may_have_been_killed_for_lack_of_memory_is_marked() {
        let mut snapshot = fixture::snapshot();
        let killed = &mut snapshot.processes[1];
        killed.row.exit_status = Some(9);
        killed.oom_kills = 1;
        let text = render(&snapshot, &TextOptions::default());
        assert_parts(
            &text,
            &[
                " by signal 9",
                "  killed    memory ran out: the kernel killed 1 process about then",
            ],
        );
        assert_eq!(text.matches("memory ran out").count(), 1);
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
    fn a_group_is_labelled_as_one() {
        let mut snapshot = fixture::snapshot();
        let group = &mut snapshot.processes[1].row;
        (group.tgid, group.folded) = (0, Some(412));
        group.cmdline = ["cc", "-c", "a.c\x1b"].map(Into::into).to_vec();
        let report = render(&snapshot, &TextOptions::default());
        assert_parts(
            &report,
            &[
                "Recording of leaker (pid 4242) and 412 more",
                "\n412 ended processes of `cc -c a.c\\u{1b}`, the first started at 0.0 s, the last ended at 5.0 s\n\
                 \x20 shown at  the peak of the largest of them in each layer; peaks are the largest, \
                 inherited, allocated and freed are sums\n",
                "in 10 blocks (heap of 412 ended processes of `cc -c a.c\\u{1b}`)",
            ],
        );
        assert!(!report.contains("with status"), "{report}");
        let group = &mut snapshot.processes[1];
        (group.moment, group.row.folded) = (Moment::End, Some(1));
        group.row.cmdline.clear();
        snapshot.left_out = 7;
        let report = render(&snapshot, &TextOptions::default());
        assert_parts(
            &report,
            &[
                "\n1 ended process of `leaker` with other arguments, the first",
                "shown at  the end of each, summed up",
                "folded and are not shown at this moment: 7\n",
            ],
        );
    }

    #[test]
    fn a_process_has_its_own_layers() {
        let snapshot = fixture::snapshot();
        let report = render(&snapshot, &TextOptions::default());
        let (first, second) = report.split_once("Process 4243").unwrap();
        assert!(
            first.contains("\n  vm ") && first.contains("\n  heap "),
            "{first}"
        );
        let table = second.split("\nTop ").next().unwrap();
        assert!(
            !table.contains("\n  vm ") && table.contains("\n  heap "),
            "{table}"
        );
    }

    #[test]
    fn a_layer_without_memory_is_named() {
        let options = TextOptions {
            filter: Filter {
                layer: Some(Layer::TorchCuda),
                ..Filter::default()
            },
            ..TextOptions::default()
        };
        assert_parts(
            &render(&fixture::snapshot(), &options),
            &[
                "  no allocations in layer torch-cuda\n",
                "\nNo sites\n",
                "Stacks  none: no allocation was recorded in layer torch-cuda\n",
            ],
        );
    }

    #[test]
    fn the_python_layer_is_explained() {
        let mut snapshot = fixture::snapshot();
        let meaning = "arenas of Python's object allocator";
        let report = render(&snapshot, &TextOptions::default());
        assert!(!report.contains(meaning), "{report}");
        let mut arenas = snapshot.layers[0].clone();
        arenas.layer = Layer::Python;
        snapshot.layers.insert(2, arenas);
        let report = render(&snapshot, &TextOptions::default());
        let (before, after) = report.split_once(meaning).unwrap();
        assert!(before.contains("\n  python           8.0 KiB"), "{report}");
        assert!(after.contains("--python-objects"), "{report}");
    }

    #[test]
    fn wait_statuses_are_shown_in_words() {
        assert_eq!(status(Some(0)), " with status 0");
        assert_eq!(status(Some(2 << 8)), " with status 2");
        assert_eq!(status(Some(9)), " by signal 9");
        assert_eq!(status(Some(11 | 0x80)), " by signal 11");
    }
}
