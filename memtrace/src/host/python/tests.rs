//! Packages in folders as installers leave them.

use super::*;
use crate::host::fixture::tree;

fn launch(root: &Path, program: &str, called: &str, environ: &str) -> Launch {
    Launch {
        root: Root::at(root).unwrap(),
        program: program.into(),
        arguments: vec![called.into(), "-c".into(), "pass".into()],
        environ: Some(environ.into()),
        cwd: "/srv".into(),
    }
}

fn scan(launch: &Launch, files: &[&str]) -> Vec<Fact> {
    let files = files.iter().copied();
    Scanner::default().facts(ProcessId(1), launch, files, &Redactor::default())
}

fn value<'a>(facts: &'a [Fact], field: &str) -> Option<&'a str> {
    let fact = facts.iter().find(|fact| fact.field == field)?;
    Some(&fact.value)
}

const SITE: &str = "srv/venv/lib/python3.11/site-packages";

fn venv(system: &str) -> tempfile::TempDir {
    let file = |path: &str| format!("{SITE}/{path}");
    let files = [
        (file("NumPy-1.26.4.dist-info/INSTALLER"), "pip\n"),
        (
            file("NumPy-1.26.4.dist-info/WHEEL"),
            "Wheel-Version: 1.0\nTag: cp311-cp311-manylinux_2_17_x86_64\nBuild: 2\n",
        ),
        (
            file("my_tool-0.1.dist-info/direct_url.json"),
            r#"{"url": "https://u:hunter2@h/x.git", "vcs_info": {"commit_id": "9e107d9d372bb6826bd81d3542a419d6"}}"#,
        ),
        (
            file("local-2.dist-info/direct_url.json"),
            r#"{"url": "file:///src", "dir_info": {"editable": true}}"#,
        ),
        (file("old-3.0-py3.11.egg-info"), ""),
        (file("broken.dist-info/INSTALLER"), "pip"),
        ("srv/venv/bin/python".into(), ""),
        (
            "usr/lib/python3/dist-packages/numpy-1.0.dist-info/INSTALLER".into(),
            "debian",
        ),
        (
            "usr/lib/python3/dist-packages/six-1.16.dist-info/INSTALLER".into(),
            "debian",
        ),
    ];
    let mut files: Vec<_> = files
        .iter()
        .map(|(path, text)| (path.as_str(), *text))
        .collect();
    let config = format!("home = /usr/bin\ninclude-system-site-packages = {system}\n");
    files.push(("srv/venv/pyvenv.cfg", &config));
    tree(&files).0
}

#[test]
fn packages_of_a_virtual_environment_are_found_by_its_command() {
    let dir = venv("false");
    for (called, environ) in [
        ("/srv/venv/bin/python", ""),
        ("venv/bin/python", ""),
        ("python", "PATH=/nothing:/srv/venv/bin\0"),
    ] {
        let launch = launch(dir.path(), "/usr/bin/python3.11", called, environ);
        let facts = scan(&launch, &[]);
        assert_eq!(
            value(&facts, "python.package.numpy"),
            Some("1.26.4; installer pip; wheel cp311-cp311-manylinux_2_17_x86_64 build 2"),
            "{called}"
        );
        assert_eq!(value(&facts, "python.version"), Some("3.11"));
        assert_eq!(value(&facts, "python.prefix"), Some("/srv/venv"));
        assert_eq!(value(&facts, "python.package.old"), Some("3.0"));
        assert_eq!(value(&facts, "python.package.six"), None);
        let local = value(&facts, "python.package.local");
        assert_eq!(local, Some("2; from file:///src (editable)"));
        let tool = value(&facts, "python.package.my-tool").unwrap();
        assert!(
            tool.ends_with("at 9e107d9d372bb6826bd81d3542a419d6"),
            "{tool}"
        );
        assert!(!tool.contains("hunter2"), "{tool}");
    }
}

