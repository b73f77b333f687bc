//! Packs the binary: as a tarball, for Debian, for Python's pip, and for containers; and lists what it contains.

use super::{
    Packages,
    binary::{self, PROFILE, TARGET},
    licences, sbom, tar,
};
use crate::{
    command::{self, output, root, target_dir},
    setup,
};
use anyhow::{Context, Result, ensure};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const MATURIN_VERSION: &str = "1.16.0";

/// pip takes the wheel on systems with one of these: a static binary runs on all of them.
const PLATFORMS: [&str; 2] = ["manylinux2014", "musllinux_1_1"];

/// Makes all of them in `folder`.
///
/// # Errors
/// When a tool is missing, or fails.
pub(super) fn make(binary: &Path, folder: &Path) -> Result<Packages> {
    let tree = tree(binary)?;
    Ok(Packages {
        tarball: tarball(&tree, folder)?,
        deb: deb(&tree, folder)?,
        wheel: wheel(binary, folder)?,
        image: image(binary, folder)?,
        sbom: sbom(binary, folder)?,
    })
}

/// The installed files, as below /usr/local.
fn tree(binary: &Path) -> Result<PathBuf> {
    const DOCUMENTS: [&str; 6] = [
        "CHANGELOG.md",
        "LICENSE",
        "LICENSE-APACHE",
        "LICENSE-MIT",
        "README.md",
        "memtrace-ebpf/LICENSE-GPL2",
    ];
    const COMPLETIONS: [(&str, &str); 3] = [
        ("bash", "bash-completion/completions/memtrace"),
        ("fish", "fish/vendor_completions.d/memtrace.fish"),
        ("zsh", "zsh/site-functions/_memtrace"),
    ];
    let tree = target_dir().join("dist-tree");
    let _ = fs::remove_dir_all(&tree);
    let (programs, share) = (tree.join("bin"), tree.join("share"));
    let documents = share.join("doc/memtrace");
    for folder in [&programs, &documents] {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot make `{}`", folder.display()))?;
    }
    fs::copy(binary, programs.join("memtrace"))?;
    for name in DOCUMENTS {
        let from = root().join(name);
        let name = from.file_name().unwrap_or_default();
        fs::copy(&from, documents.join(name))
            .with_context(|| format!("cannot copy `{}`", from.display()))?;
    }
    fs::write(documents.join("LICENSES-OF-DEPENDENCIES"), licences::all()?)?;
    for (shell, file) in COMPLETIONS {
        let file = share.join(file);
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        let script = output(Command::new(binary).args(["completions", shell]))?;
        fs::write(file, script + "\n")?;
    }
    output(Command::new(binary).arg("man").arg(share.join("man/man1")))?;
    Ok(tree)
}

fn tarball(tree: &Path, folder: &Path) -> Result<PathBuf> {
    let name = format!("memtrace-{}-x86_64-linux", env!("CARGO_PKG_VERSION"));
    let file = folder.join(format!("{name}.tar.gz"));
    tar::pack(tree, &name, &file)?;
    Ok(file)
}

/// By dpkg-deb, because all that is to be packed is there already.
fn deb(tree: &Path, folder: &Path) -> Result<PathBuf> {
    setup::install(&["dpkg"])?;
    let version = env!("CARGO_PKG_VERSION");
    let work = target_dir().join("dist-deb");
    let _ = fs::remove_dir_all(&work);
    let control = work.join("DEBIAN");
    fs::create_dir_all(&control).with_context(|| format!("cannot make `{}`", control.display()))?;
    output(
        Command::new("cp")
            .arg("--recursive")
            .arg(tree)
            .arg(work.join("usr")),
    )?;
    // Debian's zsh does not search the folder that is right below /usr/local.
    let zsh = work.join("usr/share/zsh");
    fs::rename(zsh.join("site-functions"), zsh.join("vendor-completions"))?;
    let size = output(
        Command::new("du")
            .args(["--summarize", "--apparent-size", "-k"])
            .arg(&work),
    )?;
    let size = size.split_whitespace().next().unwrap_or_default();
    fs::write(
        control.join("control"),
        format!(
            "Package: memtrace\n\
             Version: {version}\n\
             Architecture: amd64\n\
             Maintainer: memtrace's developers\n\
             Section: devel\n\
             Priority: optional\n\
             Installed-Size: {size}\n\
             Description: memory-leak tracer built on eBPF\n \
             It says what grows, which line allocates it, and which line keeps it.\n"
        ),
    )?;
    // Whatever the umask is here.
    output(
        Command::new("chmod")
            .args(["--recursive", "u=rwX,go=rX"])
            .arg(&work),
    )?;
    let file = folder.join(format!("memtrace_{version}_amd64.deb"));
    let mut dpkg = Command::new("dpkg-deb");
    // Every dpkg can read xz.
    dpkg.args(["--root-owner-group", "-Zxz", "--build"])
        .args([&work, &file])
        .env("SOURCE_DATE_EPOCH", binary::commit_time()?);
    command::run(&mut dpkg)?;
    Ok(file)
}

fn wheel(binary: &Path, folder: &Path) -> Result<PathBuf> {
    let before = fs::read(binary)?;
    let mut maturin = Command::new(maturin()?);
    maturin
        .current_dir(root().join("memtrace"))
        .args([
            "build",
            "--locked",
            "--target",
            TARGET,
            "--profile",
            PROFILE,
        ])
        .arg("--compatibility")
        .args(PLATFORMS)
        .arg("--out")
        .arg(folder)
        .env("CARGO_TARGET_DIR", target_dir());
    command::without_package(&mut maturin);
    binary::prepare(&mut maturin, &root(), &target_dir())?;
    command::run(&mut maturin)?;
    ensure!(
        fs::read(binary)? == before,
        "maturin built another binary than cargo: `{}`",
        binary.display()
    );
    let entries = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    let mut files = entries.iter().map(fs::DirEntry::path);
    let wheel = files.find(|file| file.extension().is_some_and(|of| of == "whl"));
    wheel.context("maturin made no wheel")
}

fn sbom(binary: &Path, folder: &Path) -> Result<PathBuf> {
    let name = format!(
        "memtrace-{}-x86_64-linux.cdx.json",
        env!("CARGO_PKG_VERSION")
    );
    let file = folder.join(name);
    fs::write(&file, sbom::of(binary)?)?;
    Ok(file)
}

/// A folder that `docker build` and `podman build` take: nothing is built or fetched in it.
fn image(binary: &Path, folder: &Path) -> Result<PathBuf> {
    let image = folder.join("image");
    fs::create_dir_all(&image)?;
    fs::copy(binary, image.join("memtrace"))?;
    fs::copy(
        root().join("memtrace/packaging/Containerfile"),
        image.join("Containerfile"),
    )?;
    Ok(image)
}

/// maturin of the pinned version, in a virtual environment in `target/tools`.
fn maturin() -> Result<PathBuf> {
    let environment = target_dir().join("tools/maturin");
    let own = environment.join("bin/maturin");
    let expected = format!("maturin {MATURIN_VERSION}");
    if !own.is_file() || output(Command::new(&own).arg("--version"))? != expected {
        setup::install(&["python3-venv"])?;
        let mut python = Command::new("python3");
        command::run(python.args(["-m", "venv", "--clear"]).arg(&environment))?;
        let mut pip = Command::new(environment.join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check"]);
        command::run(pip.arg(format!("maturin=={MATURIN_VERSION}")))?;
    }
    Ok(own)
}
