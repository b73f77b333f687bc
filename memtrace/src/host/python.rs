//! Packages of a process's Python and of its conda environment: versions, installers and origins.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    rc::Rc,
    time::{Duration, Instant},
};

use super::{
    Fact, Facts, Redactor,
    environment::variable,
    libraries::{is_pythons, program},
};
use crate::{
    ledger::ProcessId,
    process::memory,
    process_root::{self, Root},
    recording::PACKAGE_FOLDERS,
};

/// Bounds for one process: folders, names in each, packages, and time.
const FOLDERS_AT_MOST: usize = 16;
const NAMES_AT_MOST: usize = 8192;
const PACKAGES_AT_MOST: usize = 2000;
const TIME_AT_MOST: Duration = Duration::from_secs(1);

/// Most bytes of a [`word`], and tags of a wheel.
const WORD_AT_MOST: usize = 128;
const TAGS_AT_MOST: usize = 16;

/// Inputs for finding a process's Python packages; they outlive the process.
#[derive(Debug)]
pub(crate) struct Launch {
    root: Root,
    program: String,
    arguments: Vec<String>,
    environ: Option<Vec<u8>>,
    cwd: PathBuf,
}

impl Launch {
    /// For a running process; `None` if it is gone, or hidden.
    pub(crate) fn read(tgid: u32) -> Option<Self> {
        let memory = |file| process_root::read_memory(tgid, file).ok();
        let cmdline = memory("cmdline")?;
        Some(Self {
            root: Root::of_process(tgid).ok()?,
            program: program(tgid)?,
            arguments: memory::arguments(&cmdline),
            environ: memory("environ"),
            cwd: std::fs::read_link(format!("/proc/{tgid}/cwd")).unwrap_or_default(),
        })
    }

    /// Its environment at the exec, if it may be read.
    pub(crate) fn environ(&self) -> Option<&[u8]> {
        self.environ.as_deref()
    }

    fn variable(&self, name: &str) -> Option<String> {
        variable(self.environ()?, name)
    }

    /// Path of its executable, as the process sees it.
    pub(crate) fn program(&self) -> &str {
        &self.program
    }
}

/// Inspects processes; results for a folder are reused until the folder changes.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    folders: HashMap<(u64, u64, i64, i64), Rc<Packages>>,
}

/// Field and value of each package of a folder, and whether some were left out.
#[derive(Debug, Default)]
struct Packages {
    found: Vec<(String, String)>,
    cut: bool,
    /// Some of them by pip or the like, not by building them in place.
    has_installed: bool,
}

