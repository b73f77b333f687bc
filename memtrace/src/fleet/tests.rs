//! Fleets with a known cause among many facts.

use fastrand::Rng;

use super::{
    host::Host,
    separate::{Separation, separate},
    split::Is,
};

const HOSTS: usize = 40;
const FACTS: usize = 60;

/// How often each kind of fleet is drawn; `MEMTRACE_FLEETS` sets more.
const FLEETS: u64 = 10;

fn fleets() -> u64 {
    let given = std::env::var("MEMTRACE_FLEETS").ok();
    given.map_or(FLEETS, |given| given.parse().expect("a number"))
}

/// Hosts with random facts: of two values, of some, and numbers.
fn hosts(rng: &mut Rng) -> Vec<Host> {
    let kinds: Vec<u32> = (0..FACTS).map(|fact| [2, 2, 3, 5, 8][fact % 5]).collect();
    (0..HOSTS)
        .map(|number| {
            let facts = kinds.iter().enumerate().map(|(fact, values)| {
                let value = rng.u32(..*values).to_string();
                (format!("vm.fact_{fact}"), [value].into())
            });
            Host {
                name: format!("host-{number}"),
                grows: false,
                facts: facts.collect(),
            }
        })
        .collect()
}

fn has(host: &Host, fact: usize, value: &str) -> bool {
    host.facts[&format!("vm.fact_{fact}")].contains(value)
}

/// A fleet in which the hosts grow that `grows` says.
fn fleet(seed: u64, grows: impl Fn(&Host) -> bool) -> Separation {
    let mut rng = Rng::with_seed(seed);
    let mut hosts = hosts(&mut rng);
    for host in &mut hosts {
        host.grows = grows(host);
    }
    separate(&hosts)
}

#[test]
fn the_cause_comes_first() {
    let right = (0..fleets()).filter(|seed| {
        let found = fleet(*seed, |host| has(host, 0, "1"));
        let cause = found.causes.first();
        cause.is_some_and(|cause| {
            cause.conditions[0].field == "vm.fact_0"
                && cause.conditions[0].is == Is::Value("1".into())
                && cause.with.grow == cause.with.of
                && cause.without.grow == 0
        })
    });
    let right = right.count() as u64;
    println!("one cause: {right} of {}", fleets());
    assert!(right * 100 >= 95 * fleets());
}

#[test]
fn of_two_causes_that_are_needed_together_one_is_within_the_other() {
    let right = (0..fleets()).filter(|seed| {
        let found = fleet(1_000 + seed, |host| has(host, 0, "1") && has(host, 1, "0"));
        let Some(cause) = found.causes.first() else {
            return false;
        };
        // Together, or the second within the first.
        let second = cause.and.first().or_else(|| {
            let second = found.causes.get(1)?;
            second.conditions.first()
        });
        let mut fields: Vec<&str> = [cause.conditions.first(), second]
            .into_iter()
            .flatten()
            .map(|of| &*of.field)
            .collect();
        fields.sort_unstable();
        fields == ["vm.fact_0", "vm.fact_1"]
    });
    let right = right.count() as u64;
    println!("two together: {right} of {}", fleets());
    assert!(right * 100 >= 80 * fleets());
}

#[test]
fn either_of_two_causes_comes_first() {
    let right = (0..fleets()).filter(|seed| {
        let found = fleet(2_000 + seed, |host| has(host, 2, "1") || has(host, 3, "4"));
        let first = found.causes.first();
        first.is_some_and(|cause| ["vm.fact_2", "vm.fact_3"].contains(&&*cause.conditions[0].field))
    });
    let right = right.count() as u64;
    println!("either of two: {right} of {}", fleets());
    assert!(right * 100 >= 80 * fleets());
}

