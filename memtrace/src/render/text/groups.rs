//! The groups of a report with `--by`: the top ones with their figures, and a summary of the rest.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use super::{
    TextReport,
    sites::{INDIRECT, by_layer},
};
use crate::{
    escape::clean,
    units::{grouped, plural, size},
    view::{
        Selection,
        group::{self, Group, Row},
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
        let rows = group::rows(groups);
        // They are in order, so zeros come last.
        let nonzero = rows.iter().take_while(|row| {
            let mut layers = row.layers.iter();
            layers.any(|group| sort.of(&group.sums.totals) > 0)
        });
        let (listed, unlisted) = rows.split_at(nonzero.count().min(self.options.top));
        match rows.len() as u64 {
            0 => writeln!(out, "\nNo {noun}s")?,
            all => writeln!(
                out,
                "\nTop {} of {} by {sort}\n  sums over sites, for each layer; layers are views of the same memory, so do not add them up",
                listed.len(),
                plural(all, noun)
            )?,
        }
        self.ages(out, selection)?;
        let indirect = listed.iter().position(Row::is_indirect);
        for (rank, row) in listed.iter().enumerate() {
            if indirect == Some(rank) {
                writeln!(out, "\n{INDIRECT}")?;
            }
            self.row(out, rank + 1, row)?;
        }
        if !unlisted.is_empty() {
            let more = plural(unlisted.len() as u64, &format!("more {noun}"));
            let mut live = BTreeMap::new();
            for group in unlisted.iter().flat_map(|row| &row.layers) {
                *live.entry(group.layer).or_default() += group.sums.totals.live_bytes;
            }
            let live = by_layer(&live);
            writeln!(out, "\n  {more} not listed (-T lists more); live: {live}")?;
        }
        self.hidden(out, selection)
    }

    fn row(&self, out: &mut impl Write, rank: usize, row: &Row) -> io::Result<()> {
        writeln!(out, "\n{rank:>3}. {}", clean(row.key))?;
        row.layers
            .iter()
            .try_for_each(|group| self.group(out, group))
    }

    fn group(&self, out: &mut impl Write, group: &Group) -> io::Result<()> {
        let totals = &group.sums.totals;
        let processes = match self.snapshot.processes.len() {
            0 | 1 => String::new(),
            _ => match group.sums.processes() {
                1 => " in 1 process".into(),
                n => format!(" in {n} processes"),
            },
        };
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
            "       allocated {} in {}, freed {} in {}{inherited}",
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
                "Top 3 of 3 Python lines by live-bytes\n",
                "for each layer",
                "  1. /src/cache;1.py:41 Cache.fill\n\
                 \x20    1.0 MiB in 4 blocks (heap), 1 site in 1 process\n\
                 \x20      allocated 1.0 MiB in 5, freed 64 B in 1\n",
                "  2. [no stack]\n     100 B in 10 blocks (heap), 1 site",
                "  3. [no Python frame]\n     8.0 KiB in 1 block (vm), 1 site",
                "     0 B in 0 blocks (heap), 1 site",
            ],
        );
        assert!(!report.contains("list_resize"), "{report}");
    }

    #[test]
    fn a_key_is_one_row_and_unlisted_ones_are_summed() {
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
                "Top 1 of 2 modules",
                "  1. /usr/bin/leaker\n     1.0 MiB in 4 blocks (heap)",
                "     8.0 KiB in 1 block (vm)",
                "1 more module not listed (-T lists more); live: heap 100 B",
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
