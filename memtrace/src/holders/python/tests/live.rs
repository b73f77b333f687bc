//! Objects of running interpreters: every way to be held is found, and written as Python finds it.

use super::{walk::Walk, *};
use std::collections::HashSet;

/// Objects reached only by a weak reference or a cycle.
const UNHELD: [&str; 1] = ["cycle"];

/// Objects that only code in C has while the collector's list is written: its arguments, results and caches.
const TEMPORARIES: usize = 16;

/// Why no root leads to an object of that type, although the collector knows it.
fn why_unreached(version: u32, of_type: &str) -> Option<&'static str> {
    match of_type {
        "" => Some("it has been freed since"),
        "__main__.Target" => Some("it is in a cycle"),
        "dict"
        | "builtin_function_or_method"
        | "getset_descriptor"
        | "member_descriptor"
        | "method_descriptor"
        | "wrapper_descriptor"
            if version < 12 =>
        {
            Some("it is of a static type to which only instances lead")
        }
        "hamt" | "hamt_bitmap_node" if version < 12 => Some("it is the empty context"),
        _ if version == 9 && of_type.starts_with("ast.") => {
            Some("it is in a variable of the interpreter")
        }
        _ => None,
    }
}

/// Paths without an expression begin or continue like this.
fn has_no_expression(name: &str, path: &str) -> bool {
    name.is_empty() || path.contains(" (") || path.contains(": ") || path.contains('<')
}

#[test]
fn every_kind_of_holder_is_found() {
    let mut wrong = Vec::new();
    for interpreter in interpreters() {
        let mut script = Script::start(&interpreter, KINDS);
        let marks = script.lines();
        let known = script.lines();
        let memory = script.memory();
        let python = script.python(&memory);
        let walk = Walk::new(&python, &memory);
        let version = python.minor();
        let registered = python.at_exit_length(&memory);
        let has_table = (10..=13).contains(&version);
        assert_eq!(
            registered.is_some_and(|it| it > 0),
            has_table,
            "3.{version}"
        );
        for mark in &marks {
            let (name, address) = mark.split_once('=').unwrap();
            let address: u64 = address.parse().unwrap();
            assert!(python.is_object(&memory, address), "3.{version}: {name}");
            let is_reached = walk.reached.contains_key(&address);
            if UNHELD.contains(&name) {
                if is_reached {
                    let path = walk.path(&python, &memory, address, false).text;
                    wrong.push(format!("3.{version} {name}: {path}"));
                }
                continue;
            }
            // 3.9 keeps it in memory of a module, which has no description of it.
            if !is_reached && name == "atexit" && version == 9 {
                continue;
            }
            if !is_reached {
                wrong.push(format!("3.{version} {name}: not found"));
                continue;
            }
            let path = walk.path(&python, &memory, address, false);
            eprintln!(
                "3.{version} {name}: {} ({})",
                path.text, walk.reached[&address].cost
            );
            if path.is_expression {
                let got = script.ask(&path.text);
                if got != address.to_string() {
                    wrong.push(format!("3.{version} {name}: {} is {got}", path.text));
                }
            } else if !has_no_expression(name, &path.text) {
                wrong.push(format!(
                    "3.{version} {name}: {} is not an expression",
                    path.text
                ));
            }
            let redacted = walk.path(&python, &memory, address, true).text;
            for secret in ["held", "in_list", "in_dict", "it's", "by_object"] {
                if redacted.contains(secret) {
                    wrong.push(format!("3.{version} {name}: {redacted}"));
                }
            }
        }
        let missing: Vec<u64> = known
            .iter()
            .map(|id| id.parse().unwrap())
            .filter(|id| !walk.reached.contains_key(id))
            .collect();
        let mut unexplained = Vec::new();
        for &object in &missing {
            let of_type = python.type_name(&memory, object).unwrap_or_default();
            if why_unreached(version, &of_type).is_none() {
                unexplained.push(of_type);
            }
        }
        eprintln!(
            "3.{version}: {} of {} known to the collector are missing, without a reason {unexplained:?}; {} reached",
            missing.len(),
            known.len(),
            walk.reached.len()
        );
        assert!(
            unexplained.len() <= TEMPORARIES,
            "3.{version}: {unexplained:?}"
        );
        assert!(missing.len() < known.len() / 30, "3.{version}");
        let mut tracked = HashSet::new();
        python.tracked(&memory, &mut |object, _| {
            tracked.insert(object);
        });
        let untracked = known
            .iter()
            .map(|id| id.parse().unwrap())
            .filter(|id| !tracked.contains(id) && python.is_object(&memory, *id))
            .count();
        assert_eq!(untracked, 0, "3.{version}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn limits_of_containers_are_read() {
    for interpreter in interpreters() {
        let mut script = Script::start(&interpreter, KINDS);
        script.lines();
        script.lines();
        let memory = script.memory();
        let python = script.python(&memory);
        let names = [
            "cached",
            "cached_unbounded",
            "queue",
            "bounded_queue",
            "view",
        ];
        let limits = names.map(|name| {
            let address = script.ask(&format!("__main__.{name}")).parse().unwrap();
            python.limit(&memory, address)
        });
        let version = python.minor();
        assert_eq!(limits, [Some(8), None, None, Some(5), None], "3.{version}");
    }
}

#[test]
fn memory_that_the_interpreter_keeps_for_later_is_known() {
    const TEXT: &str = "import sys\n\
        lists = [[n, 1] for n in range(60)]\n\
        dicts = [{str(n): 1} for n in range(60)]\n\
        print(2 * 60, *map(id, lists + dicts), sep='\\n', flush=True)\n\
        for line in sys.stdin: print(eval(line), flush=True)\n";
    /// Before an object, and where a dict has its table.
    const HEAD: u64 = 16;
    const TABLE: u64 = 32;
    for interpreter in interpreters() {
        let mut script = Script::start(&interpreter, TEXT);
        let made: Vec<u64> = script
            .lines()
            .iter()
            .map(|at| at.parse().unwrap())
            .collect();
        let memory = script.memory();
        let python = script.python(&memory);
        let (lists, dicts) = made.split_at(made.len() / 2);
        let tables: Vec<u64> = dicts
            .iter()
            .map(|at| memory.word(at + TABLE).unwrap())
            .collect();
        let count = || {
            let had_list = |&&at: &&u64| python.had_object(memory.now(), at - HEAD);
            let had_table = |&&at: &&u64| python.had_table(memory.now(), at);
            [
                lists.iter().filter(had_list).count(),
                tables.iter().filter(had_table).count(),
            ]
        };
        assert_eq!(count(), [0, 0], "{interpreter:?}");
        script.ask("lists.clear(), dicts.clear()");
        // The interpreter may use some again.
        assert!(
            count().iter().all(|&count| count > 40),
            "{interpreter:?}: {:?}",
            count()
        );
    }
}
