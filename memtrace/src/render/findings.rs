//! The first screen: for each finding what it is, how fast, how sure, and the lines to look at.

use std::io::{self, Write};

use super::{
    device_table::name as device_name,
    diagnosis::too_short,
    evidence::words,
    holders::{folded, keeper, name_of},
    job::{few, program, untraced},
};
use crate::{
    analysis::verdict::{Class, Diagnosis, How, KeptBy, Verdict},
    escape::clean,
    frames::{Frame, names},
    units::{plural, size},
    view::{
        Filter,
        findings::{Finding, Line, findings, place, row},
    },
};

/// Lines and columns of the first screen.
const LINES: usize = 24;
const COLUMNS: usize = 100;

/// Where the text behind the names of lines begins.
const CONTENT: usize = 16;

/// Writes the findings of a recording.
pub(super) fn section(out: &mut impl Write, found: &Diagnosis, filter: &Filter) -> io::Result<()> {
    let findings = findings(found, filter);
    let not_traced = untraced(&found.untraced);
    let room = LINES.saturating_sub(not_traced.len());
    let mut lines = Vec::new();
    let mut shown = 0;
    for finding in &findings {
        let text = self::finding(finding, found);
        // One line is for what is left out, and an empty one follows.
        if shown > 0 && lines.len() + text.len() > room.saturating_sub(2) {
            break;
        }
        lines.extend(text);
        shown += 1;
    }
    let hidden = (findings.len() - shown) as u64;
    if hidden > 0 {
        lines.push(format!("{} more, see below", plural(hidden, "finding")));
    }
    lines.extend(not_traced);
    if found.too_short > 0 {
        lines.push(too_short(found.too_short));
    }
    for line in &lines {
        writeln!(out, "{}", fitted(line))?;
    }
    Ok(())
}

/// On two lines where one is too short, the second as far as it fits.
fn wrapped(line: &str) -> Vec<String> {
    let Some((end, _)) = line.char_indices().nth(COLUMNS) else {
        return vec![line.to_owned()];
    };
    match line[..end].rfind(' ').filter(|space| *space > CONTENT) {
        Some(space) => {
            let rest = format!("{:CONTENT$}{}", "", &line[space + 1..]);
            vec![line[..space].trim_end().to_owned(), rest]
        }
        None => vec![line.to_owned()],
    }
}

/// Cut at the last column.
fn fitted(line: &str) -> String {
    match line.char_indices().nth(COLUMNS) {
        None => line.to_owned(),
        Some(_) => line.chars().take(COLUMNS - 1).chain(['…']).collect(),
    }
}

fn finding(finding: &Finding, found: &Diagnosis) -> Vec<String> {
    let verdict = finding.verdict;
    let about = format!("{} (grade {})", verdict.class.name(), verdict.grade.name());
    let mut text = Vec::new();
    match finding.lines.first() {
        Some(line) => {
            text.extend(headline(&about, verdict, line));
            text.push(processes(finding, found));
            if let Some(frame) = line.allocates {
                text.push(format!("  allocated by  {}", where_it_is(frame)));
            }
            text.extend(line.kept_by.into_iter().flat_map(kept));
            let others = finding.lines.len() as u64 - 1;
            if others > 0 {
                text.push(format!(
                    "  and           {}, see below",
                    plural(others, "other line")
                ));
            }
            text.extend(next(line.next));
        }
        None => {
            text.push(format!("{about}: {}", verdict.class.meaning()));
            text.push(processes(finding, found));
            let evidence = verdict.evidence.iter().take(verdict.class.on_screen());
            text.extend(evidence.flat_map(|of| wrapped(&format!("  evidence      {}", words(of)))));
            if !finding.growing_below.is_empty() {
                let below: Vec<String> = finding.growing_below.iter().map(u32::to_string).collect();
                let who = match &finding.processes[..] {
                    [_] => "it",
                    _ => "they",
                };
                let below = few(&below);
                text.push(format!("  but           see {below}, which {who} started"));
            }
            text.extend(next(&verdict.next));
        }
    }
    if verdict.class == Class::Undetermined && found.lost > 0.0 {
        text.push("  records were lost: see below".into());
    }
    text
}

