//! A virtual machine that runs one script on another kernel, over the host's own files.
//!
//! QEMU emulates the processor (TCG): KVM may be missing, or its processor too new for the kernel.
//! The host's root folder is shared read-only (virtiofs), so the script finds compilers,
//! interpreters and build results in the same places as on the host. With another architecture than the host's, it finds
//! those of a root made for it.

use super::{architecture::Architecture, kernel::Kernel};
use crate::{command, setup};
use anyhow::{Context, Result, bail};
use std::{
    fmt::Write,
    fs::{self, File},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

const INIT: &str = include_str!("init.sh");
const BUSYBOX: &str = "bin/busybox";
const SHARING: [&str; 2] = ["/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd"];
const MEMORY: &str = "3G";

/// Modules needed to mount the host's files, if the kernel has them as modules; in order.
const MODULES: [&str; 7] = [
    "virtio",
    "virtio_ring",
    "virtio_pci_modern_dev",
    "virtio_pci_legacy_dev",
    "virtio_pci",
    "fuse",
    "virtiofs",
];

/// The processors of a machine, and their clock.
#[derive(Clone, Copy)]
pub(crate) enum Processors {
    /// One, whose clock counts instructions while it works, so nothing is late because it is emulated or the host is busy.
    Steady,
    /// Two, by the host's clock.
    Parallel,
}

impl Processors {
    /// QEMU's options.
    fn options(self) -> &'static [&'static str] {
        match self {
            // A nanosecond for each instruction. With two, the second one never starts.
            Processors::Steady => &["-smp", "1", "-icount", "shift=0,sleep=on"],
            Processors::Parallel => &["-smp", "2"],
        }
    }
}

/// A machine as QEMU emulates it.
#[derive(Clone, Copy)]
pub(crate) struct Machine {
    pub(crate) architecture: &'static Architecture,
    pub(crate) processors: Processors,
    pub(crate) limit: Duration,
}

