//! Objects of running interpreters: every way to be held is found, and written as Python finds it.

use super::{walk::Walk, *};
use std::collections::HashSet;

const KINDS: &str = include_str!("kinds.py");

/// What only a weak reference or a cycle leads to.
const UNHELD: [&str; 1] = ["cycle"];

/// Paths that no expression is for begin or go on like this.
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
                    "3.{version} {name}: {} is no expression",
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
        for &object in missing.iter().take(60) {
            eprintln!(
                "3.{version} missing {:?}",
                python.type_name(&memory, object)
            );
        }
        eprintln!(
            "3.{version}: {} of {} known to the collector are missing, {} reached",
            missing.len(),
            known.len(),
            walk.reached.len()
        );
        // Garbage, and what only weak references lead to, as from a class to its subclasses.
        assert!(missing.len() < known.len() / 8, "3.{version}");
        let mut tracked = HashSet::new();
        python.tracked(&memory, &mut |object| {
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
