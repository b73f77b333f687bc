//! `cargo xtask release`: gathers the packages of all architectures with their checksums, an apt repository, container
//! images and notes, and publishes them on GitHub.

use crate::{
    command::{self, output, root, target_dir},
    dist::{self, apt, image},
};
use anyhow::{Context, Result, ensure};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

const VERSION: &str = env!("CARGO_PKG_VERSION");
const SUMS: &str = "SHA256SUMS";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Do everything but publish: the files are in target/release-files, the notes in target/release-notes.md
    #[arg(long)]
    dry_run: bool,
    /// Publish what the last dry run left
    #[arg(long, conflicts_with_all = ["dry_run", "packages", "test"])]
    prepared: bool,
    /// Folder with a folder for each architecture, which has what `dist` built there [default: `dist` builds it]
    #[arg(long, value_name = "DIR")]
    packages: Option<PathBuf>,
    /// As for `dist`: install and use each package (as root)
    #[arg(long, conflicts_with = "packages")]
    test: bool,
}

/// `cargo xtask release`.
///
/// # Errors
/// When there are no notes for this version, when something cannot be built or published, or when the workflow is for the
/// tag of another version.
pub(crate) fn run(options: &Options) -> Result<()> {
    let (files, notes) = (files(), target_dir().join("release-notes.md"));
    if !options.prepared {
        let changes = fs::read_to_string(root().join("CHANGELOG.md"))?;
        let is_tagged = is_tagged()?;
        let text = self::notes(&changes, VERSION, options.dry_run && !is_tagged)?;
        let folders = match &options.packages {
            Some(folder) => folders(folder)?,
            None => {
                let (test, reproduce) = (options.test, true);
                dist::run(&dist::Options { test, reproduce })?;
                vec![dist::folder()]
            }
        };
        gather(&folders, &files)?;
        fs::write(&notes, text)?;
    }
    let sums = check(&files)?;
    println!("release: {VERSION} in `{}`\n{sums}", files.display());
    match options.dry_run {
        true => Ok(()),
        false => publish(&files, &notes),
    }
}

/// Whether this is the workflow for a tag.
fn is_tagged() -> Result<bool> {
    let variable = |name| env::var(name).unwrap_or_default();
    let (kind, name) = (variable("GITHUB_REF_TYPE"), variable("GITHUB_REF_NAME"));
    let is_tag = kind == "tag";
    ensure!(
        !is_tag || name == format!("v{VERSION}"),
        "the tag is `{name}`, and the version in Cargo.toml {VERSION}"
    );
    Ok(is_tag)
}

fn files() -> PathBuf {
    target_dir().join("release-files")
}

/// The notes: the section of this version, and how to check the files. `may_be_open`: it need not be finished.
fn notes(changes: &str, version: &str, may_be_open: bool) -> Result<String> {
    let sections = changes.split("\n## ").skip(1);
    let of_version = |section: &&str| {
        let heading = section.lines().next().unwrap_or_default();
        heading.split(&[',', ' ']).next() == Some(version)
    };
    let section = sections.into_iter().find(of_version);
    let section = section.with_context(|| format!("CHANGELOG.md has no section `## {version}`"))?;
    let (heading, text) = section.split_once('\n').unwrap_or((section, ""));
    ensure!(
        may_be_open || !heading.contains("unreleased"),
        "CHANGELOG.md still calls {version} unreleased: give its date"
    );
    let repository = env::var("GITHUB_REPOSITORY").unwrap_or_else(|_| "OWNER/REPOSITORY".into());
    Ok(format!(
        "{}\n\n### Files\n\n\
         - `sha256sum --check --ignore-missing {SUMS}` checks them.\n\
         - `gh attestation verify FILE --repo {repository}` tells the commit and the workflow that built one.\n\
         - `memtrace-apt.tar.gz` is a repository for apt, not signed.\n\
         - The image is also `ghcr.io/{repository}:{version}`.\n\
         - The action for GitHub is `{repository}/.github/actions/memtrace@v{version}`.\n",
        text.trim()
    ))
}

/// The folders in a folder, in order.
fn folders(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot list `{}`", folder.display()))?;
    let mut folders = Vec::new();
    for entry in entries {
        folders.push(entry?.path());
    }
    folders.retain(|path| path.is_dir());
    folders.sort();
    ensure!(!folders.is_empty(), "`{}` has no folders", folder.display());
    Ok(folders)
}

