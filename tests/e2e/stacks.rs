//! Stacks are the true ones, whatever compiler built the code, and stay readable without it.

use memtrace_common::{loss::Reason, unwind::End};
use memtrace_tests::{
    Fixture,
    record::Record,
    report::{Frame, Report},
    running::Running,
    stack_builds::{self, Build},
    stacks::{self, Gap},
    targets,
};
use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Where walks are known to end early.
const GAPS: [Gap; 1] = [
    // It is not known as a maker of contexts, and its assembler has no call frame information.
    Gap {
        path: "in_unknown_context<",
        end: End::NoRow,
    },
];

/// A launched target reports its stacks as it saw them itself.
fn true_stacks(program: PathBuf, library: Option<PathBuf>) {
    let fixture = Fixture::new();
    let truth = fixture.path("truth");
    let command = [Some(program), Some(truth.clone()), library];
    let command: Vec<OsString> = command.into_iter().flatten().map(Into::into).collect();
    let report = Record::launch(&fixture, &[], command).finish(7);
    let truth = stacks::read(&truth);
    expect_every_stack(&report);
    stacks::expect_same(&report, &truth, &GAPS);
}

/// Each allocation has a stack, if not always a complete one.
fn expect_every_stack(report: &Report) {
    report.expect_balance();
    for reason in [
        Reason::RingFullStack,
        Reason::UnknownStack,
        Reason::ScratchBusy,
    ] {
        assert_eq!(report.loss(reason), 0, "{}", reason.name());
    }
}

