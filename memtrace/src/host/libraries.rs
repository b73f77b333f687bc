//! Facts about the files that a process executes: which build of which library.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::{Fact, Facts, Redactor};
use crate::{
    file::FileBytes,
    frames::runtime_heaps,
    ledger::ProcessId,
    process::{elf::Elf, files::ModuleFile, maps},
};

/// A file that a process executes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Library {
    /// As the process sees it. Its name often contains the version.
    pub path: String,
    pub soname: Option<String>,
    /// Lower-case hex.
    pub build_id: Option<String>,
    /// Bytes.
    pub size: u64,
    /// glibc's own version, see [`glibc_version`].
    pub glibc: Option<String>,
    /// The runtime of a language with a heap of its own.
    pub(crate) runtime: Option<&'static str>,
}

impl Library {
    /// Facts from the headers of a file at `path`.
    pub(crate) fn of(path: String, size: u64, elf: &Elf) -> Self {
        let file = path.rsplit('/').next().unwrap_or_default();
        let runtime = runtime_heaps::in_file(file, |section| elf.has_section(section));
        Self {
            runtime: runtime.map(|heap| heap.name),
            glibc: (elf.soname.as_deref() == Some("libc.so.6"))
                .then(|| elf.contents().find_map(glibc_version))
                .flatten(),
            path,
            soname: elf.soname.clone(),
            build_id: elf.build_id.clone(),
            size,
        }
    }

    /// Its soname, or the name of its file.
    pub(crate) fn name(&self) -> &str {
        let file = || self.path.rsplit('/').next().unwrap_or(&self.path);
        self.soname.as_deref().unwrap_or_else(file)
    }

    /// Its name without version, and without the hash that repaired wheels add
    /// (`libgomp-a34b3233.so.1`): equal for the builds of one library.
    fn family(&self) -> &str {
        let name = self.name();
        let name = name.split_once(".so").map_or(name, |(name, _)| name);
        let is_version = |c: char| c.is_ascii_digit() || c == '.';
        let unversioned = match name.split_once('.') {
            Some((start, rest)) if rest.chars().all(is_version) => start,
            _ => name,
        };
        match unversioned.rsplit_once('-') {
            Some((start, hash)) if hash.len() == 8 && is_hex(hash) => start,
            _ => name,
        }
    }
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// OpenMP runtimes; a process should have only one.
const OPENMP: &[&str] = &["libgomp", "libiomp5", "libomp"];

/// Facts of all libraries of a process; `program` is the path of its executable.
pub(crate) fn facts<'a>(
    process: ProcessId,
    libraries: impl IntoIterator<Item = &'a Library>,
    program: Option<&str>,
    redactor: &Redactor,
) -> Vec<Fact> {
    let mut by_name: BTreeMap<String, BTreeSet<&Library>> = BTreeMap::new();
    let mut families: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let (mut openmp, mut runtimes) = (BTreeSet::new(), BTreeSet::new());
    let mut facts = Facts::new(Some(process), redactor);
    for library in libraries {
        let name = match Some(library.path.as_str()) == program {
            true => "exe".to_owned(),
            false => format!("lib.{}", library.name()),
        };
        by_name.entry(name).or_default().insert(library);
        if library.name().starts_with("lib") {
            families
                .entry(library.family())
                .or_default()
                .insert(&library.path);
        }
        if OPENMP.contains(&library.family()) {
            openmp.insert(library.family());
        }
        facts.add("glibc.version", library.glibc.as_deref());
        runtimes.extend(library.runtime);
    }
    // Of several, the memory could be any one's.
    let runtime = runtimes.first().filter(|_| runtimes.len() == 1);
    facts.add("runtime.heap", runtime.copied());
    let several = |paths: BTreeSet<&str>| {
        let paths: Vec<_> = paths.into_iter().map(|path| redactor.path(path)).collect();
        (paths.len() > 1).then(|| paths.join(", "))
    };
    for (family, paths) in families {
        facts.add(&format!("lib.duplicates.{family}"), several(paths));
    }
    let runtimes = (openmp.len() > 1).then(|| Vec::from_iter(openmp).join(", "));
    facts.add("lib.openmp_runtimes", runtimes);
    for (name, same) in by_name {
        // Two files with one name: both values, in order of the paths.
        let mut add = |what: &str, value: &dyn Fn(&Library) -> String| {
            let values: Vec<_> = same.iter().map(|library| value(library)).collect();
            facts.add(&format!("{name}.{what}"), Some(values.join(", ")));
        };
        add("build_id", &|library| {
            library
                .build_id
                .clone()
                .unwrap_or_else(|| "none".to_owned())
        });
        add("path", &|library| redactor.path(&library.path));
        add("size", &|library| library.size.to_string());
    }
    facts.into_vec()
}

/// The files that process `tgid` executes now. Files that cannot be opened or are not ELF are left
/// out; none if it is gone.
pub(crate) fn of_process(tgid: u32) -> Vec<Library> {
    let mappings = maps::read(tgid).unwrap_or_default();
    maps::executable_files(&mappings)
        .into_iter()
        .filter_map(|mapping| {
            let file = ModuleFile::open(tgid, mapping).ok()?;
            let size = file.file.metadata().ok()?.len();
            let bytes = FileBytes::new(&file.file);
            let elf = Elf::parse(&bytes).ok()?;
            Some(Library::of(file.path.display().to_string(), size, &elf))
        })
        .collect()
}

/// Path of the executable of process `tgid`, as the process sees it.
pub(crate) fn program(tgid: u32) -> Option<String> {
    let path = std::fs::read_link(format!("/proc/{tgid}/exe")).ok()?;
    // The kernel appends this to the name of a file that is gone (fs/d_path.c).
    let path = path.to_str()?;
    Some(path.strip_suffix(" (deleted)").unwrap_or(path).to_owned())
}

