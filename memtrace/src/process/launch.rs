//! Launching a command that waits to be traced before it runs. Owns the child
//! up to its exec and its wait status; does not know how it is traced.
//!
//! The child is forked, waits for one byte on a pipe, then execs. A second
//! pipe, closed by exec, carries the errno of an exec that failed. Should the
//! parent die meanwhile, the first pipe ends and the child with it.

use std::{
    env,
    ffi::{CStr, CString, OsStr, OsString},
    fs, io,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Path, PathBuf},
    ptr,
};

use super::inherited;

/// Exit code of a child that was never released, as a shell's for "not found".
const NEVER_RELEASED: libc::c_int = 127;

/// Why a command could not be launched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    #[error("no command given")]
    Empty,
    #[error("`{0}` contains a zero byte")]
    ZeroByte(String),
    #[error("program `{}` was not found{}", .0, mistaken(.0.as_ref()))]
    NotFound(String),
    #[error("`{}` is not executable: permission denied{}", .0.display(), mistaken(.0))]
    NotExecutable(PathBuf),
    #[error("`{}` could not be executed: {error}", .path.display())]
    Exec { path: PathBuf, error: io::Error },
    #[error("could not start a process: {0}")]
    Fork(#[source] io::Error),
    #[error("process {0} ended before it could be released")]
    Ended(u32),
}

fn mistaken(program: &Path) -> String {
    super::mistaken::remedy(program, executable(program).is_ok())
}

/// A launched command. Dropped before its release, it exits on its own (exit code 127); afterwards
/// it runs on. Its zombie is left to `try_wait`.
#[derive(Debug)]
pub(crate) struct Launched {
    tgid: u32,
    program: PathBuf,
    /// Both ends needed for the release, gone after it.
    gate: Option<Gate>,
    status: Option<i32>,
}

#[derive(Debug)]
struct Gate {
    release: OwnedFd,
    exec_error: OwnedFd,
}

impl Launched {
    /// Forks a child that waits before its exec of `argv`, with `variables` (name and value) set in
    /// its environment. The program is looked up in `PATH` first, so a missing one costs no process.
    pub(crate) fn spawn(
        argv: &[OsString],
        variables: &[(&str, &str)],
    ) -> Result<Self, LaunchError> {
        let name = argv.first().ok_or(LaunchError::Empty)?;
        let program = resolve(name, env::var_os("PATH").as_deref())?;
        let path = c_string(program.as_os_str())?;
        let arguments = argv
            .iter()
            .map(|argument| c_string(argument))
            .collect::<Result<Vec<_>, _>>()?;
        let environment = variables
            .iter()
            .map(|(key, value)| c_string(format!("{key}={value}").as_ref()))
            .collect::<Result<Vec<_>, _>>()?;
        // As in execvp for a script without `#!`.
        let shell_arguments: Vec<CString> = [c"/bin/sh".to_owned(), path.clone()]
            .into_iter()
            .chain(arguments.iter().skip(1).cloned())
            .collect();
        // Everything that allocates is done before the fork.
        let (argv, shell_argv) = (pointers(&arguments), pointers(&shell_arguments));
        let envp = inherited_environment(variables)
            .into_iter()
            .chain(pointers(&environment))
            .collect::<Vec<_>>();
        let (wait, release) = pipe().map_err(LaunchError::Fork)?;
        let (exec_error, report) = pipe().map_err(LaunchError::Fork)?;
        let child = Child {
            wait: wait.as_raw_fd(),
            release: release.as_raw_fd(),
            report: report.as_raw_fd(),
            path: path.as_ptr(),
            argv: argv.as_ptr(),
            shell_argv: shell_argv.as_ptr(),
            envp: envp.as_ptr(),
            // No handler of this process may run in the child: it would act on shared state.
            mask: block_signals(),
            ignore_sigpipe: inherited::ignored_sigpipe(),
            open: inherited::open_streams(),
        };
        // SAFETY: the child only runs `Child::run`, whose pointers are those of live C strings,
        // each list ended by a null.
        let pid = unsafe {
            let pid = libc::fork();
            if pid == 0 {
                child.run();
            }
            pid
        };
        let forked = u32::try_from(pid).map_err(|_| io::Error::last_os_error());
        restore_signals(&child.mask);
        let tgid = forked.map_err(LaunchError::Fork)?;
        Ok(Self {
            tgid,
            program,
            gate: Some(Gate {
                release,
                exec_error,
            }),
            status: None,
        })
    }

