//! The container image. Buildah makes it without a daemon, and without running anything.

use crate::{
    command::{self, output, target_dir},
    setup,
};
use anyhow::Result;
use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

const NAME: &str = concat!("localhost/memtrace:", env!("CARGO_PKG_VERSION"));

/// Builds the image in a storage of its own. `architecture` is Debian's and Go's name.
///
/// # Errors
/// When Buildah is missing, or fails.
pub(crate) fn build(files: &Path, architecture: &str) -> Result<()> {
    setup::install(&["buildah"])?;
    // What was an artefact of a workflow has lost this.
    fs::set_permissions(files.join("memtrace"), Permissions::from_mode(0o755))?;
    let _ = fs::remove_dir_all(folder());
    let options = [
        "--isolation",
        "chroot",
        "--arch",
        architecture,
        "--tag",
        NAME,
    ];
    let mut build = buildah();
    output(build.args(["bud", "--quiet"]).args(options).arg(files)).map(drop)
}

/// Writes the image into a file for `docker load` and `podman load`.
///
/// # Errors
/// When Buildah fails.
pub(crate) fn save(file: &Path) -> Result<()> {
    // Buildah does not overwrite one.
    let _ = fs::remove_file(file);
    let to = format!(
        "docker-archive:{}:memtrace:{}",
        file.display(),
        env!("CARGO_PKG_VERSION")
    );
    output(buildah().args(["push", "--quiet", NAME, &to])).map(drop)
}

/// The root of a container of the image.
///
/// # Errors
/// When Buildah fails.
pub(crate) fn mount() -> Result<PathBuf> {
    let container = output(buildah().args(["from", "--pull-never", NAME]))?;
    Ok(PathBuf::from(output(
        buildah().args(["mount", &container]),
    )?))
}

/// Uploads the images in these files, one for each architecture, under one name of a registry.
///
/// # Errors
/// When Buildah fails, for example because it is not logged in.
pub(crate) fn publish(files: &[PathBuf], name: &str) -> Result<()> {
    const LIST: &str = "localhost/memtrace-list";
    let _ = fs::remove_dir_all(folder());
    output(buildah().args(["manifest", "create", LIST]))?;
    for file in files {
        let from = format!("docker-archive:{}", file.display());
        output(buildah().args(["manifest", "add", LIST, &from]))?;
    }
    command::run(buildah().args(["manifest", "push", "--all", LIST, name]))
}

fn folder() -> PathBuf {
    target_dir().join("dist-image")
}

fn buildah() -> Command {
    let mut buildah = Command::new("buildah");
    buildah
        .args(["--storage-driver", "vfs", "--root"])
        .arg(folder().join("storage"))
        .arg("--runroot")
        .arg(folder().join("run"));
    buildah
}
