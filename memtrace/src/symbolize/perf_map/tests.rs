use std::io::{Seek, SeekFrom, Write};

use super::*;

fn functions(lines: &str) -> Functions {
    let mut functions = Functions::default();
    functions.add(lines.as_bytes().split(|byte| *byte == b'\n'));
    functions
}

fn found(functions: &Functions, abs_addr: u64) -> Option<String> {
    functions.find(abs_addr).map(|name| name.to_string())
}

#[test]
fn only_addresses_within_a_line_have_its_name() {
    let map = functions("1000 20 JS:~f x.js:1:2\n0x2000 0x10 trace 3\n");
    assert_eq!(found(&map, 0xfff), None);
    assert_eq!(found(&map, 0x1000).as_deref(), Some("JS:~f x.js:1:2"));
    assert_eq!(found(&map, 0x101f).as_deref(), Some("JS:~f x.js:1:2"));
    assert_eq!(found(&map, 0x1020), None);
    assert_eq!(found(&map, 0x200f).as_deref(), Some("trace 3"));
    assert_eq!(found(&map, u64::MAX), None);
}

#[test]
fn a_later_line_wins_where_it_overlaps() {
    let map = functions("1000 100 old\n1040 20 inner\n10f0 40 tail\n");
    for (address, name) in [
        (0x103f, "old"),
        (0x1040, "inner"),
        (0x105f, "inner"),
        (0x1060, "old"),
        (0x10ef, "old"),
        (0x10f0, "tail"),
        (0x112f, "tail"),
    ] {
        assert_eq!(found(&map, address).as_deref(), Some(name), "{address:#x}");
    }
    let map = functions("1000 10 a\n1010 10 b\n1020 10 c\n1008 20 new\n");
    let names = [0x1007, 0x1008, 0x1027, 0x1028].map(|at| found(&map, at).unwrap());
    assert_eq!(names, ["a", "new", "new", "c"]);
}

#[test]
fn malformed_lines_are_left_out() {
    let map = functions(
        "\nx 10 a\n1000\n1000 10\n1000 0 empty\n1000 +10 sign\n1000 10  \nffffffffffffffff 2 over\n\
         fffffffffffffffff 1 long\n\u{fffd}\n3000 10 good\n",
    );
    assert_eq!(map.by_start.len(), 1);
    assert_eq!(found(&map, 0x3000).as_deref(), Some("good"));
}

/// A map as its runtime writes it.
fn map_of(content: &str) -> (File, PerfMap) {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(content.as_bytes(), 0).unwrap();
    let map = PerfMap::new("/tmp/perf-1.map".to_owned(), file.try_clone().unwrap());
    (file, map)
}

fn name(map: &PerfMap, abs_addr: u64) -> Option<String> {
    map.frame(abs_addr).function
}

#[test]
fn a_map_is_read_on_as_it_grows() {
    let (mut file, mut map) = map_of("1000 10 first\n2000 10 sec");
    assert_eq!(name(&map, 0x1000).as_deref(), Some("first"));
    assert_eq!(name(&map, 0x2000), None, "the line is not complete");
    file.seek(SeekFrom::End(0)).unwrap();
    file.write_all(b"ond\n3000 10 third\n").unwrap();
    assert!(map.update(file.try_clone().unwrap(), false));
    assert_eq!(name(&map, 0x2000).as_deref(), Some("second"));
    assert_eq!(name(&map, 0x3000).as_deref(), Some("third"));
    assert!(!map.update(file, false));

    let (anew, _) = map_of("4000 10 anew\n");
    assert!(map.update(anew, true));
    assert_eq!(name(&map, 0x4000).as_deref(), Some("anew"));
    assert_eq!(name(&map, 0x1000), None);
}

#[test]
fn frames_have_the_function_or_the_reason_for_none() {
    let (_, map) = map_of("1000 10 LazyCompile:~f\n");
    let frame = map.frame(0x1008);
    assert_eq!(frame.function.as_deref(), Some("LazyCompile:~f"));
    assert_eq!(frame.module.as_deref(), Some("/tmp/perf-1.map"));
    assert_eq!(frame.unresolved, None);
    let frame = map.frame(0x1010);
    assert_eq!(frame.function, None);
    let why = frame.unresolved.unwrap().to_string();
    assert!(
        why.starts_with("0x1010: ") && why.contains("/tmp/perf-1.map"),
        "{why}"
    );
}

#[test]
fn a_line_longer_than_any_is_skipped() {
    for zeros in [BLOCK, BLOCK + 1, 3 * BLOCK] {
        let long = "0".repeat(zeros);
        let (_, map) = map_of(&format!("1000 10 first\n{long}\n2000 10 second\n"));
        assert_eq!(name(&map, 0x1000).as_deref(), Some("first"));
        assert_eq!(name(&map, 0x2000).as_deref(), Some("second"));
        assert_eq!(map.functions.by_start.len(), 2);
    }
}

#[test]
fn a_map_takes_a_bounded_amount_of_memory() {
    let one = MOST_MEMORY / (ENTRY + 1);
    let lines: String = (0..one + 10).map(|n| format!("{n:x}0 8 f\n")).collect();
    let (_, map) = map_of(&lines);
    assert!(map.is_cut());
    assert!(map.functions.memory < MOST_MEMORY + 2 * ENTRY);
    assert_eq!(name(&map, 0).as_deref(), Some("f"));
    let last = map.frame((one as u64 + 9) * 16);
    let why = last.unresolved.map(|why| why.cause);
    assert_eq!(why, Some(Cause::NamesBudget));
}