    pub(crate) fn tgid(&self) -> u32 {
        self.tgid
    }

    /// Path of the program that is executed.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Lets the child exec and returns once it has, or returns why it could not (the child then has
    /// ended). The pipe closes within exec, so a stop at exec's return is not waited for. A second
    /// call does nothing.
    pub(crate) fn release(&mut self) -> Result<(), LaunchError> {
        let Some(gate) = self.gate.take() else {
            return Ok(());
        };
        if self.try_wait().map_err(LaunchError::Fork)?.is_some() {
            return Err(LaunchError::Ended(self.tgid));
        }
        // std's write to a pipe without reader is an error, not a signal: its runtime ignores SIGPIPE.
        let mut release = fs::File::from(gate.release);
        io::Write::write_all(&mut release, b"!").map_err(|_| LaunchError::Ended(self.tgid))?;

        let mut report = Vec::new();
        let mut exec_error = fs::File::from(gate.exec_error);
        io::Read::read_to_end(&mut exec_error, &mut report).map_err(LaunchError::Fork)?;
        match <[u8; 4]>::try_from(report) {
            // Empty: exec closed it (or the child was killed, which its wait status shows).
            Err(_) => Ok(()),
            Ok(errno) => {
                self.wait().map_err(LaunchError::Fork)?;
                let error = io::Error::from_raw_os_error(i32::from_ne_bytes(errno));
                Err(exec_failure(&self.program, error))
            }
        }
    }

    /// Whether the child was released, so that its end is the command's.
    pub(crate) fn is_released(&self) -> bool {
        self.gate.is_none()
    }

    /// Wait status as in waitpid(2) if the child has ended, again at each later call.
    pub(crate) fn try_wait(&mut self) -> io::Result<Option<i32>> {
        self.wait_with(libc::WNOHANG)
    }

    /// Waits until the child has ended. Wait status as in waitpid(2).
    pub(crate) fn wait(&mut self) -> io::Result<i32> {
        loop {
            if let Some(status) = self.wait_with(0)? {
                return Ok(status);
            }
        }
    }

    fn wait_with(&mut self, options: libc::c_int) -> io::Result<Option<i32>> {
        if self.status.is_some() {
            return Ok(self.status);
        }
        let mut status = 0;
        // SAFETY: waitpid writes one integer to a place that lives.
        let pid = unsafe { libc::waitpid(self.tgid as libc::pid_t, &mut status, options) };
        if pid > 0 {
            self.status = Some(status);
        } else if pid < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        Ok(self.status)
    }
}

/// Data for the child; plain copies, because it may not allocate.
struct Child {
    wait: libc::c_int,
    release: libc::c_int,
    report: libc::c_int,
    path: *const libc::c_char,
    argv: *const *const libc::c_char,
    shell_argv: *const *const libc::c_char,
    envp: *const *const libc::c_char,
    /// The signals that were blocked.
    mask: libc::sigset_t,
    ignore_sigpipe: bool,
    /// Standard streams that were open.
    open: [bool; 3],
}

