//! The import rules of ARCHITECTURE.md: in its table of folders, each may import only those above
//! it, and the kernel side's files know each other in no circle.

use crate::command::root;
use anyhow::{Context, Result, bail};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};
use syn::{
    Attribute, Item, UseTree,
    visit::{self, Visit},
};

pub(crate) const SOURCES: &str = "memtrace/src";
const KERNEL_SIDE: &str = "memtrace-ebpf/src";
const RULE: &str = "ARCHITECTURE.md";

/// Checks every source of the library and of the kernel side.
///
/// # Errors
/// A folder imports one that is below it, the table lacks one, or there is a circle.
pub(crate) fn check() -> Result<()> {
    check_order()?;
    let circle = circle(kernel_side()?);
    if !circle.is_empty() {
        bail!(
            "`{KERNEL_SIDE}`: these files import each other in a cycle: {}",
            circle.join(", ")
        );
    }
    Ok(())
}

fn check_order() -> Result<()> {
    let rule = root().join(RULE);
    let text =
        fs::read_to_string(&rule).with_context(|| format!("cannot read `{}`", rule.display()))?;
    let order = order(&text);
    let mut bad = Vec::new();
    for (name, files) in sources(&root().join(SOURCES))? {
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
            if let Some(name) = path.strip_prefix(SOURCES) {
                let name = name.trim_matches('/').trim_end_matches(".rs");
                order.insert(name.to_owned(), place);
            }
        }
    }
    order
}

/// The library's modules and their files, except tests.
fn sources(folder: &Path) -> Result<BTreeMap<String, Vec<PathBuf>>> {
    let mut modules = BTreeMap::new();
    for entry in
        fs::read_dir(folder).with_context(|| format!("cannot list `{}`", folder.display()))?
    {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if !["lib", "main"].contains(&name.as_ref()) {
            let mut files = Vec::new();
            collect(&path, &mut files)?;
            modules
                .entry(name.into_owned())
                .or_insert_with(Vec::new)
                .append(&mut files);
        }
    }
    Ok(modules)
}

/// Every source below a folder, except tests.
pub(crate) fn sources_of(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    collect(folder, &mut files)?;
    Ok(files)
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    // Modules of these names are tests' own.
    if path
        .file_stem()
        .is_some_and(|stem| ["tests", "fixture"].iter().any(|name| stem == *name))
    {
        return Ok(());
    }
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            collect(&entry?.path(), files)?;
        }
    } else if path.extension().is_some_and(|extension| extension == "rs") {
        files.push(path.to_owned());
    }
    Ok(())
}

/// Forbidden imports of `name`.
fn breaches(
    order: &BTreeMap<String, usize>,
    name: &str,
    imports: &BTreeSet<String>,
) -> Vec<String> {
    let Some(place) = order.get(name) else {
        return vec![format!("{RULE}'s table lacks `{SOURCES}/{name}`")];
    };
    imports
        .iter()
        .filter(|import| *import != name)
        .filter_map(|import| match order.get(import) {
            Some(above) if above <= place => None,
            Some(_) => Some(format!("`crate::{import}` is below it")),
            None if import == "*" => Some("`crate` as a whole is imported".to_owned()),
            None => Some(format!("{RULE}'s table lacks `{SOURCES}/{import}`")),
        })
        .collect()
}

/// The kernel side's modules and the imports of each.
fn kernel_side() -> Result<BTreeMap<String, BTreeSet<String>>> {
    let mut modules = BTreeMap::new();
    for (name, files) in sources(&root().join(KERNEL_SIDE))? {
        let mut known = BTreeSet::new();
        for file in files {
            known.append(&mut read_imports(&file)?);
        }
        known.remove(&name);
        modules.insert(name, known);
    }
    Ok(modules)
}

/// The modules on a cycle, or between two.
fn circle(mut modules: BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    loop {
        let imported: BTreeSet<String> = modules.values().flatten().cloned().collect();
        let names: BTreeSet<String> = modules.keys().cloned().collect();
        modules.retain(|name, imports| imported.contains(name) && !imports.is_disjoint(&names));
        if modules.len() == names.len() {
            return names.into_iter().collect();
        }
    }
}

fn read_imports(file: &Path) -> Result<BTreeSet<String>> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read `{}`", file.display()))?;
    imports(&text).with_context(|| format!("cannot parse `{}`", file.display()))
}

/// Modules of the crate that a file names, except in its tests.
fn imports(text: &str) -> syn::Result<BTreeSet<String>> {
    let mut found = Imports::default();
    found.visit_file(&syn::parse_file(text)?);
    Ok(found.0)
}

#[derive(Default)]
struct Imports(BTreeSet<String>);

impl Imports {
    fn add_tree(&mut self, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => {
                self.0.insert(path.ident.to_string());
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_tree(tree);
                }
            }
            UseTree::Name(name) => {
                self.0.insert(name.ident.to_string());
            }
            UseTree::Rename(rename) => {
                self.0.insert(rename.ident.to_string());
            }
            // Everything, including forbidden modules.
            UseTree::Glob(_) => {
                self.0.insert("*".to_owned());
            }
        }
    }
}

impl<'ast> Visit<'ast> for Imports {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Mod(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !attributes.iter().any(is_test) {
            visit::visit_item(self, item);
        }
    }

    fn visit_use_tree(&mut self, tree: &'ast UseTree) {
        match tree {
            UseTree::Path(path) if path.ident == "crate" => self.add_tree(&path.tree),
            UseTree::Rename(rename) if rename.ident == "crate" => {
                self.0.insert("*".to_owned());
            }
            _ => {}
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let mut segments = path.segments.iter();
        if let (Some(first), Some(second)) = (segments.next(), segments.next())
            && first.ident == "crate"
        {
            self.0.insert(second.ident.to_string());
        }
        visit::visit_path(self, path);
    }
}

/// Whether it is `#[cfg(test)]`.
pub(crate) fn is_test(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute
            .parse_args::<syn::Path>()
            .is_ok_and(|path| path.is_ident("test"))
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
    fn a_circle_is_found_and_a_chain_is_not() {
        let circle_of = |pairs: &[(&str, &str)]| {
            let mut modules = BTreeMap::new();
            for (name, import) in pairs {
                modules.insert((*name).to_owned(), BTreeSet::from([(*import).to_owned()]));
            }
            circle(modules)
        };
        let chain = [("top", "emit"), ("emit", "maps"), ("maps", "core")];
        assert_eq!(circle_of(&chain), [""; 0]);
        let back = [("top", "emit"), ("emit", "maps"), ("maps", "emit")];
        assert_eq!(circle_of(&back), ["emit", "maps"]);
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
