//! The Rust sources of the repository, and the paths that one names outside its tests.

use anyhow::Result;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};
use syn::{
    Attribute, Item, UseTree, Visibility,
    visit::{self, Visit},
};

pub(crate) const USER_SIDE: &str = "memtrace/src";
pub(crate) const KERNEL_SIDE: &str = "memtrace-ebpf/src";

/// Every source below a folder, except tests.
pub(crate) fn below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    collect(folder, &mut files)?;
    Ok(files)
}

/// Adds a file, or those below a folder.
pub(crate) fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
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

/// The paths in the file of a module.
#[derive(Default)]
pub(crate) struct Source {
    /// The path of the file, set when a folder is read.
    pub(crate) file: String,
    /// Paths that it names, as written.
    pub(crate) named: BTreeSet<Vec<String>>,
    /// Names that it re-exports, with their paths as written; `*` for all names of a module.
    pub(crate) passed_on: Vec<(String, Vec<String>)>,
}

impl Source {
    /// # Errors
    /// It is not Rust.
    pub(crate) fn parse(text: &str) -> syn::Result<Self> {
        let mut source = Self::default();
        source.visit_file(&syn::parse_file(text)?);
        Ok(source)
    }

    /// All paths, as written.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Vec<String>> {
        let passed_on = self.passed_on.iter().map(|(_, path)| path);
        self.named.iter().chain(passed_on)
    }

    fn add_tree(&mut self, tree: &UseTree, path: &[String], passes_on: bool) {
        let with = |name: String| [path, &[name]].concat();
        match tree {
            UseTree::Path(inner) => {
                self.add_tree(&inner.tree, &with(inner.ident.to_string()), passes_on)
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_tree(tree, path, passes_on);
                }
            }
            UseTree::Name(name) => self.add(
                name.ident.to_string(),
                with(name.ident.to_string()),
                passes_on,
            ),
            UseTree::Rename(name) => self.add(
                name.rename.to_string(),
                with(name.ident.to_string()),
                passes_on,
            ),
            UseTree::Glob(_) => self.add("*".to_owned(), path.to_vec(), passes_on),
        }
    }

    fn add(&mut self, name: String, path: Vec<String>, passes_on: bool) {
        if passes_on {
            self.passed_on.push((name, path));
        } else {
            self.named.insert(path);
        }
    }
}

impl<'ast> Visit<'ast> for Source {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Mod(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        if attributes.iter().any(is_test) {
            return;
        }
        if let Item::Use(item) = item {
            let passes_on = !matches!(item.vis, Visibility::Inherited);
            self.add_tree(&item.tree, &[], passes_on);
        } else {
            visit::visit_item(self, item);
        }
    }

    /// A visibility names a module without using it.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path
            .segments
            .iter()
            .map(|it| it.ident.to_string())
            .collect();
        if segments.len() > 1 {
            self.named.insert(segments);
        }
        visit::visit_path(self, path);
    }
}

/// Whether it is `#[cfg(test)]`.
fn is_test(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute
            .parse_args::<syn::Path>()
            .is_ok_and(|path| path.is_ident("test"))
}
