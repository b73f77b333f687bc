//! `cargo xtask dist`: what users install, in `target/dist`. `binary` builds, `packages` packs, `trial` installs and uses
//! each of them.

pub(crate) mod apt;
mod binary;
pub(crate) mod image;
mod licences;
mod linked;
mod packages;
mod sbom;
mod tar;
mod trial;

use crate::command::{self, target_dir};
use anyhow::{Context, Result, ensure};
use clap::Args;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Most bytes of the binary.
const LARGE: u64 = 17_500_000;

#[derive(Args)]
pub(crate) struct Options {
    /// Install and use each package on Debian 11, 12 and 13, and on a system with musl (as root)
    #[arg(long)]
    pub(crate) test: bool,
    /// Build the binary a second time, in another folder: it must have the same bytes
    #[arg(long)]
    pub(crate) reproduce: bool,
}

/// What users install.
struct Packages {
    tarball: PathBuf,
    deb: PathBuf,
    wheel: PathBuf,
    /// The files of the container image's only layer.
    image: PathBuf,
    /// What the binary contains.
    sbom: PathBuf,
}

/// `cargo xtask dist`.
///
/// # Errors
/// When something cannot be built, is too large or not reproducible, or does not work where it was installed.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.test {
        command::need_root("a test of packages (`dist` alone needs no root)")?;
    }
    let binary = binary::build()?;
    let size = size(&binary)?;
    ensure!(
        size <= LARGE,
        "`{}` has {size} bytes, more than {LARGE}",
        binary.display()
    );
    if options.reproduce {
        binary::build_again(&binary)?;
    }
    let folder = folder();
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
    let packages = packages::make(&binary, &folder)?;
    println!("{:>9} bytes  the binary", size);
    for package in [
        &packages.tarball,
        &packages.deb,
        &packages.wheel,
        &packages.sbom,
    ] {
        println!("{:>9} bytes  {}", self::size(package)?, package.display());
    }
    println!(
        "{:>9}        {} (a Containerfile and its files)",
        "",
        packages.image.display()
    );
    if options.test {
        trial::run(&packages)?;
    }
    Ok(())
}

/// Where the packages go.
pub(crate) fn folder() -> PathBuf {
    target_dir().join("dist")
}

fn size(file: &Path) -> Result<u64> {
    let metadata = fs::metadata(file);
    Ok(metadata
        .with_context(|| format!("cannot read `{}`", file.display()))?
        .len())
}
