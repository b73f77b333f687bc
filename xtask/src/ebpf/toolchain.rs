//! Finds a compiler for the kernel side. Rust ships no `core` for BPF, so it is built from source
//! (`-Z build-std`), and that source must be the compiler's own. Two places have such a pair:
//! rustup's nightly with `rust-src`, and Debian's `rustc-web` with `rust-web-src`.

use super::{Architecture, stamp::Stamp};
use crate::command::{self, output};
use anyhow::{Result, bail};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const LINKER_VERSION: &str = "0.13.0";
/// Folder of Debian's LLVM 22, and the environment variable in which bpf-linker's build looks for
/// it.
const DEBIAN_LLVM: &str = "/usr/lib/llvm-22";
const LLVM_VARIABLES: [&str; 2] = ["LLVM_PREFIX", "LLVM_SYS_221_PREFIX"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Debian,
    Rustup,
}

#[derive(Debug)]
pub(super) struct Toolchain {
    rustc: PathBuf,
    sysroot: PathBuf,
    linker: PathBuf,
    /// `rustc --version`.
    pub(super) rustc_version: String,
    /// `bpf-linker --version`.
    pub(super) linker_version: String,
}

impl Toolchain {
    /// Finds a toolchain, the one that `preferred` names if it is there.
    ///
    /// # Errors
    /// When there is none; with `install` a missing linker is installed first.
    pub(super) fn find(preferred: Option<&Stamp>, install: bool) -> Result<Toolchain> {
        let mut compilers: Vec<_> = [Route::Debian, Route::Rustup]
            .into_iter()
            .filter_map(compiler)
            .collect();
        compilers.sort_by_key(|(_, _, _, version)| {
            preferred.is_none_or(|stamp| stamp.rustc != *version)
        });
        let Some((route, rustc, sysroot, rustc_version)) = compilers.into_iter().next() else {
            bail!(
                "no compiler for the kernel side; either `rustup toolchain install nightly --component rust-src`, \
                 or on Debian `cargo xtask setup --ebpf`"
            );
        };
        let linker = match linker() {
            Some(linker) => linker,
            None if install => install_linker(route)?,
            None => bail!(
                "no bpf-linker: `cargo xtask build-ebpf --install` builds it into target/tools"
            ),
        };
        let linker_version = output(Command::new(&linker).arg("--version"))?;
        Ok(Toolchain {
            rustc,
            sysroot,
            linker,
            rustc_version,
            linker_version,
        })
    }

    /// A cargo set up to compile for BPF, for kernels of an architecture.
    pub(super) fn cargo(&self, architecture: Architecture) -> Result<Command> {
        let remap = |from: &Path, to: &str| format!("--remap-path-prefix={}={to}", from.display());
        let library = self.sysroot.join("lib/rustlib/src/rust");
        let mut flags = vec![
            "-Clink-arg=--btf".to_owned(),
            // The order that bpf-linker requests otherwise keeps LLVM from expanding any memset:
            // each is then a call of a loop over bytes.
            "-Clink-arg=--disable-expand-memcpy-in-order".to_owned(),
            format!("--cfg=bpf_target_arch=\"{}\"", architecture.name()),
            // Atomic operations that return the old value: Linux 5.12.
            "-Ctarget-cpu=v3".to_owned(),
            format!("-Clinker={}", self.linker.display()),
            // BTF contains file names, which must not reveal the place of this checkout.
            remap(&command::root(), "/memtrace"),
            remap(&command::cargo_home()?.join("registry/src"), "/cargo"),
            remap(&library, "/rust"),
        ];
        if let Ok(real) = fs::canonicalize(&library) {
            flags.push(remap(&real, "/rust"));
        }
        let mut cargo = command::cargo();
        cargo
            .env("RUSTC", &self.rustc)
            // `-Z build-std` on a compiler that is not a nightly.
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
            .env_remove("RUSTFLAGS")
            .env_remove("RUSTC_WRAPPER")
            .env_remove("RUSTC_WORKSPACE_WRAPPER");
        Ok(cargo)
    }
}

/// A compiler with its own `core` beside it: path, sysroot, version.
fn compiler(route: Route) -> Option<(Route, PathBuf, PathBuf, String)> {
    let rustc = match route {
        Route::Debian => PathBuf::from("/usr/bin/rustc"),
        Route::Rustup => {
            let path =
                output(Command::new("rustup").args(["which", "--toolchain", "nightly", "rustc"]));
            PathBuf::from(path.ok()?)
        }
    };
    // Unset: a cargo that rustup started would make `rustc` think of its own toolchain.
    let ask = |what: &[&str]| {
        output(
            Command::new(&rustc)
                .args(what)
                .env_remove("RUSTUP_TOOLCHAIN"),
        )
        .ok()
    };
    let sysroot = PathBuf::from(ask(&["--print", "sysroot"])?);
    let version = ask(&["--version"])?;
    sysroot
        .join("lib/rustlib/src/rust/library/core/Cargo.toml")
        .is_file()
        .then_some((route, rustc, sysroot, version))
}

fn linker() -> Option<PathBuf> {
    let own = command::target_dir().join("tools/bin/bpf-linker");
    own.is_file()
        .then_some(own)
        .or_else(|| command::find("bpf-linker"))
}

fn install_linker(route: Route) -> Result<PathBuf> {
    let tools = command::target_dir().join("tools");
    let mut install = command::cargo();
    install
        .args([
            "install",
            "bpf-linker",
            "--version",
            LINKER_VERSION,
            "--root",
        ])
        .arg(&tools);
    if route == Route::Debian {
        install.args(["--no-default-features", "--features", "llvm-22"]);
        for variable in LLVM_VARIABLES {
            install.env(variable, DEBIAN_LLVM);
        }
    }
    command::run(&mut install)?;
    Ok(tools.join("bin/bpf-linker"))
}
