//! Findings of diagnoses made by hand.

mod jobs;
mod meanwhile;
mod older;

use super::*;
use crate::{
    analysis::{
        account::{Account, Kind, Term},
        verdict::{
            Absent, Amount, Evidence, Grade, Named as Sites, ProcessAccount, SHARED_MEANWHILE,
            Scope, Statement, UNEVEN_RISE,
        },
    },
    event::{Layer, StackId},
    frames::{
        fixture::{native, python},
        runtime_heaps,
    },
    ledger::{ProcessId, SiteKey},
    recording::{
        Collector, Origin, Path, ProcessRow, StepKind, Untraced, WayKind,
        fixture::{history, holders, step, tree},
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
        next: vec![Advice::CacheLess("see the kept blocks")],
        rate: Some(rate),
        blocks: Some(25.0),
        caller: None,
        keeper: None,
        absent: None,
        runtime: None,
    }
}

fn leak() -> Diagnosis {
    let keeper = Keeper {
        how: How::Container("list"),
        line: Some(python("Service.log", "/srv/server.py", 38)),
        package: None,
    };
    let mut found = Diagnosis {
        verdicts: vec![
            verdict(Class::Leak, Scope::Process, 1_300_000.0),
            Verdict {
                keeper: Some(keeper),
                ..verdict(Class::Leak, Scope::Site(SITE), 140_000.0)
            },
        ],
        accounts: vec![ProcessAccount {
            replaced: None,
            process: ProcessId(1),
            tgid: 7,
            from: 10.0,
            to: 20.0,
            accounts: vec![Account {
                kind: Kind::Anonymous,
                growth: 13e6,
                rows: vec![(Term::Holes(SITE), 11e6)],
            }],
            named: Sites::default(),
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
fn headlines_stand_out_on_a_terminal_only() {
    let found = leak();
    let filter = Filter {
        colour: true,
        ..Filter::default()
    };
    let mut out = Vec::new();
    section(&mut out, &found, &filter).unwrap();
    let coloured = String::from_utf8(out).unwrap();
    assert!(coloured.starts_with("\x1b[1mleak (grade"), "{coloured:?}");
    assert_eq!(coloured.matches("\x1b[1m").count(), 1);
    let plain = coloured.replace("\x1b[1m", "").replace("\x1b[0m", "");
    assert_eq!(plain, text(&found));
}

#[test]
fn a_leak_has_its_lines_and_their_cost() {
    assert_eq!(
        text(&leak()),
        "leak (grade B): Service.log probably keeps 25 blocks/s (136.7 KiB/s)\n\
         \x20 besides       the holes around them cost 1.0 MiB/s\n\
         \x20 process       7, 1.2 MiB/s in total\n\
         \x20 allocated by  Classifier.forward  /srv/server.py:11\n\
         \x20 kept by       probably a list, filled by Service.log  /srv/server.py:38\n\
         \x20 next          see the kept blocks\n"
    );
}

#[test]
fn code_without_a_name_is_named_by_its_line() {
    let mut found = leak();
    let keeper = found.verdicts[1].keeper.as_mut().unwrap();
    keeper.line = Some(python("<module>", "/srv/server.py", 38));
    let text = text(&found);
    assert!(
        text.starts_with("leak (grade B): <module> (server.py:38) probably keeps 25 blocks/s"),
        "{text}"
    );
}

#[test]
fn a_leak_whose_sites_are_suppressed_is_not_the_headline() {
    let mut found = leak();
    let site = found.verdicts.remove(1);
    found.suppressed.push(("forward".into(), site));
    let other = Verdict {
        process: ProcessId(2),
        tgid: 8,
        ..verdict(Class::Retention, Scope::Process, 1_000.0)
    };
    found.verdicts.push(other);
    let text = text(&found);
    assert!(text.starts_with("retention"), "{text}");
    assert!(
        text.contains("\nsuppressed: leak (grade B); `Suppressed` below lists the sites\n"),
        "{text}"
    );
}

/// The leak, kept so.
fn kept_so(how: How, line: Option<Frame>) -> Diagnosis {
    let mut found = leak();
    found.verdicts[1].keeper = Some(Keeper::new(how, line));
    found
}

#[test]
fn an_observed_path_is_shown_in_short() {
    let path = history(None);
    let how = How::Path { path, share: 1.0 };
    let line = python("Service.log", "/srv/server.py", 38);
    let text_of = |line| text(&kept_so(how.clone(), line));
    assert_eq!(
        text_of(Some(line)),
        "leak (grade B): Service.log keeps 25 blocks/s (136.7 KiB/s); the holes around them cost 1.0 MiB/s\n\
         \x20 process       7, 1.2 MiB/s in total\n\
         \x20 allocated by  Classifier.forward  /srv/server.py:11\n\
         \x20 kept by       __main__.service.history (list, 1,648 items, +27/s)\n\
         \x20 path          module __main__ . service . history [i] → Tensor → c10::TensorImpl → … → block\n\
         \x20 filled by     Service.log  /srv/server.py:38\n\
         \x20 next          see the kept blocks\n"
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
fn the_observed_path_is_shown_for_two_sites_of_a_line() {
    let mut found = leak();
    let other = SiteKey {
        stack: StackId(2),
        ..SITE
    };
    let frames = [python("Classifier.forward", "/srv/server.py", 11)];
    found.stacks.put(other.stack, End::Complete, None, frames);
    let path = tree();
    found.verdicts.push(Verdict {
        keeper: Some(Keeper {
            how: How::Path { path, share: 1.0 },
            line: None,
            package: None,
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
fn cycles_and_lost_blocks_are_shown() {
    let share = 1.0;
    let cycle = text(&kept_so(
        How::Cycle {
            collector: Collector::On,
            path: Path::of(vec![
                step(StepKind::Object, "", "app.Node"),
                step(StepKind::Object, ".children", "list"),
                step(StepKind::Object, "[i]", "app.Node"),
                step(StepKind::Object, ".parent", "app.Node"),
            ]),
            share,
        },
        None,
    ));
    for part in [
        "Classifier.forward allocates 25 blocks/s (136.7 KiB/s) that only cycles keep alive",
        "\n  kept by       only a cycle: gc.collect() would free it\n",
        "\n  cycle         app.Node . children[i] . parent → app.Node\n",
    ] {
        assert!(cycle.contains(part), "{cycle}");
    }
    let off = How::Cycle {
        collector: Collector::Off,
        path: Path::of(vec![]),
        share,
    };
    let off = text(&kept_so(off, None));
    assert!(
        off.contains("would free it, but the collector is off\n"),
        "{off}"
    );
    let leaked = How::Surplus {
        path: tree(),
        share,
    };
    let leaked = text(&kept_so(leaked, None));
    let mut in_arenas = leak();
    let python = SiteKey {
        layer: Layer::Python,
        ..SITE
    };
    in_arenas.verdicts[0].rate = Some(140_000.0);
    in_arenas.verdicts[1].scope = Scope::Site(python);
    let how = How::Surplus {
        path: tree(),
        share,
    };
    in_arenas.verdicts[1].keeper = Some(Keeper::new(how, None));
    let in_arenas = text(&in_arenas);
    for part in [
        "leak (grade B): leaked references to ",
        " keep 136.7 KiB/s\n",
        "allocated by  several lines; an arena was requested by Classifier.forward",
    ] {
        assert!(in_arenas.contains(part), "{in_arenas}");
    }
    for part in [
        "that a leaked reference",
        "\n  kept by       a leaked reference to ",
        "\n  path          ",
    ] {
        assert!(leaked.contains(part), "{leaked}");
    }
    let lost = text(&kept_so(How::Nothing { share }, None));
    for part in [
        "Classifier.forward allocates 25 blocks/s (136.7 KiB/s) that nothing points to",
        "\n  kept by       nothing: no pointer to these blocks was found\n",
    ] {
        assert!(lost.contains(part), "{lost}");
    }
}

#[test]
fn the_heap_of_a_runtime_is_named_after_it() {
    let mut found = leak();
    let site = &mut found.verdicts[1];
    (site.runtime, site.keeper) = (runtime_heaps::named("Go"), None);
    let text_of = |found: &mut Diagnosis, own: &str, module: &str| {
        let frames = [native(own, module)];
        found.stacks.put(SITE.stack, End::Complete, None, frames);
        text(found)
    };
    let of_go = text_of(&mut found, "runtime.sysMap", "/srv/server");
    assert!(
        of_go.starts_with("leak (grade B): Go's own memory grows by 136.7 KiB/s"),
        "{of_go}"
    );
    let own = text_of(&mut found, "main.fetch", "/srv/server");
    assert!(
        own.starts_with("leak (grade B): main.fetch allocates"),
        "{own}"
    );
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

#[test]
fn a_finding_without_sites_shows_its_meaning() {
    let found = Diagnosis {
        verdicts: vec![verdict(Class::Retention, Scope::Process, 2_097_152.0)],
        ..Diagnosis::default()
    };
    assert_eq!(
        text(&found),
        "retention (grade B): freed memory that the allocator has not given back\n\
         \x20 process       7, 2.0 MiB/s in total\n\
         \x20 next          see the kept blocks\n"
    );
}

/// A process of this class whose memory grows most at a line that is not to blame.
fn named(class: Class, largest: f64) -> String {
    let mut found = leak();
    found.verdicts = vec![verdict(class, Scope::Process, 2_097_152.0)];
    found.accounts[0].named = Sites {
        largest: Some((SITE, largest)),
        creates_threads: Some(SITE),
        starts_processes: Some(SITE),
        ..Sites::default()
    };
    text(&found)
}

#[test]
fn a_line_is_named_even_if_none_is_to_blame() {
    for class in [Class::Undetermined, Class::Shmem, Class::None] {
        let text = named(class, 1_048_576.0);
        let line = "\n  grows most    1.0 MiB/s by Classifier.forward  /srv/server.py:11\n";
        assert!(text.contains(line), "{text}");
        let text = named(class, 1024.0);
        assert!(!text.contains("grows most"), "next to nothing: {text}");
    }
    // What took the place of other memory does not make a process grow.
    let more = 4_194_304.0;
    assert!(named(Class::Undetermined, more).contains("grows most"));
    assert!(!named(Class::None, more).contains("grows most"));
    let mut found = leak();
    found.verdicts = vec![verdict(Class::Undetermined, Scope::Process, 2_097_152.0)];
    found.accounts[0].named.largest = Some((SITE, 1_048_576.0));
    let path = WayKind::Path(history(None));
    found
        .holders
        .insert(SITE, holders(SITE, 64, vec![(60, path)]));
    let kept =
        "server.py:11\n\x20 kept by       __main__.service.history (list, 1,648 items, +27/s)\n";
    let text = text(&found);
    assert!(text.contains(kept), "{text}");
    let threads = named(Class::ThreadChurn, 1024.0);
    let line = "\n  created by    Classifier.forward  /srv/server.py:11\n";
    assert!(threads.contains(line), "{threads}");
    let children = named(Class::ProcessLeak, 1024.0);
    let line = "\n  started by    probably Classifier.forward  /srv/server.py:11\n";
    assert!(children.contains(line), "{children}");
    assert!(!named(Class::FdLeak, 1024.0).contains("server.py"));
}

#[test]
fn page_locked_memory_has_its_line_although_the_site_is_undetermined() {
    let mut found = leak();
    let site = SiteKey {
        layer: Layer::Pinned,
        ..SITE
    };
    found.verdicts = vec![
        verdict(Class::Pinned, Scope::Process, 2_097_152.0),
        verdict(Class::Undetermined, Scope::Site(site), 1_900_000.0),
    ];
    let text = text(&found);
    assert!(
        text.contains("\n  allocated by  Classifier.forward"),
        "{text}"
    );
}

#[test]
fn a_line_with_little_of_the_growth_is_not_the_headline() {
    let mut found = leak();
    found.accounts[0].accounts.clear();
    found.verdicts[1].rate = Some(1100.0);
    let text = text(&found);
    assert!(
        text.starts_with("leak (grade B): memory that is never freed\n"),
        "{text}"
    );
}

#[test]
fn failures_come_first_and_unused_memory_late() {
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
    let keeper = found.verdicts[1].keeper.as_mut().unwrap();
    keeper.how = How::Container("std::unordered_map or set");
    let mut line = native("Thumbnails::get", "/srv/app");
    line.file = Some("/srv/application/source/thumbnails.cc".into());
    line.line = Some(38);
    keeper.line = Some(line.clone());
    let filled = "probably a std::unordered_map or set, filled by Thumbnails::get";
    let one_line = format!("\n  kept by       {filled}  …/thumbnails.cc:38\n");
    assert!(text(&found).contains(&one_line), "{}", text(&found));

    let keeper = found.verdicts[1].keeper.as_mut().unwrap();
    line.file = Some("/srv/thumbnails_of_documents.cc".into());
    keeper.line = Some(line);
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
fn any_findings_fit_on_a_screen() {
    let mut found = leak();
    for _ in 0..50 {
        let class = Class::Undetermined;
        let mut more = verdict(class, Scope::Process, 1.0);
        more.next = vec![Advice::CacheLess("long ".repeat(100).leak())];
        found.verdicts.push(more);
    }
    let text = text(&found);
    assert!(text.lines().count() <= LINES, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= COLUMNS));
    assert!(text.contains("more, see below"), "{text}");
    assert!(text.starts_with("leak (grade B): Service.log"));
}

#[test]
fn lines_whose_blocks_one_container_keeps_are_one_finding() {
    let mut found = leak();
    let path = history(None);
    let other = SiteKey {
        stack: StackId(2),
        ..SITE
    };
    let own = SiteKey {
        stack: StackId(3),
        ..SITE
    };
    found.accounts.clear();
    found.verdicts.truncate(1);
    for (site, rate) in [(SITE, 500_000.0), (other, 400_000.0), (own, 20_000.0)] {
        let keeper = Keeper {
            how: How::Path {
                path: path.clone(),
                share: 1.0,
            },
            line: Some(python("Service.log", "/srv/server.py", 38)),
            package: None,
        };
        found.verdicts.push(Verdict {
            keeper: Some(keeper),
            ..verdict(Class::Leak, Scope::Site(site), rate)
        });
        let held = vec![(64, WayKind::Path(path.clone()))];
        // Too small to be searched for.
        if site != own {
            found.holders.insert(site, holders(site, 64, held));
        }
        let line = python("Service.handle", "/srv/server.py", site.stack.0 * 10);
        found.stacks.put(site.stack, End::Complete, None, [line]);
    }
    let shown = text(&found);
    assert!(
        shown.starts_with("leak (grade B): Service.log keeps 25 blocks/s (898.4 KiB/s)\n"),
        "{shown}"
    );
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(
        lines[2..5],
        [
            "  allocated by  Service.handle  /srv/server.py:10",
            "  and           390.6 KiB/s by Service.handle  /srv/server.py:20",
            "  and           19.5 KiB/s by Service.handle  /srv/server.py:30",
        ]
    );
    assert_eq!(shown.matches("Service.handle").count(), 3, "{shown}");
    // Another container.
    if let Some(WayKind::Path(path)) = found.holders.get_mut(&other).map(|of| &mut of.ways[0].held)
    {
        path.container_number = Some(8);
    }
    if let Some(Keeper {
        how: How::Path { path, .. },
        ..
    }) = &mut found.verdicts[2].keeper
    {
        path.steps[2].length = Some(9);
    }
    let shown = text(&found);
    assert!(
        shown.contains("keeps 25 blocks/s (507.8 KiB/s)\n"),
        "{shown}"
    );
}