impl Scanner {
    /// Packages that the process's Python can import, according to files. `files`: those that it
    /// executes. Empty if none of them is Python's.
    pub(crate) fn facts<'a>(
        &mut self,
        process: ProcessId,
        launch: &Launch,
        files: impl IntoIterator<Item = &'a str>,
        redactor: &Redactor,
    ) -> Vec<Fact> {
        let mut files: Vec<_> = files.into_iter().filter(|path| is_pythons(path)).collect();
        files.sort_unstable();
        let mut facts = Facts::new(Some(process), redactor);
        let until = Instant::now() + TIME_AT_MOST;
        let places = Places::of(launch, &files, until);
        let Some(places) = places else {
            return Vec::new();
        };
        facts.add("python.version", places.version.as_deref());
        let prefix = places.prefix.as_deref().and_then(Path::to_str);
        facts.add("python.prefix", prefix.map(|prefix| redactor.path(prefix)));
        let mut packages: BTreeMap<String, String> = BTreeMap::new();
        let mut cut = places.folders.len() > FOLDERS_AT_MOST;
        let mut targets = Vec::new();
        for folder in places.folders.iter().take(FOLDERS_AT_MOST) {
            if Instant::now() > until {
                cut = true;
                break;
            }
            let Some(seen) = self.look(&launch.root, folder, until, redactor) else {
                continue;
            };
            cut |= seen.cut;
            let own = folder.to_str().filter(|_| seen.has_installed);
            targets.extend(own.filter(|own| site_of(&format!("{own}/x")).is_none()));
            for (field, value) in &seen.found {
                if packages.len() >= PACKAGES_AT_MOST {
                    cut = true;
                    break;
                }
                // The first on the path is imported.
                if !packages.contains_key(field) {
                    packages.insert(field.clone(), value.clone());
                }
            }
        }
        for (field, value) in packages {
            facts.add(&field, Some(value));
        }
        let targets = targets.iter().map(|folder| redactor.path(folder));
        let targets: Vec<_> = targets.map(|folder| folder.to_string()).collect();
        facts.add(PACKAGE_FOLDERS, Some(targets.join(":")));
        facts.add("python.packages_cut", cut.then_some("some were left out"));
        facts.into_vec()
    }

    fn look(
        &mut self,
        root: &Root,
        path: &Path,
        until: Instant,
        redactor: &Redactor,
    ) -> Option<Rc<Packages>> {
        let folder = root.open_folder(path).ok()?;
        let version = folder.version();
        if let Some(seen) = self.folders.get(&version) {
            return Some(Rc::clone(seen));
        }
        let (names, more) = folder.names(NAMES_AT_MOST).ok()?;
        let mut packages = Packages {
            cut: more,
            ..Packages::default()
        };
        for name in names {
            if Instant::now() > until || packages.found.len() >= PACKAGES_AT_MOST {
                packages.cut = true;
                break;
            }
            let entry = path.join(&name);
            let found = match path.ends_with("conda-meta") {
                true => conda_package(&name, || root.read(&entry)),
                false => package(&name, |file| root.read(&entry.join(file)), redactor),
            };
            packages.has_installed |= name.ends_with(".dist-info");
            packages.found.extend(found);
        }
        let packages = Rc::new(packages);
        if !packages.cut {
            self.folders.insert(version, Rc::clone(&packages));
        }
        Some(packages)
    }
}

/// Folders to search.
#[derive(Debug, Default, PartialEq, Eq)]
struct Places {
    /// Such as `3.11`.
    version: Option<String>,
    prefix: Option<PathBuf>,
    folders: Vec<PathBuf>,
}

impl Places {
    /// `files`: those that are Python's; `None` if there are none.
    fn of(launch: &Launch, files: &[&str], until: Instant) -> Option<Self> {
        let is_program = is_pythons(&launch.program);
        if files.is_empty() && !is_program {
            return None;
        }
        let binaries = || {
            [launch.program.as_str()]
                .into_iter()
                .chain(files.iter().copied())
        };
        let version = binaries().find_map(version_of);
        // Only mapped files, if the interpreter itself is not found.
        let base = match is_program {
            true => Some(launch.program.as_str()),
            false => files
                .iter()
                .copied()
                .find(|path| path.contains("/libpython")),
        }
        .and_then(|path| prefix_of(Path::new(path)));
        let environment = is_program
            .then(|| launch.virtual_environment(until))
            .flatten();
        let mut folders: Vec<PathBuf> = files.iter().filter_map(|path| site_of(path)).collect();
        let python_path = launch.variable("PYTHONPATH").unwrap_or_default();
        let on_path = python_path.split(':').filter(|folder| !folder.is_empty());
        folders.extend(on_path.map(|folder| launch.cwd.join(folder)));
        let library = version
            .as_ref()
            .map(|version| format!("lib/python{version}"));
        let sites = |prefix: &Path| {
            let library = library.iter();
            library
                .map(|library| prefix.join(library).join("site-packages"))
                .collect::<Vec<_>>()
        };
        let mut prefix = base.clone();
        let mut with_base = true;
        if let Some((venv, includes_system)) = environment {
            folders.extend(sites(&venv));
            with_base = includes_system;
            prefix = Some(venv);
        }
        if with_base && let Some(base) = &base {
            let home = launch.variable("HOME").filter(|home| home.starts_with('/'));
            if launch.variable("PYTHONNOUSERSITE").is_none() {
                folders.extend(
                    home.iter()
                        .flat_map(|home| sites(&Path::new(home).join(".local"))),
                );
            }
            folders.extend(sites(base));
            // Debian's own (its python3 policy, "Module Path").
            let library = library.iter();
            folders.extend(
                library.map(|library| base.join("local").join(library).join("dist-packages")),
            );
            folders.push(base.join("lib/python3/dist-packages"));
        }
        folders.extend(base.map(|base| base.join("conda-meta")));
        let mut seen = std::collections::HashSet::new();
        folders.retain(|folder| seen.insert(folder.clone()));
        Some(Self {
            version,
            prefix,
            folders,
        })
    }
}

