//! The level at which two stacks match.

use super::*;

const PYTHON: &str = "/usr/bin/python3.11";
const PYENV: &str = "/home/user/.pyenv/versions/3.12.1/lib/libpython3.12.so.1.0";

/// The levels of all sites, the matched ones' first; `None`: on one side only.
fn levels(baseline: &[&[Frame]], new: &[&[Frame]]) -> Vec<Option<Level>> {
    let sites = [baseline, new].map(|stacks| {
        let stacks = stacks.iter().map(|frames| steady(frames.to_vec(), 100));
        stacks.collect::<Vec<_>>()
    });
    let groups = matching::groups([&sites[0], &sites[1]], true);
    let mut levels: Vec<_> = groups.iter().map(|group| group.level).collect();
    levels.sort_by_key(|level| level.map_or(9, |level| level as u8));
    levels
}

fn level(baseline: &[Frame], new: &[Frame]) -> Option<Level> {
    levels(&[baseline], &[new])[0]
}

#[test]
fn one_build_matches_by_place() {
    let stack = in_library("f", "1", 0x100);
    assert_eq!(level(&stack, &stack), Some(Level::BuildId));
    // Elsewhere on the disk, still that build.
    let mut moved = stack.clone();
    moved[0].module = Some("/opt/lib/libx.so.1".into());
    assert_eq!(level(&stack, &moved), Some(Level::BuildId));
}

#[test]
fn another_build_matches_by_names() {
    let old = in_library("f", "1", 0x100);
    let new = in_library("f.constprop.0", "2", 0x180);
    assert_eq!(level(&old, &new), Some(Level::Symbol));
    let mut wheel = new;
    wheel[0].module = Some("/w/pkg.libs/libx-0cf96a72.so.1.2".into());
    assert_eq!(level(&old, &wheel), Some(Level::Symbol));
}

#[test]
fn another_instruction_set_is_the_same_function() {
    let old = in_library("gemm_avx2", "1", 0x100);
    let new = in_library("gemm_avx512_core", "1", 0x900);
    assert_eq!(level(&old, &new), Some(Level::Symbol));
}

#[test]
fn inlined_calls_unknown_to_one_side_are_not_a_difference() {
    let old = in_library("f", "1", 0x100);
    let mut new = in_library("f", "2", 0x180);
    let mut inlined = native(Some("g"), "/lib/libx.so.1", "2", 0x180);
    inlined.inlined = true;
    new.insert(0, inlined);
    assert_eq!(level(&old, &new), Some(Level::Symbol));
}

#[test]
fn other_callers_match_by_the_leaf() {
    let leaf = |caller: &str, build: &str| {
        let mut stack: Vec<_> = ["f", "g", "h"]
            .map(|name| native(Some(name), "/lib/libx.so.1", build, 0x100))
            .into();
        stack.push(native(Some(caller), "/bin/program", build, 0x10));
        stack
    };
    let (old, new) = (leaf("serve", "1"), leaf("serve_all", "2"));
    assert_eq!(level(&old, &new), Some(Level::Leaf));
}

#[test]
fn without_names_modules_match_if_the_builds_differ() {
    let stack = |build: &str, offset| {
        vec![
            native(None, "/lib/libx.so.1", build, offset),
            native(Some("main"), "/bin/program", build, offset),
        ]
    };
    assert_eq!(
        level(&stack("1", 0x100), &stack("2", 0x700)),
        Some(Level::Module)
    );
    // In one build another place is another function.
    assert_eq!(
        levels(&[&stack("1", 0x100)], &[&stack("1", 0x700)]),
        [None, None]
    );
}

#[test]
fn functions_of_one_build_are_not_taken_for_one_another() {
    let (f, g) = (in_library("f", "1", 0x100), in_library("g", "1", 0x200));
    assert_eq!(levels(&[&f, &g], &[&g]), [Some(Level::BuildId), None]);
    assert_eq!(levels(&[&f], &[&g]), [None, None]);
}

#[test]
fn a_python_line_matches_under_another_root_and_interpreter() {
    let stack = |python_frame: &[Frame], interpreter: &str, build: &str, leaf: Option<&str>| {
        let mut stack = vec![native(leaf, interpreter, build, 0x50)];
        for frame in python_frame {
            stack.push(frame.clone());
            stack.push(native(None, interpreter, build, 0x99));
        }
        stack.push(native(None, "/lib/libc.so.6", build, 0x1));
        stack
    };
    let at = |root: &str, line| {
        [
            python("Session.keep", &format!("{root}/app/session.py"), line),
            python("<module>", &format!("{root}/main.py"), 3),
        ]
    };
    let debian = stack(&at("/srv", 10), PYTHON, "d", None);
    let pyenv = stack(
        &at("/home/u/src", 12),
        PYENV,
        "p",
        Some("PyBytes_FromObject"),
    );
    assert_eq!(level(&debian, &pyenv), Some(Level::Module));
    // Up to 3.10 functions have only their own name.
    let mut old = at("/home/u/src", 12);
    old[0].function = Some("keep".into());
    let old = stack(&old, "/opt/bin/python3.10", "o", None);
    assert_eq!(level(&debian, &old), Some(Level::Module));
    let mut other = at("/home/u/src", 12);
    other[0].function = Some("Session.drop".into());
    let other = stack(&other, PYENV, "p", None);
    assert_eq!(level(&debian, &other), None);
}

#[test]
fn lines_distinguish_sites_if_both_sides_have_the_same() {
    let at = |line, build| {
        let mut stack = in_library("f", build, u64::from(line));
        stack[0].file = Some("f.c".into());
        stack[0].line = Some(line);
        stack
    };
    let (a, b, c) = (at(1, "1"), at(2, "1"), at(3, "1"));
    let (x, y) = (at(1, "2"), at(2, "2"));
    let two = [Some(Level::Symbol), Some(Level::Symbol)];
    assert_eq!(levels(&[&a, &b], &[&x, &y]), two);
    // The source differs, so the two cannot be distinguished.
    assert_eq!(levels(&[&a, &c], &[&x, &y]), [Some(Level::Symbol)]);
}

#[test]
fn sites_without_stacks_match_each_other() {
    assert_eq!(level(&[], &[]), Some(Level::Module));
    assert_eq!(levels(&[&[]], &[&in_library("f", "1", 1)]), [None, None]);
}

#[test]
fn layers_stay_apart() {
    let heap = steady(in_library("f", "1", 1), 100);
    let mut vm = heap.clone();
    vm.layer = Layer::Vm;
    let groups = matching::groups([&[heap], &[vm]], true);
    assert!(groups.iter().all(|group| group.level.is_none()));
    assert_eq!(groups.len(), 2);
}
