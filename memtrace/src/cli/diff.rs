//! `memtrace diff`.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    process::ExitCode,
    str::FromStr,
};

use anyhow::Context;
use clap::Args;

use super::{
    flamegraph::check_name,
    fleet::{self, Format},
    hints,
    output::write_file,
};
use crate::{
    analysis::{suppressions::Suppressions, system::SystemSeries, verdict},
    diff::{self, Comparison, Memory, Options, POINTS, Per, Run},
    progress::{Progress, say},
    recording::{At, Recording},
    render::diff::{self as rendered, View},
    units,
    view::{Filter, findings::findings},
};

/// Options that need two recordings, or baselines and one.
const OF_TWO: [&str; 9] = [
    "files",
    "baseline",
    "per",
    "top",
    "full",
    "ignore_template_arguments",
    "flamegraph",
    "force",
    "fail_on",
];

/// Compare recordings and machines: what grows faster than in the baseline, and what else differs.
#[derive(Debug, Args)]
#[command(
    override_usage = "memtrace diff [OPTIONS] <BASELINE> <NEW>\n       memtrace diff [OPTIONS] --baseline <FILE>... -- <NEW>\n       memtrace diff [--format <FORMAT>] --good <FILE>... --bad <FILE>...",
    after_help = "\
Examples:
  memtrace diff good.mtr bad.mtr
  memtrace diff --baseline good1.mtr good2.mtr -- bad.mtr
  memtrace diff --good a.mtr b.mtr --bad c.mtr d.mtr
  memtrace diff --fail-on growth=100k/s good.mtr bad.mtr"
)]
pub(crate) struct DiffArgs {
    /// The baseline and the new recording; only the new one with `--baseline`.
    #[arg(required_unless_present_any = ["baseline", "good"], num_args = 1.., value_name = "RECORDING")]
    files: Vec<PathBuf>,
    /// Several baselines: report only what differs from all of them. End the list with `--`.
    #[arg(long, num_args = 1.., value_name = "FILE")]
    baseline: Vec<PathBuf>,
    /// Recordings of hosts whose memory does not grow: report which facts separate them from those of `--bad`.
    #[arg(long, num_args = 1.., value_name = "FILE", requires = "bad", conflicts_with_all = OF_TWO)]
    good: Vec<PathBuf>,
    /// Recordings of hosts whose memory grows.
    #[arg(long, num_args = 1.., value_name = "FILE", requires = "good")]
    bad: Vec<PathBuf>,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Measure growth per second (`seconds`), per allocation (`count`), or per allocation at one place
    /// (`alloc-of=FUNCTION` or `alloc-of=FILE:LINE`), for example one reached once per iteration.
    #[arg(long, value_name = "UNIT", default_value = "seconds")]
    per: Per,
    /// Number of sites to list [default: 10 in text, all in JSON].
    #[arg(short = 'T', long, value_name = "N")]
    top: Option<usize>,
    /// Show every frame of libraries, and C++ names with parameters and template arguments.
    #[arg(long)]
    full: bool,
    /// Treat functions that differ only in template arguments as one.
    #[arg(long)]
    ignore_template_arguments: bool,
    /// Draw growth as differential flame graphs: FILE has the widths of the new recording, and
    /// beside it a file ending in `.baseline.svg` those of the baseline.
    #[arg(long, value_name = "FILE")]
    flamegraph: Option<PathBuf>,
    /// Overwrite the flame graphs.
    #[arg(short, long)]
    force: bool,
    /// Exit with status 1 if a site grows faster than in the baseline: by at least `growth=SIZE/s`
    /// (`/s` stands for the unit of `--per`), or by more than the load varies (`leak`).
    #[arg(long, value_name = "WHAT")]
    fail_on: Option<FailOn>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum FailOn {
    /// Bytes per unit.
    Growth(u64),
    Leak,
}

impl FromStr for FailOn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "leak" {
            return Ok(FailOn::Leak);
        }
        let size = text.strip_prefix("growth=").ok_or_else(|| {
            format!("`{text}` is not a condition; give `leak` or one such as `growth=1k/s`")
        })?;
        units::parse_size(size.strip_suffix("/s").unwrap_or(size)).map(FailOn::Growth)
    }
}

