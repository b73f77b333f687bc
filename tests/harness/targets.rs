//! Programs that tests run: memtrace itself, the targets compiled from `targets/`, and programs of
//! the distribution.

use std::{
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, OnceLock, PoisonError},
};

fn sources() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/targets"))
}

/// Cargo without the variables that describe this package, as in xtask's: ring's build script depends on them, and
/// memtrace on ring.
fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_MANIFEST_") || text.starts_with("CARGO_PKG_") {
            command.env_remove(&name);
        }
    }
    command
}

/// A file of `targets/`.
pub fn source(name: &str) -> PathBuf {
    sources().join(name)
}

/// The folder of this build: the tests' own executable is in its `deps/`.
fn profile_folder() -> PathBuf {
    let test = env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().to_path_buf()
}

fn build_folder() -> PathBuf {
    let folder = profile_folder().parent().unwrap().join("test-targets");
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[track_caller]
fn run(command: &mut Command, missing: &str) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}; {missing}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// The program under test: `MEMTRACE_BIN`, or the one of this build, brought up to date.
#[track_caller]
pub fn memtrace() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        if let Some(given) = env::var_os("MEMTRACE_BIN") {
            return given.into();
        }
        let folder = profile_folder();
        let profile = match folder.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev",
            Some(name) => name,
        };
        let mut cargo = cargo();
        cargo
            .args([
                "build",
                "--quiet",
                "--package",
                "memtrace-bpf",
                "--profile",
                profile,
            ])
            .arg("--target-dir")
            .arg(folder.parent().unwrap())
            .current_dir(env!("CARGO_MANIFEST_DIR"));
        run(&mut cargo, "cargo is part of Rust");
        folder.join("memtrace")
    })
}

/// Every function must have a frame of its own.
const FLAGS: [&str; 6] = [
    "-O1",
    "-g",
    "-fno-optimize-sibling-calls",
    "-fno-builtin",
    "-Wall",
    "-pthread",
];

/// Compiles `targets/source`, once for each content and set of flags.
#[track_caller]
fn compile(source: &str, more: &[&str]) -> PathBuf {
    let compiler = if source.ends_with(".cc") {
        "g++"
    } else {
        "gcc"
    };
    compile_by(compiler, source, more)
}

#[track_caller]
fn compile_by(compiler: &str, source: &str, more: &[&str]) -> PathBuf {
    build(compiler, &[&FLAGS, more].concat(), &[source], &[])
}

/// Makes one file of `sources` in `targets/`, once for each content and command.
#[track_caller]
pub fn build(compiler: &str, flags: &[&str], sources: &[&str], libraries: &[&str]) -> PathBuf {
    let paths: Vec<_> = sources
        .iter()
        .map(|name| self::sources().join(name))
        .collect();
    let mut hash = DefaultHasher::new();
    (compiler, flags, sources, libraries).hash(&mut hash);
    for path in paths.iter().chain(&headers_beside(&paths[0])) {
        fs::read(path).unwrap().hash(&mut hash);
    }
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let name = paths[0].file_stem().unwrap().to_str().unwrap();
    let result = build_folder().join(format!("{name}-{:016x}", hash.finish()));
    if result.exists() {
        return result;
    }
    let unfinished = result.with_extension(std::process::id().to_string());
    let mut command = Command::new(compiler);
    command
        .args(flags)
        .arg("-o")
        .arg(&unfinished)
        .args(paths)
        .args(libraries);
    run(
        &mut command,
        "run `apt-get install gcc g++ clang musl-tools`; rustc is part of Rust",
    );
    fs::rename(unfinished, &result).unwrap();
    result
}

/// The libraries of `fakecuda/`, in a folder of their own under the names that they are loaded by.
#[track_caller]
pub fn fake_devices() -> PathBuf {
    const LIBRARIES: [(&str, &str); 4] = [
        ("libcuda.c", "libcuda.so.1"),
        ("libcudart.c", "libcudart.so.13"),
        ("libc10.c", "libc10.so"),
        ("libc10_cuda.c", "libc10_cuda.so"),
    ];
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let make = || {
        let folder = build_folder().join("fakecuda");
        fs::create_dir_all(&folder).unwrap();
        for (source, name) in LIBRARIES {
            fake_device(&folder, source, name);
        }
        folder
    };
    FOLDER.get_or_init(make).clone()
}

/// One of them.
fn fake_device(folder: &Path, source: &str, name: &str) {
    let soname = format!("-Wl,-soname,{name}");
    let more = ["-shared", "-fPIC", "-fvisibility=hidden", &soname];
    let built = compile(&format!("../fakecuda/{source}"), &more);
    let link = folder.join(name);
    // A separate file under this name, by which memtrace recognises it.
    let unfinished = link.with_extension(std::process::id().to_string());
    fs::copy(&built, &unfinished).unwrap();
    fs::rename(unfinished, &link).unwrap();
}

fn headers_beside(source: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(source.parent().unwrap()).unwrap();
    let mut headers: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "h"))
        .collect();
    headers.sort();
    headers
}

