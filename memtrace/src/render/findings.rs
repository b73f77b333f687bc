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
    units::{grouped, plural, size},
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
        writeln!(out, "{}", cut(line, COLUMNS))?;
    }
    Ok(())
}

/// On two lines where one is too short, the second as far as it fits. A command stays whole if it can.
fn wrapped(line: &str) -> Vec<String> {
    let Some((end, _)) = line.char_indices().nth(COLUMNS) else {
        return vec![line.to_owned()];
    };
    let spaces = line[..end].rmatch_indices(' ').map(|(at, _)| at);
    let mut spaces = spaces.take_while(|space| *space > CONTENT);
    let is_whole = |space: &usize| {
        let (first, rest) = line.split_at(*space);
        first.matches('`').count().is_multiple_of(2)
            && rest.trim_start().chars().count() <= COLUMNS - CONTENT
    };
    match spaces.clone().find(is_whole).or_else(|| spaces.next()) {
        Some(space) => {
            let rest = format!("{:CONTENT$}{}", "", &line[space + 1..]);
            vec![line[..space].trim_end().to_owned(), rest]
        }
        None => vec![line.to_owned()],
    }
}

/// Its first characters, if there are more than `columns`.
fn cut(line: &str, columns: usize) -> String {
    match line.char_indices().nth(columns) {
        None => line.to_owned(),
        Some(_) => line
            .chars()
            .take(columns.saturating_sub(1))
            .chain(['…'])
            .collect(),
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
                text.extend(named("  allocated by  ", frame));
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
            // Without a rate the evidence has to say how much it is.
            let least = verdict.class != Class::None && finding.rate().is_none();
            let shown = verdict.class.on_screen().max(usize::from(least));
            let evidence = verdict.evidence.iter().take(shown);
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
        return wrapped(&sentence);
    }
    let holes = format!("the holes around them cost {}", per_second(line.holes));
    let whole = format!("{sentence}; {holes}");
    match whole.chars().count() <= COLUMNS {
        true => vec![whole],
        false => [wrapped(&sentence), vec![format!("  besides       {holes}")]].concat(),
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
        let blocks = line.blocks.round() as u64;
        let noun = if blocks == 1 { "block" } else { "blocks" };
        format!("{} {noun}/s ({})", grouped(blocks), per_second(line.bytes))
    } else {
        per_second(line.bytes)
    };
    let stays = match line.kept_by.map(|kept| &kept.how) {
        None if leaks => " that stay",
        Some(How::Cycle { .. }) => " that only cycles keep",
        Some(How::Nothing { .. }) => " that nothing points to",
        _ if verdict.class == Class::MappingLeak => " of address space",
        _ if verdict.class == Class::Cache => ", towards a limit",
        _ => "",
    };
    format!("{name} {does} {amount}{stays}")
}

/// What keeps the blocks, and the path to them.
fn kept(of: &KeptBy) -> Vec<String> {
    let filled = |before: &str| of.line.as_ref().map_or(vec![], |line| named(before, line));
    match &of.how {
        How::Container(container) => filled(&format!(
            "  kept by       probably a {container}, filled by "
        )),
        How::Path { path, .. } => {
            let mut text = wrapped(&format!("  kept by       {}", keeper(path)));
            text.push(format!(
                "  path          {}",
                folded(path, COLUMNS - CONTENT)
            ));
            text.extend(filled("  filled by     "));
            text
        }
        How::Cycle { .. } => wrapped("  kept by       only a cycle: gc.collect() would free it"),
        How::Nothing { .. } => wrapped("  kept by       nothing that points to it: lost"),
    }
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
    let rest = format!("{place}{in_all}");
    let room = COLUMNS.saturating_sub(rest.chars().count());
    let which = format!("  {which}");
    // Nothing but the program's name makes it so long.
    let which = match which.chars().count() > room {
        true => cut(&which, room.saturating_sub(1)) + "`",
        false => which,
    };
    which + &rest
}

fn per_second(bytes: f64) -> String {
    format!("{}/s", size(bytes.max(0.0) as u64))
}

/// Most characters of a path.
const PATH: usize = 48;

/// A frame's name with its line of source or module, behind `before`.
fn named(before: &str, frame: &Frame) -> Vec<String> {
    let place = names::source_line(frame).or_else(|| frame.module_name().map(clean));
    let place = place.unwrap_or_default();
    let named = format!("{before}{}  ", names::plain(frame));
    let room = COLUMNS.saturating_sub(named.chars().count());
    let line = named + &shortened(&place, room.min(PATH));
    wrapped(line.trim_end())
}

/// The end of a path, from a folder on, in so many characters; the file's name is never cut.
fn shortened(path: &str, room: usize) -> String {
    if path.chars().count() <= room {
        return path.to_owned();
    }
    let mut ends = path.match_indices('/').map(|(at, _)| &path[at..]);
    let fits = |end: &&str| end.chars().count() < room;
    let end = ends.clone().find(fits).or_else(|| ends.next_back());
    match end.filter(|end| end.len() < path.len()) {
        Some(end) => format!("…{end}"),
        None => path.to_owned(),
    }
}

#[cfg(test)]
mod snapshots;

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
    fn the_line_of_source_is_never_cut() {
        let mut found = leak();
        let kept_by = found.verdicts[1].kept_by.as_mut().unwrap();
        kept_by.container = "std::unordered_map or set";
        kept_by.line = native("Thumbnails::get", "/srv/app");
        kept_by.line.file = Some("/srv/application/source/thumbnails.cc".into());
        kept_by.line.line = Some(38);
        let filled = "probably a std::unordered_map or set, filled by Thumbnails::get";
        let one_line = format!("\n  kept by       {filled}  …/thumbnails.cc:38\n");
        assert!(text(&found).contains(&one_line), "{}", text(&found));

        let kept_by = found.verdicts[1].kept_by.as_mut().unwrap();
        kept_by.line.file = Some("/srv/thumbnails_of_documents.cc".into());
        let two_lines = format!("\n  kept by       {filled}\n{:16}…/thumbnails_of", "");
        assert!(text(&found).contains(&two_lines), "{}", text(&found));
    }

    #[test]
    fn a_command_is_not_broken() {
        let next = format!("{} and then: `ls -l /proc/7/fd`", "x".repeat(60));
        let lines = wrapped(&format!("  next          {next}"));
        assert_eq!(lines[1].trim_start(), "`ls -l /proc/7/fd`");
        // Nor is anything lost of one that is too long for that.
        let next = format!("`{}`", "word ".repeat(25));
        let lines = wrapped(&format!("  next          {next}"));
        assert!(lines.iter().all(|line| line.chars().count() <= COLUMNS));
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
