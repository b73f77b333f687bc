//! Other tools that record allocations, run on the same workloads. None is required.

use super::child::Target;
use crate::command::find;
use anyhow::{Context, Result, bail, ensure};
use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Peer {
    Heaptrack,
    Massif,
    Memray,
    MemrayNative,
    /// Counts calls of malloc and free, nothing else.
    Bpftrace,
}

/// Those for programs that are launched under a tool, and those only for Python.
const LAUNCHED: [Peer; 2] = [Peer::Heaptrack, Peer::Massif];
const FOR_PYTHON: [Peer; 2] = [Peer::Memray, Peer::MemrayNative];

/// Peers for a program.
pub(super) fn for_program(python: bool) -> Vec<Peer> {
    let mut peers = LAUNCHED.to_vec();
    if python {
        peers.extend(FOR_PYTHON);
    }
    peers.push(Peer::Bpftrace);
    peers
}

impl Peer {
    pub(super) fn name(self) -> &'static str {
        match self {
            Peer::Heaptrack => "heaptrack",
            Peer::Massif => "massif",
            Peer::Memray => "memray",
            Peer::MemrayNative => "memray --native",
            Peer::Bpftrace => "bpftrace, two counts",
        }
    }

    /// What to do if it is not installed. memray has to be in the interpreter that runs the
    /// workload.
    pub(super) fn missing(self, program: &Path) -> Option<String> {
        let (name, package) = match self {
            Peer::Heaptrack => ("heaptrack", "heaptrack"),
            Peer::Massif => ("valgrind", "valgrind"),
            Peer::Bpftrace => ("bpftrace", "bpftrace"),
            Peer::Memray | Peer::MemrayNative => {
                let found = Command::new(program)
                    .args(["-c", "import memray"])
                    .stderr(Stdio::null())
                    .status();
                return match found {
                    Ok(status) if status.success() => None,
                    _ => Some(format!(
                        "not installed: `{} -m pip install memray`, in a virtual environment \
                         that `--python` names",
                        program.display()
                    )),
                };
            }
        };
        match find(name) {
            Some(_) => None,
            None => Some(format!("not installed: `apt-get install {package}`")),
        }
    }

    /// ns per pair and so on, of a program that is launched by the tool or counted by it.
    pub(super) fn measure(
        self,
        program: &Path,
        arguments: &[&str],
        folder: &Path,
    ) -> Result<Vec<String>> {
        if self == Peer::Bpftrace {
            let mut target = Target::start(program, arguments)?;
            let counting = Counting::start(target.id())?;
            target.go()?;
            let lines = target.finish()?;
            counting.finish()?;
            return Ok(lines);
        }
        let messages = folder.join("peer.log");
        let mut command = self.command(program, folder);
        command.args(arguments);
        let mut run = || -> Result<Vec<String>> {
            let mut target = Target::start_with(&mut command, &messages)?;
            target.go()?;
            target.finish()
        };
        run().with_context(|| format!("its messages are in `{}`", messages.display()))
    }

    /// How the tool starts a program, up to the program's arguments.
    fn command(self, program: &Path, folder: &Path) -> Command {
        let file = folder.join("peer.out");
        match self {
            Peer::Heaptrack => {
                let mut command = Command::new("heaptrack");
                command.arg("-o").arg(file).arg(program);
                command
            }
            Peer::Massif => {
                let mut command = Command::new("valgrind");
                command.args(["--tool=massif", "--massif-out-file=/dev/null"]);
                command.arg(program);
                command
            }
            Peer::Memray | Peer::MemrayNative => {
                let mut command = Command::new(program);
                command.args(["-m", "memray", "run", "--quiet", "--force"]);
                if self == Peer::MemrayNative {
                    command.arg("--native");
                }
                command.arg("--output").arg(file);
                command
            }
            Peer::Bpftrace => Command::new("bpftrace"),
        }
    }
}

