//! Import cycles: files that import each other, so that none can be read without the others.

use crate::{
    command::root,
    sources::{self, KERNEL_SIDE, Source, USER_SIDE},
};
use anyhow::{Context, Result, bail};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// A module's path below the crate.
type Module = Vec<String>;

/// Checks every source of both sides but tests.
///
/// # Errors
/// There is a cycle, or a file cannot be parsed.
pub(crate) fn check() -> Result<()> {
    for side in [USER_SIDE, KERNEL_SIDE] {
        let cycles = cycles(&knowing(&read(&root().join(side))?));
        if !cycles.is_empty() {
            let shown: Vec<String> = cycles.iter().map(|cycle| cycle.join(", ")).collect();
            bail!(
                "`{side}`: these files import each other in cycles; move what they share into a file of its own:\n{}",
                shown.join("\n")
            );
        }
    }
    Ok(())
}

fn read(folder: &Path) -> Result<BTreeMap<Module, Source>> {
    let mut modules = BTreeMap::new();
    for file in sources::below(folder)? {
        let text = fs::read_to_string(&file)
            .with_context(|| format!("cannot read `{}`", file.display()))?;
        let inside = file.strip_prefix(folder).unwrap_or(&file);
        let source =
            Source::parse(&text).with_context(|| format!("cannot parse `{}`", file.display()))?;
        let file = inside.display().to_string();
        modules.insert(module(inside), Source { file, ..source });
    }
    Ok(modules)
}

/// `verdict/mod.rs` and `verdict.rs` are the module `verdict`, `lib.rs` is the crate.
fn module(file: &Path) -> Module {
    let parts = file.with_extension("");
    let mut parts: Module = parts
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    if parts
        .last()
        .is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str()))
    {
        parts.pop();
    }
    parts
}

/// For each file, the others that it imports.
fn knowing(modules: &BTreeMap<Module, Source>) -> BTreeMap<String, BTreeSet<String>> {
    let known = |(own, source): (&Module, &Source)| {
        let known = source.named.iter().filter_map(|path| {
            let found = find(modules, own, path, 0)?;
            modules.get(&found).map(|source| source.file.clone())
        });
        let known = known.filter(|file| *file != source.file).collect();
        (source.file.clone(), known)
    };
    modules.iter().map(known).collect()
}

/// The module that defines what module `own` names by this path.
fn find(
    modules: &BTreeMap<Module, Source>,
    own: &Module,
    path: &[String],
    hops: u32,
) -> Option<Module> {
    let mut at = own.clone();
    let mut rest = path;
    let mut is_absolute = false;
    while let Some((first, others)) = rest.split_first() {
        match first.as_str() {
            "crate" => at.clear(),
            "super" => drop(at.pop()),
            "self" => {}
            _ => break,
        }
        is_absolute = true;
        rest = others;
    }
    while let Some((first, others)) = rest.split_first() {
        let inner = [at.as_slice(), std::slice::from_ref(first)].concat();
        if modules.contains_key(&inner) {
            (at, rest, is_absolute) = (inner, others, true);
            continue;
        }
        // Re-exports in a cycle do not compile, except through globs.
        let passed_on = (hops < 8)
            .then(|| passed_on(modules, &at, first, hops))
            .flatten();
        return passed_on.or(is_absolute.then_some(at));
    }
    is_absolute.then_some(at)
}

/// The module that defines a name which another one re-exports.
fn passed_on(
    modules: &BTreeMap<Module, Source>,
    at: &Module,
    name: &str,
    hops: u32,
) -> Option<Module> {
    let of = &modules.get(at)?.passed_on;
    let named = |wanted: &str| of.iter().find(|(passed, _)| passed == wanted);
    named(name)
        .or_else(|| named("*"))
        .and_then(|(_, path)| find(modules, at, path, hops + 1))
}

/// Files that import each other, directly or through others: the strongly connected components of more than one file.
fn cycles(known: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> = known
        .keys()
        .map(|file| (file, reach(known, file)))
        .collect();
    let mut cycles: BTreeSet<Vec<String>> = BTreeSet::new();
    for (file, all) in &reached {
        let both = all
            .iter()
            .filter(|other| reached.get(*other).is_some_and(|back| back.contains(file)));
        let cycle: BTreeSet<String> = both.map(|other| (*other).clone()).collect();
        if cycle.len() > 1 {
            cycles.insert(cycle.into_iter().collect());
        }
    }
    cycles.into_iter().collect()
}

fn reach<'a>(known: &'a BTreeMap<String, BTreeSet<String>>, from: &String) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&String> = known.get(from).into_iter().flatten().collect();
    while let Some(file) = next.pop() {
        if reached.insert(file) {
            next.extend(known.get(file).into_iter().flatten());
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cycles among files with these sources.
    fn cycles_of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let sources = files.iter().map(|(file, text)| {
            let source = Source::parse(text).unwrap();
            let file = (*file).to_owned();
            (module(Path::new(&file)), Source { file, ..source })
        });
        cycles(&knowing(&sources.collect()))
    }

    #[test]
    fn a_parent_that_calls_its_child_and_lends_it_a_type_is_a_cycle() {
        let parent = "mod child; struct Shared; fn f() { child::g() }";
        for child in [
            "use super::Shared;",
            "use crate::parent::Shared;",
            "fn g(shared: super::Shared) {}",
            "use super::{Shared as Other};",
        ] {
            let found = cycles_of(&[("parent/mod.rs", parent), ("parent/child.rs", child)]);
            assert_eq!(found, [["parent/child.rs", "parent/mod.rs"]], "{child}");
        }
    }

    #[test]
    fn a_name_belongs_to_the_file_that_defines_it() {
        let parent = "mod child; mod shared; pub(crate) use shared::Shared; fn f() { child::g() }";
        let child = "use super::Shared; use crate::parent::Shared as Again;";
        let files = [
            ("parent/mod.rs", parent),
            ("parent/child.rs", child),
            ("parent/shared.rs", ""),
        ];
        assert!(cycles_of(&files).is_empty());
        let back = [
            files[0],
            files[1],
            ("parent/shared.rs", "use super::child;"),
        ];
        assert_eq!(cycles_of(&back), [["parent/child.rs", "parent/shared.rs"]]);
    }

    #[test]
    fn a_glob_passes_on_what_its_module_defines() {
        let files = [
            ("arch/mod.rs", "mod x86_64; pub(crate) use x86_64::*;"),
            ("arch/x86_64.rs", "use crate::walk::Step;"),
            ("walk.rs", "use crate::arch::pc;"),
        ];
        assert_eq!(cycles_of(&files), [["arch/x86_64.rs", "walk.rs"]]);
    }

    #[test]
    fn cycles_may_lead_through_others_and_tests_know_everything() {
        let files = [
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "fn f() { crate::c::g() }"),
            ("c.rs", "use crate::a::A;"),
            (
                "d.rs",
                "use crate::a::A; #[cfg(test)] mod tests { use crate::e::E; }",
            ),
            ("e.rs", "use crate::d::D; pub(in crate::a) fn f() {}"),
        ];
        assert_eq!(cycles_of(&files), [["a.rs", "b.rs", "c.rs"]]);
    }
}
