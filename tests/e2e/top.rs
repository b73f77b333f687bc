//! `memtrace top` in a terminal: the leaking line is on its first screen, and every way out leaves the terminal and the
//! traced program as they were.
#![allow(clippy::unwrap_used, reason = "test code: a panic is how a test fails")]

use memtrace_tests::{
    Fixture,
    kernel::{self, patched_bytes},
    record::{command, memtrace},
    running::Running,
    targets,
    terminal::{self, CTRL_C, CTRL_Z, Terminal},
    until,
};
use std::{
    ffi::OsStr,
    fs,
    num::NonZero,
    path::{Path, PathBuf},
    process::Command,
};

/// Lines and columns of the terminal.
const SIZE: [NonZero<u16>; 2] = [NonZero::new(24).unwrap(), NonZero::new(80).unwrap()];

/// The line of the target that allocates.
const LEAK: &str = "leaking.c:16";

/// A program that leaks, and a shell in a terminal.
struct Watched {
    target: Running,
    shell: Terminal,
    /// The settings of the terminal before anything ran in it.
    settings: String,
    /// For temporary files.
    temporary: PathBuf,
}

impl Watched {
    fn new(fixture: &Fixture) -> Self {
        let target = Running::start(&mut Command::new(targets::program("leaking.c")));
        target.await_stdout("ready");
        let temporary = fixture.path("temporary");
        fs::create_dir_all(&temporary).unwrap();
        let mut shell = terminal::shell();
        shell.env("TMPDIR", &temporary).env_remove("NO_COLOR");
        let mut shell = Terminal::start(&mut shell);
        shell.await_prompt();
        let [lines, columns] = SIZE;
        shell.run(&format!(
            "stty rows {lines} cols {columns}; export TERM=xterm; set +m"
        ));
        let settings = settings(&mut shell);
        Self {
            target,
            shell,
            settings,
            temporary,
        }
    }

    /// Watches the program; `options` come before its pid.
    fn begin(&mut self, options: &str) {
        let pid = self.target.pid();
        self.top(&format!("{options} -p {pid}"));
    }

    fn top(&mut self, arguments: &str) {
        let memtrace = targets::memtrace().display();
        self.shell
            .send(&format!("{memtrace} top {arguments}; echo status $?\n"));
    }

    /// The process of the screen.
    fn process(&self) -> u32 {
        let processes = watchers(self.target.pid());
        assert_eq!(processes.len(), 2, "the screen and its recorder");
        let is_ours = |pid: &u32| kernel::children(self.shell.pid()).contains(pid);
        processes.into_iter().find(is_ours).unwrap()
    }

    fn signal(&self, signal: i32) {
        // SAFETY: no memory is involved; the process was just looked up.
        unsafe { libc::kill(self.process().cast_signed(), signal) };
    }

    fn kill_recorder(&self) {
        let screen = self.process();
        let watchers = watchers(self.target.pid());
        let recorder = watchers.into_iter().find(|pid| *pid != screen).unwrap();
        // SAFETY: no memory is involved; the process was just looked up.
        unsafe { libc::kill(recorder.cast_signed(), libc::SIGKILL) };
    }

    /// The screen as a user sees it, now.
    fn screen(&self) -> vt100::Parser {
        let screen = self.shell.await_output(|output| Some(screen(output)));
        screen.unwrap()
    }

    /// Waits until a text is on the screen; returns all of it.
    #[track_caller]
    fn await_screen(&self, text: &str) -> String {
        let contents = |output: &str| screen(output).screen().contents();
        let found = |output: &str| Some(contents(output)).filter(|all| all.contains(text));
        self.shell.await_output(found).unwrap_or_else(|| {
            let screen = self.screen().screen().contents();
            panic!("no `{text}` on the screen:\n{screen}")
        })
    }

    /// Waits for the end of the screen with this status: the terminal is as before, nobody traces the program, and no
    /// temporary file is left.
    #[track_caller]
    fn expect_clean(&mut self, status: i32) {
        self.shell.await_text(&format!("status {status}\r"));
        self.shell.await_prompt();
        let parser = self.screen();
        assert!(
            !parser.screen().alternate_screen(),
            "{}",
            parser.screen().contents()
        );
        assert!(!parser.screen().hide_cursor());
        assert_eq!(settings(&mut self.shell), self.settings);
        assert_eq!(watchers(self.target.pid()), Vec::<u32>::new());
        assert_eq!(files(&self.temporary), Vec::<PathBuf>::new());
    }

    /// The program goes on, as if nothing had happened.
    #[track_caller]
    fn expect_unharmed(&mut self) {
        assert_eq!(patched_bytes(self.target.pid()), 0);
        self.target.send("?\n");
        self.target.await_stdout("alive");
    }
}

