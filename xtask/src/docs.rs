//! The documentation. `lint` checks links, anchors and quoted messages, without any other program;
//! `cargo xtask book` builds the book.

use crate::command::{self, output, root, target_dir};
use anyhow::{Context, Result, bail};
use std::{
    collections::HashMap,
    fs,
    path::{Component, Path, PathBuf},
    process::Command,
};

const MDBOOK_VERSION: &str = "0.5.4";
/// Pages of the book.
const BOOK: &str = "docs";
/// Its headings are messages that memtrace prints.
const TROUBLESHOOTING: &str = "docs/troubleshooting.md";

/// `cargo xtask book`.
///
/// # Errors
/// When a page is wrong, or mdBook cannot be installed or run.
pub(crate) fn book() -> Result<()> {
    check()?;
    let folder = target_dir().join("book");
    let mut build = Command::new(mdbook()?);
    build.arg("build").arg(root().join(BOOK));
    command::run(build.arg("--dest-dir").arg(&folder))?;
    println!("book: {}", folder.join("index.html").display());
    Ok(())
}

/// mdBook of the pinned version, installed into `target/tools` if it is missing.
fn mdbook() -> Result<PathBuf> {
    let tools = target_dir().join("tools");
    let own = tools.join("bin/mdbook");
    let expected = format!("mdbook v{MDBOOK_VERSION}");
    for mdbook in [Some(own.clone()), command::find("mdbook")] {
        let Some(mdbook) = mdbook.filter(|path| path.is_file()) else {
            continue;
        };
        if output(Command::new(&mdbook).arg("--version"))? == expected {
            return Ok(mdbook);
        }
    }
    let mut install = command::cargo();
    install.args(["install", "mdbook", "--locked", "--version", MDBOOK_VERSION]);
    // Without its web server.
    install.args(["--no-default-features", "--features", "search", "--root"]);
    command::run(install.arg(&tools))?;
    Ok(own)
}

/// Checks every page; part of `cargo xtask lint`.
///
/// # Errors
/// With a line for each mistake.
pub(crate) fn check() -> Result<()> {
    let pages = tracked(&["*.md"])?;
    let anchors: HashMap<&Path, Vec<String>> = pages
        .iter()
        .map(|(path, text)| (path.as_path(), anchors(text)))
        .collect();
    let mut bad = Vec::new();
    for (path, text) in &pages {
        for link in links(text) {
            if let Some(mistake) = mistake(path, &link, &anchors) {
                bad.push(format!("`{}`: link `{link}` {mistake}", path.display()));
            }
        }
    }
    bad.extend(missing_in_summary(&pages));
    bad.extend(unknown_messages(&pages)?);
    if !bad.is_empty() {
        bail!("{}", bad.join("\n"));
    }
    Ok(())
}

/// Tracked text files, with paths from the root.
fn tracked(patterns: &[&str]) -> Result<Vec<(PathBuf, String)>> {
    let mut list = Command::new("git");
    list.args(["ls-files", "-z", "--"]).args(patterns);
    let names = output(list.current_dir(root())).context("cannot list the repository's files")?;
    let names = names.split('\0').filter(|name| !name.is_empty());
    let files = names.map(PathBuf::from).filter_map(|path| {
        let text = fs::read_to_string(root().join(&path)).ok()?;
        Some((path, text))
    });
    Ok(files.collect())
}

/// Lines outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// Targets of the links and images of a page.
fn links(text: &str) -> Vec<String> {
    let prose: Vec<&str> = prose(text).collect();
    let prose = prose.join("\n");
    // Without code spans, which may look like links.
    let plain: Vec<&str> = prose.split('`').step_by(2).collect();
    let plain = plain.concat();
    let targets = plain.split("](").skip(1);
    let targets = targets.filter_map(|rest| Some(rest.split_once(')')?.0.to_owned()));
    targets.collect()
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    for line in prose(text).filter(|line| line.starts_with('#')) {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let anchor: String = heading
            .chars()
            .filter(|c| c.is_alphanumeric() || ['_', '-', ' '].contains(c))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let same = |known: &&String| {
            let rest = known.strip_prefix(anchor.as_str());
            let number = |rest: &str| rest.strip_prefix('-')?.parse::<usize>().ok();
            rest.is_some_and(|rest| rest.is_empty() || number(rest).is_some())
        };
        match anchors.iter().filter(same).count() {
            0 => anchors.push(anchor),
            n => anchors.push(format!("{anchor}-{n}")),
        }
    }
    anchors
}

