//! Checks whether this host can trace, and suggests fixes if it cannot.
//!
//! Owns the questions: each is a name, one of three outcomes and a remedy. Nothing here changes the
//! host; that the kernel takes the tracing programs is tried by `cli/check.rs`.

mod kernel_parts;
mod outcome;
mod requirements;

use std::{
    io::{self, Write},
    time::Duration,
};

use anstyle::{AnsiColor, Style};

use self::outcome::{Check, Outcome};

/// Runs all checks of this host; those that explain other failures come first.
pub(crate) fn run_checks() -> Vec<Check> {
    let mut checks = requirements::checks();
    checks.extend(kernel_parts::checks());
    checks
}

/// The kernel side as it was loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loaded {
    pub(crate) time: Duration,
    /// One link has all probes of a file.
    pub(crate) all_at_once: bool,
    /// One program serves both ends of malloc.
    pub(crate) sessions: bool,
}

/// Result of loading the kernel side: how, or why it was refused.
pub(crate) fn programs(loaded: Result<Loaded, String>) -> Vec<Check> {
    const NAME: &str = "tracing programs";
    match loaded {
        Ok(loaded) => vec![
            Check::ok(
                NAME,
                format!("loaded in {:.1} s", loaded.time.as_secs_f64()),
            ),
            kernel_parts::probes(loaded.all_at_once, loaded.sessions),
        ],
        Err(reason) => vec![Check::new(NAME, Outcome::Missing, reason)],
    }
}

/// The first missing requirement without which tracing is impossible. Unknown results do not count.
pub(crate) fn first_failure(checks: &[Check]) -> Option<&Check> {
    checks
        .iter()
        .find(|check| check.required && check.outcome == Outcome::Missing)
}

/// Writes one line per check, the fix below it, and the verdict.
pub(crate) fn render(checks: &[Check], colour: bool, out: &mut impl Write) -> io::Result<()> {
    let width = checks.iter().map(|c| c.name.len()).max().unwrap_or(0);
    for check in checks {
        let outcome = check.outcome.name();
        let style = match check.outcome {
            _ if !colour => Style::new(),
            Outcome::Ok => AnsiColor::Green.on_default(),
            Outcome::Missing if check.required => AnsiColor::Red.on_default().bold(),
            Outcome::Missing | Outcome::Unknown => AnsiColor::Yellow.on_default(),
        };
        writeln!(
            out,
            "{style}{outcome:14}{style:#}  {:width$}  {}",
            check.name, check.detail
        )?;
        if let Some(help) = &check.help {
            writeln!(out, "{:14}  {:width$}  → {help}", "", "")?;
        }
    }
    writeln!(out)?;
    match first_failure(checks) {
        Some(check) => writeln!(out, "memtrace cannot trace here: {}", check.name),
        None if checks
            .iter()
            .any(|c| c.required && c.outcome == Outcome::Unknown) =>
        {
            writeln!(out, "memtrace can trace here, as far as could be checked")
        }
        None => writeln!(out, "memtrace can trace here"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals() {
        let checks = [
            Check::ok("kernel", "6.18"),
            Check::missing("btf", "none", "x"),
        ];
        let mut out = Vec::new();
        render(&checks, true, &mut out).unwrap();
        let coloured = String::from_utf8(out).unwrap();
        assert!(coloured.contains("\x1b[32mok"), "{coloured:?}");
        assert!(coloured.contains("\x1b[31m"), "{coloured:?}");
        assert!(!text(&checks).contains('\x1b'));
    }

    fn text(checks: &[Check]) -> String {
        let mut out = Vec::new();
        render(checks, false, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn only_missing_requirements_fail() {
        let mut checks = vec![
            Check::unknown("tracepoints", "not mounted"),
            Check::missing("files", "256", "raise it").optional(),
        ];
        assert_eq!(first_failure(&checks), None);
        assert!(text(&checks).ends_with("as far as could be checked\n"));

        checks.push(Check::missing(
            "capabilities",
            "no CAP_BPF",
            "run it as root",
        ));
        let failure = first_failure(&checks).unwrap();
        assert_eq!(
            failure.to_string(),
            "capabilities: no CAP_BPF; run it as root"
        );
        assert!(text(&checks).ends_with("cannot trace here: capabilities\n"));
    }

    #[test]
    fn programs_that_are_refused_are_missing() {
        let fine = programs(Ok(Loaded {
            time: Duration::from_millis(312),
            all_at_once: true,
            sessions: true,
        }));
        assert_eq!(
            (fine[0].outcome, &*fine[0].detail),
            (Outcome::Ok, "loaded in 0.3 s")
        );
        let refused = programs(Err("invalid func unknown#181".to_owned()));
        let failure = first_failure(&refused).unwrap();
        assert_eq!(
            failure.to_string(),
            "tracing programs: invalid func unknown#181"
        );
    }

    #[test]
    fn the_text_is_a_table_with_the_remedy_below() {
        let checks = [
            Check::ok("kernel", "6.1"),
            Check::missing("BTF", "absent", "another kernel"),
        ];
        let expected = "\
ok              kernel  6.1
missing         BTF     absent
                        → another kernel

memtrace cannot trace here: BTF
";
        assert_eq!(text(&checks), expected);
        assert!(text(&checks[..1]).ends_with("\n\nmemtrace can trace here\n"));
    }
}