/// The screen after this output.
fn screen(output: &str) -> vt100::Parser {
    let [lines, columns] = SIZE;
    let mut parser = vt100::Parser::new(lines, columns, 0);
    parser.process(output.as_bytes());
    parser
}

/// The terminal's settings.
fn settings(shell: &mut Terminal) -> String {
    let before = shell.seen();
    shell.run("stty -a");
    shell.since(before)
}

/// Processes whose arguments are those of `memtrace top` or its recorder of this program.
fn watchers(pid: u32) -> Vec<u32> {
    let arguments = format!("\0-p\0{pid}\0");
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&arguments)
    })
    .collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Cells of a screen with a colour.
fn coloured(screen: &vt100::Screen) -> usize {
    let [lines, columns] = SIZE.map(NonZero::get);
    let places = (0..lines).flat_map(|line| (0..columns).map(move |column| (line, column)));
    let cells = places.filter_map(|(line, column)| screen.cell(line, column));
    let plain = vt100::Color::Default;
    cells
        .filter(|cell| cell.fgcolor() != plain || cell.bgcolor() != plain)
        .count()
}

#[test]
fn the_leaking_line_is_on_the_first_screen_and_q_leaves_everything_as_it_was() {
    let fixture = Fixture::new();
    let mut watched = Watched::new(&fixture);
    watched.begin("");
    let screen = watched.await_screen(LEAK);
    let parser = watched.screen();
    assert!(parser.screen().alternate_screen() && parser.screen().hide_cursor());
    let row = screen.lines().find(|line| line.contains("keep_another  "));
    assert!(
        row.is_some_and(|row| row.contains("iB") && row.contains(" heap ")),
        "{screen}"
    );
    // What keeps the blocks.
    // Small sites are not searched for.
    watched.await_screen(" MiB in ");
    watched.shell.send("h");
    let screen = watched.await_screen("kept_list");
    let mut lines = screen.lines();
    // Of words alone.
    let keeper = lines.find(|line| line.starts_with("kept by    probably "));
    assert!(
        keeper.is_some_and(|line| line.contains(" from leaking") && line.contains(": kept")),
        "{screen}"
    );
    watched.shell.send("m");
    watched.await_screen("CHANGE");
    watched.shell.send("?");
    watched.await_screen("show or hide this help");
    watched.shell.send("?");
    watched.await_screen("BLOCKS");
    watched.shell.send("/nothing has this\r");
    watched.await_screen("No row matches.");
    watched.shell.send("q");
    watched.expect_clean(0);
    watched.expect_unharmed();
}

#[test]
fn every_way_out_leaves_everything_as_it_was() {
    let fixture = Fixture::new();
    let mut watched = Watched::new(&fixture);
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT] {
        watched.begin("");
        watched.await_screen(LEAK);
        watched.signal(signal);
        watched.expect_clean(0);
        watched.expect_unharmed();
    }
    watched.begin("");
    watched.await_screen(LEAK);
    watched.kill_recorder();
    watched
        .shell
        .await_text("the recorder was killed by signal 9");
    watched.expect_clean(2);
    watched.expect_unharmed();
    watched.begin("");
    watched.await_screen(LEAK);
    watched.shell.send(CTRL_C);
    watched.expect_clean(0);
    // While probes are set, too.
    watched.begin("");
    watched.await_screen("etting probes");
    watched.shell.send(CTRL_C);
    watched.expect_clean(0);
    watched.expect_unharmed();

    watched.begin("");
    watched.await_screen(LEAK);
    watched.target.close_stdin();
    watched.await_screen("ended after");
    watched.await_screen(LEAK);
    watched.shell.send("q");
    watched.expect_clean(0);
}

#[test]
fn ctrl_z_gives_the_terminal_back_until_the_job_goes_on() {
    let fixture = Fixture::new();
    let mut watched = Watched::new(&fixture);
    watched.shell.run("set -m");
    watched.begin("");
    watched.await_screen(LEAK);
    watched.shell.send(CTRL_Z);
    watched.shell.await_text("Stopped");
    watched.shell.await_prompt();
    assert!(!watched.screen().screen().alternate_screen());
    assert_eq!(settings(&mut watched.shell), watched.settings);
    watched.shell.send("fg; echo status $?\n");
    watched.await_screen(LEAK);
    watched.shell.send("q");
    watched.expect_clean(0);
    watched.expect_unharmed();
}

