//! `memtrace record`: attach or launch, record, say what to do next.

use std::{
    cell::Cell,
    collections::BTreeSet,
    ffi::OsString,
    io::{self, LineWriter, Write},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{ExitCode, ExitStatus},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use clap::{ArgGroup, Args};

use super::{
    attach::{AttachArgs, Priority},
    choose::{self, ChooseArgs},
    hints,
};
use crate::{
    bpf::Options,
    check,
    collect::{
        interruption::Interruption,
        plan::Plan,
        schedule::Spacing,
        session::{self, Summary},
        start_after::StartAfter,
    },
    process,
    progress::{Stderr, say},
    push::{self, Header, Pusher, Server},
    recording::Untraced,
    render,
    symbolize::debuginfod::Config,
    units,
};

/// Record a running process or a command
#[derive(Clone, Debug, clap::Args)]
#[command(group(ArgGroup::new("target").args(["pid", "command"]).args(choose::OPTIONS).multiple(true).required(true)),
override_usage = "memtrace record [OPTIONS] --pid <PID>\n       memtrace record [OPTIONS] --name <NAME>\n       \
memtrace record [OPTIONS] [--] <COMMAND>...", after_help = "\
Recording stops when the command exits, when every process given with --pid or chosen has exited (children do not \
count), after --duration, or on SIGHUP, Ctrl-C or SIGTERM. Attached processes keep running; \
a launched command is sent SIGTERM too. \
The exit status of a launched command is passed on. SIGUSR1 searches for the holders of the largest sites at once.

Examples:
  memtrace record -p 1234 -d 60s
  memtrace record --container web -d 60s
  memtrace record --name python3 --user www-data --when 'rss>80%'
  memtrace record -o server.mtr -- ./server --port 80
  memtrace record --push pyroscope=http://localhost:4040 --every 60s -p 1234
  memtrace record --no-heap -o train.mtr -- python train.py")]
pub(crate) struct RecordArgs {
    /// Attach to a running process and its descendants; may be repeated
    #[arg(short, long, value_name = "PID", allow_negative_numbers = true, value_parser = choose::parse_pid)]
    pid: Vec<u32>,
    #[command(flatten)]
    choose: ChooseArgs,
    /// The recording to write [default: memtrace-PROGRAM-HOST-PID.mtr]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite an existing recording
    #[arg(short, long)]
    force: bool,
    /// Stop recording after this time, such as 90s or 10m; a number alone means seconds. A launched command
    /// keeps running, and memtrace waits for it: SIGTERM to memtrace is passed on to the command and so ends both
    #[arg(short, long, value_parser = units::parse_duration)]
    duration: Option<Duration>,
    /// Start recording when a condition is met (docs/containers.md has the details):
    ///   30s            after a time
    ///   'rss>2G'       the processes and their descendants have more resident memory
    ///   'rss>80%'      the same, as a share of their memory limit or the machine's memory
    ///   growing        their resident memory has risen for 30 s
    ///   train_step     the first call of a function: ns::Trainer::step, Python's Trainer.step
    ///   train.py:120   a call is at a line of a Python program, or past it in the same function
    ///   SIGUSR1        memtrace gets this signal
    #[arg(
        long,
        visible_alias = "when",
        value_name = "TIME|CONDITION",
        verbatim_doc_comment
    )]
    start_after: Option<StartAfter>,
    /// How often changes are written, such as 1s (at least 10ms); `auto`: every 100 ms at first, less
    /// often as the recording grows, so that it has at most 1,000 intervals
    #[arg(long, value_name = "TIME", default_value = "auto")]
    interval: Spacing,
    #[command(flatten)]
    attach: AttachArgs,
    /// Fetch missing debug information from the servers in DEBUGINFOD_URLS, and wait for it at the end
    /// for at most DEBUGINFOD_TIMEOUT seconds (default 90)
    #[arg(long)]
    debuginfod: bool,
    /// Write the kernel side's records to a file too, for memtrace's own tests
    #[arg(long, value_name = "FILE", hide = true)]
    capture: Option<PathBuf>,
    /// See `memtrace run --help`
    #[arg(long, value_name = "FD", hide = true)]
    rounds: Option<u32>,
    /// Launch Python with PYTHONMALLOC=malloc, so that each object is an allocation: slower, and not for
    /// free-threaded builds, `python -E` or `python -I`. Otherwise the layer `python` shows whole arenas
    #[arg(long)]
    python_objects: bool,
    /// For running processes: print the probes that would be set, and set none
    #[arg(long)]
    dry_run: bool,
    /// Attach probes one by one, as on kernels before 6.10
    #[arg(long, hide = true)]
    one_by_one: bool,
    /// Attach empty programs to the same places, to measure the cost of the probes themselves
    #[arg(long, hide = true)]
    empty_probes: bool,
    /// Unwind every Nth stack a second time with another unwinder, and report at the end how many
    /// differ. Each takes 48 KB of the ring buffer: 100 is a good N
    #[arg(long, value_name = "N", default_value_t = 0, hide = true)]
    verify_stacks: u64,
    /// Measure how long stack walks take, and how long the kernel's own take
    #[arg(long, hide = true)]
    time_walks: bool,
    /// Print more statistics at the end
    #[arg(short, long)]
    verbose: bool,
    /// While recording, send profiles to a server: `pyroscope=URL`, `parca=URL` or `otlp=URL` (a collector of
    /// OpenTelemetry), such as `pyroscope=http://localhost:4040`. The variable MEMTRACE_PUSH_AUTHORIZATION has the value
    /// of the header `Authorization`, if one is needed
    #[arg(long, value_name = "SERVER")]
    push: Option<Server>,
    /// How often a profile is sent, at least 1s; one more is sent at the end
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_every, requires = "push")]
    every: Duration,
    /// A header for the server, such as `X-Scope-OrgID: team`; may be repeated. The value is not recorded, but other
    /// users can see it while memtrace runs
    #[arg(long, value_name = "NAME:VALUE", requires = "push")]
    push_header: Vec<Header>,
    /// The command to launch, with its arguments. After `--`, memtrace reads no more options of its own
    #[arg(trailing_var_arg = true, value_name = "COMMAND", conflicts_with = "pid", conflicts_with_all = choose::OPTIONS)]
    command: Vec<OsString>,
}

