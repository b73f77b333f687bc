//! A comparison for people.

use std::{
    collections::BTreeSet,
    io::{self, Write},
};

use crate::{
    diff::{
        Absence, Comparison, Difference, Level, Matched, Memory, Per, SiteDifference, Stack,
        Workload, is_of_session, is_unread, isa,
    },
    escape::clean,
    frames::{compared_line, library::Part},
    render::{
        stack::{line, parts, words},
        until_closed,
    },
    units::{plural, size},
};

/// Most facts listed: later ones seldom matter.
const FACTS: usize = 15;

/// Most hashed variables listed by name.
const VARIABLES: usize = 12;

/// Lists of at least this many words are shown by their differences only.
const LONG_LIST: usize = 6;

/// Writes a comparison, with the first `top` sites that grow more and as many that grow less. Libraries are
/// folded unless `full`.
pub(crate) fn text(
    out: &mut impl Write,
    comparison: &Comparison,
    top: usize,
    full: bool,
) -> io::Result<()> {
    let text = Text {
        comparison,
        top,
        full,
    };
    until_closed(text.write(out).and_then(|()| out.flush()))
}

/// The conclusion, its bounds and the workloads, line by line.
pub(crate) fn summary(comparison: &Comparison) -> io::Result<Vec<String>> {
    let text = Text {
        comparison,
        top: 0,
        full: false,
    };
    let mut out = Vec::new();
    text.programs(&mut out)?;
    text.conclusion(&mut out)?;
    text.bounds(&mut out)?;
    if let Some(workload) = comparison.workload {
        text.workload(&mut out, workload)?;
    }
    let out = String::from_utf8_lossy(&out);
    Ok(out.lines().map(|line| line.trim().to_owned()).collect())
}

struct Text<'a> {
    comparison: &'a Comparison,
    top: usize,
    full: bool,
}