#[test]
fn the_system_s_packages_come_after_those_of_the_environment() {
    let dir = venv("true");
    let launch = launch(
        dir.path(),
        "/usr/bin/python3.11",
        "/srv/venv/bin/python",
        "",
    );
    let facts = scan(&launch, &[]);
    assert!(
        value(&facts, "python.package.numpy")
            .unwrap()
            .starts_with("1.26.4")
    );
    assert_eq!(
        value(&facts, "python.package.six"),
        Some("1.16; installer debian")
    );
}

#[test]
fn an_embedded_interpreter_is_found_by_its_mappings() {
    let dir = venv("false");
    let launch = launch(dir.path(), "/usr/bin/blender", "blender", "");
    assert_eq!(scan(&launch, &["/usr/lib/libc.so.6"]), []);
    let module = format!("/{SITE}/numpy/core/_multiarray.so");
    let facts = scan(&launch, &["/usr/lib/libpython3.11.so.1.0", &module]);
    assert!(
        value(&facts, "python.package.numpy")
            .unwrap()
            .starts_with("1.26.4")
    );
    assert!(value(&facts, "python.package.six").is_some());
}

#[test]
fn channel_and_build_of_conda_packages_are_recorded() {
    let (dir, _) = tree(&[
        (
            "opt/c/conda-meta/libopenblas-0.3.21-pthreads_h7.json",
            r#"{"build": "pthreads_h7", "channel": "https://conda.anaconda.org/t/tk-1234/conda-forge/linux-64", "#,
        ),
        ("opt/c/conda-meta/history", ""),
    ]);
    let launch = launch(dir.path(), "/opt/c/bin/python3.11", "python", "");
    let facts = scan(&launch, &[]);
    assert_eq!(
        value(&facts, "conda.package.libopenblas"),
        Some("0.3.21; build pthreads_h7; channel conda-forge")
    );
    assert!(!format!("{facts:?}").contains("tk-1234"));
}

#[test]
fn a_changed_folder_is_read_again() {
    let dir = venv("false");
    let launch = launch(
        dir.path(),
        "/usr/bin/python3.11",
        "/srv/venv/bin/python",
        "",
    );
    let mut scanner = Scanner::default();
    let mut facts = || scanner.facts(ProcessId(1), &launch, [], &Redactor::default());
    let first = facts();
    assert_eq!(facts(), first);
    std::fs::create_dir(dir.path().join(SITE).join("new-1.dist-info")).unwrap();
    assert_eq!(value(&facts(), "python.package.new"), Some("1"));
}

#[test]
fn versions_and_prefixes_are_parsed_from_names() {
    assert_eq!(version_of("/usr/bin/python3.11").as_deref(), Some("3.11"));
    assert_eq!(version_of("libpython3.12.so.1.0").as_deref(), Some("3.12"));
    assert_eq!(version_of("/usr/bin/python3"), None);
    let prefix = |path: &str| prefix_of(Path::new(path));
    assert_eq!(prefix("/usr/bin/python3"), Some("/usr".into()));
    let library = "/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0";
    assert_eq!(prefix(library), Some("/usr".into()));
    assert_eq!(prefix("/python3"), None);
}

#[test]
fn only_words_of_files_are_recorded() {
    let (dir, _) = tree(&[
        (
            "srv/a-1.dist-info/INSTALLER",
            "root:$6$x:19000:0:99999:7:::\nbin:*:1\n",
        ),
        ("srv/b-1.dist-info/INSTALLER", &"x".repeat(1000)),
        (
            "srv/c-1.dist-info/WHEEL",
            "Tag: py3-none-any\nTag: two words\nBuild: \u{1b}[2J\n",
        ),
        ("srv/d-1 2.dist-info/INSTALLER", "pip"),
    ]);
    let launch = launch(
        dir.path(),
        "/usr/bin/python3.11",
        "python3",
        "PYTHONPATH=/srv\0",
    );
    let facts = scan(&launch, &[]);
    assert_eq!(value(&facts, "python.package.a"), Some("1"));
    assert_eq!(value(&facts, "python.package.b"), Some("1"));
    let tagged = value(&facts, "python.package.c");
    assert_eq!(tagged, Some("1; wheel py3-none-any"));
    assert_eq!(value(&facts, "python.package.d"), None);
    assert_eq!(value(&facts, "python.package_folders"), Some("/srv"));
}
