//! `cargo xtask vm`: part of the end-to-end suite on other kernels. Runs the tests, and prints their
//! results.

mod architecture;
mod build;
mod kernel;
mod qemu;
mod suite;

use crate::command;
use anyhow::{Context, Result, bail, ensure};
pub(crate) use architecture::{Architecture, X86_64};
pub(crate) use build::test_program;
use clap::Args;
use kernel::Kernel;
pub(crate) use qemu::{Machine, Processors};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fmt::Write,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use suite::Suite;

#[derive(Args)]
pub(crate) struct Options {
    /// 5.10, 6.1, 6.12, newest (of Debian's), 5.15 (of Ubuntu's, x86_64) or host; by default all. aarch64: 6.12-16k has
    /// pages of 16 KiB
    kernels: Vec<String>,
    /// Also, or only, on the kernel in this file (bzImage, Image). Its modules, if it needs some, are looked for where its
    /// package has them, in this system's folder, and below the file's own folder
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
    /// Run only the tests whose feature or name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// The processor: x86_64 or aarch64, which is built for by a cross-compiler and has a root folder of its own
    #[arg(long, value_name = "NAME", value_parser = Architecture::named, default_value = "x86_64")]
    arch: &'static Architecture,
    /// Instead of the tests, run this script with bash, and print its output. It finds memtrace as `$MEMTRACE_BIN`; what
    /// it writes to `$OUT` is in target/vm afterwards
    #[arg(long, value_name = "FILE", conflicts_with = "only")]
    script: Option<PathBuf>,
}

/// The kernel that this runs on, without a virtual machine.
const HOST: &str = "host";
/// From here on the walk by tables can be verified.
const SUPPORTED: (u32, u32) = (5, 10);
/// From here on one link holds all probes of a file.
const MULTI_LINKS: (u32, u32) = (6, 10);

/// A virtual machine needs some minutes; one that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(1_800);
const LIMIT_OF_A_TEST: Duration = Duration::from_secs(600);
const LIMIT_OF_THE_SUITE: Duration = Duration::from_secs(5_400);

/// The results on one kernel: by name, whether it passed, and a short note.
struct Column {
    kernel: String,
    cells: BTreeMap<String, (bool, String)>,
}

/// `cargo xtask vm`.
///
/// # Errors
/// When not root, a virtual machine cannot be started, or something does not hold on a kernel.
pub(crate) fn run(options: &Options) -> Result<()> {
    command::need_root("tracing on other kernels")?;
    let only = options.only.as_deref();
    let suite = Suite::of(only);
    if suite.features().is_empty() {
        bail!("no test has `{}` in its name", only.unwrap_or_default());
    }
    build::build(options.arch)?;
    let given = options
        .script
        .as_ref()
        .map(fs::read_to_string)
        .transpose()?;
    let script = match &given {
        Some(script) => format!("exec > \"$OUT/output\" 2>&1\n{script}"),
        None => script_of(&suite, &build::test_program(options.arch)?)?,
    };
    let mut columns = Vec::new();
    for name in wanted(options)? {
        eprintln!("vm: {name}");
        let machine = Machine {
            architecture: options.arch,
            processors: Processors::Steady,
            limit: LIMIT_OF_THE_SUITE,
        };
        let session = Session::run_on(&name, &script, machine)?;
        match given {
            Some(_) => print!("{}", session.read("output")?),
            None => columns.push(column(&name, &session, &suite)?),
        }
    }
    if given.is_some() {
        return Ok(());
    }
    print!("{}", table(&columns, &suite));
    let failed: Vec<_> = columns
        .iter()
        .flat_map(|column| {
            let cells = column.cells.iter().filter(|(_, (held, _))| !held);
            cells.map(move |(name, _)| format!("{name} on {}", column.kernel))
        })
        .collect();
    if failed.is_empty() {
        return Ok(());
    }
    bail!(
        "failed: {}; see `{}`",
        failed.join(", "),
        results().display()
    );
}

fn wanted(options: &Options) -> Result<Vec<String>> {
    let mut wanted = options.kernels.clone();
    if let Some(file) = &options.kernel {
        let path = fs::canonicalize(file)
            .with_context(|| format!("cannot find the kernel `{}`", file.display()))?;
        wanted.push(path.to_string_lossy().into_owned());
    } else if wanted.is_empty() {
        wanted = options
            .arch
            .usual
            .iter()
            .map(|&name| name.to_owned())
            .collect();
    }
    Ok(wanted)
}