impl Text<'_> {
    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let comparison = self.comparison;
        let baselines: Vec<_> = comparison
            .baselines
            .iter()
            .map(|name| clean(name))
            .collect();
        writeln!(
            out,
            "memtrace: {} → {}",
            baselines.join(", "),
            clean(&comparison.new)
        )?;
        self.programs(out)?;
        self.conclusion(out)?;
        self.bounds(out)?;
        if let Some(workload) = comparison.workload {
            self.workload(out, workload)?;
        }
        self.memory(out)?;
        self.facts(out)?;
        self.sites(out)?;
        self.matching(out)
    }

    /// Growth of different programs says little about either.
    fn programs(&self, out: &mut impl Write) -> io::Result<()> {
        let Some((old, new)) = self.comparison.different_programs() else {
            return Ok(());
        };
        let [old, new] =
            [old, new].map(|names| clean(&names.into_iter().collect::<Vec<_>>().join(", ")));
        writeln!(out, "  these are different programs: {old} and {new}")
    }

    /// What grows faster than in the baseline, and whether more memory is resident.
    fn conclusion(&self, out: &mut impl Write) -> io::Result<()> {
        self.fastest(out)?;
        let [old, new] = &self.comparison.memory;
        if !new.is_unlike(old) {
            return Ok(());
        }
        let of_old = match self.comparison.baselines.len() {
            1 => "the baseline",
            _ => "the largest of the baselines",
        };
        writeln!(
            out,
            "  resident memory at the end: {}, and {} in {of_old}",
            size(new.resident),
            size(old.resident)
        )
    }

    fn fastest(&self, out: &mut impl Write) -> io::Result<()> {
        let sites = &self.comparison.sites;
        let sure = |site: &&SiteDifference| site.is_beyond_load() && site.delta.is_sure();
        let more = sites.iter().filter(|site| grows_more(site.delta.rate));
        let surely = more.clone().filter(sure).count() as u64;
        let Some(first) = more.clone().find(sure) else {
            return match more.count() as u64 {
                0 => writeln!(out, "  no site grows faster than in the baseline"),
                n => writeln!(
                    out,
                    "  no site grows faster by more than chance or the load explains ({n} by less)"
                ),
            };
        };
        let place = first.stack().and_then(|stack| {
            let shown = stack.shown();
            let own = compared_line(&shown)?;
            Some(format!(" in {}", line(own, self.full)))
        });
        writeln!(
            out,
            "  {} faster than in the baseline, most of all by {}/{}{} ({})",
            match surely {
                1 => "1 site grows".into(),
                n => format!("{} grow", plural(n, "site")),
            },
            signed(first.delta.rate),
            self.comparison.per.unit(),
            place.unwrap_or_default(),
            first.layer.name(),
        )
    }

    /// The resident memory of the processes, which their sites may not explain.
    fn memory(&self, out: &mut impl Write) -> io::Result<()> {
        let [old, new] = &self.comparison.memory;
        let sizes = |of: &Memory| size(of.resident);
        let growth = |of: &Memory| signed(of.growth);
        let free = |of: &Memory| signed(of.free);
        writeln!(out, "\nResident memory of the processes")?;
        for (name, of) in [
            ("at the end", &sizes as &dyn Fn(&Memory) -> String),
            ("growth per s", &growth),
            ("  free in allocators", &free),
            ("verdict", &verdict),
        ] {
            writeln!(out, "  {name:<50} {:>12} → {:>12}", of(old), of(new))?;
        }
        Ok(())
    }

    /// Warnings that limit the figures.
    fn bounds(&self, out: &mut impl Write) -> io::Result<()> {
        for (run, reasons) in &self.comparison.losses {
            let (run, reasons) = (clean(run), reasons.join(", "));
            writeln!(
                out,
                "  events of {run} were lost ({reasons}): its growth is only a bound"
            )?;
        }
        for run in &self.comparison.short {
            let run = clean(run);
            writeln!(
                out,
                "  {run} has too few intervals to estimate how certain growth is: record longer, or with a shorter --interval"
            )?;
        }
        Ok(())
    }

    fn workload(&self, out: &mut impl Write, workload: Workload) -> io::Result<()> {
        let unit = self.comparison.per.unit();
        let rates = format!("{:.1} → {:.1} per {unit}", workload.baseline, workload.new);
        match workload.differs() {
            false => writeln!(out, "  allocations: {rates}, about the same"),
            true => {
                writeln!(
                    out,
                    "  different workload: allocations {rates}; growth may differ for that reason alone"
                )?;
                match self.comparison.per {
                    Per::Seconds => writeln!(
                        out,
                        "  `--per alloc-of=FUNCTION`, with a function that allocates once per iteration, compares iterations"
                    ),
                    _ => Ok(()),
                }
            }
        }
    }

    fn facts(&self, out: &mut impl Write) -> io::Result<()> {
        // A hash of a session's own variable helps nobody.
        let facts = self.comparison.fingerprint.iter();
        let facts: Vec<&Difference> = facts
            .filter(|fact| !(has_no_value(fact) && is_of_session(&fact.field)))
            .collect();
        if facts.is_empty() {
            writeln!(
                out,
                "\nNo recorded fact of the machines and processes differs. Not compared:"
            )?;
            return self.gaps(out, true);
        }
        writeln!(
            out,
            "\n{} between the machines and processes, those related to growth first (correlation, not proof)",
            plural(facts.len() as u64, "difference")
        )?;
        let (unread, facts): (Vec<_>, Vec<_>) =
            facts.into_iter().partition(|fact| has_no_value(fact));
        for (rank, fact) in facts.iter().take(FACTS).enumerate() {
            self.fact(out, rank + 1, fact)?;
        }
        match facts.len().saturating_sub(FACTS) {
            0 => {}
            more => writeln!(out, "  {more} more not listed (--format json lists all)")?,
        }
        if !unread.is_empty() {
            let named = unread.iter().take(VARIABLES).map(|fact| variable(fact));
            let named = named.collect::<Vec<_>>().join(", ");
            let more = match unread.len().saturating_sub(VARIABLES) {
                0 => String::new(),
                more => format!(", {more} more"),
            };
            writeln!(
                out,
                "  environment variables that differ (only hashes of their values are recorded): {named}{more}"
            )?;
        }
        let gaps = self.comparison.not_compared.iter();
        if gaps.clone().any(|gap| gap.run.is_some()) {
            writeln!(out, "  not compared:")?;
        }
        self.gaps(out, false)
    }

    /// Facts that are not compared: those of single recordings; with `all`, also the others.
    fn gaps(&self, out: &mut impl Write, all: bool) -> io::Result<()> {
        for gap in &self.comparison.not_compared {
            match &gap.run {
                Some(run) => writeln!(out, "    {}: {}", clean(run), gap.what)?,
                None if all => writeln!(out, "    {}", gap.what)?,
                None => {}
            }
        }
        Ok(())
    }

    fn fact(&self, out: &mut impl Write, rank: usize, fact: &Difference) -> io::Result<()> {
        let sites: Vec<String> = fact
            .related_sites
            .iter()
            .take(5)
            .map(|site| self.number(*site).to_string())
            .collect();
        let related = match sites.len() {
            0 => String::new(),
            1 => format!("  (site {})", sites[0]),
            _ => format!("  (sites {})", sites.join(", ")),
        };
        let (old, new) = values(fact);
        writeln!(
            out,
            "{rank:>3}. {}: {old} → {new}{related}",
            clean(&fact.field)
        )
    }

    /// The number of a site: those that grow more come first, then those that grow less, each group with its largest
    /// difference first.
    fn number(&self, index: usize) -> usize {
        let count = |wanted: fn(f64) -> bool| {
            let sites = self.comparison.sites.iter();
            sites.filter(|site| wanted(site.delta.rate)).count()
        };
        let (more, less) = (count(grows_more), count(grows_less));
        match (more..more + less).contains(&index) {
            // Those that grow least are last.
            true => 2 * more + less - index,
            false => index + 1,
        }
    }

    fn sites(&self, out: &mut impl Write) -> io::Result<()> {
        let ranked: Vec<_> = self.comparison.sites.iter().enumerate().collect();
        let unit = self.comparison.per.unit();
        let part = |wanted: fn(f64) -> bool| {
            let sites = ranked
                .iter()
                .filter(move |(_, site)| wanted(site.delta.rate));
            sites.copied().collect::<Vec<_>>()
        };
        let (more, mut less) = (part(grows_more), part(grows_less));
        less.reverse();
        for (sites, what) in [(more, "more"), (less, "less")] {
            if sites.is_empty() {
                continue;
            }
            let listed = sites.len().min(self.top);
            writeln!(
                out,
                "\n{listed} of {} that grow {what} than in the baseline, by bytes per {unit}",
                plural(sites.len() as u64, "site")
            )?;
            for (index, site) in &sites[..listed] {
                self.site(out, self.number(*index), site)?;
            }
        }
        if !self
            .comparison
            .sites
            .iter()
            .any(|site| site.delta.rate != 0.0)
        {
            writeln!(out, "\nNo site grows differently from the baseline")?;
        }
        let mappings = &self.comparison.mappings;
        let rate: f64 = mappings.iter().map(|site| site.delta.rate).sum();
        match mappings.is_empty() {
            true => Ok(()),
            false => writeln!(
                out,
                "\nAddress space of allocators, stacks and libraries, with the blocks above in it: {}/{unit} in {} (--format json lists it)",
                signed(rate),
                plural(mappings.len() as u64, "site")
            ),
        }
    }

    fn site(&self, out: &mut impl Write, rank: usize, site: &SiteDifference) -> io::Result<()> {
        let unit = self.comparison.per.unit();
        let level = match (site.level, &site.new_stack) {
            (Some(level), _) => format!("{} ({})", level.meaning(), level.name()),
            (None, Some(_)) => "only in the new recording".into(),
            (None, None) => "only in the baseline".into(),
        };
        writeln!(
            out,
            "\n{rank:>3}. {}/{unit} ({}), {}",
            signed(site.delta.rate),
            site.layer.name(),
            sureness(site)
        )?;
        writeln!(
            out,
            "     {}/{unit} → {}/{unit}; live {} → {}; {level}",
            signed(site.baseline.rate),
            signed(site.new.rate),
            size(site.baseline_bytes),
            size(site.new_bytes)
        )?;
        self.frames(out, site.stack())?;
        if let (Some(Level::Leaf | Level::Module), Some(old)) = (site.level, &site.baseline_stack)
            && Some(old) != site.new_stack.as_ref()
        {
            writeln!(out, "     in the baseline:")?;
            self.frames(out, Some(old))?;
        }
        Ok(())
    }

    fn frames(&self, out: &mut impl Write, stack: Option<&Stack>) -> io::Result<()> {
        let Some(stack) = stack.filter(|stack| !stack.frames.is_empty()) else {
            return writeln!(out, "       [no stack]");
        };
        for part in parts(&stack.shown(), self.full) {
            let mut line = words(&part, self.full);
            let found: BTreeSet<String> = match &part {
                Part::Frame(frame) => isa(frame).into_iter().collect(),
                Part::Folded(_, frames) => frames.iter().flat_map(|frame| isa(frame)).collect(),
            };
            if !found.is_empty() {
                let found = Vec::from_iter(found).join(", ");
                line += &format!("  <isa: {}>", clean(&found));
            }
            writeln!(out, "       {line}")?;
        }
        Ok(())
    }

    fn matching(&self, out: &mut impl Write) -> io::Result<()> {
        let comparison = self.comparison;
        writeln!(out, "\nLive bytes by how their sites were matched")?;
        let levels = Level::ALL.iter().zip(&comparison.matched);
        for (level, row) in levels.filter(|(_, row)| row.sites > 0) {
            self.row(out, &format!("{} ({})", level.meaning(), level.name()), row)?;
        }
        self.row(out, "unmatched", &comparison.unmatched)?;
        let without = match comparison.unmatched_empty {
            0 => String::new(),
            n => format!("; {n} of them without live bytes"),
        };
        if comparison.unmatched.sites > 0 {
            let [old, new] = comparison.only;
            writeln!(
                out,
                "    only in the baseline: {}; only in the new recording: {}{without}",
                plural(old, "site"),
                plural(new, "site")
            )?;
        }
        let mut total = comparison.unmatched;
        for row in &comparison.matched {
            total.sites += row.sites;
            total.baseline_bytes += row.baseline_bytes;
            total.new_bytes += row.new_bytes;
        }
        self.row(out, "total", &total)
    }

    fn row(&self, out: &mut impl Write, name: &str, row: &Matched) -> io::Result<()> {
        writeln!(
            out,
            "  {name:<50} {:>12} → {:>12}  {}",
            size(row.baseline_bytes),
            size(row.new_bytes),
            plural(row.sites, "site")
        )
    }
}