/// `leak (grade B): Service.log keeps 25 blocks/s (137 KiB/s); the holes around them cost 1.1 MiB/s`, on
/// two lines where one is too short.
fn headline(about: &str, verdict: &Verdict, line: &Line) -> Vec<String> {
    let sentence = format!("{about}: {}", sentence(verdict, line));
    if line.bytes <= 0.0 || line.holes < line.bytes / 10.0 {
        return vec![sentence];
    }
    let holes = format!("the holes around them cost {}", per_second(line.holes));
    let whole = format!("{sentence}; {holes}");
    match whole.chars().count() <= COLUMNS {
        true => vec![whole],
        false => vec![sentence, format!("  besides       {holes}")],
    }
}

/// `Service.log keeps 25 blocks/s (137 KiB/s)`.
fn sentence(verdict: &Verdict, line: &Line) -> String {
    if line.bytes <= 0.0 {
        return verdict.class.meaning().into();
    }
    let leaks = matches!(verdict.class, Class::Leak | Class::GpuLeak);
    let keeper = line.kept_by.and_then(|kept| {
        let line = kept.line.as_ref().map(names::plain);
        line.or_else(|| name_of(kept))
    });
    let allocates = || {
        line.allocates
            .map_or("code without a stack".into(), names::plain)
    };
    let (name, does) = match keeper {
        Some(keeper) => (keeper, "keeps"),
        None if leaks => (allocates(), "allocates"),
        None => (allocates(), "grows by"),
    };
    let amount = if line.blocks >= 0.5 {
        let blocks = plural(line.blocks.round() as u64, "block");
        format!("{blocks}/s ({})", per_second(line.bytes))
    } else {
        per_second(line.bytes)
    };
    let stays = match line.kept_by.map(|kept| &kept.how) {
        None if leaks => " that stay",
        Some(How::Cycle { .. }) => " that only cycles keep",
        Some(How::Nothing { .. }) => " that nothing points to",
        _ if verdict.class == Class::MappingLeak => " of address space",
        _ => "",
    };
    format!("{name} {does} {amount}{stays}")
}

/// What keeps the blocks, and the path to them.
fn kept(of: &KeptBy) -> Vec<String> {
    let filled = of.line.as_ref().map(where_it_is);
    let filled = filled.map_or(String::new(), |place| format!(", filled by {place}"));
    let what = match &of.how {
        How::Container(container) => format!("probably a {container}{filled}"),
        How::Path { path, .. } => format!("{}{filled}", keeper(path)),
        How::Cycle { .. } => "only a cycle: gc.collect() would free it".into(),
        How::Nothing { .. } => "nothing that points to it: lost".into(),
    };
    let mut text = wrapped(&format!("  kept by       {what}"));
    if let How::Path { path, .. } = &of.how {
        text.push(format!(
            "  path          {}",
            folded(path, COLUMNS - CONTENT)
        ));
    }
    text
}

/// What to try first.
fn next(advice: &[String]) -> Vec<String> {
    let first = advice
        .first()
        .map(|next| format!("  next          {}", clean(next)));
    first.map_or(vec![], |line| wrapped(&line))
}

/// Which they are, and how fast they grow.
fn processes(finding: &Finding, found: &Diagnosis) -> String {
    let verdict = finding.verdict;
    let rate = finding.rate().filter(|_| verdict.class != Class::None);
    let in_all = rate.map_or(String::new(), |rate| {
        format!(", {} in all", per_second(rate))
    });
    let place = place(verdict).map_or(String::new(), |device| format!(", {}", device_name(device)));
    let which = match &finding.processes[..] {
        [_] => {
            let row = row(found, verdict.process);
            let of = row.map(|row| program(&row.comm, &row.cmdline));
            let of = of.filter(|of| !of.is_empty());
            let of = of.map_or(String::new(), |of| format!(" of `{of}`"));
            format!("process       {}{of}", verdict.tgid)
        }
        several => {
            let mut tgids: Vec<u32> = several.iter().map(|of| of.tgid).collect();
            tgids.sort_unstable();
            let tgids: Vec<String> = tgids.iter().map(u32::to_string).collect();
            let rows = several.iter().filter_map(|of| row(found, of.process));
            let mut programs: Vec<String> =
                rows.map(|row| program(&row.comm, &row.cmdline)).collect();
            programs.dedup();
            let of = match &programs[..] {
                [program] => format!(" of `{program}`"),
                _ => String::new(),
            };
            format!("processes     {}{of}", few(&tgids))
        }
    };
    format!("  {which}{place}{in_all}")
}