impl Launch {
    /// Prefix of the virtual environment that the program was started from, and whether it includes
    /// the system's packages (PEP 405): the name by which it was called decides, not the file.
    fn virtual_environment(&self, until: Instant) -> Option<(PathBuf, bool)> {
        let called = self.arguments.first()?;
        let path = if called.contains('/') {
            self.cwd.join(called)
        } else {
            let path = self.variable("PATH")?;
            path.split(':')
                .take(FOLDERS_AT_MOST * 4)
                .take_while(|_| Instant::now() < until)
                .map(|folder| self.cwd.join(folder).join(called))
                .find(|candidate| {
                    let follow = crate::process_root::LastLink::Follow;
                    self.root.open_file(candidate, follow).is_ok()
                })?
        };
        let folder = path.parent()?;
        [Some(folder), folder.parent()]
            .into_iter()
            .flatten()
            .find_map(|prefix| {
                let text = self.root.read(&prefix.join("pyvenv.cfg"))?;
                let includes_system = text.lines().any(|line| {
                    line.split_once('=').is_some_and(|(key, value)| {
                        key.trim() == "include-system-site-packages"
                            && value.trim().eq_ignore_ascii_case("true")
                    })
                });
                Some((prefix.to_owned(), includes_system))
            })
    }
}

/// `3.11` of a name such as `python3.11` or `libpython3.11.so.1.0`.
fn version_of(path: &str) -> Option<String> {
    let name = path.rsplit('/').next()?;
    let rest = name
        .strip_prefix("lib")
        .unwrap_or(name)
        .strip_prefix("python")?;
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
    let version = rest.get(..end.unwrap_or(rest.len()))?.trim_end_matches('.');
    version.contains('.').then(|| version.to_owned())
}

/// `/usr` of `/usr/bin/python3` and of `/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0`.
fn prefix_of(path: &Path) -> Option<PathBuf> {
    let is_inside = |part: &Path| {
        let name = part.file_name().and_then(|name| name.to_str());
        matches!(name, Some("bin" | "lib" | "lib64"))
    };
    let inside = path.ancestors().skip(1).find(|part| is_inside(part))?;
    inside.parent().map(Path::to_owned)
}

/// The folder of packages that a path is in.
fn site_of(path: &str) -> Option<PathBuf> {
    ["site-packages", "dist-packages"].iter().find_map(|name| {
        let at = path.rfind(&format!("/{name}/"))?;
        Some(PathBuf::from(path.get(..at + 1 + name.len())?))
    })
}

/// A package by the name of its folder of metadata: `NAME-VERSION.dist-info` ("Recording installed
/// projects" of the Python packaging specifications), or setuptools' older `.egg-info`.
fn package(
    entry: &str,
    read: impl Fn(&str) -> Option<String>,
    redactor: &Redactor,
) -> Option<(String, String)> {
    let (name, version) = if let Some(stem) = entry.strip_suffix(".dist-info") {
        stem.split_once('-')?
    } else {
        let stem = entry.strip_suffix(".egg-info")?;
        let (name, rest) = stem.split_once('-').unwrap_or((stem, "unknown"));
        (name, rest.split("-py").next()?)
    };
    let (name, version) = (word(name)?, word(version)?);
    let mut value = version.to_owned();
    if let Some(installer) = read("INSTALLER").as_deref().and_then(word) {
        value += &format!("; installer {}", redactor.text(installer));
    }
    if let Some(tags) = read("WHEEL")
        .map(|text| wheel_tags(&text))
        .filter(|tags| !tags.is_empty())
    {
        value += &format!("; wheel {tags}");
    }
    if let Some(origin) = read("direct_url.json").and_then(|text| origin(&text, redactor)) {
        value += &format!("; from {origin}");
    }
    Some((format!("python.package.{}", normalised(name)), value))
}