/// Records.
///
/// # Errors
/// Nothing, or not everything, could be recorded; the message says what to do.
pub(crate) fn run(args: RecordArgs) -> anyhow::Result<ExitCode> {
    if args.dry_run {
        return dry_run(&args);
    }
    let line: Vec<OsString> = std::env::args_os().collect();
    let options = RecordArgs::augment_args(clap::Command::new("record"));
    if let Some(warning) = hints::given_to_command(&line, &args.command, &options) {
        tracing::warn!("{warning}");
    }
    let status = record(args, true)?;
    Ok(status.map_or(ExitCode::SUCCESS, exit_code))
}

/// Records, and returns the wait status of a launched command. `is_final`: what to do next is up to the user.
pub(super) fn record(args: RecordArgs, is_final: bool) -> anyhow::Result<Option<i32>> {
    if args.python_objects && args.command.is_empty() {
        bail!(
            "`--python-objects` is for launched commands: a process that runs already chose its \
             allocator when it started; launch it with `memtrace record --python-objects -- \
             COMMAND`, or start it with PYTHONMALLOC=malloc in its environment and attach then"
        );
    }
    if args.duration == Some(Duration::ZERO) {
        bail!("`--duration` is 0: give a time such as 60s, or leave it out");
    }
    if args.interval.first() < Duration::from_millis(10) {
        bail!("`--interval` is {}, expected at least 10ms", args.interval);
    }
    check_host()?;
    let holders = args.attach.looks_for_holders();
    let mut pids = BTreeSet::from_iter(args.pid).into_iter().collect();
    let mut choice = args.choose.choice();
    if args.start_after.is_none()
        && let Some(choice) = choice.take()
    {
        let chosen = choice.find(!args.attach.no_follow)?;
        choose::announce(&chosen);
        pids = chosen.iter().map(|of| of.pid).collect();
    }
    let rounds = args.rounds.map(|rounds| {
        process::inherited::descriptor(rounds.cast_signed())
            .with_context(|| format!("cannot use the descriptor {rounds} of `--rounds`"))
    });
    let plan = Plan {
        output: args.output,
        options: Options {
            ring_bytes: args.attach.ring_buffer,
            follow: !args.attach.no_follow,
            one_by_one: args.one_by_one,
            frame_pointers: args.attach.frame_pointers,
            python_frames: !args.attach.no_python,
            heap: !args.attach.no_heap,
            empty_probes: args.empty_probes,
            verify_every: args.verify_stacks,
            time_walks: args.time_walks,
        },
        pids,
        choice,
        command: args.command,
        python_objects: args.python_objects,
        search_memory: args.attach.search_memory,
        force: args.force,
        stop: !args.attach.no_stop,
        duration: args.duration,
        rounds: rounds.transpose()?,
        start_after: args.start_after,
        spacing: args.interval,
        allocators: args.attach.allocator,
        redact: args.attach.redact,
        holders,
        summarise_imports: !args.attach.imports,
        fold: !args.attach.no_fold,
        ahead: args.attach.priority == Priority::High,
        capture: args.capture,
        debuginfod: args.debuginfod.then(Config::from_env).transpose()?,
        invocation: without_headers(
            std::env::args_os()
                .map(|argument| argument.to_string_lossy().into_owned())
                .collect(),
        ),
    };
    let push = args.push.map(|server| push::Options {
        server: server.with_headers(args.push_header),
        every: args.every,
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the event loop")?;
    let verbose = args.verbose;
    let pusher = Cell::new(None);
    let begun = |plan: &Plan, output: &Path, untraced: &[Untraced]| {
        announce(plan, output, untraced);
        pusher.set(push.and_then(|options| start_pushing(options, output)));
    };
    let recorded = |summary: &Summary, output: &Path| {
        let pushed = pusher
            .take()
            .map(|of| finish_pushing(of, summary.is_urgent));
        // If standard error is closed, the message is lost; the status still counts.
        let _ = conclude(summary, output, pushed.as_deref(), verbose, is_final);
    };
    let status = runtime.block_on(session::record(plan, begun, recorded))?;
    Ok(status)
}

/// # Errors
/// This host cannot trace; the message says why, and what to do.
pub(super) fn check_host() -> anyhow::Result<()> {
    let checks = check::run_checks();
    let Some(missing) = check::first_failure(&checks) else {
        return Ok(());
    };
    let help = missing.help.as_deref().unwrap_or("see `memtrace check`");
    bail!(
        "this host cannot trace: {}: {}; {help}",
        missing.name,
        missing.detail
    )
}

/// Says that recording has begun.
fn announce(plan: &Plan, output: &Path, untraced: &[Untraced]) {
    let what = until(!plan.command.is_empty(), plan.duration);
    // A closed standard error must not end a recording.
    let _ = say_untraced(&mut LineWriter::new(Stderr), untraced);
    say(&format!("recording to `{}`; {what}", output.display()));
}

/// A recording without profiles elsewhere is better than none.
fn start_pushing(options: push::Options, output: &Path) -> Option<Pusher> {
    let started = Pusher::start(options, output);
    started
        .inspect_err(|error| {
            tracing::warn!("no profile will be sent: cannot start a thread: {error}")
        })
        .ok()
}

/// Sends the last profile; says what was sent. `is_urgent`: the server has a second.
fn finish_pushing(pusher: Pusher, is_urgent: bool) -> String {
    let interruption = Interruption::begin();
    let until = is_urgent.then(|| Instant::now() + Duration::from_secs(1));
    let is_over = || interruption.has_come() || until.is_some_and(|at| at <= Instant::now());
    match pusher.finish(is_over) {
        Some(counts) => counts.to_string(),
        None => "interrupted: the last profile was not sent".to_owned(),
    }
}

/// memtrace's command line without the values of headers, which may be secrets.
fn without_headers(mut line: Vec<String>) -> Vec<String> {
    const OPTION: &str = "--push-header";
    for at in 0..line.len() {
        if line[at].starts_with("--push-header=") {
            line[at] = format!("{OPTION}=…");
        } else if line[at] == OPTION && at + 1 < line.len() {
            line[at + 1] = "…".into();
        }
    }
    line
}

/// When the recording will end.
fn until(launched: bool, duration: Option<Duration>) -> String {
    let after = duration.map(|duration| {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        units::duration(ns)
    });
    match (launched, after) {
        (true, None) => "until the command ends".to_owned(),
        (true, Some(after)) => {
            format!("for {after}, or until the command ends; the command itself is not stopped")
        }
        (false, None) => "Ctrl-C ends the recording, not the process".to_owned(),
        (false, Some(after)) => {
            format!("for {after}; Ctrl-C ends the recording, not the process")
        }
    }
}

fn say_untraced(err: &mut impl Write, untraced: &[Untraced]) -> io::Result<()> {
    let mut lines = render::untraced(untraced).into_iter();
    lines.try_for_each(|line| writeln!(err, "memtrace: {line}"))
}

fn conclude(
    summary: &Summary,
    output: &Path,
    pushed: Option<&str>,
    verbose: bool,
    is_final: bool,
) -> io::Result<()> {
    let mut err = LineWriter::new(Stderr);
    let Summary {
        received,
        missing,
        outstanding,
        ledger_bytes,
        ref verified,
        ref timings,
        ref samples,
        ref untraced,
        survivors,
        ref holders,
        is_urgent: _,
    } = *summary;
    let recorded = match received {
        0 => "nothing was allocated or freed meanwhile".to_owned(),
        n => format!("{} recorded", units::plural(n, "event")),
    };
    writeln!(err, "memtrace: {recorded}, {missing}")?;
    if let Some(pushed) = pushed {
        writeln!(err, "memtrace: {pushed}")?;
    }
    if verbose {
        writeln!(
            err,
            "ledger: {outstanding} outstanding, {ledger_bytes} bytes"
        )?;
        writeln!(err, "samples: {samples}")?;
    }
    if let Some(counts) = verified {
        writeln!(err, "verified: {}", counts.to_json())?;
    }
    if !timings.is_empty() {
        write!(err, "{timings}")?;
        writeln!(err, "timings: {}", timings.to_json())?;
    }
    if let Some(looked) = holders {
        for line in looked.lines() {
            writeln!(err, "memtrace: {line}")?;
        }
        if verbose {
            writeln!(err, "holders: {:.1} s", looked.took.as_secs_f64())?;
        }
    }
    if let Some(line) = outlived_by(survivors) {
        writeln!(err, "memtrace: {line}")?;
    }
    say_untraced(&mut err, untraced)?;
    if received == 0 || !is_final {
        return Ok(());
    }
    writeln!(
        err,
        "memtrace: next: memtrace diagnose {}",
        hints::file(output)
    )
}

/// The line for descendants that outlive the processes of `-p`.
fn outlived_by(descendants: u64) -> Option<String> {
    let (run, them) = match descendants {
        0 => return None,
        1 => ("runs", "it"),
        _ => ("run", "them"),
    };
    Some(format!(
        "recording ended because the processes of `-p` ended; {} still {run}: attach to {them} \
         with `-p` to record on",
        units::plural(descendants, "descendant")
    ))
}

/// The command's exit status, as a shell passes it on.
pub(super) fn exit_code(status: i32) -> ExitCode {
    let status = ExitStatus::from_raw(status);
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(2);
    ExitCode::from(u8::try_from(code).unwrap_or(2))
}

/// The time between two profiles.
fn parse_every(text: &str) -> Result<Duration, String> {
    let every = units::parse_duration(text)?;
    let is_long_enough = every >= Duration::from_secs(1);
    is_long_enough
        .then_some(every)
        .ok_or_else(|| format!("`{text}` is less than `1s`"))
}

fn dry_run(args: &RecordArgs) -> anyhow::Result<ExitCode> {
    let pids = match args.choose.choice() {
        Some(choice) => {
            let chosen = choice.find(!args.attach.no_follow)?;
            choose::announce(&chosen);
            chosen.iter().map(|of| of.pid).collect()
        }
        None => args.pid.clone(),
    };
    if pids.is_empty() {
        bail!("`--dry-run` needs a running process: give one with `-p PID`");
    }
    for pid in pids {
        super::probes::show(pid, &args.attach.allocator, &mut io::stdout().lock())?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn the_first_line_says_when_a_recording_ends() {
        let three = Some(Duration::from_secs(3));
        let of_command = until(true, three);
        assert!(of_command.starts_with("for 3.0 s,"), "{of_command}");
        assert!(of_command.contains("is not stopped"), "{of_command}");
        assert_eq!(until(true, None), "until the command ends");
        assert!(until(false, three).starts_with("for 3.0 s;"));
        assert!(until(false, None).starts_with("Ctrl-C"));
    }

    #[test]
    fn surviving_descendants_are_counted_at_the_end() {
        assert_eq!(outlived_by(0), None);
        let one = outlived_by(1).unwrap();
        assert!(one.contains("1 descendant still runs"), "{one}");
        let two = outlived_by(2).unwrap();
        assert!(two.contains("2 descendants still run"), "{two}");
    }

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        record: RecordArgs,
    }

    #[test]
    fn a_ring_buffer_that_cannot_be_had_is_refused() {
        let parse = |size: &str| Cli::try_parse_from(["record", "--ring-buffer", size, "-p", "1"]);
        for size in ["8g", "2g", "100", "0", "x"] {
            assert!(parse(size).is_err(), "{size}");
        }
        assert_eq!(parse("1g").unwrap().record.attach.ring_buffer, 1 << 30);
        assert_eq!(parse("4k").unwrap().record.attach.ring_buffer, 4096);
    }

    #[test]
    fn values_of_headers_are_not_recorded() {
        let line = "record --push-header A:secret --push-header=B:secret -p 1";
        let line = without_headers(line.split(' ').map(Into::into).collect());
        let expected = "record --push-header … --push-header=… -p 1";
        assert_eq!(line.join(" "), expected);
        let cut = vec!["--push-header".to_owned()];
        assert_eq!(without_headers(cut.clone()), cut);
    }

    #[test]
    fn pushing_needs_a_server_and_a_second() {
        let parse = |options: &[&str]| {
            let arguments = [&["record"], options, &["-p", "1"]].concat();
            Cli::try_parse_from(arguments)
        };
        let push = ["--push", "otlp=http://localhost:4318"];
        assert_eq!(parse(&push).unwrap().record.every, Duration::from_secs(60));
        assert!(parse(&[&push[..], &["--every", "1s"]].concat()).is_ok());
        assert!(parse(&[&push[..], &["--every", "999ms"]].concat()).is_err());
        assert!(parse(&["--every", "2s"]).is_err());
        assert!(parse(&["--push-header", "A:b"]).is_err());
    }

    #[test]
    fn the_last_word_on_holders_counts() {
        let parse = |options: &[&str]| {
            let arguments = [&["record"], options, &["-p", "1"]].concat();
            let args = Cli::try_parse_from(arguments).unwrap().record;
            args.attach.looks_for_holders()
        };
        assert!(parse(&[]));
        assert!(!parse(&["--no-holders"]));
        assert!(parse(&["--no-holders", "--holders"]));
        assert!(!parse(&["--holders", "--no-holders"]));
        assert!(!parse(&["--no-stop"]));
    }

    #[test]
    fn python_objects_are_for_launched_commands_and_the_error_says_why() {
        let parse = |arguments: &[&str]| {
            let arguments = [&["record", "--python-objects"], arguments].concat();
            Cli::try_parse_from(arguments).map(|cli| cli.record)
        };
        let launched = parse(&["--", "python3", "train.py"]).unwrap();
        assert!(launched.python_objects);
        let error = run(parse(&["-p", "1"]).unwrap()).unwrap_err().to_string();
        for part in ["chose its allocator when it started", "PYTHONMALLOC=malloc"] {
            assert!(error.contains(part), "{error}");
        }
    }
}
