//! `cargo xtask vm`: part of the end-to-end suite on other kernels. Runs the tests, and prints their
//! results.

mod kernel;
mod qemu;
mod suite;

use crate::command::{self, cargo};
use anyhow::{Context, Result, bail};
use kernel::Kernel;
pub(crate) use qemu::Processors;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use suite::Suite;

/// The kernel that this runs on, without a virtual machine.
const HOST: &str = "host";
/// The default: the oldest that is supported, Ubuntu 22.04's, the oldest and the newest of Debian 12's kernels, Debian's
/// newest, and the host's.
const USUAL: [&str; 6] = ["5.10", "5.15", "6.1", "6.12", "newest", HOST];
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
pub(crate) fn run(kernels: &[String], file: Option<&Path>, only: Option<&str>) -> Result<()> {
    command::need_root("tracing on other kernels")?;
    let suite = Suite::of(only);
    if suite.features().is_empty() {
        bail!("no test has `{}` in its name", only.unwrap_or_default());
    }
    command::build_workspace()?;
    let program = test_program()?;
    let mut columns = Vec::new();
    for name in wanted(kernels, file)? {
        eprintln!("vm: {name}");
        let session = Session::run_on(
            &name,
            &script(&program, &suite)?,
            (Processors::Steady, LIMIT_OF_THE_SUITE),
        )?;
        columns.push(column(&name, &session, &suite)?);
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

fn wanted(kernels: &[String], file: Option<&Path>) -> Result<Vec<String>> {
    let mut wanted = kernels.to_vec();
    if let Some(file) = file {
        let path = fs::canonicalize(file)
            .with_context(|| format!("cannot find the kernel `{}`", file.display()))?;
        wanted.push(path.to_string_lossy().into_owned());
    } else if wanted.is_empty() {
        wanted = USUAL.map(str::to_owned).to_vec();
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
}

impl Session {
    /// Runs a script on a kernel, host or not; a name with a slash is the path of an image. The script finds memtrace as `$MEMTRACE_BIN` and writes
    /// into `$OUT`.
    ///
    /// # Errors
    /// There is no such kernel, or the virtual machine cannot be started or does not end.
    pub(crate) fn run(name: &str, script: &str) -> Result<Session> {
        Self::run_on(name, script, (Processors::Parallel, LIMIT))
    }

    /// As [`Session::run`], on these processors and with this limit.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub(crate) fn run_on(
        name: &str,
        script: &str,
        machine: (Processors, Duration),
    ) -> Result<Session> {
        let of_file = Path::new(name).file_name();
        let folder = results().join(of_file.unwrap_or_default());
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        let targets = command::target_dir().join("test-targets");
        fs::create_dir_all(&targets)?;
        // A copy: the next build must not change it meanwhile.
        let memtrace = folder.join("memtrace");
        fs::copy(command::target_dir().join("debug/memtrace"), &memtrace)?;
        let script = format!(
            "export MEMTRACE_BIN='{}'\nuname -r > \"$OUT/release\"\n{script}",
            memtrace.display()
        );
        if name == HOST {
            let path = folder.join("script");
            fs::write(&path, &script)?;
            command::run(Command::new("bash").arg(path).env("OUT", &folder))?;
        } else {
            let kernel = match name.contains('/') {
                true => Kernel::of_image(Path::new(name))?,
                false => Kernel::fetch(name)?,
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

/// The end-to-end tests' executable.
///
/// # Errors
/// They do not build.
pub(crate) fn test_program() -> Result<PathBuf> {
    let mut build = cargo();
    // Built like `cargo xtask test`: another selection would build twice.
    build.args(["test", "--workspace", "--test", "*", "--no-run"]);
    build.args(["--message-format", "json"]);
    let messages = command::output(&mut build)?;
    let mut messages = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of_tests = |message: &Value| {
        let is_theirs = message["target"]["name"] == "e2e";
        let path = message["executable"].as_str()?;
        is_theirs.then(|| PathBuf::from(path))
    };
    messages
        .find_map(|message| of_tests(&message))
        .context("no tests are built from `tests/e2e/`")
}

/// Runs every test, on a kernel that memtrace works with; on another one it has to refuse.
fn script(program: &Path, suite: &Suite) -> Result<String> {
    let mut script = String::from(
        "\"$MEMTRACE_BIN\" check > \"$OUT/check\" 2>&1; echo $? > \"$OUT/check.status\"\n\
         \"$MEMTRACE_BIN\" record -f -o \"$OUT/x.mtr\" -- true > \"$OUT/record\" 2>&1; echo $? > \"$OUT/record.status\"\n\
         [ \"$(cat \"$OUT/check.status\")\" = 0 ] || exit 0\n\
         \"$MEMTRACE_BIN\" check --loaded > \"$OUT/loaded.json\" 2> \"$OUT/loaded.err\"\n\
         export MEMTRACE_EXACT_RUNS=2 MEMTRACE_DEADLINE=240 RUST_BACKTRACE=0\n",
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
