//! Installs every package on systems that have never seen Rust, uses it there, and removes it.

use super::{Packages, apt, image, size};
use crate::{
    command::{self, output, target_dir},
    roots, setup,
};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

/// Debian's releases: name, version.
const DEBIAN: [(&str, &str); 3] = [("bullseye", "11"), ("bookworm", "12"), ("trixie", "13")];

/// Where packages are put in a root.
const PLACE: &str = "/tmp/dist";

/// The workload keeps that much, bytes.
const KEPT: u64 = 1_000_000;

struct System {
    name: String,
    root: PathBuf,
    /// A program that keeps [`KEPT`].
    workload: &'static [&'static str],
    /// Whether `memtrace demo` can run.
    has_python: bool,
}

struct Trial<'a> {
    package: &'static str,
    file: &'a Path,
    system: &'a System,
    /// Scripts that begin in [`PLACE`], with the package as `$1`.
    install: &'static str,
    remove: &'static str,
    program: &'static str,
}

/// Durations of the steps.
struct Times {
    install: Duration,
    check: Duration,
    record: Duration,
    report: Duration,
    /// From the command to the line that leaks, without the build of anything.
    demo: Option<Duration>,
}

/// Tries all of them and prints a table.
///
/// # Errors
/// When a root cannot be made, or a package does not work on it.
pub(super) fn run(packages: &Packages) -> Result<()> {
    let mut debians = Vec::new();
    for (suite, version) in DEBIAN {
        let root = roots::folder().join(format!("{suite}-venv"));
        roots::debian(suite, &["python3-venv"], &root)?;
        debians.push(System {
            name: format!("Debian {version}"),
            root,
            workload: &["perl", "-e", "$kept{$_} = 'x' x 1000 for 1 .. 1000"],
            has_python: true,
        });
    }
    let musl = System {
        name: "musl, busybox".to_owned(),
        root: roots::folder().join("musl"),
        workload: &["/tmp/forget"],
        has_python: false,
    };
    roots::musl(&musl.root)?;
    workload(&musl.root, &[])?;
    image::build(&packages.image, "amd64")?;
    let alone = System {
        name: "nothing else".to_owned(),
        root: image::mount()?,
        workload: &["/tmp/forget"],
        has_python: false,
    };
    workload(&alone.root, &["-static"])?;

    let repository = target_dir().join("dist-apt.tar.gz");
    apt::repository(std::slice::from_ref(&packages.deb), &repository)?;
    let mut trials = Vec::new();
    for system in debians.iter().chain([&musl]) {
        trials.push(Trial {
            package: "tarball",
            file: &packages.tarball,
            system,
            install: "mkdir -p /usr/local && tar -xzf $1 -C /usr/local --strip-components=1",
            remove: "rm /usr/local/bin/memtrace",
            program: "/usr/local/bin/memtrace",
        });
    }
    for system in &debians {
        trials.push(Trial {
            package: "deb",
            file: &packages.deb,
            system,
            install: "apt-get install -y -qq ./$1",
            remove: "apt-get remove -y -qq memtrace",
            program: "/usr/bin/memtrace",
        });
        trials.push(Trial {
            package: "apt",
            file: &repository,
            system,
            install: "tar -xzf $1 -C /srv && \
                      echo 'deb [trusted=yes] file:/srv/memtrace-apt stable main' > /etc/apt/sources.list.d/memtrace.list && \
                      apt-get update -qq -o Dir::Etc::sourcelist=/etc/apt/sources.list.d/memtrace.list \
                      -o Dir::Etc::sourceparts=- && apt-get install -y -qq memtrace",
            remove: "apt-get remove -y -qq memtrace; rm -r /srv/memtrace-apt /etc/apt/sources.list.d/memtrace.list",
            program: "/usr/bin/memtrace",
        });
        trials.push(Trial {
            package: "wheel",
            file: &packages.wheel,
            system,
            install: "python3 -m venv venv && venv/bin/pip install --quiet --no-index ./$1",
            remove: "rm -r venv",
            program: "/tmp/dist/venv/bin/memtrace",
        });
    }
    println!(
        "{:<8}  {:<14}  {:>10}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}",
        "package", "on", "bytes", "install", "check", "record", "report", "demo"
    );
    for trial in &trials {
        let times = trial
            .run()
            .with_context(|| format!("the {} on {}", trial.package, trial.system.name))?;
        print(trial.package, &trial.system.name, size(trial.file)?, &times);
    }
    let times = alone.use_it("/usr/bin/memtrace").context("the image")?;
    let bytes = size(&packages.image.join("memtrace"))?;
    print("image", &alone.name, bytes, &times);
    Ok(())
}

