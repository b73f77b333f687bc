mod sources;

use super::{debug_files::Places, *};
use crate::process_root::Root;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol};
use std::{
    fs,
    os::{fd::AsRawFd, unix::fs::FileExt},
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

pub(super) const INLINED_C: &str = r#"
static inline __attribute__((always_inline)) int innermost(int x) {
    __asm__ volatile(".globl here\nhere: nop"); /* innermost */
    return x * 3;
}
static inline __attribute__((always_inline)) int middle(int x) {
    return innermost(x) + 1; /* middle */
}
int physical(int x) {
    return middle(x) + 2; /* physical */
}
"#;

const GAP_C: &str = r#"
int first(int x) { return x + 1; }
static __attribute__((noinline, noipa)) int hidden(int x) { return x * x + 7; }
int last(int x) { return hidden(x) + 2; }
"#;

/// `both` has two parts, each with a call that is inlined.
const TWO_PARTS_C: &str = r#"
int work(int);
void fail(int) __attribute__((cold, noreturn));
static inline __attribute__((always_inline)) int often(int x) {
    return work(x) * 3; /* often */
}
static inline __attribute__((always_inline)) void rarely(int x) {
    fail(x); /* rarely */
}
int both(int x) {
    if (x == 7)
        rarely(x); /* both, cold */
    return often(x) + 2; /* both, hot */
}
"#;

const TEMPLATE_CPP: &str = r#"
namespace ns {
template <class T> __attribute__((noinline, noipa)) T twice(T x) { return x + x; }
template int twice<int>(int);
}
"#;

/// Compiles `source` to a shared library.
pub(super) fn compile(
    dir: &TempDir,
    compiler: &str,
    name: &str,
    source: &str,
    options: &[&str],
) -> PathBuf {
    let input = dir.path().join(name);
    fs::write(&input, source).unwrap();
    let output = input.with_extension("so");
    let status = Command::new(compiler)
        .args(["-shared", "-fPIC", "-O2"])
        .args(options)
        .arg("-o")
        .args([&output, &input])
        .status()
        .unwrap();
    assert!(status.success());
    output
}

pub(super) fn run(program: &str, arguments: &[&Path]) {
    let status = Command::new(program).args(arguments).status().unwrap();
    assert!(status.success(), "{program}");
}

/// Address of a symbol of `.symtab`, as the file means it.
pub(super) fn address(path: &Path, symbol: &str) -> u64 {
    let data = fs::read(path).unwrap();
    let elf = object::File::parse(&*data).unwrap();
    elf.symbols()
        .find(|candidate| candidate.name() == Ok(symbol))
        .unwrap()
        .address()
}

/// File offset of a symbol of `.symtab`.
pub(super) fn file_offset(path: &Path, symbol: &str) -> u64 {
    let address = address(path, symbol);
    let data = fs::read(path).unwrap();
    let elf = object::File::parse(&*data).unwrap();
    elf.segments()
        .find(|s| (s.address()..s.address() + s.size()).contains(&address))
        .map(|s| address - s.address() + s.file_range().0)
        .unwrap()
}

fn line_of(source: &str, mark: &str) -> u32 {
    let line = source.lines().position(|line| line.contains(mark)).unwrap();
    line as u32 + 1
}

impl Symbolizer {
    /// Adds a module, and its debug file if there is one.
    pub(super) fn module(
        &mut self,
        path: &str,
        file: File,
        build_id: Option<String>,
        root: Option<&Path>,
    ) -> ModuleId {
        self.module_with(&Places::new(), path, file, build_id, root)
    }

    fn module_with(
        &mut self,
        places: &Places,
        path: &str,
        file: File,
        build_id: Option<String>,
        root: Option<&Path>,
    ) -> ModuleId {
        let (id, wanted) = self.add(path, file, build_id.clone(), Detail::Full);
        let root = root.and_then(|root| Root::at(root).ok());
        let path = Path::new(path);
        places
            .candidates(path, build_id.as_deref(), &wanted, root.as_ref())
            .any(|(file, proof)| self.offer(id, file, proof));
        id
    }
}

pub(super) fn frames(path: &Path, file_offset: u64) -> Vec<Frame> {
    let mut symbolizer = Symbolizer::default();
    let module = symbolizer.module("/in/process", File::open(path).unwrap(), None, None);
    symbolizer.frames(module, file_offset)
}

/// The reason why a frame has no function.
pub(super) fn words(frame: &Frame) -> Option<String> {
    frame.unresolved.as_ref().map(ToString::to_string)
}

pub(super) fn names(frames: &[Frame]) -> Vec<Option<&str>> {
    frames.iter().map(|f| f.function.as_deref()).collect()
}

pub(super) fn assert_inlined_chain(frames: &[Frame], source_path: &Path) {
    assert_eq!(
        names(frames),
        [Some("innermost"), Some("middle"), Some("physical")]
    );
    for (frame, mark) in frames.iter().zip(["/* inner", "/* middle", "/* phys"]) {
        assert_eq!(frame.line, Some(line_of(INLINED_C, mark)), "{frame:?}");
        assert_eq!(frame.file.as_deref(), source_path.to_str());
        assert_eq!(frame.inlined, mark != "/* phys");
        assert_eq!(frame.unresolved, None);
    }
}

/// Adds a module without a file, such as `[vdso]`.
fn module_from_bytes(symbolizer: &mut Symbolizer, name: &str, bytes: &[u8]) -> ModuleId {
    let file = crate::file::of_bytes(bytes).unwrap();
    symbolizer.module(name, file, None, None)
}

#[test]
fn inlined_calls_have_exact_lines_innermost_first() {
    let dir = TempDir::new().unwrap();
    let library = compile(&dir, "gcc", "inlined.c", INLINED_C, &["-g"]);
    let found = frames(&library, file_offset(&library, "here"));
    assert_inlined_chain(&found, &dir.path().join("inlined.c"));
    assert_eq!(found[0].module.as_deref(), Some("/in/process"));
}

#[test]
fn both_parts_of_a_split_function_have_lines() {
    let dir = TempDir::new().unwrap();
    let options = ["-g", "-falign-functions=64"];
    let library = compile(&dir, "gcc", "parts.c", TWO_PARTS_C, &options);
    let data = fs::read(&library).unwrap();
    let elf = object::File::parse(&*data).unwrap();
    for (symbol, part, inlined) in [("both", "hot", "often"), ("both.cold", "cold", "rarely")] {
        let mut symbols = elf.symbols();
        let found = symbols.find(|of| of.name() == Ok(symbol)).unwrap();
        let begin = file_offset(&library, symbol);
        let end = begin + found.size();
        let all: Vec<_> = (begin..end).map(|at| frames(&library, at)).collect();
        for found in &all {
            assert_eq!(names(found).last(), Some(&Some("both")));
        }
        let mut all = all.iter();
        let called = all.find(|found| names(found)[0] == Some(inlined)).unwrap();
        let lines = [format!("/* {inlined} */"), format!("/* both, {part} */")];
        for (frame, mark) in called.iter().zip(lines) {
            assert_eq!(frame.line, Some(line_of(TWO_PARTS_C, &mark)), "{frame:?}");
        }
        let padding = frames(&library, end);
        assert_eq!(names(&padding), [None]);
        assert_eq!(padding[0].line, None);
    }
}

#[test]
fn a_deleted_file_resolves_through_its_descriptor() {
    let dir = TempDir::new().unwrap();
    let library = compile(&dir, "gcc", "inlined.c", INLINED_C, &["-g"]);
    let here = file_offset(&library, "here");
    let mut symbolizer = Symbolizer::default();
    let file = File::open(&library).unwrap();
    fs::remove_file(&library).unwrap();
    let module = symbolizer.module("/in/process (deleted)", file, None, None);
    let found = symbolizer.frames(module, here);
    assert_inlined_chain(&found, &dir.path().join("inlined.c"));
}

#[test]
fn an_overwritten_file_is_not_trusted() {
    let dir = TempDir::new().unwrap();
    let library = compile(&dir, "gcc", "gap.c", GAP_C, &[]);
    let first = file_offset(&library, "first");
    let mut symbolizer = Symbolizer::default();
    let module = symbolizer.module("m", File::open(&library).unwrap(), None, None);
    assert_eq!(names(&symbolizer.frames(module, first)), [Some("first")]);
    fs::write(&library, "shorter").unwrap();
    // Neither an address not looked up yet, nor one that was.
    for offset in [first + 1, first] {
        let found = symbolizer.frames(module, offset);
        assert_eq!(names(&found), [None]);
        assert!(found[0].unresolved == Some(Cause::FileChanged.into()));
        assert_eq!(found[0].file_offset, Some(offset));
    }
}

#[test]
fn a_stripped_library_has_only_dynamic_symbols() {
    let dir = TempDir::new().unwrap();
    let library = compile(&dir, "gcc", "gap.c", GAP_C, &[]);
    let [first, hidden, last] = ["first", "hidden", "last"].map(|name| file_offset(&library, name));
    assert_eq!(names(&frames(&library, hidden)), [Some("hidden")]);

    run("strip", &[&library]);
    assert_eq!(names(&frames(&library, first)), [Some("first")]);
    assert_eq!(names(&frames(&library, last)), [Some("last")]);
    let gap = frames(&library, hidden);
    assert_eq!(names(&gap), [None]);
    assert!(gap[0].unresolved.is_some());
    assert_eq!(gap[0].file_offset, Some(hidden));
}

#[test]
fn a_symbol_without_size_is_not_stretched() {
    let dir = TempDir::new().unwrap();
    let source = ".text\n.globl label\nlabel: nop\nnop\nnop\n";
    for options in [&["-nostdlib"][..], &["-nostdlib", "-g"]] {
        let library = compile(&dir, "gcc", "label.s", source, options);
        let found = frames(&library, file_offset(&library, "label") + 1);
        assert_eq!(names(&found), [None]);
    }
}

#[test]
fn cpp_names_are_demangled_with_and_without_debug_information() {
    let dir = TempDir::new().unwrap();
    for options in [&["-g"][..], &[]] {
        let library = compile(&dir, "g++", "template.cpp", TEMPLATE_CPP, options);
        let found = frames(&library, file_offset(&library, "_ZN2ns5twiceIiEET_S1_"));
        assert_eq!(names(&found), [Some("int ns::twice<int>(int)")]);
    }
}

#[test]
fn rust_names_of_both_manglings_are_demangled() {
    let dir = TempDir::new().unwrap();
    for (symbol, expected) in [
        (
            "_ZN5alloc7raw_vec19RawVec$LT$T$C$A$GT$8grow_one17h0a5f9d2c6b7e8f10E",
            "alloc::raw_vec::RawVec<T,A>::grow_one",
        ),
        (
            "_RNvMNtCs9ltgdHTiPiY_4core6optionINtB2_6OptionRhE6expectCsd4VYFwevHkG_5hello",
            "<core::option::Option<&u8>>::expect",
        ),
    ] {
        let source = format!(
            ".text\n.globl \"{symbol}\"\n.type \"{symbol}\", @function\n\"{symbol}\": nop\nret\n\
             .size \"{symbol}\", .-\"{symbol}\"\n"
        );
        let library = compile(&dir, "gcc", "rust.s", &source, &["-nostdlib"]);
        let found = frames(&library, file_offset(&library, symbol) + 1);
        assert_eq!(names(&found), [Some(expected)]);
    }
}

#[test]
fn an_address_and_its_file_offset_are_the_same_frames() {
    let dir = TempDir::new().unwrap();
    let options = ["-g", "-Wl,-Ttext-segment=0x400000"];
    let library = compile(&dir, "gcc", "inlined.c", INLINED_C, &options);
    let (at, offset) = (address(&library, "here"), file_offset(&library, "here"));
    assert_ne!(at, offset);
    let mut symbolizer = Symbolizer::default();
    let file = File::open(&library).unwrap();
    let module = symbolizer.module("/in/process", file, None, None);
    let found = symbolizer.frames_at(module, at);
    assert_inlined_chain(&found, &dir.path().join("inlined.c"));
    assert_eq!(found[2].file_offset, Some(offset));
    assert_eq!(symbolizer.frames(module, offset), found);

    let outside = symbolizer.frames_at(module, 0x1000);
    let why = "0x1000: outside the file's segments";
    assert_eq!(words(&outside[0]).as_deref(), Some(why));
    assert_eq!(outside[0].module.as_deref(), Some("/in/process"));
}

#[test]
fn a_stub_of_the_linkage_table_is_not_a_function() {
    let dir = TempDir::new().unwrap();
    let source = "int other(void); int caller(void) { return other() + 1; }";
    let library = compile(&dir, "gcc", "plt.c", source, &["-Wl,-z,lazy"]);
    let data = fs::read(&library).unwrap();
    let elf = object::File::parse(&*data).unwrap();
    let plt = elf.section_by_name(".plt").unwrap();
    let mut symbolizer = Symbolizer::default();
    let module = symbolizer.module("m", File::open(&library).unwrap(), None, None);
    let found = symbolizer.frames_at(module, plt.address() + plt.size() - 1);
    assert_eq!(found[0].unresolved, Some(Cause::InPlt.into()));
    assert_eq!(found[0].function, None);
}

#[inline(never)]
fn landmark(x: u64) -> u64 {
    std::hint::black_box(x) + 1
}

/// This process's mapping of `abs_addr`: file offset.
fn own_file_offset(abs_addr: u64) -> u64 {
    let maps = procfs::process::Process::myself().unwrap().maps().unwrap();
    let mapping = maps
        .iter()
        .find(|map| (map.address.0..map.address.1).contains(&abs_addr))
        .unwrap();
    abs_addr - mapping.address.0 + mapping.offset
}

#[test]
fn a_rust_function_of_this_executable_has_its_path_and_line() {
    let address = std::hint::black_box(landmark as fn(u64) -> u64) as usize as u64;
    let executable = std::env::current_exe().unwrap();
    let found = frames(&executable, own_file_offset(address));
    let physical = found.last().unwrap();
    assert_eq!(
        physical.function.as_deref(),
        Some("memtrace::symbolize::tests::landmark")
    );
    assert!(
        physical
            .file
            .as_deref()
            .unwrap()
            .ends_with("symbolize/tests/mod.rs")
    );
    assert!(physical.line.is_some());
}

#[test]
fn the_vdso_resolves_from_its_bytes() {
    let maps = procfs::process::Process::myself().unwrap().maps().unwrap();
    let vdso = maps
        .iter()
        .find(|map| map.pathname == procfs::process::MMapPath::Vdso)
        .unwrap();
    let mut bytes = vec![0; (vdso.address.1 - vdso.address.0) as usize];
    let memory = File::open("/proc/self/mem").unwrap();
    memory.read_exact_at(&mut bytes, vdso.address.0).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let name = if cfg!(target_arch = "aarch64") {
        "__kernel_clock_gettime"
    } else {
        "__vdso_clock_gettime"
    };
    let address = elf
        .dynamic_symbols()
        .find(|s| s.name() == Ok(name))
        .unwrap()
        .address();

    let mut symbolizer = Symbolizer::default();
    let module = module_from_bytes(&mut symbolizer, "[vdso]", &bytes);
    let found = symbolizer.frames_at(module, address);
    assert_eq!(found[0].file_offset, Some(address));
    // `clock_gettime` is its weak alias.
    assert!(
        found[0]
            .function
            .as_deref()
            .unwrap()
            .ends_with("clock_gettime"),
        "{found:?}"
    );
    assert_eq!(found[0].module.as_deref(), Some("[vdso]"));
}

#[test]
fn addresses_outside_an_elf_file_have_a_reason() {
    let mut symbolizer = Symbolizer::default();
    let text = module_from_bytes(&mut symbolizer, "[text]", b"no ELF file");
    let found = symbolizer.frames(text, 4);
    assert_eq!(words(&found[0]).as_deref(), Some("not an ELF file"));

    let executable = std::env::current_exe().unwrap();
    let found = frames(&executable, u64::MAX);
    assert_eq!(
        words(&found[0]).as_deref(),
        Some("outside the file's segments")
    );

    let unknown = Frame::unknown(0x1234, Cause::NotMapped);
    let why = "0x1234: not in a known mapping";
    assert_eq!(words(&unknown).as_deref(), Some(why));
    assert_eq!(unknown.module, None);
}

#[test]
fn modules_keep_their_files_open() {
    let mut symbolizer = Symbolizer::default();
    let file = File::open("/proc/self/exe").unwrap();
    let descriptor = file.as_raw_fd();
    symbolizer.module("m", file, None, None);
    // SAFETY: F_GETFD reads a flag of whatever descriptor it is given.
    assert_ne!(unsafe { libc::fcntl(descriptor, libc::F_GETFD) }, -1);
}
