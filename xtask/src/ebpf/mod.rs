//! The kernel side's object: built here, committed, embedded by memtrace, so that users need stable
//! Rust only. `stamp` records its sources, `toolchain` finds a compiler for it, `object` makes it
//! small.

mod object;
mod stack;
mod stamp;
mod toolchain;

use crate::command;
use anyhow::{Context, Result, bail};
use stamp::Stamp;
use std::{fs, path::PathBuf};
use toolchain::Toolchain;

/// The committed object, embedded by memtrace.
fn object_path() -> PathBuf {
    command::root().join("memtrace/bpf/memtrace.bpf.o")
}

/// `cargo xtask build-ebpf`.
///
/// # Errors
/// When there is no toolchain, the build fails, or the result cannot be written.
pub(crate) fn build(install: bool) -> Result<()> {
    let preferred = Stamp::read().ok();
    let toolchain = Toolchain::find(preferred.as_ref(), install)?;
    let object = compile(&toolchain)?;
    let deepest = stack::check(&object)?;
    let stamp = Stamp {
        sources_sha256: stamp::sources_digest()?,
        object_sha256: stamp::digest(&object),
        rustc: toolchain.rustc_version,
        bpf_linker: toolchain.linker_version,
    };
    let path = object_path();
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create `{}`", folder.display()))?;
    }
    fs::write(&path, &object).with_context(|| format!("cannot write `{}`", path.display()))?;
    stamp.write()?;
    println!(
        "memtrace/bpf/memtrace.bpf.o: {} bytes, sha256 {}",
        object.len(),
        stamp.object_sha256
    );
    println!(
        "deepest call chain: {} bytes of stack: {}",
        deepest.bytes,
        deepest.functions.join(" → ")
    );
    Ok(())
}

/// `cargo xtask check-ebpf`.
///
/// # Errors
/// When the committed object does not belong to the sources, was changed, or a
/// rebuild by the same toolchain gives another one.
pub(crate) fn check() -> Result<()> {
    let stamp = Stamp::read()?;
    let path = object_path();
    let object = fs::read(&path).with_context(|| format!("cannot read `{}`", path.display()))?;

    let sources = stamp::sources_digest()?;
    if sources != stamp.sources_sha256 {
        bail!(
            "the committed object is older than the kernel-side sources: run `cargo xtask build-ebpf` \
             (sources have sha256 {sources}, the object was built from {})",
            stamp.sources_sha256
        );
    }
    println!("check-ebpf: ok: the object was built from these sources");

    let found = stamp::digest(&object);
    if found != stamp.object_sha256 {
        bail!(
            "`{}` is not the object that was built: sha256 {found}, expected {}",
            path.display(),
            stamp.object_sha256
        );
    }
    println!("check-ebpf: ok: the object is the one that was built");

    let deepest = stack::check(&object)?;
    println!(
        "check-ebpf: ok: no call chain uses more than {} bytes of stack",
        deepest.bytes
    );

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
    if compile(&toolchain)? != object {
        bail!("a rebuild differs from the committed object: run `cargo xtask build-ebpf`");
    }
    println!("check-ebpf: ok: a rebuild is identical byte for byte");
    Ok(())
}

/// Compiles the kernel side; the result depends on sources and toolchain, not on their location.
fn compile(toolchain: &Toolchain) -> Result<Vec<u8>> {
    let target_dir = command::target_dir().join("ebpf");
    let mut build = toolchain.cargo()?;
    build
        .current_dir(command::root().join("memtrace-ebpf"))
        .args([
            "build",
            "--locked",
            "--release",
            "--target",
            "bpfel-unknown-none",
        ])
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