/// The problem of a link on a page, if it has one.
fn mistake(page: &Path, link: &str, anchors: &HashMap<&Path, Vec<String>>) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = match file {
        "" => page.to_owned(),
        file => normal(&page.parent().unwrap_or(Path::new("")).join(file)),
    };
    if page.starts_with(BOOK) && !target.starts_with(BOOK) {
        return Some(format!(
            "leaves `{BOOK}`, so the book does not have it: name the file instead"
        ));
    }
    if !root().join(&target).exists() {
        return Some("leads nowhere".to_owned());
    }
    let known = anchors.get(target.as_path());
    let found = anchor.is_empty() || known.is_some_and(|known| known.iter().any(|a| a == anchor));
    (!found).then(|| {
        format!(
            "has an unknown anchor; `{}` has {known:?}",
            target.display()
        )
    })
}

/// A path without `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(normal.pop()),
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

/// Pages that the book does not list.
fn missing_in_summary(pages: &[(PathBuf, String)]) -> Vec<String> {
    let summary = Path::new(BOOK).join("SUMMARY.md");
    let listed = pages.iter().find(|(path, _)| *path == summary);
    let listed: Vec<PathBuf> = listed
        .map(|(_, text)| links(text))
        .unwrap_or_default()
        .into_iter()
        .map(|link| Path::new(BOOK).join(link))
        .collect();
    let pages = pages.iter().map(|(path, _)| path);
    pages
        .filter(|path| path.starts_with(BOOK) && **path != summary && !listed.contains(path))
        .map(|path| format!("`{}` is not in `{}`", path.display(), summary.display()))
        .collect()
}

/// Headings of the page on messages that are not in the sources.
fn unknown_messages(pages: &[(PathBuf, String)]) -> Result<Vec<String>> {
    let sources = tracked(&["memtrace/src/*.rs", "memtrace-common/src/*.rs"])?;
    let sources: String = sources
        .into_iter()
        .map(|(_, text)| literals(&text))
        .collect();
    let page = pages
        .iter()
        .find(|(path, _)| path == Path::new(TROUBLESHOOTING));
    let text = page.map_or("", |(_, text)| text);
    let messages = prose(text)
        .filter(|line| line.starts_with("###"))
        .flat_map(|line| line.split('`').skip(1).step_by(2));
    let unknown = messages.filter(|message| {
        let mut parts = message.split('…').map(str::trim);
        !parts.all(|part| sources.contains(part))
    });
    let unknown =
        unknown.map(|message| format!("`{TROUBLESHOOTING}`: memtrace never prints `{message}`"));
    Ok(unknown.collect())
}

/// A source file with string literals on one line.
fn literals(source: &str) -> String {
    let mut parts = source.split("\\\n");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_in_code_are_ignored() {
        let page = "[a](x.md#b) `[c](d)` ![e](f.svg)\n```\n[g](h)\n```\n[i\nj](k.md)";
        assert_eq!(links(page), ["x.md#b", "f.svg", "k.md"]);
    }

    #[test]
    fn anchors_are_those_of_github() {
        let page = "# One, *two*: `--three`\n```\n# no heading\n```\n## In JSON\n## In JSON\n";
        assert_eq!(anchors(page), ["one-two---three", "in-json", "in-json-1"]);
    }

    #[test]
    fn a_wrong_link_is_named() {
        let page = Path::new("docs/faq.md");
        let limits = Path::new("docs/limits.md");
        let anchors = HashMap::from([(page, vec!["a".into()]), (limits, vec!["b".into()])]);
        let mistake = |link: &str| mistake(page, link, &anchors).is_some();
        for right in ["#a", "limits.md", "limits.md#b", "https://example.org/#x"] {
            assert!(!mistake(right), "{right}");
        }
        for wrong in ["#b", "limits.md#a", "no.md", "../README.md"] {
            assert!(mistake(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_literal_may_have_several_lines() {
        assert_eq!(literals("\"one \\\n    two\""), "\"one two\"");
    }

    #[test]
    fn this_repository_has_no_mistakes() {
        check().unwrap();
    }
}