fn per_second(bytes: f64) -> String {
    format!("{}/s", size(bytes.max(0.0) as u64))
}

/// Characters of a path of which the end is kept.
const PATH: usize = 48;

/// Its name, with the line of source or the module.
fn where_it_is(frame: &Frame) -> String {
    let place = names::source_line(frame).or_else(|| frame.module_name().map(clean));
    let place = place.unwrap_or_default();
    let left_out = place.chars().count().saturating_sub(PATH);
    let place = match left_out {
        0 => place,
        _ => {
            let end: String = place.chars().skip(left_out).collect();
            // From a folder on, if there is one.
            format!("…{}", end.find('/').map_or(&*end, |folder| &end[folder..]))
        }
    };
    format!("{}  {place}", names::plain(frame))
        .trim_end()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        analysis::{
            account::{Account, Kind, Term},
            verdict::{Amount, Evidence, Grade, ProcessAccount, Scope, Statement},
        },
        event::{Layer, StackId},
        frames::fixture::{native, python},
        ledger::{ProcessId, SiteKey},
        recording::{
            Origin, ProcessRow, Untraced,
            fixture::{history, tree},
        },
    };
    use memtrace_common::unwind::End;

    const SITE: SiteKey = SiteKey {
        process: ProcessId(1),
        layer: Layer::Heap,
        stack: StackId(1),
        by_allocator: false,
        device: None,
    };

    fn verdict(class: Class, scope: Scope, rate: f64) -> Verdict {
        Verdict {
            process: ProcessId(1),
            tgid: 7,
            scope,
            class,
            grade: Grade::B,
            evidence: vec![],
            runner_up: None,
            next: vec!["see what is kept".into()],
            rate: Some(rate),
            blocks: Some(25.0),
            kept_by: None,
        }
    }

    fn leak() -> Diagnosis {
        let kept_by = KeptBy {
            how: How::Container("list"),
            line: Some(python("Service.log", "/srv/server.py", 38)),
        };
        let mut found = Diagnosis {
            verdicts: vec![
                verdict(Class::Leak, Scope::Process, 1_300_000.0),
                Verdict {
                    kept_by: Some(kept_by),
                    ..verdict(Class::Leak, Scope::Site(SITE), 140_000.0)
                },
            ],
            accounts: vec![ProcessAccount {
                process: ProcessId(1),
                tgid: 7,
                from: 10.0,
                to: 20.0,
                accounts: vec![Account {
                    kind: Kind::Anonymous,
                    growth: 13e6,
                    rows: vec![(Term::HeldOpen(SITE), 11e6)],
                }],
            }],
            ..Diagnosis::default()
        };
        let frames = [
            native("c10::alloc_cpu(unsigned long)", "/lib/libc10.so"),
            python("Classifier.forward", "/srv/server.py", 11),
        ];
        found.stacks.put(SITE.stack, End::Complete, None, frames);
        found
    }

    fn text(found: &Diagnosis) -> String {
        let mut out = Vec::new();
        section(&mut out, found, &Filter::default()).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_leak_has_its_lines_and_what_they_cost() {
        assert_eq!(
            text(&leak()),
            "leak (grade B): Service.log keeps 25 blocks/s (136.7 KiB/s); the holes around them cost 1.0 MiB/s\n\
             \x20 process       7, 1.2 MiB/s in all\n\
             \x20 allocated by  Classifier.forward  /srv/server.py:11\n\
             \x20 kept by       probably a list, filled by Service.log  /srv/server.py:38\n\
             \x20 next          see what is kept\n"
        );
    }

    /// The leak, kept so.
    fn kept_so(how: How, line: Option<Frame>) -> Diagnosis {
        let mut found = leak();
        found.verdicts[1].kept_by = Some(KeptBy { how, line });
        found
    }

    #[test]
    fn a_path_that_was_seen_is_said_in_short() {
        let path = history(None);
        let how = How::Path { path, share: 1.0 };
        let line = python("Service.log", "/srv/server.py", 38);
        let text_of = |line| text(&kept_so(how.clone(), line));
        assert_eq!(
            text_of(Some(line)),
            "leak (grade B): Service.log keeps 25 blocks/s (136.7 KiB/s); the holes around them cost 1.0 MiB/s\n\
             \x20 process       7, 1.2 MiB/s in all\n\
             \x20 allocated by  Classifier.forward  /srv/server.py:11\n\
             \x20 kept by       __main__.service.history (list, 1,648 items, +27/s), filled by Service.log\n\
             \x20               /srv/server.py:38\n\
             \x20 path          module __main__ . service . history [i] → Tensor → … → c10::StorageImpl → block\n\
             \x20 next          see what is kept\n"
        );
        let nameless = text_of(None);
        for part in [
            "leak (grade B): __main__.service.history keeps 25 blocks/s",
            "\n  kept by       __main__.service.history (list, 1,648 items, +27/s)\n",
        ] {
            assert!(nameless.contains(part), "{nameless}");
        }
    }

    #[test]
    fn of_two_sites_of_a_line_the_path_that_was_seen_is_said() {
        let mut found = leak();
        let other = SiteKey {
            stack: StackId(2),
            ..SITE
        };
        let frames = [python("Classifier.forward", "/srv/server.py", 11)];
        found.stacks.put(other.stack, End::Complete, None, frames);
        let path = tree();
        found.verdicts.push(Verdict {
            kept_by: Some(KeptBy {
                how: How::Path { path, share: 1.0 },
                line: None,
            }),
            ..verdict(Class::Leak, Scope::Site(other), 60_000.0)
        });
        let text = text(&found);
        assert!(
            text.contains("kept by       libfoo.so: g_cache + 0x10\n"),
            "{text}"
        );
    }

    #[test]
    fn what_no_container_keeps_is_said() {
        let share = 1.0;
        let cycle = text(&kept_so(How::Cycle { share }, None));
        for part in [
            "Classifier.forward allocates 25 blocks/s (136.7 KiB/s) that only cycles keep",
            "\n  kept by       only a cycle: gc.collect() would free it\n",
        ] {
            assert!(cycle.contains(part), "{cycle}");
        }
        let lost = text(&kept_so(How::Nothing { share }, None));
        for part in [
            "Classifier.forward allocates 25 blocks/s (136.7 KiB/s) that nothing points to",
            "\n  kept by       nothing that points to it: lost\n",
        ] {
            assert!(lost.contains(part), "{lost}");
        }
    }

    #[test]
    fn sites_of_one_line_are_one_finding() {
        let mut found = leak();
        let other = SiteKey {
            stack: StackId(2),
            ..SITE
        };
        let frames = [
            native("c10::make_tensor(long)", "/lib/libc10.so"),
            python("Classifier.forward", "/srv/server.py", 11),
        ];
        found.stacks.put(other.stack, End::Complete, None, frames);
        let verdict = verdict(Class::Leak, Scope::Site(other), 60_000.0);
        found.verdicts.push(verdict);
        let text = text(&found);
        assert!(text.contains("25 blocks/s (195.3 KiB/s)"), "{text}");
        assert!(!text.contains("other line"), "{text}");
    }

    /// The leak, once more in a second process that the first has not started, and their parent, which
    /// does not grow.
    fn job() -> Diagnosis {
        let mut found = leak();
        let other = |verdict: &Verdict| Verdict {
            process: ProcessId(2),
            tgid: 8,
            rate: Some(300_000.0),
            scope: match verdict.scope {
                Scope::Process => Scope::Process,
                Scope::Site(key) => Scope::Site(SiteKey {
                    process: ProcessId(2),
                    ..key
                }),
            },
            ..verdict.clone()
        };
        let others: Vec<_> = found.verdicts.iter().map(other).collect();
        found.verdicts.extend(others);
        let mut none = verdict(Class::None, Scope::Process, 900_000.0);
        (none.process, none.tgid, none.next) = (ProcessId(0), 6, vec![]);
        found.verdicts.insert(0, none);
        let row = |id: u32, ppid| ProcessRow {
            id: ProcessId(id),
            tgid: 6 + id,
            ppid,
            origin: Origin::Attached,
            comm: "python".into(),
            cmdline: vec!["/usr/bin/python".into(), "train.py".into()],
            started_ns: 0,
            ended_ns: None,
            exit_status: None,
            rss_at_start: None,
            folded: None,
        };
        found.processes = vec![row(0, 1), row(1, 6), row(2, 6)];
        found
    }

    #[test]
    fn processes_that_do_the_same_are_one_finding_above_a_parent_that_does_nothing() {
        let mut found = job();
        assert_eq!(
            text(&found),
            "leak (grade B): Service.log keeps 50 blocks/s (429.7 KiB/s); the holes around them cost 1.0 MiB/s\n\
             \x20 processes     7 and 8 of `python train.py`, 1.5 MiB/s in all\n\
             \x20 allocated by  Classifier.forward  /srv/server.py:11\n\
             \x20 kept by       probably a list, filled by Service.log  /srv/server.py:38\n\
             \x20 next          see what is kept\n\
             none (grade B): no growth that matters\n\
             \x20 process       6 of `python train.py`\n\
             \x20 but           see 7 and 8, which it started\n"
        );
        // Another class, or another line, is another finding.
        found.verdicts[3].class = Class::Undetermined;
        assert!(text(&found).contains("process       8 of `python train.py`, "));
    }

    #[test]
    fn what_is_not_traced_is_said() {
        let mut found = leak();
        found.untraced = vec![Untraced {
            tgid: 9,
            comm: "sh".into(),
            cmdline: vec![],
            why: "--no-follow".into(),
        }];
        let text = text(&found);
        assert!(text.ends_with("not traced: 9 of `sh` (--no-follow)\n"));
    }

    #[test]
    fn what_no_site_is_behind_says_what_happens() {
        let found = Diagnosis {
            verdicts: vec![verdict(Class::Retention, Scope::Process, 2_097_152.0)],
            ..Diagnosis::default()
        };
        assert_eq!(
            text(&found),
            "retention (grade B): freed memory that the allocator has not given back\n\
             \x20 process       7, 2.0 MiB/s in all\n\
             \x20 next          see what is kept\n"
        );
    }

    #[test]
    fn what_failed_comes_first_and_what_is_only_kept_late() {
        static ASKED: Statement = Statement {
            name: "example",
            sentence: "{line} asked in vain",
        };
        let mut failed = verdict(Class::GpuOutOfMemory, Scope::Process, 0.0);
        failed.rate = None;
        failed.evidence = vec![Evidence {
            kind: &ASKED,
            values: vec![("line", Amount::Text("step".into()))],
            limits: vec![],
            of_runner_up: false,
        }];
        let mut kept = verdict(Class::GpuUnused, Scope::Process, 0.0);
        kept.rate = None;
        let found = Diagnosis {
            verdicts: vec![kept, verdict(Class::PageCache, Scope::Process, 1e6), failed],
            ..Diagnosis::default()
        };
        let text = text(&found);
        let first = "gpu-out-of-memory (grade B): an allocation of GPU memory failed\n\
             \x20 process       7\n\
             \x20 evidence      step asked in vain\n";
        assert!(text.starts_with(first), "{text}");
        let place = |class: &str| text.find(class).unwrap();
        assert!(place("page-cache") < place("gpu-unused"), "{text}");
    }

    #[test]
    fn it_fits_on_a_screen_whatever_is_found() {
        let mut found = leak();
        for _ in 0..50 {
            let class = Class::Undetermined;
            let mut more = verdict(class, Scope::Process, 1.0);
            more.next = vec!["long ".repeat(100)];
            found.verdicts.push(more);
        }
        let text = text(&found);
        assert!(text.lines().count() <= LINES, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS));
        assert!(text.contains("more, see below"), "{text}");
        assert!(text.starts_with("leak (grade B): Service.log"));
    }
}
