//! Findings on several processes.

use super::*;

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
fn equal_workers_are_one_finding_above_their_idle_parent() {
    let mut found = job();
    assert_eq!(
        text(&found),
        "leak (grade B): Service.log probably keeps 50 blocks/s (429.7 KiB/s)\n\
         \x20 besides       the holes around them cost 1.0 MiB/s\n\
         \x20 processes     7 and 8 of `python train.py`, 1.5 MiB/s in total\n\
         \x20 allocated by  Classifier.forward  /srv/server.py:11\n\
         \x20 kept by       probably a list, filled by Service.log  /srv/server.py:38\n\
         \x20 next          see the kept blocks\n\
         none (grade B): no growth that matters\n\
         \x20 process       6 of `python train.py`\n\
         \x20 but           see 7 and 8, which it started\n"
    );
    // Another class, or another line, is another finding.
    found.verdicts[3].class = Class::Undetermined;
    assert!(text(&found).contains("process       8 of `python train.py`, "));
}

#[test]
fn untraced_processes_are_shown() {
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
fn growth_of_workers_that_follow_one_another_is_not_added_up() {
    let mut found = job();
    (found.processes[1].ended_ns, found.processes[2].started_ns) = (Some(20), 20);
    let mut account = found.accounts[0].clone();
    account.process = ProcessId(2);
    account.accounts.clear();
    found.accounts.push(account);
    let shown = text(&found);
    // The faster of the two.
    assert!(
        shown.contains("processes     7 and 8 of `python train.py`, 1.2 MiB/s in total\n"),
        "{shown}"
    );
    assert!(!shown.contains("but           of such"), "{shown}");
    for account in &mut found.accounts {
        account.replaced = Some(5);
    }
    let shown = text(&found);
    assert!(
        shown.contains(
            "\n  but           of such processes, 5 ended while others took their place\n"
        ),
        "{shown}"
    );
}

#[test]
fn a_process_that_ended_joins_others_that_leak_at_the_same_code() {
    let mut found = job();
    // It was too fast for a search.
    found.verdicts[3].rate = Some(2_000_000.0);
    let site = &mut found.verdicts[4];
    (site.keeper, site.absent) = (None, Some(Absent::Ended));
    let shown = text(&found);
    assert_eq!(shown.matches("leak (grade").count(), 1, "{shown}");
    assert!(
        shown.contains("probably a list, filled by Service.log"),
        "{shown}"
    );
}

#[test]
fn growth_beside_which_another_one_does_not_matter_stands_alone() {
    let mut found = job();
    found.verdicts[3].class = Class::ThreadLeak;
    assert!(text(&found).contains("\nthread-leak (grade B)"));
    found.verdicts[3].rate = Some(5000.0);
    let shown = text(&found);
    assert!(!shown.contains("thread-leak"), "{shown}");
    assert!(shown.contains("\n1 finding more, see below\n"), "{shown}");
}
