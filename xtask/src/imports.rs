//! The import rule of ARCHITECTURE.md: in its table of folders, each may import only those above it.

use crate::{
    command::root,
    sources::{self, Source, USER_SIDE},
};
use anyhow::{Context, Result, bail};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

const RULE: &str = "ARCHITECTURE.md";

/// Checks every source of the library.
///
/// # Errors
/// A folder imports one that is below it, or the table lacks one.
pub(crate) fn check() -> Result<()> {
    let rule = root().join(RULE);
    let text =
        fs::read_to_string(&rule).with_context(|| format!("cannot read `{}`", rule.display()))?;
    let order = order(&text);
    let mut bad = Vec::new();
    for (name, files) in modules(&root().join(USER_SIDE))? {
        for file in files {
            let imports = read_imports(&file)?;
            let shown = file.strip_prefix(root()).unwrap_or(&file).display();
            bad.extend(
                breaches(&order, &name, &imports)
                    .into_iter()
                    .map(|breach| format!("`{shown}`: {breach}")),
            );
        }
    }
    if !bad.is_empty() {
        bail!("imports against {RULE}:\n{}", bad.join("\n"));
    }
    Ok(())
}

/// The table's modules and their places. Those of one row may know each other.
fn order(text: &str) -> BTreeMap<String, usize> {
    let mut order = BTreeMap::new();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    for (place, row) in rows.enumerate() {
        let cell = row.split(" |").next().unwrap_or(row);
        for path in cell.split('`') {
            if let Some(name) = path.strip_prefix(USER_SIDE) {
                let name = name.trim_matches('/').trim_end_matches(".rs");
                order.insert(name.to_owned(), place);
            }
        }
    }
    order
}

/// The library's modules and their files, except tests.
fn modules(folder: &Path) -> Result<BTreeMap<String, Vec<PathBuf>>> {
    let mut modules = BTreeMap::new();
    for entry in
        fs::read_dir(folder).with_context(|| format!("cannot list `{}`", folder.display()))?
    {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if !["lib", "main"].contains(&name.as_ref()) {
            let mut files = Vec::new();
            sources::collect(&path, &mut files)?;
            modules
                .entry(name.into_owned())
                .or_insert_with(Vec::new)
                .append(&mut files);
        }
    }
    Ok(modules)
}

/// Forbidden imports of `name`.
fn breaches(
    order: &BTreeMap<String, usize>,
    name: &str,
    imports: &BTreeSet<String>,
) -> Vec<String> {
    let Some(place) = order.get(name) else {
        return vec![format!("{RULE}'s table lacks `{USER_SIDE}/{name}`")];
    };
    imports
        .iter()
        .filter(|import| *import != name)
        .filter_map(|import| match order.get(import) {
            Some(above) if above <= place => None,
            Some(_) => Some(format!("`crate::{import}` is below it")),
            None if import == "*" => Some("`crate` as a whole is imported".to_owned()),
            None => Some(format!("{RULE}'s table lacks `{USER_SIDE}/{import}`")),
        })
        .collect()
}

fn read_imports(file: &Path) -> Result<BTreeSet<String>> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read `{}`", file.display()))?;
    imports(&text).with_context(|| format!("cannot parse `{}`", file.display()))
}

/// Modules of the crate that a file names, except in its tests; `*` for all of them.
fn imports(text: &str) -> syn::Result<BTreeSet<String>> {
    let source = Source::parse(text)?;
    let of_crate = source.paths().filter_map(|path| match path.as_slice() {
        [first, rest @ ..] if first == "crate" => Some(rest.first().cloned()),
        _ => None,
    });
    Ok(of_crate
        .map(|module| module.unwrap_or("*".to_owned()))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "| folder | owns |\n|---|---|\n\
        | `memtrace-common/` | both |\n\
        | `memtrace/src/hash.rs`, `memtrace/src/event.rs` | small things |\n\
        | `memtrace/src/ledger/` | totals, see `memtrace/src/cli/` |\n\
        | `memtrace/src/cli/` | options |\n";

    fn breaches_of(name: &str, text: &str) -> Vec<String> {
        breaches(&order(TABLE), name, &imports(text).unwrap())
    }

    #[test]
    fn imports_from_above_are_allowed() {
        let text = "use crate::{event::{Action, Event}, hash};\nfn f() { crate::ledger::g() }";
        assert_eq!(breaches_of("ledger", text), [""; 0]);
        assert_eq!(breaches_of("cli", text), [""; 0]);
        assert_eq!(breaches_of("event", "use crate::hash::FastMap;"), [""; 0]);
    }

    #[test]
    fn imports_from_below_are_refused_in_any_form() {
        for text in [
            "use crate::cli::Args;",
            "use crate::{hash, cli};",
            "fn f() -> crate::cli::Args { todo!() }",
            "mod inner { use crate::cli; }",
            "use crate::cli as options;",
            "use crate::{hash, cli as options};",
            "use crate::*;",
            "use crate as everything;",
        ] {
            assert_eq!(breaches_of("ledger", text).len(), 1, "{text}");
        }
    }

    #[test]
    fn tests_may_know_everything() {
        let text = "#[cfg(test)]\nmod tests { use crate::cli::Args; }";
        assert_eq!(breaches_of("ledger", text), [""; 0]);
    }

    #[test]
    fn the_table_has_every_module() {
        assert_eq!(breaches_of("units", "").len(), 1);
        assert_eq!(breaches_of("ledger", "use crate::units;").len(), 1);
    }
}