/// A text of one short word: the name of something, a version or a tag. Whatever else a file has is not recorded.
fn word(text: &str) -> Option<&str> {
    let word = text.trim();
    let is_part = |c: char| c.is_ascii_alphanumeric() || "._+-!".contains(c);
    let is_word = (1..=WORD_AT_MOST).contains(&word.len()) && word.chars().all(is_part);
    is_word.then_some(word)
}

/// Normalised as package indexes compare names (PEP 503).
fn normalised(name: &str) -> String {
    let parts = name.split(['-', '_', '.']).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("-").to_ascii_lowercase()
}

/// Tags and build number of a wheel ("Binary distribution format").
fn wheel_tags(text: &str) -> String {
    let values = |key: &'static str| {
        text.lines().filter_map(move |line| {
            let (name, value) = line.split_once(':')?;
            (name == key).then(|| word(value)).flatten()
        })
    };
    let build = values("Build").map(|build| format!("build {build}"));
    let tags = values("Tag").map(str::to_owned);
    let words = tags.take(TAGS_AT_MOST).chain(build.take(1));
    words.collect::<Vec<_>>().join(" ")
}

/// Origin of a package that is not from an index (PEP 610).
fn origin(text: &str, redactor: &Redactor) -> Option<String> {
    let json: serde_json::Value = serde_json::from_str(text).ok()?;
    let mut origin = redactor.text(json.get("url")?.as_str()?);
    let inside = |object: &str, key: &str| json.get(object)?.get(key).cloned();
    if let Some(commit) = inside("vcs_info", "commit_id") {
        let hex = commit
            .as_str()
            .filter(|id| id.bytes().all(|b| b.is_ascii_hexdigit()));
        origin += &format!(" at {}", hex?);
    }
    if inside("dir_info", "editable") == Some(true.into()) {
        origin += " (editable)";
    }
    Some(origin)
}

/// `NAME-VERSION-BUILD.json` of a conda environment.
fn conda_package(entry: &str, read: impl Fn() -> Option<String>) -> Option<(String, String)> {
    let stem = entry.strip_suffix(".json")?;
    let (stem, build) = stem.rsplit_once('-')?;
    let (name, version) = stem.rsplit_once('-')?;
    let (name, version, build) = (word(name)?, word(version)?, word(build)?);
    let mut value = format!("{version}; build {build}");
    // The keys are sorted, and the long lists of files come after this one; the text may be cut.
    if let Some(channel) = read().as_deref().and_then(channel) {
        value += &format!("; channel {channel}");
    }
    Some((format!("conda.package.{}", normalised(name)), value))
}

/// The last part of the channel's URL, which may have a token in front.
fn channel(json: &str) -> Option<String> {
    let (_, rest) = json.split_once("\"channel\"")?;
    let url = rest.split('"').nth(1)?;
    const PLATFORMS: [&str; 3] = ["linux-64", "linux-aarch64", "noarch"];
    let mut parts = url.rsplit('/').filter(|part| !part.is_empty());
    let name = parts.find(|part| !PLATFORMS.contains(part))?;
    Some(Redactor::default().text(word(name)?))
}

/// Reads the name of an entry and what its files contain, a zero after each.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(text: &str) {
    let mut parts = text.split('\0');
    let name = parts.next().unwrap_or_default();
    let texts: Vec<&str> = parts.collect();
    const FILES: [&str; 3] = ["INSTALLER", "WHEEL", "direct_url.json"];
    let read = |file: &str| {
        let at = FILES.iter().position(|known| *known == file)?;
        texts.get(at).map(|text| (*text).to_owned())
    };
    package(name, read, &Redactor::default());
    conda_package(name, || texts.first().map(|text| (*text).to_owned()));
}

#[cfg(test)]
mod tests;
