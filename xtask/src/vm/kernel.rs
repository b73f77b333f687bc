//! Debian's and Ubuntu's kernels, as packages. apt resolves the package when it is needed; fetched ones stay in
//! the user's cache. apt's own lists and folders are used, so that the host's are left alone.

use super::architecture::{Architecture, Release};
use crate::command;
use anyhow::{Context, Result, bail};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Where packages come from.
pub(super) struct Archive {
    mirror: &'static str,
    /// The keys that sign it, in Debian's place for them or as they are in the archive's own package.
    keys: Keys,
}

enum Keys {
    Installed(&'static str),
    Bytes(&'static [u8]),
}

pub(super) static DEBIAN: Archive = Archive {
    mirror: "http://deb.debian.org/debian",
    keys: Keys::Installed("/usr/share/keyrings/debian-archive-keyring.gpg"),
};

pub(super) static UBUNTU: Archive = Archive {
    mirror: "http://archive.ubuntu.com/ubuntu",
    // F6EC B376 2474 EDA9 D21B 7022 8719 20D1 991B C93C, from the package ubuntu-keyring.
    keys: Keys::Bytes(include_bytes!("ubuntu-archive.gpg")),
};

/// An unpacked kernel package.
pub(crate) struct Kernel {
    pub(crate) image: PathBuf,
    /// Folder of its modules.
    pub(crate) modules: PathBuf,
}

impl Kernel {
    /// A kernel in a file. Its modules are in its package's or this system's folder for its release, or below the file's
    /// own folder.
    ///
    /// # Errors
    /// The file is neither a bzImage nor an Image, or cannot be read.
    pub(crate) fn of_image(image: &Path) -> Result<Kernel> {
        let bytes =
            fs::read(image).with_context(|| format!("cannot read `{}`", image.display()))?;
        let release = release(&bytes)
            .with_context(|| format!("`{}` is neither a bzImage nor an Image", image.display()))?;
        let beside = image.parent().unwrap_or(Path::new("."));
        let known = ["../lib/modules", "../usr/lib/modules", "/lib/modules"];
        let mut known = known
            .iter()
            .map(|folder| beside.join(folder).join(&release));
        Ok(Kernel {
            image: image.to_owned(),
            modules: known
                .find(|folder| folder.is_dir())
                .unwrap_or_else(|| beside.to_owned()),
        })
    }

    /// The newest kernel of this version, fetched if it is not in the cache.
    ///
    /// # Errors
    /// The version is unknown, or it can neither be fetched nor found in the cache.
    pub(crate) fn fetch(version: &str, architecture: &Architecture) -> Result<Kernel> {
        let mut releases = architecture.releases.iter();
        let Some(release) = releases.find(|release| release.version == version) else {
            let known = architecture.releases.iter().map(|release| release.version);
            bail!(
                "unknown kernel `{version}`; expected host, {}",
                known.collect::<Vec<_>>().join(", ")
            );
        };
        let folder = cache()?.join(architecture.folder(Path::new(version)));
        let apt = Apt::new(folder.join("apt"), release, architecture.debian)?;
        if let Err(error) = apt.update() {
            let kernel = unpacked(&folder)?
                .with_context(|| format!("Linux {version} cannot be fetched: {error:#}"))?;
            eprintln!("vm: apt has no network; using the Linux {version} fetched last");
            return Ok(kernel);
        }
        let package = apt.newest(release.package)?;
        let place = folder.join("packages").join(&package);
        if !place.exists() {
            // Others go: each is 100 MB and more.
            let _ = fs::remove_dir_all(folder.join("packages"));
            apt.unpack(&package, &place)?;
        }
        unpacked(&folder)?.with_context(|| format!("package {package} has no kernel"))
    }
}

/// The release of a kernel's image: by its header (`kernel_version`, Documentation/arch/x86/boot.rst), or by the banner
/// in one that is not compressed (Documentation/arch/arm64/booting.rst).
fn release(image: &[u8]) -> Option<String> {
    const BANNER: &[u8] = b"Linux version ";
    let text = if image.get(0x202..0x206)? == b"HdrS" {
        let at = u16::from_le_bytes(*image.get(0x20e..)?.first_chunk()?);
        image.get(usize::from(at) + 0x200..)?
    } else if image.get(56..60)? == b"ARM\x64" {
        let at = image
            .windows(BANNER.len())
            .position(|text| text == BANNER)?;
        &image[at + BANNER.len()..]
    } else {
        return None;
    };
    let end = text.iter().position(|&byte| byte == b' ' || byte == 0)?;
    String::from_utf8(text[..end].to_vec()).ok()
}

/// The folder of kernels: not in the repository, so that no clean build fetches them again.
fn cache() -> Result<PathBuf> {
    let base = match env::var_os("XDG_CACHE_HOME") {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(env::var_os("HOME").context("HOME is not set")?).join(".cache"),
    };
    Ok(base.join("memtrace/vm"))
}

/// The kernel in this folder.
fn unpacked(folder: &Path) -> Result<Option<Kernel>> {
    let only = |folder: PathBuf| -> Result<Option<PathBuf>> {
        let Ok(mut entries) = fs::read_dir(folder) else {
            return Ok(None);
        };
        Ok(entries.next().transpose()?.map(|entry| entry.path()))
    };
    let Some(package) = only(folder.join("packages"))? else {
        return Ok(None);
    };
    let mut modules = only(package.join("lib/modules"))?;
    if modules.is_none() {
        modules = only(package.join("usr/lib/modules"))?;
    }
    let Some(modules) = modules else {
        return Ok(None);
    };
    let release = modules.file_name().unwrap_or_default().to_string_lossy();
    let mut images = [
        package.join("boot").join(format!("vmlinuz-{release}")),
        modules.join("vmlinuz"),
    ]
    .into_iter();
    let image = images.find(|image| image.is_file());
    Ok(image.map(|image| Kernel { image, modules }))
}

/// apt with lists of one release only.
struct Apt {
    folder: PathBuf,
    architecture: &'static str,
}

impl Apt {
    fn new(folder: PathBuf, release: &Release, architecture: &'static str) -> Result<Apt> {
        for part in ["lists/partial", "archives/partial"] {
            let part = folder.join(part);
            fs::create_dir_all(&part)
                .with_context(|| format!("cannot create `{}`", part.display()))?;
        }
        let keys = match release.archive.keys {
            Keys::Installed(path) => PathBuf::from(path),
            Keys::Bytes(bytes) => {
                let path = folder.join("keys.gpg");
                fs::write(&path, bytes)?;
                path
            }
        };
        let (keys, mirror) = (keys.display(), release.archive.mirror);
        let sources = format!("deb [signed-by={keys}] {mirror} {} main\n", release.name);
        fs::write(folder.join("sources.list"), sources)?;
        Ok(Apt {
            folder,
            architecture,
        })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let folder = self.folder.display();
        for setting in [
            format!("Dir::Etc::sourcelist={folder}/sources.list"),
            "Dir::Etc::sourceparts=-".to_owned(),
            format!("Dir::State={folder}"),
            format!("Dir::State::lists={folder}/lists"),
            format!("Dir::Cache={folder}"),
            "APT::Sandbox::User=root".to_owned(),
            format!("APT::Architecture={}", self.architecture),
            format!("APT::Architectures={}", self.architecture),
        ] {
            command.args(["-o", &setting]);
        }
        command
    }

    fn update(&self) -> Result<()> {
        // Without this, a mirror that cannot be reached is a warning.
        let strict = ["-o", "APT::Update::Error-Mode=any"];
        command::output(self.command("apt-get").args(strict).args(["update", "-qq"])).map(drop)
    }

    /// The kernel's package that this one depends on.
    fn newest(&self, package: &str) -> Result<String> {
        self.depends(package)?
            .into_iter()
            .find(|package| package.starts_with("linux-image-"))
            .with_context(|| format!("apt knows no package {package}"))
    }

    /// What a package depends on.
    fn depends(&self, package: &str) -> Result<Vec<String>> {
        let depends = command::output(self.command("apt-cache").args(["depends", package]))?;
        Ok(depends
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "))
            .map(str::to_owned)
            .collect())
    }

    /// Unpacks a kernel's package, and those that newer ones leave its parts to.
    fn unpack(&self, package: &str, to: &Path) -> Result<()> {
        eprintln!("vm: fetching {package}");
        let archives = self.folder.join("archives");
        let parts = self
            .depends(package)?
            .into_iter()
            .filter(|name| name.starts_with("linux-binary-") || name.starts_with("linux-modules-"));
        command::output(
            self.command("apt-get")
                .args(["download", "-qq", package])
                .args(parts)
                .current_dir(&archives),
        )?;
        let unfinished = to.with_extension("unfinished");
        fs::create_dir_all(&unfinished)?;
        for entry in fs::read_dir(&archives)? {
            let archive = entry?.path();
            if archive
                .extension()
                .is_none_or(|extension| extension != "deb")
            {
                continue;
            }
            command::output(
                Command::new("dpkg-deb")
                    .arg("-x")
                    .arg(&archive)
                    .arg(&unfinished),
            )?;
            fs::remove_file(archive)?;
        }
        fs::rename(unfinished, to)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_names_its_release() {
        let mut image = vec![0; 0x400];
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x20e..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
        image[0x300..0x315].copy_from_slice(b"5.15.0-1-x (a@b) #1\0\0");
        assert_eq!(release(&image).as_deref(), Some("5.15.0-1-x"));
        image[0x202] = 0;
        assert_eq!(release(&image), None);
        assert_eq!(release(b"short"), None);
        image[56..60].copy_from_slice(b"ARM\x64");
        image[0x320..0x33a].copy_from_slice(b"Linux version 6.1.0-x (a@b)"[..26].as_ref());
        assert_eq!(release(&image).as_deref(), Some("6.1.0-x"));
    }
}
