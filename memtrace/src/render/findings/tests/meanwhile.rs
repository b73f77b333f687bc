//! Growth beside that of a process.

use super::*;

#[test]
fn growth_of_the_machine_is_not_of_a_process() {
    let mut found = leak();
    let of_machine = || verdict(Class::MachineShmem, Scope::Process, 2_097_152.0);
    found.verdicts = vec![of_machine(), of_machine()];
    let text = text(&found);
    assert!(
        text.contains("\n  machine       2.0 MiB/s in total, not by process"),
        "{text}"
    );
    assert!(!text.contains("server.py"), "{text}");
}

#[test]
fn shared_memory_that_grows_meanwhile_is_mentioned_unless_a_process_has_it() {
    static GROWS: Statement = Statement {
        name: SHARED_MEANWHILE,
        sentence: "files in /dev/shm",
    };
    let rate = 1_048_576.0;
    let mut none = verdict(Class::None, Scope::Process, 0.0);
    none.evidence = vec![Evidence {
        kind: &GROWS,
        values: vec![
            ("growth", Amount::Change(30.0 * rate)),
            ("length", Amount::Seconds(30.0)),
        ],
        limits: vec![],
        of_runner_up: false,
    }];
    let mut found = leak();
    found.verdicts = vec![none];
    let mention = "\n  but           files in /dev/shm\n";
    assert!(text(&found).contains(mention), "{}", text(&found));
    let mut shmem = verdict(Class::Shmem, Scope::Process, 0.1 * rate);
    shmem.process = ProcessId(2);
    found.verdicts.push(shmem);
    assert!(text(&found).contains(mention), "{}", text(&found));
    found.verdicts[1].rate = Some(0.9 * rate);
    assert!(!text(&found).contains(mention), "{}", text(&found));
}

#[test]
fn a_line_that_maps_as_much_as_shared_memory_grows_is_named() {
    let of = |class| {
        let mut found = leak();
        found.verdicts = vec![verdict(class, Scope::Process, 2_097_152.0)];
        found.accounts[0].named.maps_shared = Some((SITE, 1_048_576.0));
        text(&found)
    };
    let line = "\n  maps as much  1.0 MiB/s by Classifier.forward  /srv/server.py:11\n";
    let machine = of(Class::MachineShmem);
    assert!(machine.contains(line), "{machine}");
    let perhaps = "\n  machine       2.0 MiB/s in total, perhaps by process";
    assert!(machine.contains(perhaps), "{machine}");
    assert!(of(Class::None).contains(line));
    assert!(!of(Class::FdLeak).contains(line));
}

#[test]
fn an_uneven_rise_is_mentioned() {
    static RISES: Statement = Statement {
        name: UNEVEN_RISE,
        sentence: "it rises",
    };
    let mut none = verdict(Class::None, Scope::Process, 1000.0);
    none.evidence = vec![Evidence {
        kind: &RISES,
        values: vec![],
        limits: vec![],
        of_runner_up: false,
    }];
    let mut found = leak();
    found.verdicts = vec![none];
    let text = text(&found);
    assert!(text.contains("\n  but           it rises\n"), "{text}");
}