/// Prints the comparison. The status is 1 if the condition of `--fail-on` holds.
///
/// # Errors
///
/// When a recording cannot be read or compared, or the output cannot be written.
pub(crate) fn run(args: &DiffArgs) -> anyhow::Result<ExitCode> {
    if !args.good.is_empty() {
        return fleet::compare(&args.good, &args.bad, args.format).map(|()| ExitCode::SUCCESS);
    }
    if let Some(path) = &args.flamegraph {
        check_name(path)?;
    }
    let (baselines, new) = recordings(args)?;
    let options = Options {
        per: args.per.clone(),
        templates: !args.ignore_template_arguments,
    };
    let progress = Progress::begin("comparing the recordings");
    let comparison = compared(baselines, new, &options)?;
    drop(progress);
    if let Some(path) = &args.flamegraph {
        draw(path, args.force, &comparison)?;
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    let written = match args.format {
        Format::Text => rendered::text(&mut out, &comparison, args.top.unwrap_or(10), args.full),
        Format::Json => rendered::json(&mut out, &comparison, args.top),
    };
    written.context("cannot write the output")?;
    if let (Format::Text, [baseline]) = (args.format, baselines) {
        let [baseline, new] = [baseline, new].map(|path| hints::file(path));
        hints::next(&format!("memtrace html --diff {baseline} {new}"));
    }
    let failed = match args.fail_on {
        None => None,
        Some(FailOn::Growth(least)) => comparison.grows_by(least as f64),
        Some(FailOn::Leak) => comparison.leak(),
    };
    Ok(match failed {
        Some(_) => {
            say("`--fail-on` found growth; the exit status is 1");
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    })
}

/// The baselines and the new recording.
fn recordings(args: &DiffArgs) -> anyhow::Result<(&[PathBuf], &PathBuf)> {
    let is_option = |path: &&PathBuf| path.to_string_lossy().starts_with('-') && !path.exists();
    if let Some(option) = args.files.iter().find(is_option) {
        anyhow::bail!(
            "`{}` comes after `--`, where only recordings are expected; options go before `--`",
            option.display()
        );
    }
    match (&*args.baseline, &*args.files) {
        ([], [baseline, new]) => Ok((std::slice::from_ref(baseline), new)),
        (_, []) => anyhow::bail!(
            "no new recording, only baselines; end their list with `--`: `memtrace diff --baseline A B -- NEW`"
        ),
        ([], [_]) => anyhow::bail!(
            "one recording only, expected a baseline and a new one: `memtrace diff BASELINE NEW`"
        ),
        ([], several) => anyhow::bail!(
            "{} recordings; to compare with several baselines: `memtrace diff --baseline A B -- C`",
            several.len()
        ),
        (baselines, [new]) => Ok((baselines, new)),
        _ => anyhow::bail!(
            "several new recordings, expected one: `memtrace diff --baseline A --baseline B -- NEW`"
        ),
    }
}

/// Reads recordings and compares the last with the others.
pub(super) fn compared(
    baselines: &[PathBuf],
    new: &Path,
    options: &Options,
) -> anyhow::Result<Comparison> {
    let paths = baselines.iter().map(PathBuf::as_path).chain([new]);
    let prefixes = prefixes(paths)?;
    let baselines: Vec<Run> = baselines
        .iter()
        .map(|path| read(path, &prefixes))
        .collect::<Result<_, _>>()?;
    Ok(diff::compare(&baselines, &read(new, &prefixes)?, options)?)
}

/// The prefixes of allocator functions named for any of these recordings: all fold their frames, or
/// equal stacks would differ.
fn prefixes<'a>(paths: impl Iterator<Item = &'a Path>) -> anyhow::Result<Vec<String>> {
    let mut prefixes = BTreeSet::new();
    for path in paths {
        prefixes.extend(Recording::open(path)?.meta().allocator_prefixes.clone());
    }
    Ok(prefixes.into_iter().collect())
}

fn read(path: &Path, prefixes: &[String]) -> anyhow::Result<Run> {
    let recording = Recording::open(path)?;
    let snapshot = recording.snapshot(At::Default)?;
    let series = recording.site_series(POINTS)?;
    let facts = recording.facts()?.into_iter();
    let facts = facts.map(|fact| (fact.field, fact.value)).collect();
    let name = path.display().to_string();
    let memory = memory(&recording)?;
    Ok(Run::new(name, &snapshot, &series, memory, facts, prefixes))
}

fn memory(recording: &Recording) -> anyhow::Result<Memory> {
    let machine = SystemSeries::read(recording)?;
    let found = verdict::diagnose(recording, &machine, &Suppressions::default())?;
    let resident = recording.resident()?.pop().map_or(0, |(_, bytes)| bytes);
    let first = findings(&found, &Filter::default()).into_iter().next();
    let verdict = first.map(|finding| (finding.verdict.class, finding.verdict.grade));
    Ok(Memory::new(resident, &found.accounts, verdict))
}

fn draw(path: &Path, force: bool, comparison: &Comparison) -> anyhow::Result<()> {
    for (path, view) in [
        (path.to_owned(), View::New),
        (path.with_extension("baseline.svg"), View::Baseline),
    ] {
        let mut svg = Vec::new();
        if rendered::flamegraph(&mut svg, comparison, view)? {
            write_file(&path, force, &svg)?;
            say(&format!("drew `{}`", path.display()));
        } else {
            tracing::warn!("nothing grows there, so `{}` was not drawn", path.display());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        diff: DiffArgs,
    }

    fn parse(line: &str) -> Result<DiffArgs, String> {
        let words = ["diff"].into_iter().chain(line.split(' '));
        let cli = Cli::try_parse_from(words);
        cli.map(|cli| cli.diff).map_err(|error| error.to_string())
    }

    #[test]
    fn baselines_end_with_two_dashes_or_come_one_by_one() {
        for line in [
            "--baseline a.mtr b.mtr -- new.mtr",
            "--baseline a.mtr --baseline b.mtr -- new.mtr",
        ] {
            let args = parse(line).unwrap();
            assert_eq!(args.baseline, [Path::new("a.mtr"), Path::new("b.mtr")]);
            assert_eq!(args.files, [Path::new("new.mtr")]);
        }
        let args = parse("a.mtr b.mtr").unwrap();
        assert_eq!((args.baseline.len(), args.files.len()), (0, 2));
        assert!(parse("--format json").is_err());
    }

    #[test]
    fn good_and_bad_recordings_come_together_and_alone() {
        let args = parse("--good a.mtr b.mtr --bad c.mtr").unwrap();
        assert_eq!(
            (args.good.len(), args.bad.len(), args.files.len()),
            (2, 1, 0)
        );
        for wrong in [
            "--good a.mtr",
            "--bad a.mtr",
            "--bad c.mtr --good a.mtr -- d.mtr",
            "--good a.mtr --bad c.mtr --top 3",
            "--good a.mtr --bad c.mtr --fail-on leak",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn units_are_read() {
        let args = parse("--per alloc-of=f a.mtr b.mtr").unwrap();
        assert_eq!(args.per, Per::AllocOf("f".into()));
        assert_eq!(parse("a.mtr b.mtr").unwrap().per, Per::Seconds);
        for wrong in ["hours", "alloc-of", "alloc-of="] {
            let error = parse(&format!("--per {wrong} a.mtr b.mtr")).unwrap_err();
            assert!(error.contains("`alloc-of=FUNCTION`"), "{error}");
        }
    }

    #[test]
    fn a_wrong_number_of_recordings_is_explained() {
        let error = |line: &str| recordings(&parse(line).unwrap()).unwrap_err().to_string();
        for (line, expected) in [
            ("a", "one recording only"),
            (
                "a b c",
                "3 recordings; to compare with several baselines: `memtrace diff --baseline",
            ),
            ("--baseline a b", "no new recording"),
            ("--baseline a -- b c", "several new recordings"),
            ("--baseline a -- b -T 1", "`-T` comes after `--`"),
        ] {
            let error = error(line);
            assert!(error.contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn conditions_are_read() {
        assert_eq!("leak".parse(), Ok(FailOn::Leak));
        assert_eq!("growth=4k/s".parse(), Ok(FailOn::Growth(4096)));
        assert_eq!("growth=10".parse(), Ok(FailOn::Growth(10)));
        for wrong in ["growth", "growth=", "growth=x/s", "leaks"] {
            assert!(wrong.parse::<FailOn>().is_err(), "{wrong}");
        }
    }
}