#[test]
fn a_closed_terminal_and_a_kill_end_the_recorder() {
    let fixture = Fixture::new();
    let mut watched = Watched::new(&fixture);
    watched.begin("");
    watched.await_screen(LEAK);
    watched.signal(libc::SIGKILL);
    let pid = watched.target.pid();
    let expect_gone = || {
        until("the end of the recorder", || {
            watchers(pid).is_empty().then_some(())
        });
    };
    expect_gone();
    watched.expect_unharmed();
    // Only then, the recording stays.
    let left = files(&watched.temporary);
    assert_eq!(left.len(), 1, "{left:?}");
    fs::remove_dir_all(&left[0]).unwrap();

    // In a session of its own, it gets no signal when the terminal is closed.
    let Watched { mut target, .. } = watched;
    for before in ["", "setsid --wait "] {
        let mut watched = Watched {
            target,
            ..Watched::new(&fixture)
        };
        let top = targets::memtrace().display();
        watched.shell.send(&format!("{before}{top} top -p {pid}\n"));
        watched.await_screen(LEAK);
        watched.shell.hang_up();
        expect_gone();
        assert_eq!(files(&watched.temporary), Vec::<PathBuf>::new());
        assert_eq!(patched_bytes(pid), 0);
        target = watched.target;
        target.send("?\n");
        target.await_stdout("alive");
    }
}

#[test]
fn a_recording_that_is_kept_can_be_read_meanwhile_and_later() {
    let fixture = Fixture::new();
    let mut watched = Watched::new(&fixture);
    let file = fixture.path("kept.mtr");
    watched.begin(&format!("-o {}", file.display()));
    watched.await_screen(LEAK);
    let report = memtrace(["report".as_ref(), file.as_os_str()]);
    assert!(report.stdout.contains("still recording"), "{report:#?}");
    watched.shell.send("q");
    watched.expect_clean(0);
    let report = memtrace(["report".as_ref(), file.as_os_str()]).expect_code(0);
    assert!(report.stdout.contains("ended     normally"), "{report:#?}");

    watched.top(&file.display().to_string());
    watched.await_screen("recorded for");
    watched.await_screen(LEAK);
    assert!(coloured(watched.screen().screen()) > 0);
    watched.shell.send("\x1b");
    watched.expect_clean(0);
    for variable in ["NO_COLOR=1", "TERM=vt100"] {
        watched.shell.run(&format!("export {variable}"));
        watched.top(&file.display().to_string());
        watched.await_screen("recorded for");
        watched.await_screen(LEAK);
        assert_eq!(coloured(watched.screen().screen()), 0, "{variable}");
        watched.shell.send("q");
        watched.expect_clean(0);
        watched.shell.run("unset NO_COLOR");
    }

    // A recording that is about to be overwritten is not shown.
    let other = fixture.path("other.mtr");
    let options = ["record", "-o"].map(OsStr::new);
    let program = ["--", "true"].map(OsStr::new);
    let arguments = options.into_iter().chain([other.as_os_str()]);
    memtrace(arguments.chain(program)).expect_code(0);
    watched.begin(&format!("-f -o {}", other.display()));
    watched.await_screen(LEAK);
    watched.shell.send("q");
    watched.expect_clean(0);
}

#[test]
fn without_a_terminal_a_process_or_a_recording_there_is_one_clear_line() {
    let fixture = Fixture::new();
    let mut watched = Watched::new(&fixture);
    let finished = memtrace(["top", "-p", "1"]).expect_code(2);
    assert!(
        finished.stderr.contains("`memtrace top` needs a terminal"),
        "{finished:#?}"
    );
    // A terminal of the type `dumb`.
    let mut terminal = Terminal::start(&mut command(["top", "-p", "1"]));
    terminal.await_text("the terminal type is `dumb`");
    assert_eq!(terminal.end().code(), Some(2));

    let other = fixture.path("other.mtr");
    fs::write(&other, "no recording").unwrap();
    let other = other.display();
    for (arguments, message) in [
        ("-p 4194303", "no process has the pid 4194303"),
        (
            "--name no-such-program",
            "no process matches `--name no-such-program`",
        ),
        ("/nowhere.mtr", "cannot read `/nowhere.mtr`"),
        (
            &*format!("{other}"),
            &*format!("`{other}` is not a memtrace recording"),
        ),
        (
            &*format!("{other} >/dev/null"),
            "`memtrace top` needs a terminal",
        ),
    ] {
        watched.top(arguments);
        watched.shell.await_text(&format!("memtrace: {message}"));
        watched.expect_clean(2);
    }
    watched.shell.run("stty rows 0 cols 0");
    watched.settings = settings(&mut watched.shell);
    watched.top("-p 1");
    let message = "memtrace: the terminal does not know its size";
    watched.shell.await_text(message);
    watched.expect_clean(2);
}