/// The folder in which a kernel's results are kept until its next run.
fn results() -> PathBuf {
    command::target_dir().join("vm")
}

/// One script that has run on one kernel.
pub(crate) struct Session {
    folder: PathBuf,
    release: (u32, u32),
    /// The release from uname.
    pub(crate) kernel: String,
    /// The folder is another run's when it is dropped.
    _turn: File,
}

impl Session {
    /// Runs a script on a kernel, host or not; a name with a slash is the path of an image. The script finds memtrace as `$MEMTRACE_BIN` and writes
    /// into `$OUT`.
    ///
    /// # Errors
    /// There is no such kernel, or the virtual machine cannot be started or does not end.
    pub(crate) fn run(name: &str, script: &str) -> Result<Session> {
        let machine = Machine {
            architecture: &X86_64,
            processors: Processors::Parallel,
            limit: LIMIT,
        };
        Self::run_on(name, script, machine)
    }

    /// As [`Session::run`], in this machine.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub(crate) fn run_on(name: &str, script: &str, machine: Machine) -> Result<Session> {
        let architecture = machine.architecture;
        let of_file = Path::new(name).file_name().unwrap_or_default();
        let folder = results().join(architecture.folder(Path::new(of_file)));
        fs::create_dir_all(&folder)?;
        let mut lock = folder.clone().into_os_string();
        lock.push(".lock");
        let turn = File::create(lock)?;
        turn.lock()?;
        fs::remove_dir_all(&folder)?;
        fs::create_dir_all(&folder)?;
        let targets = architecture.builds().join("test-targets");
        fs::create_dir_all(&targets)?;
        // A copy: the next build must not change it meanwhile.
        let memtrace = folder.join("memtrace");
        let built = build::memtrace(architecture);
        fs::copy(&built, &memtrace)
            .with_context(|| format!("cannot copy `{}`", built.display()))?;
        let script = format!(
            "export MEMTRACE_BIN='{}'\nuname -r > \"$OUT/release\"\n{script}",
            memtrace.display()
        );
        if name == HOST {
            ensure!(
                architecture.cross.is_none(),
                "the host has another processor"
            );
            let path = folder.join("script");
            fs::write(&path, &script)?;
            command::run(Command::new("bash").arg(path).env("OUT", &folder))?;
        } else {
            let kernel = match name.contains('/') {
                true => Kernel::of_image(Path::new(name))?,
                false => Kernel::fetch(name, architecture)?,
            };
            qemu::run(&kernel, &script, &folder, &targets, machine)?;
        }
        let kernel = fs::read_to_string(folder.join("release")).with_context(|| {
            let console = folder.join("machine/console.log");
            format!("Linux {name} did not come up; see `{}`", console.display())
        })?;
        let kernel = kernel.trim().to_owned();
        let mut numbers = kernel.split(|c: char| !c.is_ascii_digit());
        let mut number = || numbers.next().and_then(|number| number.parse().ok());
        let release = number()
            .zip(number())
            .with_context(|| format!("`{kernel}` is not a kernel version"))?;
        Ok(Session {
            folder,
            release,
            kernel,
            _turn: turn,
        })
    }

    /// A file that the script has written.
    ///
    /// # Errors
    /// It has not.
    pub(crate) fn read(&self, file: &str) -> Result<String> {
        let path = self.folder.join(file);
        fs::read_to_string(&path).with_context(|| format!("cannot read `{}`", path.display()))
    }
}