/// Ends a process that it stands for.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        // It may have exited by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `script` on `kernel`. It finds the folder `out` in the variable OUT, and `targets` can be
/// written to.
///
/// # Errors
/// The machine cannot be started, or does not end within the limit.
pub(super) fn run(
    kernel: &Kernel,
    script: &str,
    out: &Path,
    targets: &Path,
    machine: Machine,
) -> Result<()> {
    let Machine {
        architecture,
        processors,
        limit,
    } = machine;
    setup::install(architecture.packages)?;
    let root = architecture.root()?;
    fs::write(out.join("script"), script)?;
    // They are visible even in a folder that the machine has in its memory, such as /tmp.
    let seen = [command::root(), command::target_dir()];
    let mut list = String::new();
    for path in seen {
        // A link would have another target in there.
        let path =
            fs::canonicalize(&path).with_context(|| format!("cannot find `{}`", path.display()))?;
        writeln!(list, "{}", path.display())?;
        fs::create_dir_all(below(&root, &path))?;
    }
    fs::write(out.join("seen"), list)?;
    fs::write(out.join("root"), root.as_os_str().as_encoded_bytes())?;
    fs::write(out.join("targets"), targets.as_os_str().as_encoded_bytes())?;
    let work = out.join("machine");
    fs::create_dir_all(&work)?;
    let initramfs = initramfs(kernel, &root, &work)?;
    let shares = [("host", Path::new("/")), ("out", out), ("targets", targets)];
    let mut qemu = Command::new(architecture.qemu);
    // One thread for all processors. With one for each, a processor meets the breakpoint of a patch of kernel code after
    // the other one has ended the patch, and the kernel dies ("Oops: int3").
    qemu.args(["-accel", "tcg,thread=single", "-m", MEMORY])
        .args(architecture.processor)
        .args(processors.options())
        .args(["-nographic", "-no-reboot", "-nic", "none"])
        .arg("-kernel")
        .arg(&kernel.image)
        .arg("-initrd")
        .arg(initramfs)
        .arg("-append")
        .arg(format!(
            "console={} quiet panic=-1 mitigations=off",
            architecture.console
        ))
        .args(["-numa", "node,memdev=memory", "-object"])
        .arg(format!(
            "memory-backend-memfd,id=memory,size={MEMORY},share=on"
        ));
    let mut sharing = Vec::new();
    for (name, folder) in shares {
        let socket = work.join(format!("{name}.socket"));
        sharing.push(share(folder, &socket)?);
        qemu.arg("-chardev")
            .arg(format!("socket,id={name},path={}", socket.display()))
            .arg("-device")
            .arg(format!("vhost-user-fs-pci,chardev={name},tag={name}"));
    }
    let console = work.join("console.log");
    qemu.stdin(Stdio::null())
        .stdout(File::create(&console)?)
        .stderr(File::create(work.join("qemu.log"))?);
    let cannot = || format!("cannot start {}", architecture.qemu);
    let mut qemu = Ending(qemu.spawn().with_context(cannot)?);
    let end = Instant::now() + limit;
    while qemu.0.try_wait()?.is_none() {
        if Instant::now() > end {
            bail!(
                "the virtual machine did not end within {limit:?}; see `{}`",
                console.display()
            );
        }
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Shares a folder at a socket.
fn share(folder: &Path, socket: &Path) -> Result<Ending> {
    let program = SHARING
        .iter()
        .find(|path| Path::new(path).exists())
        .context("no virtiofsd: it comes with Debian 12's qemu-system-common")?;
    let log = File::create(socket.with_extension("log"))?;
    let mut child = Ending(
        Command::new(program)
            .arg(format!("--socket-path={}", socket.display()))
            .args(["-o", "sandbox=chroot", "-o", "cache=always", "-o"])
            .arg(format!("source={}", folder.display()))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?,
    );
    let end = Instant::now() + Duration::from_secs(10);
    while !socket.exists() {
        if child.0.try_wait()?.is_some() || Instant::now() > end {
            bail!(
                "virtiofsd does not share `{}`; see `{}`",
                folder.display(),
                socket.with_extension("log").display()
            );
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(child)
}

/// A path of the host's as it is in this root.
fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// An initramfs with busybox, the modules and the init script.
fn initramfs(kernel: &Kernel, of: &Path, work: &Path) -> Result<PathBuf> {
    let root = work.join("initramfs");
    for folder in ["bin", "proc", "sys", "dev", "files", "host", "modules"] {
        fs::create_dir_all(root.join(folder))?;
    }
    let busybox = of.join(BUSYBOX);
    fs::copy(&busybox, root.join(BUSYBOX))
        .with_context(|| format!("cannot copy `{}`", busybox.display()))?;
    let init = root.join("init");
    fs::write(&init, INIT)?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
    let mut order = String::new();
    for name in MODULES {
        let file = format!("{name}.ko");
        let found = command::output(
            Command::new("find")
                .arg(&kernel.modules)
                .args(["-name", &format!("{file}*")]),
        )?;
        if let Some(path) = found.lines().next() {
            let unpack = match path.rsplit('.').next() {
                Some("xz") => "xz",
                Some("zst") => "zstd",
                _ => "cat",
            };
            let mut unpack = Command::new(unpack);
            if !path.ends_with(".ko") {
                unpack.arg("-dc");
            }
            let module = File::create(root.join("modules").join(&file))?;
            let status = unpack.arg(path).stdout(module).status()?;
            if !status.success() {
                bail!("cannot unpack `{path}`: {status}");
            }
            order += &format!("{file}\n");
        }
    }
    fs::write(root.join("modules/order"), order)?;
    let archive = work.join("initramfs.cpio");
    let mut pack = Command::new("sh");
    pack.args(["-c", "find . | cpio --quiet -o -H newc > ../initramfs.cpio"])
        .current_dir(&root);
    command::output(&mut pack)?;
    Ok(archive)
}