/// Version and distribution in the banner that glibc carries (`__libc_print_version`):
/// `GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.`
fn glibc_version(bytes: &[u8]) -> Option<String> {
    const BANNER: &[u8] = b"GNU C Library ";
    let start = bytes
        .windows(BANNER.len())
        .position(|part| part == BANNER)?;
    let line = bytes
        .get(start + BANNER.len()..)?
        .split(|&byte| byte == b'\n')
        .next()?;
    let line = std::str::from_utf8(line.get(..line.len().min(200))?).ok()?;
    let (distribution, version) = line.split_once("version ")?;
    let version: String = version
        .chars()
        .take_while(|c| c.is_ascii_digit() || *c == '.')
        .collect();
    let distribution = distribution
        .split_once('(')
        .and_then(|(_, rest)| Some(rest.split_once(')')?.0));
    let version = version.trim_end_matches('.');
    Some(match distribution {
        Some(distribution) => format!("{version} ({distribution})"),
        None => version.to_owned(),
    })
}

/// Whether a path belongs to CPython: its program, its library, or a package's module.
pub(super) fn is_pythons(path: &str) -> bool {
    let name = Path::new(path)
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    name.starts_with("python")
        || name.starts_with("libpython")
        || path.contains("/site-packages/")
        || path.contains("/dist-packages/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(path: &str, soname: Option<&str>, build_id: &str) -> Library {
        Library {
            path: path.into(),
            soname: soname.map(Into::into),
            build_id: Some(build_id.into()),
            size: 7,
            ..Library::default()
        }
    }

    fn value<'a>(facts: &'a [Fact], field: &str) -> Option<&'a str> {
        let fact = facts.iter().find(|fact| fact.field == field)?;
        Some(&fact.value)
    }

    #[test]
    fn builds_are_recorded_and_duplicates_flagged() {
        let go = Library {
            runtime: Some("Go"),
            ..library("/usr/bin/app", None, "aa")
        };
        let libraries = [
            go,
            library("/usr/lib/libgomp.so.1.0.0", Some("libgomp.so.1"), "01"),
            library(
                "/v/torch.libs/libgomp-a34b3233.so.1.0.0",
                Some("libgomp-a34b3233.so.1"),
                "02",
            ),
            library("/v/libiomp5.so", Some("libiomp5.so"), "03"),
            library("/a/libx.so.1", Some("libx.so.1"), "04"),
            library("/b/libx.so.1", Some("libx.so.1"), "05"),
            library("/p/_common.cpython-311.so", None, "06"),
            library("/q/_common.cpython-312.so", None, "07"),
        ];
        let redactor = Redactor::default();
        let facts = facts(ProcessId(1), &libraries, Some("/usr/bin/app"), &redactor);
        for (field, expected) in [
            ("exe.build_id", "aa"),
            ("exe.size", "7"),
            ("runtime.heap", "Go"),
            ("lib.libgomp.so.1.build_id", "01"),
            ("lib.libx.so.1.build_id", "04, 05"),
            ("lib.libx.so.1.path", "/a/libx.so.1, /b/libx.so.1"),
            (
                "lib.duplicates.libgomp",
                "/usr/lib/libgomp.so.1.0.0, /v/torch.libs/libgomp-a34b3233.so.1.0.0",
            ),
            ("lib.duplicates.libx", "/a/libx.so.1, /b/libx.so.1"),
            ("lib.openmp_runtimes", "libgomp, libiomp5"),
        ] {
            assert_eq!(value(&facts, field), Some(expected), "{field}");
        }
        assert_eq!(value(&facts, "lib.app.build_id"), None);
        let flagged = facts
            .iter()
            .filter(|fact| fact.field.starts_with("lib.duplicates"));
        assert_eq!(flagged.count(), 2);
    }

    #[test]
    fn names_of_builds_have_one_family() {
        for (name, family) in [
            ("libgomp.so.1", "libgomp"),
            ("libgomp-a34b3233.so.1.0.0", "libgomp"),
            ("libopenblas64_p-r0-15028c96.3.21.so", "libopenblas64_p-r0"),
            ("libstdc++.so.6", "libstdc++"),
            ("libc-2.31.so", "libc-2.31"),
        ] {
            assert_eq!(library(name, None, "").family(), family, "{name}");
        }
    }

    #[test]
    fn the_distribution_of_glibc_is_recorded() {
        let banner =
            b"\0x\0GNU C Library (Debian GLIBC 2.36-9+deb12u10) stable release version 2.36.\nCopy";
        assert_eq!(
            glibc_version(banner).as_deref(),
            Some("2.36 (Debian GLIBC 2.36-9+deb12u10)")
        );
        let plain = b"GNU C Library stable release version 2.9, by Roland McGrath";
        assert_eq!(glibc_version(plain).as_deref(), Some("2.9"));
        assert_eq!(glibc_version(b"GNU C Library \xff\n"), None);
        assert_eq!(glibc_version(b"musl libc"), None);
    }

    #[test]
    fn this_process_has_its_libraries() {
        let libraries = of_process(std::process::id());
        let libc = libraries.iter().find(|l| l.name() == "libc.so.6").unwrap();
        assert!(libc.glibc.is_some() && libc.build_id.is_some(), "{libc:?}");
        assert_eq!(libc.size, std::fs::metadata(&libc.path).unwrap().len());
        let program = program(std::process::id()).unwrap();
        assert!(libraries.iter().any(|library| library.path == program));
    }
}