/// Runs every test, on a kernel that memtrace works with; on another one it has to refuse.
fn script_of(suite: &Suite, program: &Path) -> Result<String> {
    let mut script = String::from(
        "\"$MEMTRACE_BIN\" check > \"$OUT/check\" 2>&1; echo $? > \"$OUT/check.status\"\n\
         \"$MEMTRACE_BIN\" record -f -o \"$OUT/x.mtr\" -- true > \"$OUT/record\" 2>&1; echo $? > \"$OUT/record.status\"\n\
         [ \"$(cat \"$OUT/check.status\")\" = 0 ] || exit 0\n\
         \"$MEMTRACE_BIN\" check --loaded > \"$OUT/loaded.json\" 2> \"$OUT/loaded.err\"\n\
         export MEMTRACE_EXACT_RUNS=2 MEMTRACE_ATTACHES=2 MEMTRACE_DEADLINE=240 RUST_BACKTRACE=0\n",
    );
    for (file, test) in suite.tests() {
        let limit = LIMIT_OF_A_TEST.as_secs();
        writeln!(
            script,
            "begin=$(date +%s)\n\
             timeout {limit} '{}' --exact {file}::{test} --test-threads=1 > \"$OUT/{file}-{test}.log\" 2>&1\n\
             echo \"{file}-{test} $? $(( $(date +%s) - begin ))\" >> \"$OUT/results\"",
            program.display()
        )?;
    }
    Ok(script)
}

fn column(name: &str, session: &Session, suite: &Suite) -> Result<Column> {
    let mut cells = BTreeMap::new();
    let status = |file: &str| Ok::<_, anyhow::Error>(session.read(file)?.trim().to_owned());
    let (checked, recorded) = (status("check.status")?, status("record.status")?);
    let supported = session.release >= SUPPORTED;
    // Yes on a supported kernel, no on others, and never one without the other.
    let agreed = (checked == "0") == supported && (recorded == "0") == supported;
    let lines = session.read("record")?.lines().count();
    let seen = match (agreed, supported) {
        (true, true) => "yes".to_owned(),
        (true, false) if lines == 1 => "refused".to_owned(),
        _ => format!("check {checked}, record {recorded}, {lines} lines"),
    };
    let held = agreed && (supported || lines == 1);
    cells.insert("check".to_owned(), (held, seen));
    if checked == "0" {
        let loaded: Value = serde_json::from_str(&session.read("loaded.json")?)
            .context("`check --loaded` printed no JSON")?;
        let seconds = loaded["load_ms"].as_f64().unwrap_or(f64::MAX) / 1e3;
        cells.insert(
            "load".to_owned(),
            (seconds < 20.0, format!("{seconds:.1} s")),
        );
        let multi = loaded["multi_links"].as_bool() == Some(true);
        let seen = if multi { "yes" } else { "no" }.to_owned();
        let held = multi == (session.release >= MULTI_LINKS);
        cells.insert("multi links".to_owned(), (held, seen));
        let results = session.read("results").unwrap_or_default();
        for (label, tests) in suite.features() {
            let mut seconds = 0;
            let mut failed = 0;
            for (file, test) in tests {
                let key = format!("{file}-{test} ");
                let line = results.lines().find_map(|line| line.strip_prefix(&key));
                let numbers: Vec<u64> = line
                    .unwrap_or("1 0")
                    .split(' ')
                    .filter_map(|number| number.parse().ok())
                    .collect();
                // A filter that fits no test lets the harness pass.
                let log = session
                    .read(&format!("{file}-{test}.log"))
                    .unwrap_or_default();
                let passed = numbers.first() == Some(&0) && log.contains("1 passed");
                failed += usize::from(!passed);
                seconds += numbers.get(1).copied().unwrap_or(0);
            }
            let seen = match failed {
                0 => format!("ok, {seconds} s"),
                _ => format!("{failed} of {} failed", tests.len()),
            };
            cells.insert((*label).to_owned(), (failed == 0, seen));
        }
    }
    Ok(Column {
        kernel: format!("{} ({name})", session.kernel),
        cells,
    })
}

fn table(columns: &[Column], suite: &Suite) -> String {
    let mut text = format!("{:<18}", "");
    for column in columns {
        let _ = write!(text, "{:<36}", column.kernel);
    }
    text.push('\n');
    let labels = ["check", "load", "multi links"].into_iter();
    for label in labels.chain(suite.features().iter().map(|(label, _)| *label)) {
        let _ = write!(text, "{label:<18}");
        for column in columns {
            let (held, seen) = match column.cells.get(label) {
                Some((held, seen)) => (*held, seen.as_str()),
                None => (true, "–"),
            };
            let seen = if held {
                seen.to_owned()
            } else {
                format!("FAILED: {seen}")
            };
            let _ = write!(text, "{seen:<36}");
        }
        text.push('\n');
    }
    text
}