/// A running bpftrace with two uprobes. Interrupted when dropped.
pub(super) struct Counting {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

/// Printed by bpftrace once its probes are set: they are, long before the first interval ends.
const COUNTS: &str = "counting";

impl Counting {
    pub(super) fn start(pid: u32) -> Result<Counting> {
        let maps = format!("/proc/{pid}/maps");
        let maps = fs::read_to_string(&maps).with_context(|| format!("cannot read `{maps}`"))?;
        let library = allocator(&maps).context("no allocator among the process's files")?;
        let script = format!(
            "uprobe:{library}:malloc {{ @mallocs = count(); }} \
             uprobe:{library}:free {{ @frees = count(); }} \
             interval:s:1 {{ if (!@said) {{ printf(\"{COUNTS}\\n\"); @said = 1; }} }}"
        );
        let mut child = Command::new("bpftrace")
            .args(["-p", &pid.to_string(), "-e", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start `bpftrace`")?;
        let stdout = BufReader::new(child.stdout.take().context("bpftrace has no stdout")?);
        let mut counting = Counting { child, stdout };
        let mut line = String::new();
        while line.trim_end() != COUNTS {
            line.clear();
            ensure!(
                counting.stdout.read_line(&mut line)? > 0,
                "bpftrace ended before it counted"
            );
        }
        Ok(counting)
    }

    /// Ends it; an error if it counted nothing.
    pub(super) fn finish(mut self) -> Result<()> {
        self.interrupt();
        let mut printed = String::new();
        self.stdout.read_to_string(&mut printed)?;
        match counted(&printed) {
            Some(0) | None => bail!("bpftrace counted no calls, and printed: {printed}"),
            Some(_) => Ok(()),
        }
    }

    fn interrupt(&self) {
        // SAFETY: a plain system call; the child has not been waited for, so the id is its own.
        unsafe { libc::kill(self.child.id().cast_signed(), libc::SIGINT) };
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.interrupt();
        // Nothing can be done about an error here; the one that led here is reported.
        let _ = self.child.wait();
    }
}

/// The file of the allocator that the process uses: another one takes glibc's place.
fn allocator(maps: &str) -> Option<&str> {
    const NAMES: [&str; 4] = ["libjemalloc", "libtcmalloc", "libmimalloc", "libc.so"];
    NAMES.into_iter().find_map(|name| {
        maps.lines()
            .filter_map(|line| line.find('/').map(|start| &line[start..]))
            .find(|path| {
                path.rsplit('/')
                    .next()
                    .is_some_and(|file| file.starts_with(name))
            })
    })
}

/// The lesser of the two counts that bpftrace prints at its end.
fn counted(printed: &str) -> Option<u64> {
    let count = |name: &str| {
        let line = printed.lines().find_map(|line| line.strip_prefix(name))?;
        line.strip_prefix(": ")?.trim().parse::<u64>().ok()
    };
    Some(count("@mallocs")?.min(count("@frees")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
5581 r-xp 0000 fe:00 12 /usr/bin/redis-check-rdb
7f01 r-xp 0000 fe:00 13 /usr/lib/x86_64-linux-gnu/libc.so.6
7f02 rw-p 0000 00:00 0
7f03 r-xp 0000 fe:00 14 /usr/lib/x86_64-linux-gnu/libjemalloc.so.2
";

    #[test]
    fn an_allocator_takes_the_place_of_glibc() {
        let jemalloc = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";
        assert_eq!(allocator(MAPS), Some(jemalloc));
        let glibc = "/usr/lib/x86_64-linux-gnu/libc.so.6";
        assert_eq!(allocator(&MAPS.replace("libjemalloc", "libz")), Some(glibc));
        assert_eq!(allocator("7f02 rw-p 0000 00:00 0 [heap]"), None);
    }

    #[test]
    fn both_probes_must_have_counted() {
        assert_eq!(counted("\n@frees: 12\n@mallocs: 300\n@said: 1\n"), Some(12));
        assert_eq!(counted("@mallocs: 300\n"), None);
    }

    #[test]
    fn memray_is_for_python_only() {
        assert!(for_program(true).contains(&Peer::MemrayNative));
        assert!(!for_program(false).contains(&Peer::Memray));
        assert!(for_program(false).contains(&Peer::Bpftrace));
    }
}