/// A C or C++ program of `targets/`.
#[track_caller]
pub fn program(source: &str) -> PathBuf {
    compile(source, &[])
}

/// A C or C++ program of `targets/` with LeakSanitizer, which comes with the compiler.
#[track_caller]
pub fn leak_checked(source: &str) -> PathBuf {
    compile(source, &["-fsanitize=leak"])
}

/// A program of `targets/`, linked to an allocator.
#[track_caller]
pub fn linked_program(source: &str, allocator: Allocator) -> PathBuf {
    let library = allocator.path();
    let compiler = if source.ends_with(".cc") {
        "g++"
    } else {
        "gcc"
    };
    let library = library.to_str().unwrap();
    build(
        compiler,
        &FLAGS,
        &[source],
        &["-Wl,--no-as-needed", library],
    )
}

/// A shared library of `targets/`.
#[track_caller]
pub fn library(source: &str) -> PathBuf {
    compile(source, &["-shared", "-fPIC"])
}

/// Another build of a shared library of `targets/`.
#[track_caller]
pub fn library_with(source: &str, flags: &[&str]) -> PathBuf {
    compile(source, &[&["-shared", "-fPIC"], flags].concat())
}

/// A program of `targets/`, linked statically, with its symbols.
#[track_caller]
pub fn static_program(source: &str) -> PathBuf {
    compile(source, &["-static"])
}

/// A program of `targets/`, linked statically and without any symbol.
#[track_caller]
pub fn stripped_static(source: &str) -> PathBuf {
    compile(source, &["-static", "-s"])
}

/// A program of `targets/` on musl, linked to its libc or with it inside.
#[track_caller]
pub fn musl(source: &str, inside: bool) -> PathBuf {
    compile_by("musl-gcc", source, if inside { &["-static"] } else { &[] })
}

/// The Rust program with jemalloc inside; writes its truth to its first argument.
#[track_caller]
pub fn rust_jemalloc() -> PathBuf {
    let folder = build_folder().join("rust-jemalloc");
    let mut cargo = cargo();
    cargo
        .args(["build", "--quiet", "--release", "--locked", "--target-dir"])
        .arg(&folder)
        .current_dir(sources().join("rust-jemalloc"))
        .env("RUSTFLAGS", "-C force-frame-pointers=yes");
    run(&mut cargo, "cargo is part of Rust");
    folder.join("release/rust-jemalloc")
}

/// A Python script of `targets/` and the interpreter itself (not a wrapper of
/// a version manager) to run it.
#[track_caller]
pub fn python(script: &str) -> Command {
    let mut command = Command::new(interpreter());
    command.arg(sources().join(script));
    command
}

/// The Python interpreter.
#[track_caller]
pub fn interpreter() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let mut python = Command::new("python3");
        python.args(["-c", "import sys; print(sys.executable)"]);
        run(&mut python, "run `apt-get install python3`").into()
    })
}

/// Another version's interpreter, where pyenv has installed it.
pub fn installed_python(minor: u32) -> Option<PathBuf> {
    let root = env::var_os("PYENV_ROOT").map(PathBuf::from);
    let root = root.or_else(|| Some(Path::new(&env::var_os("HOME")?).join(".pyenv")))?;
    let versions = fs::read_dir(root.join("versions")).into_iter().flatten();
    let mut names: Vec<_> = versions
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.retain(|name| name.starts_with(&format!("3.{minor}.")));
    names.sort();
    let python = root.join("versions").join(names.pop()?).join("bin/python");
    python.exists().then_some(python)
}

/// A library of the distribution, in Debian's place for it.
pub fn system_library(name: &str) -> PathBuf {
    Path::new(&format!("/usr/lib/{}-linux-gnu", env::consts::ARCH)).join(name)
}

/// An allocator of the distribution, to be preloaded.
#[derive(Clone, Copy, Debug)]
pub struct Allocator {
    pub library: &'static str,
    pub package: &'static str,
}

pub const JEMALLOC: Allocator = Allocator {
    library: "libjemalloc.so.2",
    package: "libjemalloc2",
};
pub const TCMALLOC: Allocator = Allocator {
    library: "libtcmalloc_minimal.so.4",
    package: "libtcmalloc-minimal4",
};
pub const MIMALLOC: Allocator = Allocator {
    library: "libmimalloc.so.2.0",
    package: "libmimalloc2.0",
};

impl Allocator {
    /// Value of LD_PRELOAD.
    ///
    /// # Panics
    /// Where it is not installed, with the command that installs it.
    #[track_caller]
    pub fn path(self) -> PathBuf {
        let elsewhere =
            ["/usr/lib", "/usr/lib64"].map(|folder| Path::new(folder).join(self.library));
        let mut paths = [system_library(self.library)].into_iter().chain(elsewhere);
        paths.find(|path| path.exists()).unwrap_or_else(|| {
            panic!(
                "`{}` is not installed: run `apt-get install {}`",
                self.library, self.package
            )
        })
    }
}