impl Child {
    /// Waits, then execs. All signals are blocked when it begins.
    ///
    /// # Safety
    /// `path` is a C string, the others null-ended lists of such. Called after fork in a process
    /// that had threads: only async-signal-safe functions may be called here (signal-safety(7)),
    /// and nothing may allocate, lock or panic.
    unsafe fn run(&self) -> ! {
        // SAFETY: system calls on the child's own descriptors, on local variables and on memory
        // vouched for by the caller; each is async-signal-safe.
        unsafe {
            // Its own copy would keep the pipe from ending with the parent.
            libc::close(self.release);
            default_signals(self.ignore_sigpipe);
            for (fd, open) in (0..).zip(self.open) {
                if !open {
                    libc::close(fd);
                }
            }
            // Not restored yet: blocked signals could not end it while it waits.
            let mut none = std::mem::zeroed::<libc::sigset_t>();
            libc::sigemptyset(&mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &none, ptr::null_mut());
            let mut byte = 0u8;
            // No handler is left that could interrupt it. 0: the parent is gone.
            if libc::read(self.wait, (&raw mut byte).cast(), 1) != 1 {
                libc::_exit(NEVER_RELEASED);
            }
            libc::sigprocmask(libc::SIG_SETMASK, &self.mask, ptr::null_mut());
            libc::execve(self.path, self.argv, self.envp);
            if *libc::__errno_location() == libc::ENOEXEC {
                libc::execve(*self.shell_argv, self.shell_argv, self.envp);
            }
            let errno = *libc::__errno_location();
            libc::write(self.report, (&raw const errno).cast(), size_of_val(&errno));
            libc::_exit(NEVER_RELEASED);
        }
    }
}

/// Removes the handlers of this process. Signals that it was set to ignore stay ignored (nohup).
///
/// # Safety
/// Async-signal-safe; takes this process's handlers away, so for a forked child only.
unsafe fn default_signals(ignore_sigpipe: bool) {
    // SAFETY: all-zero bytes are a valid sigaction; the calls read and write it only. Signals that cannot be changed are refused with an error, which is fine.
    unsafe {
        for signal in 1..=libc::SIGRTMAX() {
            let mut now = std::mem::zeroed::<libc::sigaction>();
            libc::sigaction(signal, ptr::null(), &mut now);
            let ignored = match signal {
                // Rust's runtime ignores it by default.
                libc::SIGPIPE => ignore_sigpipe,
                _ => now.sa_sigaction == libc::SIG_IGN,
            };
            if !ignored {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    }
}

/// Blocks every signal in this thread; returns the signals that were blocked before.
fn block_signals() -> libc::sigset_t {
    // SAFETY: all-zero bytes are a valid sigset_t; the calls write to places that live.
    unsafe {
        let mut all = std::mem::zeroed::<libc::sigset_t>();
        let mut before = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        before
    }
}

fn restore_signals(mask: &libc::sigset_t) {
    // SAFETY: reads a mask that lives.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, mask, ptr::null_mut());
    }
}

/// The program that execvp would run: `name` itself if it has a slash, otherwise the first
/// executable of that name in `path`.
fn resolve(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, LaunchError> {
    let not_found = || LaunchError::NotFound(name.to_string_lossy().into_owned());
    if name.as_bytes().contains(&b'/') {
        let program = PathBuf::from(name);
        return match executable(&program) {
            Ok(()) => Ok(program),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(not_found()),
            Err(error) => Err(exec_failure(&program, error)),
        };
    }
    if name.is_empty() {
        return Err(not_found());
    }
    // As in execvp, a file that may not be executed is remembered while the search continues.
    let mut refused = None;
    let path = path.unwrap_or(OsStr::new("/bin:/usr/bin"));
    for directory in env::split_paths(path) {
        // An empty entry means the current directory; the slash keeps it from another search.
        let directory = if directory.as_os_str().is_empty() {
            PathBuf::from(".")
        } else {
            directory
        };
        let program = directory.join(name);
        match executable(&program) {
            Ok(()) => return Ok(program),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                refused.get_or_insert(program);
            }
            Err(_) => {}
        }
    }
    Err(refused.map_or_else(not_found, LaunchError::NotExecutable))
}

/// Whether `program` is a file that this process may execute.
fn executable(program: &Path) -> io::Result<()> {
    if !fs::metadata(program)?.is_file() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let path = CString::new(program.as_os_str().as_bytes())?;
    // SAFETY: the path is a C string that lives.
    match unsafe { libc::access(path.as_ptr(), libc::X_OK) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn exec_failure(program: &Path, error: io::Error) -> LaunchError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => LaunchError::NotExecutable(program.to_owned()),
        // It was there when it was looked up: a script's or program's interpreter is missing.
        _ => LaunchError::Exec {
            path: program.to_owned(),
            error,
        },
    }
}

fn c_string(text: &OsStr) -> Result<CString, LaunchError> {
    CString::new(text.to_owned().into_vec())
        .map_err(|_| LaunchError::ZeroByte(text.to_string_lossy().into_owned()))
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    let ends = [ptr::null()];
    strings.iter().map(|s| s.as_ptr()).chain(ends).collect()
}

/// The entries of this process's environment unchanged, except those of `variables`. Nothing here
/// changes the environment.
fn inherited_environment(variables: &[(&str, &str)]) -> Vec<*const libc::c_char> {
    unsafe extern "C" {
        static environ: *const *const libc::c_char;
    }
    let mut entries = Vec::new();
    // SAFETY: the C library's list of C strings, ended by a null; nothing changes it.
    unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            let entry = CStr::from_ptr(*at).to_bytes();
            let name = entry.split(|&byte| byte == b'=').next().unwrap_or_default();
            if variables.iter().all(|(set, _)| set.as_bytes() != name) {
                entries.push(*at);
            }
            at = at.add(1);
        }
    }
    entries
}

