//! The kernel side's objects: built here, committed, embedded by memtrace, so that users need stable
//! Rust only. `stamp` records their sources, `toolchain` finds a compiler for them, `object` makes them
//! small.

mod object;
mod stack;
mod stamp;
mod toolchain;

use crate::command;
use anyhow::{Context, Result, bail};
use stamp::Stamp;
use std::{collections::BTreeMap, fs, path::PathBuf};
use toolchain::Toolchain;

/// The processor that an object is for, by its name in `bpf_target_arch`.
#[derive(Clone, Copy)]
enum Architecture {
    X86_64,
    Aarch64,
}

impl Architecture {
    fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// Where cargo builds it. Apart, because flags alone do not make it run build scripts again.
    fn target_dir(self) -> PathBuf {
        command::target_dir().join(match self {
            Self::X86_64 => "ebpf",
            Self::Aarch64 => "ebpf-aarch64",
        })
    }
}

/// A committed object, embedded by memtrace.
#[derive(Clone, Copy)]
struct Object {
    architecture: Architecture,
    /// For kernels without `bpf_loop` (before Linux 5.17).
    is_legacy: bool,
    /// From the root.
    name: &'static str,
}

/// All of them; the first one's path gives that of the stamp.
const OBJECTS: [Object; 4] = [
    Object {
        architecture: Architecture::X86_64,
        is_legacy: false,
        name: "memtrace/bpf/memtrace.bpf.o",
    },
    Object {
        architecture: Architecture::X86_64,
        is_legacy: true,
        name: "memtrace/bpf/legacy.bpf.o",
    },
    Object {
        architecture: Architecture::Aarch64,
        is_legacy: false,
        name: "memtrace/bpf/aarch64/memtrace.bpf.o",
    },
    Object {
        architecture: Architecture::Aarch64,
        is_legacy: true,
        name: "memtrace/bpf/aarch64/legacy.bpf.o",
    },
];

impl Object {
    fn path(self) -> PathBuf {
        command::root().join(self.name)
    }

    /// The crate's features.
    fn features(self) -> &'static [&'static str] {
        match self.is_legacy {
            false => &[],
            true => &["--features", "legacy"],
        }
    }

    /// Checks its use of stack.
    fn check_stack(self, object: &[u8]) -> Result<stack::Chain> {
        match self.is_legacy {
            false => stack::check(object),
            true => stack::check_legacy(object),
        }
    }
}

/// `cargo xtask build-ebpf`.
///
/// # Errors
/// When there is no toolchain, the build fails, or the result cannot be written.
pub(crate) fn build(install: bool) -> Result<()> {
    let preferred = Stamp::read().ok();
    let toolchain = Toolchain::find(preferred.as_ref(), install)?;
    let mut digests = BTreeMap::new();
    for kind in OBJECTS {
        let object = compile(&toolchain, kind)?;
        let deepest = kind.check_stack(&object)?;
        let path = kind.path();
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot create `{}`", folder.display()))?;
        }
        fs::write(&path, &object).with_context(|| format!("cannot write `{}`", path.display()))?;
        let digest = stamp::digest(&object);
        println!("{}: {} bytes, sha256 {digest}", kind.name, object.len());
        println!(
            "deepest call chain: {} bytes of stack: {}",
            deepest.bytes,
            deepest.functions.join(" → ")
        );
        digests.insert(kind.name.to_owned(), digest);
    }
    let stamp = Stamp {
        sources_sha256: stamp::sources_digest()?,
        objects_sha256: digests,
        rustc: toolchain.rustc_version,
        bpf_linker: toolchain.linker_version,
    };
    stamp.write()?;
    Ok(())
}

/// `cargo xtask check-ebpf`.
///
/// # Errors
/// When a committed object does not belong to the sources, was changed, or a
/// rebuild by the same toolchain gives another one.
pub(crate) fn check() -> Result<()> {
    let stamp = Stamp::read()?;
    let sources = stamp::sources_digest()?;
    if sources != stamp.sources_sha256 {
        bail!(
            "the committed objects are older than the kernel-side sources: run `cargo xtask build-ebpf` \
             (sources have sha256 {sources}, the objects were built from {})",
            stamp.sources_sha256
        );
    }
    println!("check-ebpf: ok: the objects were built from these sources");

    let mut objects = Vec::new();
    for kind in OBJECTS {
        let path = kind.path();
        let object =
            fs::read(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
        let (found, expected) = (stamp::digest(&object), stamp.digest_of(kind));
        if found != expected {
            bail!(
                "`{}` is not the object that was built: sha256 {found}, expected {expected}",
                path.display(),
            );
        }
        let deepest = kind.check_stack(&object)?;
        println!(
            "check-ebpf: ok: {} is the object that was built, and no call chain uses more than {} bytes of stack",
            kind.name, deepest.bytes
        );
        objects.push((kind, object));
    }

    let same = Toolchain::find(Some(&stamp), false)
        .ok()
        .filter(|t| t.rustc_version == stamp.rustc && t.linker_version == stamp.bpf_linker);
    let Some(toolchain) = same else {
        println!(
            "check-ebpf: not rebuilt: that needs {} and {} (`cargo xtask setup --ebpf`)",
            stamp.rustc, stamp.bpf_linker
        );
        return Ok(());
    };
    for (kind, object) in objects {
        if compile(&toolchain, kind)? != object {
            bail!(
                "a rebuild differs from the committed {}: run `cargo xtask build-ebpf`",
                kind.name
            );
        }
    }
    println!("check-ebpf: ok: a rebuild is identical byte for byte");
    Ok(())
}

/// Compiles the kernel side; the result depends on sources and toolchain, not on their location.
fn compile(toolchain: &Toolchain, kind: Object) -> Result<Vec<u8>> {
    let target_dir = kind.architecture.target_dir();
    let mut build = toolchain.cargo(kind.architecture)?;
    build
        .current_dir(command::root().join("memtrace-ebpf"))
        .args([
            "build",
            "--locked",
            "--release",
            "--target",
            "bpfel-unknown-none",
        ])
        .args(kind.features())
        // Freshness by content: a checkout or copy may give a changed file an old time.
        .args(["-Z", "build-std=core", "-Z", "checksum-freshness"])
        .arg("--target-dir")
        .arg(&target_dir);
    command::run(&mut build)?;
    let built = target_dir.join("bpfel-unknown-none/release/memtrace");
    let linked = fs::read(&built).with_context(|| format!("cannot read `{}`", built.display()))?;
    object::without_debug_sections(&linked)
}

/// Installs bpf-linker when it is missing.
///
/// # Errors
/// When there is no compiler for the kernel side, or the installation fails.
pub(crate) fn install_linker() -> Result<()> {
    Toolchain::find(Stamp::read().ok().as_ref(), true).map(drop)
}