fn verdict(of: &Memory) -> String {
    of.verdict.map_or("too short".to_owned(), |(class, grade)| {
        format!("{} ({})", class.name(), grade.name())
    })
}

fn grows_more(rate: f64) -> bool {
    rate > 0.0
}

fn grows_less(rate: f64) -> bool {
    rate < 0.0
}

/// Whether it is a variable whose values are not recorded.
fn has_no_value(fact: &Difference) -> bool {
    let values = [&fact.baseline, &fact.new];
    let mut values = values.into_iter().flatten();
    values.any(|values| values.split(" | ").any(is_unread))
}

/// Its name, and on which side it is not set.
fn variable(fact: &Difference) -> String {
    let name = clean(fact.field.strip_prefix("env.").unwrap_or(&fact.field));
    match (&fact.baseline, &fact.new) {
        (None, Some(_)) => format!("{name} (not set → set)"),
        (Some(_), None) => format!("{name} (set → not set)"),
        _ => name,
    }
}

/// Both values; for long lists only the differing parts.
pub(crate) fn values(fact: &Difference) -> (String, String) {
    let one = |value: &Option<String>| match value {
        Some(value) => clean(value),
        None => fact.absence.map_or("not known", Absence::name).into(),
    };
    if let (Some(old), Some(new)) = (&fact.baseline, &fact.new) {
        let [a, b] = [old, new].map(|value| value.split_whitespace().collect::<BTreeSet<_>>());
        if a.len().min(b.len()) >= LONG_LIST {
            let only = |x: &BTreeSet<&str>, y: &BTreeSet<&str>| {
                let words: Vec<&str> = x.difference(y).copied().collect();
                match words.len() {
                    0 => "…".into(),
                    _ => format!("… {}", clean(&words.join(" "))),
                }
            };
            return (only(&a, &b), only(&b, &a));
        }
    }
    (one(&fact.baseline), one(&fact.new))
}

pub(in crate::render) fn sureness(site: &SiteDifference) -> String {
    match site.delta.interval {
        Some((low, high)) => {
            let doubt = match (site.delta.is_sure(), site.is_beyond_load()) {
                (false, _) => ": may be zero",
                (true, false) => ": within the possible variation of the load",
                (true, true) => "",
            };
            format!("95 % interval {} to {}{doubt}", signed(low), signed(high))
        }
        None => "undetermined: too few intervals".into(),
    }
}

/// `+1.5 KiB`; below ten bytes with decimals, as bytes per iteration may be.
pub(in crate::render) fn signed(bytes: f64) -> String {
    let sign = match bytes {
        _ if bytes > 0.0 => "+",
        _ if bytes < 0.0 => "−",
        _ => "",
    };
    let bytes = bytes.abs();
    match bytes {
        0.0 => "0 B".into(),
        _ if bytes < 9.995 => format!("{sign}{bytes:.2} B"),
        _ => format!("{sign}{}", size(bytes.round() as u64)),
    }
}