/// A pipe, read end first, closed by exec.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: pipe2 writes two descriptors to a place that lives.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both are open, and nothing else owns them.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::Write,
        os::unix::fs::PermissionsExt,
        process::{Command, Stdio},
    };

    fn argv(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    fn run(words: &[&str]) -> i32 {
        let mut launched = Launched::spawn(&argv(words), &[]).unwrap();
        launched.release().unwrap();
        launched.wait().unwrap()
    }

    /// Runs the ignored test `name` of this file in a process of its own.
    fn helper(name: &str) -> Command {
        let mut command = Command::new(env::current_exe().unwrap());
        let path = format!("{}::{name}", module_path!().split_once("::").unwrap().1);
        command.args(["--ignored", "--exact", "--nocapture", &path]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    }

    #[test]
    fn the_exit_status_is_passed_on() {
        let status = run(&["sh", "-c", "exit 7"]);
        assert!(libc::WIFEXITED(status));
        assert_eq!(libc::WEXITSTATUS(status), 7);
    }

    #[test]
    fn the_child_waits_until_it_is_released() {
        let dir = tempfile::TempDir::new().unwrap();
        let mark = dir.path().join("mark");
        let mut launched = Launched::spawn(&argv(&["touch", mark.to_str().unwrap()]), &[]).unwrap();
        let exe = fs::read_link(format!("/proc/{}/exe", launched.tgid())).unwrap();
        assert_eq!(exe, env::current_exe().unwrap());
        assert_eq!(launched.try_wait().unwrap(), None);
        assert!(!mark.exists());
        launched.release().unwrap();
        assert_eq!(launched.wait().unwrap(), 0);
        assert_eq!(launched.try_wait().unwrap(), Some(0), "asked again");
        assert!(mark.exists());
    }

    #[test]
    fn variables_are_set_and_take_the_place_of_inherited_ones() {
        // Cargo sets this one for its tests.
        assert!(env::var_os("CARGO_PKG_NAME").is_some());
        let words = argv(&[
            "sh",
            "-c",
            "test \"$CARGO_PKG_NAME/$MEMTRACE_NEW\" = '/a b' && env | grep -c ^CARGO_PKG_NAME= | grep -qx 1",
        ]);
        let variables = [("CARGO_PKG_NAME", ""), ("MEMTRACE_NEW", "a b")];
        let mut launched = Launched::spawn(&words, &variables).unwrap();
        launched.release().unwrap();
        assert_eq!(launched.wait().unwrap(), 0);
    }

    #[test]
    fn a_missing_program_costs_no_process() {
        for name in ["no-such-program-anywhere", "/no/such/program", ""] {
            let error = Launched::spawn(&argv(&[name]), &[]).unwrap_err();
            assert!(matches!(error, LaunchError::NotFound(_)), "{error}");
        }
        assert!(matches!(Launched::spawn(&[], &[]), Err(LaunchError::Empty)));
    }

    #[test]
    fn a_file_without_permission_is_distinguished_from_a_missing_one() {
        let dir = tempfile::TempDir::new().unwrap();
        let file = dir.path().join("data");
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        for name in [&file, dir.path()] {
            let error = Launched::spawn(&[name.into()], &[]).unwrap_err();
            assert!(matches!(error, LaunchError::NotExecutable(_)), "{error}");
        }
        let path = env::join_paths([dir.path(), Path::new("/bin")]).unwrap();
        let resolved = |name: &str| resolve(OsStr::new(name), Some(&path));
        assert!(matches!(
            resolved("data"),
            Err(LaunchError::NotExecutable(_))
        ));
        assert_eq!(resolved("sh").unwrap(), Path::new("/bin/sh"));
    }

    #[test]
    fn a_failed_exec_is_reported_at_release() {
        let dir = tempfile::TempDir::new().unwrap();
        let script = dir.path().join("script");
        fs::write(&script, "#!/no/such/interpreter\n").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let mut launched = Launched::spawn(&[script.clone().into()], &[]).unwrap();
        match launched.release() {
            Err(LaunchError::Exec { path, error }) => {
                assert_eq!(path, script);
                assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
            }
            other => panic!("{other:?}"),
        }
        assert!(launched.try_wait().unwrap().is_some(), "reaped");
    }

    #[test]
    fn a_script_without_interpreter_line_is_run_by_the_shell() {
        let dir = tempfile::TempDir::new().unwrap();
        let script = dir.path().join("script");
        fs::write(&script, "exit $1\n").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let status = run(&[script.to_str().unwrap(), "9"]);
        assert_eq!(libc::WEXITSTATUS(status), 9);
    }

    #[test]
    fn blocked_signals_stay_blocked_and_sigpipe_is_restored() {
        let mask = block_signals();
        let blocked = run(&["sh", "-c", "kill -TERM $$; exit 5"]);
        restore_signals(&mask);
        assert_eq!(libc::WEXITSTATUS(blocked), 5);

        // The test's runner ignores it, whoever started it did not.
        assert!(!inherited::ignored_sigpipe());
        let ignored = run(&["sh", "-c", "kill -PIPE $$; exit 0"]);
        assert_eq!(libc::WTERMSIG(ignored), libc::SIGPIPE);
    }

    #[test]
    fn a_child_killed_while_waiting_is_not_a_success() {
        let mut launched = Launched::spawn(&argv(&["sh"]), &[]).unwrap();
        // SAFETY: signals a child that was not waited for, so the id is still its.
        unsafe { libc::kill(launched.tgid() as libc::pid_t, libc::SIGKILL) };
        let status = launched.wait().unwrap();
        assert_eq!(libc::WTERMSIG(status), libc::SIGKILL);
        assert!(matches!(launched.release(), Err(LaunchError::Ended(_))));
    }

    #[test]
    fn standard_input_and_output_are_the_parents() {
        let mut parent = helper("launches_cat").spawn().unwrap();
        let mut stdin = parent.stdin.take().unwrap();
        stdin.write_all(b"through the pipe").unwrap();
        drop(stdin);
        let output = parent.wait_with_output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(stdout.contains("through the pipe"), "{stdout}");
        assert!(output.status.success());
    }

    #[test]
    #[ignore = "run by standard_input_and_output_are_the_parents"]
    fn launches_cat() {
        assert_eq!(run(&["cat"]), 0);
    }

    #[test]
    fn the_child_ends_with_a_parent_that_dies() {
        // The waiting child holds the pipe too: this returns only when both are gone.
        let output = helper("dies_before_the_release").output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(stdout.contains("waiting"), "{stdout}");
        assert!(!stdout.contains("released"), "{stdout}");
        assert!(!output.status.success());
    }

    #[test]
    #[ignore = "run by the_child_ends_with_a_parent_that_dies"]
    fn dies_before_the_release() {
        let launched = Launched::spawn(&argv(&["echo", "released"]), &[]).unwrap();
        assert_eq!(launched.program().file_name(), Some(OsStr::new("echo")));
        println!("waiting");
        // SAFETY: ends this process, which was made for it.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
}
