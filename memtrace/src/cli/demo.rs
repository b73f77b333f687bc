//! `memtrace demo`: an example that leaks, recorded as a running server would be.

use std::{
    env,
    ffi::OsStr,
    fs,
    io::{self, BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

use anyhow::{Context, bail, ensure};
use clap::{Args, FromArgMatches, ValueEnum};
use tempfile::TempDir;

use super::{hints, reading::JUDGING, record};
use crate::{
    analysis::{suppressions::Suppressions, system::SystemSeries, verdict},
    escape::for_shell,
    progress::{Progress, say},
    recording::Recording,
    render,
    view::Filter,
};

/// How long it is recorded: a verdict needs 10 seconds.
const DURATION: &str = "15s";

/// Record an example that leaks, and name the line that leaks
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  memtrace demo
  memtrace demo c")]
pub(crate) struct DemoArgs {
    /// The example's language: `python` needs python3, `c` a C compiler [default: the first of them that works here]
    example: Option<Example>,
    /// The recording to write and to keep
    #[arg(short, long, value_name = "FILE", default_value = "memtrace-demo.mtr")]
    output: PathBuf,
    /// Overwrite an existing recording
    #[arg(short, long)]
    force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Example {
    Python,
    C,
}

/// A server that runs until this is dropped, and its source.
struct Server {
    process: Child,
    /// It would end if its output had no reader.
    output: BufReader<ChildStdout>,
    _folder: TempDir,
}

/// Starts the example, attaches, and prints the first screen.
///
/// # Errors
/// This host cannot trace, or cannot run the example.
pub(crate) fn run(args: &DemoArgs) -> anyhow::Result<()> {
    record::check_host()?;
    let server = match args.example {
        Some(example) => Server::start(example)?,
        None => Server::start(Example::Python).or_else(|no_python| {
            Server::start(Example::C).with_context(|| {
                format!("no example runs here: install python3 or gcc: {no_python:#}")
            })
        })?,
    };
    let pid = server.process.id();
    say(&format!(
        "process {pid} is an example that leaks; this attaches to it"
    ));
    record::record(record_args(args, pid)?, false)?;
    drop(server);
    let progress = Progress::begin(JUDGING);
    let recording = Recording::open(&args.output)?;
    let machine = SystemSeries::read(&recording)?;
    let found = verdict::diagnose(&recording, &machine, &Suppressions::default())?;
    let cut_off = recording.cut_off()?;
    drop(progress);
    let filter = Filter {
        colour: hints::colour(),
        ..Filter::default()
    };
    let mut out = io::stdout().lock();
    writeln!(out)?;
    render::first_screen(&mut out, &found, cut_off, &filter)?;
    let program = env::args().next().unwrap_or_else(|| "memtrace".to_owned());
    let (program, file) = (for_shell(&program), hints::file(&args.output));
    writeln!(out, "\nNext:")?;
    writeln!(out, "  {program} html {file}        # all of it, as a page")?;
    writeln!(out, "  {program} flamegraph {file}  # as a picture")?;
    Ok(())
}

fn record_args(args: &DemoArgs, pid: u32) -> anyhow::Result<record::RecordArgs> {
    let (output, pid) = (args.output.as_os_str(), pid.to_string());
    let mut line = ["record", "--duration", DURATION, "--pid", &pid, "--output"]
        .map(OsStr::new)
        .to_vec();
    line.push(output);
    line.extend(args.force.then_some(OsStr::new("--force")));
    let command = record::RecordArgs::augment_args(clap::Command::new("record"));
    let matches = command.try_get_matches_from(line)?;
    Ok(record::RecordArgs::from_arg_matches(&matches)?)
}

impl Server {
    /// Returns when it answers requests: by then, a script that starts the interpreter (pyenv) has become it.
    fn start(example: Example) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("memtrace-demo-").tempdir();
        let folder = folder.context("cannot create a folder for the example")?;
        let mut command = example.command(folder.path())?;
        let mut process = command
            // Ctrl-C ends the recording, and this process its child.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", shown(&command)))?;
        let output = process.stdout.take().context("the example has no output")?;
        let mut server = Self {
            process,
            output: BufReader::new(output),
            _folder: folder,
        };
        let mut line = String::new();
        server.output.read_line(&mut line)?;
        ensure!(!line.is_empty(), "{} ended at once", shown(&command));
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended already if this fails.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Example {
    /// Requests that take about 100 seconds: it ends even if memtrace is killed.
    const REQUESTS_OF_PYTHON: &str = "20000";
    const REQUESTS_OF_C: &str = "100000";

    /// Writes its source to a folder, and compiles it if need be.
    fn command(self, folder: &Path) -> anyhow::Result<Command> {
        let write = |name: &str, source: &str| {
            let path = folder.join(name);
            let written = fs::write(&path, source);
            written.with_context(|| format!("cannot write `{}`", path.display()))?;
            anyhow::Ok(path)
        };
        match self {
            Example::Python => {
                let source = write("leak.py", include_str!("../../examples/leak.py"))?;
                let mut python = Command::new("python3");
                python.arg(source).arg(Self::REQUESTS_OF_PYTHON);
                Ok(python)
            }
            Example::C => {
                let source = write("leak.c", include_str!("../../examples/leak.c"))?;
                let program = folder.join("leak");
                let mut compiler = Command::new("cc");
                compiler.args(["-g", "-O1", "-o"]).arg(&program).arg(source);
                let status = compiler.status();
                let status =
                    status.with_context(|| format!("cannot start {}", shown(&compiler)))?;
                if !status.success() {
                    bail!("{} failed: {status}", shown(&compiler));
                }
                let mut leak = Command::new(program);
                leak.arg(Self::REQUESTS_OF_C);
                Ok(leak)
            }
        }
    }
}

/// The program of a command, for messages.
fn shown(command: &Command) -> String {
    format!("`{}`", command.get_program().to_string_lossy())
}