/// Gathers the packages in these folders, and makes of them what is common to all.
fn gather(folders: &[PathBuf], files: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(files);
    fs::create_dir_all(files).with_context(|| format!("cannot make `{}`", files.display()))?;
    let mut debs = Vec::new();
    for folder in folders {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_file() {
                let name = path.file_name().unwrap_or_default().to_owned();
                fs::copy(&path, files.join(&name))?;
                names.push(name.to_string_lossy().into_owned());
            }
        }
        let named = |end| {
            let mut names = names.iter().filter_map(|name| name.strip_suffix(end));
            names
                .next()
                .with_context(|| format!("`{}` has no file *{end}", folder.display()))
        };
        let (deb, tarball) = (named(".deb")?, named("-linux.tar.gz")?);
        let architecture = deb.rsplit('_').next().unwrap_or_default();
        image::build(&folder.join("image"), architecture)?;
        image::save(&files.join(format!("{tarball}-image.tar")))?;
        debs.push(files.join(format!("{deb}.deb")));
    }
    apt::repository(&debs, &files.join("memtrace-apt.tar.gz"))?;
    let mut sum = Command::new("sha256sum");
    sum.args(listed(files)?).current_dir(files);
    let sums = output(&mut sum)? + "\n";
    Ok(fs::write(files.join(SUMS), sums)?)
}

/// Names of the files, in order.
fn listed(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Checks that the files are those of the checksums and of this version; returns the checksums.
fn check(files: &Path) -> Result<String> {
    let sums = fs::read_to_string(files.join(SUMS));
    let sums = sums.with_context(|| format!("`{}` has no {SUMS}", files.display()))?;
    let mut sum = Command::new("sha256sum");
    output(sum.args(["--check", "--strict", SUMS]).current_dir(files))?;
    for name in listed(files)? {
        let is_versioned = name.contains(VERSION) || name == "memtrace-apt.tar.gz";
        ensure!(
            name == SUMS || is_versioned,
            "`{name}` is not of version {VERSION}"
        );
    }
    Ok(sums)
}

/// Uploads the files and the images. The tag exists already.
fn publish(files: &Path, notes: &Path) -> Result<()> {
    let tag = format!("v{VERSION}");
    let repository =
        env::var("GITHUB_REPOSITORY").context("GITHUB_REPOSITORY names no repository")?;
    let paths: Vec<PathBuf> = listed(files)?.iter().map(|name| files.join(name)).collect();
    let mut release = Command::new("gh");
    release
        .args([
            "release",
            "create",
            &tag,
            "--verify-tag",
            "--repo",
            &repository,
        ])
        .args(["--title", &format!("memtrace {VERSION}"), "--notes-file"])
        .arg(notes)
        .args(&paths);
    command::run(&mut release)?;
    let is_image = |path: &PathBuf| path.to_string_lossy().ends_with("-image.tar");
    let images: Vec<PathBuf> = paths.into_iter().filter(is_image).collect();
    // A registry takes no capital letters.
    let name = repository.to_lowercase();
    image::publish(&images, &format!("docker://ghcr.io/{name}:{VERSION}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGES: &str = "# Changelog\n\nText.\n\n## 0.2.0, unreleased\n\n- New.\n\n\
                           ## 0.1.0, 2026-12-01\n\n### Recording\n\n- First.\n";

    #[test]
    fn notes_are_the_section_of_the_version() {
        let first = notes(CHANGES, "0.1.0", false).unwrap();
        assert!(
            first.starts_with("### Recording\n\n- First.\n\n### Files\n"),
            "{first}"
        );
        let open = notes(CHANGES, "0.2.0", true).unwrap();
        assert!(open.starts_with("- New.\n\n### Files\n"), "{open}");
        assert!(!open.contains("First"), "{open}");
    }

    #[test]
    fn an_unfinished_or_missing_section_is_refused() {
        let error = |version| notes(CHANGES, version, false).unwrap_err().to_string();
        assert!(error("0.2.0").contains("still calls 0.2.0 unreleased"));
        assert!(error("0.1").contains("no section `## 0.1`"));
        assert!(error("0.3.0").contains("no section"));
    }

    #[test]
    fn this_version_has_notes() {
        let changes = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
        notes(&changes, VERSION, true).unwrap();
    }

    #[test]
    fn changed_and_foreign_files_are_noticed() {
        let folder = env::temp_dir().join(format!("memtrace-release-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let name = format!("memtrace-{VERSION}-any.tar.gz");
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        let error = || check(&folder).unwrap_err().to_string();
        assert!(error().contains(SUMS));
        write(&name, "one");
        let mut sum = Command::new("sha256sum");
        let sums = output(sum.arg(&name).current_dir(&folder)).unwrap();
        write(SUMS, &format!("{sums}\n"));
        assert!(check(&folder).unwrap().contains(&name));
        write("memtrace-9.9.9.deb", "");
        assert!(error().contains("`memtrace-9.9.9.deb` is not of version"));
        write(&name, "two");
        assert!(error().contains("sha256sum"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
