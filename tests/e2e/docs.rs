//! The examples of the documentation run as they are written, on a small program.

use memtrace_tests::{
    Fixture, record,
    running::{Finished, Running},
    targets,
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Options that choose processes by their surroundings.
const CHOICES: [&str; 5] = ["--cgroup", "--container", "--pod", "--unit", "--name"];

/// The program that runs meanwhile, and the address of its list.
struct Server {
    running: Running,
    list: String,
}

impl Server {
    fn start() -> Self {
        let mut command = targets::python("docs/sessions.py");
        // More than it ever reaches: it ends with the test.
        let running = Running::start(command.arg("10000000"));
        let ready = running.await_stdout("ready ");
        let list = ready["ready ".len()..].to_owned();
        Self { running, list }
    }

    /// The words of a command, with values of this test for those of the page.
    fn words(&self, line: &str, duration: &str) -> Vec<String> {
        let mut words: Vec<String> = line.split_whitespace().map(String::from).collect();
        for index in 1..words.len() {
            // The process is in no container.
            if CHOICES.contains(&words[index - 1].as_str()) {
                words[index - 1] = "--pid".to_owned();
            }
            let value = match words[index - 1].as_str() {
                "-p" | "--pid" => self.running.pid().to_string(),
                "--when" => "100ms".to_owned(),
                "-d" => duration.to_owned(),
                "--type" => "Session".to_owned(),
                "--address" => self.list.clone(),
                _ => continue,
            };
            words[index] = value;
        }
        if let Some(index) = words.iter().position(|word| word == "--")
            && words.get(index + 1).is_some_and(|word| word == "python")
        {
            words.truncate(index + 1);
            let script = targets::source("docs/sessions.py");
            let python = targets::interpreter();
            words.extend([python, &script].map(|path| path.display().to_string()));
            words.push("200".into());
        }
        words
    }

    /// Runs a command of a page in a folder.
    fn run(&self, line: &str, duration: &str, folder: &Path) -> Finished {
        let words = self.words(line, duration);
        let mut command = record::command(&words[1..]);
        Running::start(command.current_dir(folder)).wait()
    }
}

fn page(name: &str) -> String {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    fs::read_to_string(root.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The memtrace commands in a page's code blocks, without comments, and without those that need a terminal. Blocks marked
/// `text` are output.
fn commands(page: &str) -> Vec<String> {
    let blocks = page.split("\n```").skip(1).step_by(2);
    let input = blocks.filter(|block| block.starts_with('\n'));
    let lines = input.flat_map(|block| block.lines());
    lines
        .filter(|line| line.starts_with("memtrace ") && !line.starts_with("memtrace top "))
        .map(|line| line.split(" #").next().unwrap_or(line).trim().to_owned())
        .collect()
}

/// Files that a command reads, and that no earlier one wrote.
fn provide(words: &[String], recording: &Path, folder: &Path) {
    for pair in words.windows(2) {
        let path: PathBuf = folder.join(&pair[1]);
        let is_read = pair[0] != "-o" && !path.exists();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("mtr") if is_read => drop(fs::copy(recording, &path).expect("a copy")),
            Some("supp") if is_read => fs::write(&path, "leak:nothing\n").expect("a file"),
            _ => {}
        }
    }
}

/// Runs the commands of a page.
fn examples(name: &str) {
    let fixture = Fixture::shared();
    let server = Server::start();
    let recording = fixture.path("any.mtr");
    let line = "memtrace record -p PID -d 2s -o any.mtr";
    server.run(line, "2s", fixture.folder()).expect_code(0);
    let folder = fixture.path("page");
    fs::create_dir(&folder).expect("a folder");
    let commands = commands(&page(name));
    assert!(!commands.is_empty(), "no command was found");
    for line in commands {
        let words = server.words(&line, "2s");
        provide(&words, &recording, &folder);
        let finished = server.run(&line, "2s", &folder);
        // Of `diff` and `run`, if the condition of `--fail-on` holds.
        let may_fail = line.contains("--fail-on");
        let code = finished.status.code();
        assert!(
            code == Some(0) || may_fail && matches!(code, Some(1 | 99)),
            "`{line}`: {finished:#?}"
        );
    }
}

/// A test of each page with commands to type.
macro_rules! pages {
    ($($test:ident: $page:literal,)*) => {
        mod examples_of {
            $(#[test]
            fn $test() {
                super::examples($page);
            })*
        }
    };
}

pages! {
    the_readme: "README.md",
    first_steps: "docs/README.md",
    ci: "docs/ci.md",
    containers: "docs/containers.md",
    diff: "docs/reference/diff.md",
    gpu: "docs/gpu.md",
    holders: "docs/holders.md",
    machines: "docs/machines.md",
    tutorial: "docs/tutorial.md",
    verdicts: "docs/verdicts.md",
}

#[test]
fn the_first_recipe_names_the_list() {
    let fixture = Fixture::shared();
    let server = Server::start();
    let readme = page("README.md");
    let (_, recipe) = readme.split_once("\n## Recipes").expect("recipes");
    let recipe = commands(recipe);
    let line = |start: &str| {
        let line = recipe.iter().find(|line| line.starts_with(start));
        line.unwrap_or_else(|| panic!("{start}: {recipe:#?}"))
    };
    let run = |start| {
        server
            .run(line(start), "20s", fixture.folder())
            .expect_code(0)
    };
    run("memtrace record");
    let diagnosis = run("memtrace diagnose").stdout;
    let holders = run("memtrace holders").stdout;
    for text in [diagnosis, holders] {
        assert!(text.contains("__main__"), "{text}");
        assert!(text.contains("sessions"), "{text}");
    }
}