fn dynamic(compiler: &'static str, flags: &'static [&'static str]) {
    let [program, plugin] = stack_builds::dynamic(Build { compiler, flags });
    true_stacks(program, Some(plugin));
}

#[test]
fn gcc_without_frame_pointers() {
    dynamic("gcc", &["-O2", "-fomit-frame-pointer"]);
}

#[test]
fn clang_without_frame_pointers() {
    dynamic("clang", &["-O2", "-fomit-frame-pointer"]);
}

#[test]
fn gcc_with_frame_pointers() {
    dynamic("gcc", &["-O2", "-fno-omit-frame-pointer"]);
}

#[test]
fn gcc_without_optimisation() {
    dynamic("gcc", &["-O0"]);
}

#[test]
fn gcc_at_a_fixed_address() {
    dynamic(
        "gcc",
        &["-O2", "-fomit-frame-pointer", "-no-pie", "-fno-pie"],
    );
}

#[test]
fn gcc_with_realigned_stacks_and_lazy_binding() {
    // Where a function's stack always has its alignment, only those with larger needs align it.
    const REALIGN: &str = match cfg!(target_arch = "x86_64") {
        true => "-mstackrealign",
        false => "-fstack-clash-protection",
    };
    dynamic(
        "gcc",
        &["-O2", "-fomit-frame-pointer", REALIGN, "-Wl,-z,lazy"],
    );
}

/// Branches arrive at marked instructions only, and return addresses are signed where the architecture can.
#[test]
fn gcc_with_protected_branches() {
    const PROTECT: &str = match cfg!(target_arch = "aarch64") {
        true => "-mbranch-protection=standard",
        false => "-fcf-protection=full",
    };
    dynamic("gcc", &["-O2", "-fomit-frame-pointer", PROTECT]);
}

#[test]
fn linked_statically() {
    true_stacks(stack_builds::inseparable(&["-static"]), None);
}

#[test]
fn linked_statically_at_any_address() {
    true_stacks(stack_builds::inseparable(&["-static-pie", "-fPIE"]), None);
}

#[test]
fn musl() {
    true_stacks(stack_builds::musl(&[]), None);
}

#[test]
fn musl_linked_statically() {
    true_stacks(stack_builds::musl(&["-static"]), None);
}

#[test]
fn rust() {
    true_stacks(stack_builds::rust(), None);
}

/// Abandoned returns and pending ones are not taken for callers.
#[test]
fn out_of_an_allocator_and_inside_it() {
    true_stacks(stack_builds::own_allocator(), None);
}

/// Mappings made before tracing began are known as well.
#[test]
fn attached() {
    let fixture = Fixture::new();
    let truth = fixture.path("truth");
    let [program, plugin] = stack_builds::dynamic(Build {
        compiler: "gcc",
        flags: &["-O2", "-fomit-frame-pointer"],
    });
    let mut command = Command::new(program);
    command.arg(&truth).arg(plugin).arg("hold");
    let mut target = Running::start(&mut command);
    target.await_stdout("ready");
    let record = Record::attach(&fixture, target.pid(), &[]);
    target.send("!");
    target.await_stdout("done");
    let report = record.stop();
    target.send("!");
    target.wait().expect_code(7);
    expect_every_stack(&report);
    stacks::expect_same(&report, &stacks::read(&truth), &GAPS);
}

/// Blocks that each process of turns.c allocates in each of the libraries.
const OF_EACH: u64 = 100 * 5;
/// The libraries' names and bytes of each block, and those of threads that run meanwhile.
const OWN: [(&str, u64); 3] = [("one_", 1111), ("two_", 2222), ("noise_", 3333)];

/// Two libraries that replace one another at one address, in this many processes.
fn replaced(how: &str, processes: u64) {
    let fixture = Fixture::new();
    let [one, two] = stack_builds::twins();
    let command: [OsString; 4] = [
        stack_builds::turns().into(),
        how.into(),
        one.clone().into(),
        two.clone().into(),
    ];
    let report = Record::launch(&fixture, &[], command).finish(7);
    expect_every_stack(&report);

    let mut complete = [0; OWN.len()];
    for site in report.sites.iter().filter(|site| site.layer == "heap") {
        let physical = site.physical();
        let functions: Vec<_> = physical
            .iter()
            .map(|frame| frame.function.as_deref().unwrap_or("?"))
            .collect();
        let is_of = |index: usize| functions.iter().any(|name| name.starts_with(OWN[index].0));
        for index in (0..OWN.len()).filter(|&index| is_of(index)) {
            let (name, bytes) = OWN[index];
            let counts = &site.counts;
            assert_eq!(
                counts.alloc_bytes,
                counts.alloc_count * bytes,
                "blocks of another are shown below {name}: {site:#?}"
            );
            assert!((0..OWN.len()).all(|other| other == index || !is_of(other)));
            if site.is_complete() {
                complete[index] += counts.alloc_count;
            }
        }
        for (library, name) in [(&one, OWN[0].0), (&two, OWN[1].0)] {
            let within =
                |module: &Option<String>| module.as_deref().map(Path::new) == Some(library);
            let calls = [
                format!("{name}inner"),
                format!("{name}outer"),
                "twin_run".into(),
            ];
            let whole = [&calls[..], &["turn".into(), "turns".into(), "main".into()]].concat();
            let known = physical.iter().zip(&functions);
            let in_library = known.filter(|(frame, _)| within(&frame.module));
            assert!(
                in_library
                    .clone()
                    .all(|(_, function)| calls.iter().any(|name| name == function)),
                "names of another are shown: {site:#?}"
            );
            if in_library.count() > 0 && site.is_complete() {
                assert!(functions.iter().take(whole.len()).eq(&whole), "{site:#?}");
            }
        }
    }
    assert_eq!(complete[2] > 0, how == "threads", "threads allocate");
    for index in 0..2 {
        let expected = OF_EACH * processes;
        assert!(
            complete[index] <= expected && complete[index] * 10 >= expected * 9,
            "{}: {} of {expected} blocks have a complete stack",
            OWN[index].0,
            complete[index]
        );
    }
}

#[test]
fn libraries_that_replace_one_another() {
    replaced("alone", 1);
}

#[test]
fn libraries_that_replace_one_another_beside_threads() {
    replaced("threads", 1);
}

#[test]
fn libraries_that_replace_one_another_in_forked_children() {
    replaced("children", 4);
}

/// The recording alone is enough: nothing else of the machine is there.
#[test]
fn names_lines_and_inlined_calls_without_the_binaries() {
    let fixture = Fixture::new();
    let truth = fixture.path("truth");
    let [program, plugin] = stack_builds::dynamic(Build {
        compiler: "gcc",
        flags: &["-O2", "-fno-omit-frame-pointer"],
    });
    let record = Record::launch(&fixture, &[], [&program, &truth, &plugin]);
    let recording = record.file.clone();
    let here = record.finish(7);

    let root = Root::with_memtrace_in(fixture.path("root"));
    fs::copy(&recording, root.path.join("recording")).expect("a copy of the recording");
    let gone = program.strip_prefix("/").expect("an absolute path");
    assert!(!root.path.join(gone).exists());
    let mut command = Command::new("chroot");
    command
        .arg(&root.path)
        .args(["/memtrace", "report", "/recording"]);
    command.args(["--at", "end", "--format", "json"]);
    let finished = Running::start(&mut command).wait().expect_code(0);
    let there = Report::parse(&finished.stdout).expect("a report");

    assert_eq!(here.sites.len(), there.sites.len());
    for (here, there) in here.sites.iter().zip(&there.sites) {
        assert_eq!((here.counts, here.end()), (there.counts, there.end()));
        assert_eq!(here.frames, there.frames);
    }
    let own = |frame: &&Frame| frame.module.as_deref().map(Path::new) == Some(&program);
    let frames = || there.sites.iter().flat_map(|site| &site.frames).filter(own);
    let names_a_line = |frame: &Frame| {
        let file = frame.file.as_deref().unwrap_or_default();
        frame.line.is_some() && file.contains("stacks/")
    };
    let mut nested = frames().filter(|frame| frame.function.as_deref() == Some("case_nested"));
    assert!(nested.any(names_a_line), "no line of `case_nested`");
    assert!(
        frames().any(|frame| frame.inlined && names_a_line(frame)),
        "no inlined call"
    );
}

/// A folder with only memtrace and the libraries it is linked to.
struct Root {
    path: PathBuf,
}

impl Root {
    fn with_memtrace_in(path: PathBuf) -> Self {
        let memtrace = targets::memtrace();
        fs::create_dir(&path).expect("a folder");
        fs::copy(memtrace, path.join("memtrace")).expect("a copy of memtrace");
        let linked = Running::start(Command::new("ldd").arg(memtrace)).wait();
        // `name => /path (address)`, or `/path (address)`.
        for word in linked.stdout.split_whitespace() {
            let Some(inside) = word.strip_prefix('/') else {
                continue;
            };
            let copy = path.join(inside);
            fs::create_dir_all(copy.parent().expect("a file has a folder")).expect("folders");
            fs::copy(word, copy).expect("a copy of a library");
        }
        Self { path }
    }
}
