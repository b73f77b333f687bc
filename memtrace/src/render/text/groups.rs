//! The groups of a report with `--by`: the top ones with their figures, and a summary of the rest.

use std::io::{self, Write};

use super::TextReport;
use crate::{
    escape::clean,
    units::{grouped, plural, size},
    view::{
        Selection,
        group::{self, Group},
    },
};

impl TextReport<'_> {
    pub(super) fn groups(
        &self,
        out: &mut impl Write,
        selection: &Selection,
        groups: &[Group],
    ) -> io::Result<()> {
        let (sort, noun) = (self.options.sort, self.options.by.noun());
        // They are in order, so zeros come last.
        let nonzero = groups
            .iter()
            .take_while(|group| sort.of(&group.sums.totals) > 0);
        let (listed, unlisted) = groups.split_at(nonzero.count().min(self.options.top));
        writeln!(
            out,
            "\nTop {} of {} by {sort}",
            listed.len(),
            plural(groups.len() as u64, noun)
        )?;
        writeln!(
            out,
            "  sums over sites, for each layer; layers are views of the same memory, so do not add them up"
        )?;
        self.ages(out, selection)?;
        for (rank, group) in listed.iter().enumerate() {
            self.group(out, rank + 1, group)?;
        }
        for (layer, rest) in group::rest(unlisted) {
            writeln!(
                out,
                "\n  {} ({}), {} live in {}, not listed (-T lists more)",
                plural(rest.groups, &format!("more {noun}")),
                layer.name(),
                size(rest.sums.totals.live_bytes),
                plural(rest.sums.totals.live_count, "block"),
            )?;
        }
        self.hidden(out, selection)
    }

    fn group(&self, out: &mut impl Write, rank: usize, group: &Group) -> io::Result<()> {
        let totals = &group.sums.totals;
        let processes = match self.snapshot.processes.len() {
            0 | 1 => String::new(),
            _ => match group.sums.processes() {
                1 => " in 1 process".into(),
                n => format!(" in {n} processes"),
            },
        };
        writeln!(out, "\n{rank:>3}. {}", clean(&group.key))?;
        writeln!(
            out,
            "     {} in {} ({}), {}{processes}",
            size(totals.live_bytes),
            plural(totals.live_count, "block"),
            group.layer.name(),
            plural(group.sums.sites, "site"),
        )?;
        let inherited = match totals.inherited_count {
            0 => String::new(),
            n => format!(", inherited {} in {n}", size(totals.inherited_bytes)),
        };
        writeln!(
            out,
            "     allocated {} in {}, freed {} in {}{inherited}",
            size(totals.alloc_bytes),
            grouped(totals.alloc_count),
            size(totals.free_bytes),
            grouped(totals.free_count),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        super::Error,
        TextOptions,
        tests::{assert_parts, render},
        text,
    };
    use crate::{
        analysis::verdict::Diagnosis,
        view::{self, By, Filter, Metric, fixture},
    };
    use memtrace_common::unwind::End;

    fn by(by: By) -> TextOptions {
        TextOptions {
            by,
            ..TextOptions::default()
        }
    }

    #[test]
    fn groups_have_figures_and_no_stacks() {
        let report = render(&fixture::snapshot_of_python(), &by(By::PythonLine));
        assert_parts(
            &report,
            &[
                "Top 3 of 4 Python lines by live-bytes\n",
                "for each layer",
                "  1. /src/cache;1.py:41 Cache.fill\n\
                 \x20    1.0 MiB in 4 blocks (heap), 1 site in 1 process\n\
                 \x20    allocated 1.0 MiB in 5, freed 64 B in 1\n",
                "  2. [no stack]\n     100 B in 10 blocks (heap), 1 site",
                "1 more Python line (heap), 0 B live in 0 blocks, not listed",
            ],
        );
        assert!(!report.contains("list_resize"), "{report}");
    }

    #[test]
    fn unlisted_groups_are_summed_for_each_layer() {
        let options = TextOptions {
            top: 1,
            filter: Filter {
                min_bytes: Some(1),
                ..Filter::default()
            },
            ..by(By::Module)
        };
        let report = render(&fixture::snapshot(), &options);
        assert_parts(
            &report,
            &[
                "Top 1 of 3 modules",
                "1 more module (vm), 8.0 KiB live in 1 block, not listed",
                "1 more module (heap), 100 B live in 10 blocks, not listed",
                "1 site hidden by filters; live: heap 0 B",
            ],
        );
    }

    #[test]
    fn groups_cannot_be_ordered_by_peak() {
        let options = TextOptions {
            sort: Metric::Peak,
            ..by(By::Thread)
        };
        let mut out = Vec::new();
        let error = text(
            &mut out,
            &fixture::snapshot(),
            &options,
            &Diagnosis::default(),
        )
        .unwrap_err();
        assert!(matches!(error, Error::View(view::Error::NoPeakOfGroups)));
        assert!(out.is_empty());
    }

    #[test]
    fn a_name_that_moves_the_cursor_is_harmless() {
        let mut snapshot = fixture::snapshot_of_python();
        let frames = fixture::frames(&snapshot, &snapshot.sites[1]);
        let (id, thread) = (snapshot.sites[1].key.stack, Some("\x1b[2J"));
        snapshot.stacks.put(id, End::Complete, thread, frames);
        for by in [by(By::Site), by(By::Thread)] {
            let report = render(&snapshot, &by);
            assert_parts(&report, &["\\u{1b}[2J"]);
            assert!(!report.contains('\x1b'), "{report}");
        }
    }
}