#[test]
fn without_a_cause_chance_is_seldom_called_one() {
    let wrong = (0..fleets()).filter(|seed| {
        let mut growth = Rng::with_seed(!seed);
        let growing: Vec<bool> = (0..HOSTS).map(|_| growth.u32(..4) == 0).collect();
        let is_growing = |host: &Host| {
            let number = host.name.trim_start_matches("host-");
            growing[number.parse::<usize>().unwrap()]
        };
        let found = fleet(3_000 + seed, is_growing);
        assert_eq!(found.causes.is_empty(), found.nearest.is_some());
        !found.causes.is_empty()
    });
    let wrong = wrong.count() as u64;
    println!("no cause: {wrong} of {} called one", fleets());
    assert!(wrong * 100 <= 10 * fleets());
}

fn host(name: &str, grows: bool, facts: &[(&str, &str)]) -> Host {
    let facts = facts
        .iter()
        .map(|(field, value)| ((*field).to_owned(), [(*value).to_owned()].into()));
    Host {
        name: name.into(),
        grows,
        facts: facts.collect(),
    }
}

/// Hosts of which the first half grows.
fn halves(first: &[(&str, &str)], second: &[(&str, &str)]) -> Vec<Host> {
    let host = |number: usize| {
        let grows = number < 8;
        host(
            &format!("host-{number}"),
            grows,
            if grows { first } else { second },
        )
    };
    (0..16).map(host).collect()
}

#[test]
fn facts_that_go_together_are_named_together_with_hosts_that_tell_them_apart() {
    let found = separate(&halves(
        &[("env.MALLOC_ARENA_MAX", "8"), ("kernel.release", "6.8")],
        &[("env.MALLOC_ARENA_MAX", "2"), ("kernel.release", "5.15")],
    ));
    let [cause] = &*found.causes else {
        panic!("{found:?}")
    };
    let fields: Vec<&str> = cause.conditions.iter().map(|of| &*of.field).collect();
    assert_eq!(fields, ["env.MALLOC_ARENA_MAX", "kernel.release"]);
    assert!(cause.chance < 0.01, "{cause:?}");
    let decisive = cause.decisive.as_ref().unwrap();
    assert_eq!(
        decisive.0.each_ref().map(|of| &*of.field),
        ["env.MALLOC_ARENA_MAX", "kernel.release"]
    );
}

#[test]
fn a_library_that_is_not_there_and_a_variable_that_is_not_set_are_facts() {
    let names = ("environment.names", "all");
    let found = separate(&halves(&[names, ("lib.libx.so.build_id", "ab")], &[names]));
    assert_eq!(found.causes[0].conditions[0].is, Is::Value("ab".into()));
    let found = separate(&halves(&[names], &[names, ("env.OMP_NUM_THREADS", "4")]));
    assert_eq!(found.causes[0].conditions[0].is, Is::Absent);
    // Without the names, the variable may be set.
    let found = separate(&halves(&[], &[("env.OMP_NUM_THREADS", "4")]));
    assert_eq!((found.causes.len(), found.facts), (0, 0));
}

#[test]
fn versions_are_parted_by_their_order() {
    let versions = ["5.4", "5.10", "5.15", "6.1", "6.8", "6.12", "6.14", "6.17"];
    let hosts: Vec<Host> = (0..32)
        .map(|number| {
            let version = versions[number % 8];
            host(
                &format!("host-{number}"),
                number % 8 >= 4,
                &[("kernel.release", version)],
            )
        })
        .collect();
    let found = separate(&hosts);
    assert_eq!(found.causes[0].conditions[0].is, Is::AtLeast("6.8".into()));
}

#[test]
fn a_few_hosts_prove_nothing() {
    let few = |grows: bool, value: &str| host("a", grows, &[("thp.enabled", value)]);
    let found = separate(&[
        few(true, "always"),
        few(false, "never"),
        few(false, "never"),
    ]);
    assert!(found.causes.is_empty());
    let nearest = found.nearest.unwrap();
    assert!(nearest.chance > 0.2, "{nearest:?}");
    for hosts in [&[few(true, "always"), few(true, "never")][..], &[]] {
        let found = separate(hosts);
        assert!(
            found.causes.is_empty() && found.nearest.is_none(),
            "{found:?}"
        );
    }
}