fn print(package: &str, system: &str, bytes: u64, times: &Times) {
    let Times {
        install,
        check,
        record,
        report,
        demo,
    } = times;
    print!("{package:<8}  {system:<14}  {bytes:>10}");
    for time in [install, check, record, report] {
        print!("  {:>7.2} s", time.as_secs_f64());
    }
    match demo {
        Some(demo) => println!("  {:>7.2} s", demo.as_secs_f64()),
        None => println!("  {:>9}", "-"),
    }
}

impl Trial<'_> {
    fn run(&self) -> Result<Times> {
        let place = self.system.root.join(PLACE.trim_start_matches('/'));
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(&place)?;
        let name = self.file.file_name().context("a package without a name")?;
        fs::copy(self.file, place.join(name))?;
        let script = |text: &str| {
            let mut shell = roots::enter(&self.system.root, "/bin/sh");
            let text = format!("export DEBIAN_FRONTEND=noninteractive; cd {PLACE} && {text}");
            shell.args(["-ec", &text, "sh"]).arg(name);
            shell
        };
        let (install, _) = timed(&mut script(self.install))?;
        let used = self.system.use_it(self.program);
        output(&mut script(self.remove))?;
        fs::remove_dir_all(&place)?;
        Ok(Times { install, ..used? })
    }
}

impl System {
    /// What a user does first.
    fn use_it(&self, program: &str) -> Result<Times> {
        const RECORDING: &str = "/tmp/trial.mtr";
        let run = |arguments: &[&str]| timed(roots::enter(&self.root, program).args(arguments));
        let (_, version) = run(&["--version"])?;
        let expected = format!("memtrace {}", env!("CARGO_PKG_VERSION"));
        ensure!(
            version == expected,
            "it is `{version}`, expected `{expected}`"
        );
        let (_, help) = run(&["help"])?;
        ensure!(help.contains("Commands:"), "its help is `{help}`");
        let (check, _) = run(&["check"])?;
        let record_command = ["record", "--force", "-o", RECORDING, "--"];
        let (record, _) = run(&[&record_command, self.workload].concat())?;
        let (report, text) = run(&["report", RECORDING])?;
        ensure!(text.contains("heap"), "its report is `{text}`");
        let (_, json) = run(&["report", "--format", "json", RECORDING])?;
        let json: Value = serde_json::from_str(&json).context("its report is not JSON")?;
        let mut totals = json["totals"].as_array().into_iter().flatten();
        let heap = totals.find(|total| total["layer"] == "heap");
        let live = heap.and_then(|heap| heap["live_bytes"].as_u64());
        ensure!(
            live.is_some_and(|live| live >= KEPT),
            "it saw {live:?} bytes on the heap, expected {KEPT} or more"
        );
        let demo_command = ["demo", "python", "--force", "-o", RECORDING];
        let demo = self.has_python.then(|| run(&demo_command)).transpose()?;
        if let Some((_, screen)) = &demo {
            let is_right = screen.contains("leak (grade B): ") && screen.contains("__main__.CACHE");
            ensure!(is_right, "its demo prints `{screen}`");
        }
        Ok(Times {
            install: Duration::ZERO,
            check,
            record,
            report,
            demo: demo.map(|(took, _)| took),
        })
    }
}

fn timed(command: &mut Command) -> Result<(Duration, String)> {
    let begin = Instant::now();
    let output = output(command)?;
    Ok((begin.elapsed(), output))
}

/// Puts the workload into a root that has no Perl.
fn workload(root: &Path, options: &[&str]) -> Result<()> {
    setup::install(&["musl-tools"])?;
    let source = command::root().join("xtask/dist/forget.c");
    let mut compiler = Command::new("musl-gcc");
    compiler.args(["-g", "-o"]).arg(root.join("tmp/forget"));
    command::run(compiler.arg(source).args(options))
}
