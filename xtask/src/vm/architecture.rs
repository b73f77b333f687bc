//! The processors that virtual machines have, and what differs between them.

use super::kernel::{Archive, DEBIAN, UBUNTU};
use crate::{command, roots};
use anyhow::Result;
use std::path::{Path, PathBuf};

/// A kernel's version, the archive and release that have it, and the package there that depends on the newest one for
/// virtual machines, with BTF.
pub(super) struct Release {
    pub(super) version: &'static str,
    pub(super) archive: &'static Archive,
    pub(super) name: &'static str,
    pub(super) package: &'static str,
}

/// A processor's architecture, and the machines with it.
pub(crate) struct Architecture {
    /// Rust's name.
    pub(super) name: &'static str,
    /// Debian's.
    pub(super) debian: &'static str,
    pub(super) releases: &'static [Release],
    /// The kernels that are tested by default.
    pub(super) usual: &'static [&'static str],
    /// Debian's packages for the host.
    pub(super) packages: &'static [&'static str],
    pub(super) qemu: &'static str,
    /// QEMU's options for the processor and what is around it.
    pub(super) processor: &'static [&'static str],
    /// The kernel's name of the serial console.
    pub(super) console: &'static str,
    /// How it is built for, where this is not as for the host.
    pub(super) cross: Option<Cross>,
}

/// A build for another architecture than the host's.
pub(super) struct Cross {
    /// Rust's target.
    pub(super) target: &'static str,
    /// Debian release of the machine's root folder.
    pub(super) suite: &'static str,
}

pub(crate) static X86_64: Architecture = Architecture {
    name: "x86_64",
    debian: "amd64",
    releases: &[
        // The oldest supported one.
        debian("5.10", "bullseye", "linux-image-cloud-amd64"),
        // Has cookies and links of perf events, but no `bpf_loop`.
        Release {
            version: "5.15",
            archive: &UBUNTU,
            name: "jammy-updates",
            package: "linux-image-virtual",
        },
        debian("6.1", "bookworm", "linux-image-cloud-amd64"),
        debian("6.12", "bookworm-backports", "linux-image-cloud-amd64"),
        // Preempts tracing programs.
        debian("newest", "sid", "linux-image-cloud-amd64"),
    ],
    // The oldest that is supported, Ubuntu 22.04's, the oldest and the newest of Debian 12's kernels, Debian's newest,
    // and the host's.
    usual: &["5.10", "5.15", "6.1", "6.12", "newest", super::HOST],
    packages: &["qemu-system-x86", "busybox-static", "cpio"],
    qemu: "qemu-system-x86_64",
    // Without cmpxchg16b, after which the flags are wrong in QEMU 7.2: kernels crash at random.
    processor: &["-cpu", "max,-cx16"],
    console: "ttyS0",
    cross: None,
};

pub(crate) static AARCH64: Architecture = Architecture {
    name: "aarch64",
    debian: "arm64",
    releases: &[
        debian("5.10", "bullseye", "linux-image-cloud-arm64"),
        debian("6.1", "bookworm", "linux-image-cloud-arm64"),
        debian("6.12", "bookworm-backports", "linux-image-cloud-arm64"),
        // With pages of 16 KiB.
        debian("6.12-16k", "bookworm-backports", "linux-image-arm64-16k"),
        debian("newest", "sid", "linux-image-cloud-arm64"),
    ],
    usual: &["5.10", "6.1", "6.12", "6.12-16k"],
    packages: &[
        "qemu-system-arm",
        "cpio",
        "gcc-aarch64-linux-gnu",
        "g++-aarch64-linux-gnu",
    ],
    qemu: "qemu-system-aarch64",
    // Pointers are signed by a computation of QEMU's own: the architecture's would take most of the time.
    processor: &["-machine", "virt", "-cpu", "max,pauth-impdef=on"],
    console: "ttyAMA0",
    cross: Some(Cross {
        target: "aarch64-unknown-linux-gnu",
        suite: "bookworm",
    }),
};

const fn debian(version: &'static str, name: &'static str, package: &'static str) -> Release {
    Release {
        version,
        archive: &DEBIAN,
        name,
        package,
    }
}

/// What the tests and their targets need in a root folder.
const IN_ROOT: [&str; 12] = [
    "busybox-static",
    "g++",
    "gcc",
    "libc6-dev",
    "libjemalloc2",
    "libmimalloc2.0",
    "libssl3",
    "libstdc++6",
    "libtcmalloc-minimal4",
    "procps",
    "python3",
    "python3-venv",
];

impl Architecture {
    /// The one that is called this.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn named(name: &str) -> Result<&'static Architecture, String> {
        let mut known = [&X86_64, &AARCH64].into_iter();
        known
            .find(|architecture| architecture.name == name)
            .ok_or_else(|| format!("expected {} or {}", X86_64.name, AARCH64.name))
    }

    /// The root folder of its machines: the host's, or one made for them.
    pub(super) fn root(&self) -> Result<PathBuf> {
        let Some(cross) = &self.cross else {
            return Ok(PathBuf::from("/"));
        };
        let root = roots::folder().join(format!("{}-{}", cross.suite, self.debian));
        roots::unpacked(cross.suite, self.debian, &IN_ROOT, &root)?;
        Ok(root)
    }

    /// The folder for something of it: under its own name where it is not the host's.
    pub(super) fn folder(&self, name: &Path) -> PathBuf {
        match self.cross {
            Some(_) => Path::new(self.name).join(name),
            None => name.to_owned(),
        }
    }

    /// The folder of what is built for it; the tests' targets are below.
    pub(super) fn builds(&self) -> PathBuf {
        let folder = command::target_dir();
        match &self.cross {
            Some(cross) => folder.join(cross.target),
            None => folder,
        }
    }
}
