//! Runs other programs, and knows the places of files. Knows no task.

use anyhow::{Context, Result, bail};
use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Child, Command},
};

/// The package of the user side. Its library and its program are `memtrace`.
pub(crate) const PACKAGE: &str = "memtrace-bpf";

/// The repository's root folder.
pub(crate) fn root() -> PathBuf {
    // From cargo's current environment: a copied target folder holds a binary that was built
    // elsewhere.
    let own = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    own.parent().map(Path::to_path_buf).unwrap_or(own)
}

/// Cargo's target folder.
pub(crate) fn target_dir() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// Cargo's own folder, with the sources of dependencies.
///
/// # Errors
/// When the environment names none.
pub(crate) fn cargo_home() -> Result<PathBuf> {
    if let Some(home) = env::var_os("CARGO_HOME") {
        return Ok(PathBuf::from(home));
    }
    let home = env::var_os("HOME").context("neither CARGO_HOME nor HOME is set")?;
    Ok(PathBuf::from(home).join(".cargo"))
}

/// The cargo that runs this task.
pub(crate) fn cargo() -> Command {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.current_dir(root());
    without_package(&mut command);
    command
}

/// Hides the variables that describe xtask from a build: ring's build script depends on them, and memtrace on ring.
pub(crate) fn without_package(build: &mut Command) {
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_MANIFEST_") || text.starts_with("CARGO_PKG_") {
            build.env_remove(&name);
        }
    }
}

/// A command as a user would type it, without its environment.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = match program.file_name() {
        Some(name) if name == "cargo" => name.to_string_lossy(),
        _ => program.to_string_lossy(),
    };
    command.get_args().fold(name.into_owned(), |line, word| {
        line + " " + &word.to_string_lossy()
    })
}

/// Runs a command, showing it first.
///
/// # Errors
/// When it cannot be started or does not end with status 0.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    eprintln!("$ {}", shown(command));
    let status = command
        .status()
        .with_context(|| format!("cannot start `{}`", shown(command)))?;
    if !status.success() {
        bail!("`{}` failed: {status}", shown(command));
    }
    Ok(())
}

/// Runs a command quietly and returns its standard output, trimmed.
///
/// # Errors
/// When it cannot be started, does not end with status 0, or prints something other than UTF-8.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot start `{}`", shown(command)))?;
    if !output.status.success() {
        bail!(
            "`{}` failed: {}: {}",
            shown(command),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8(output.stdout)
        .with_context(|| format!("`{}` printed something other than UTF-8", shown(command)))?
        .trim()
        .to_owned())
}

/// The first program of that name in PATH.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

/// # Errors
/// When this process is not root's; `what` names the task that needs it.
pub(crate) fn need_root(what: &str) -> Result<()> {
    if is_root() {
        return Ok(());
    }
    bail!(
        "{what} loads BPF programs and must run as root: \
         sudo --preserve-env env PATH=\"$PATH\" cargo xtask …"
    )
}

pub(crate) fn is_root() -> bool {
    // SAFETY: geteuid takes nothing and always succeeds.
    unsafe { libc::geteuid() == 0 }
}

/// Builds memtrace and returns the path of its binary.
pub(crate) fn build_memtrace(release: bool) -> Result<PathBuf> {
    let (profile, folder) = match release {
        true => ("release", "release"),
        false => ("dev", "debug"),
    };
    run(cargo().args(["build", "--package", PACKAGE, "--profile", profile]))?;
    Ok(target_dir().join(folder).join("memtrace"))
}

/// Builds everything as the tests need it: another selection has other features and would build twice.
pub(crate) fn build_workspace() -> Result<()> {
    run(cargo().args(["build", "--workspace"]))
}

/// Compiles one C file with symbols and frame pointers.
///
/// # Errors
/// When there is no C compiler, or it fails.
pub(crate) fn compile_c(source: &Path, binary: &Path) -> Result<()> {
    let flags = [
        "-O1",
        "-fno-omit-frame-pointer",
        "-fno-optimize-sibling-calls",
    ];
    compile_c_with(&flags, source, binary)
}

/// Compiles one C file with symbols and these options.
///
/// # Errors
/// When there is no C compiler, or it fails.
pub(crate) fn compile_c_with(flags: &[&str], source: &Path, binary: &Path) -> Result<()> {
    if find("cc").is_none() {
        bail!("no C compiler: apt-get install gcc libc6-dev");
    }
    if let Some(folder) = binary.parent() {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot create `{}`", folder.display()))?;
    }
    run(Command::new("cc")
        .arg("-g")
        .args(flags)
        .arg("-o")
        .arg(binary)
        .arg(source))
}

/// Results of an ended child.
pub(crate) struct Ended {
    pub(crate) succeeded: bool,
    /// User and system time, seconds.
    pub(crate) cpu_s: f64,
    /// Resident at most, bytes.
    pub(crate) memory: f64,
    pub(crate) wait_status: i32,
}

/// Waits for a child that was not waited for yet.
///
/// # Errors
/// When it was.
pub(crate) fn wait(child: &Child) -> Result<Ended> {
    let mut status = 0;
    // SAFETY: rusage is plain integers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live variables.
    let waited = unsafe { libc::wait4(child.id().cast_signed(), &mut status, 0, &mut usage) };
    if waited < 0 {
        return Err(std::io::Error::last_os_error()).context("cannot wait for a child");
    }
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Ok(Ended {
        succeeded: libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
        cpu_s: seconds(usage.ru_utime) + seconds(usage.ru_stime),
        memory: usage.ru_maxrss as f64 * 1024.0,
        wait_status: status,
    })
}
