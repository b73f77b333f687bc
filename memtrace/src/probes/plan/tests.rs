use std::path::PathBuf;
use std::process::Command;

use memtrace_common::function::{Cookie, NO_ARGUMENT, Outcome};

use super::*;
use crate::arch::{Architecture, Cost, LIBRARIES, Why};

/// Whether functions of C begin with an instruction that is emulated, or have one soon. On aarch64 most save their return
/// address first.
const EMULATED: bool = cfg!(target_arch = "x86_64");

fn plan_of(path: &Path, extra: &[&str]) -> Vec<Probe> {
    let extra: Vec<String> = extra.iter().map(|&prefix| prefix.to_owned()).collect();
    let bytes = std::fs::read(path).unwrap();
    let elf = Elf::parse(&bytes).unwrap();
    let probes = plan(&elf, &extra);
    check(&elf, &probes);
    probes
}

/// Invariants of every plan.
fn check(elf: &Elf<'_>, probes: &[Probe]) {
    let mut names = HashSet::new();
    let mut places = HashSet::new();
    for probe in probes {
        assert!(
            places.insert(probe.file_offset),
            "{probe:?} shares its place"
        );
        for name in probe.aliases.iter().chain([&probe.symbol]) {
            assert!(
                names.insert((name.clone(), probe.entry_offset)),
                "`{name}` twice"
            );
        }
        assert_eq!(probe.file_offset, probe.entry_offset + probe.site.offset);
        assert_eq!(
            probe.needs_return,
            probe.usdt.is_none() && probe.function.operation != Operation::Free
        );
        assert_ne!(probe.site.why, Why::NotDecoded, "{probe:?}");
        assert!(!elf.code(probe.file_offset, 1).is_empty());
    }
    assert!(probes.is_sorted_by_key(|probe| !probe.needs_return));
}

/// The loader and C library of musl.
fn musl() -> String {
    format!("/lib/ld-musl-{}.so.1", std::env::consts::ARCH)
}

/// A library of this machine.
fn installed(path: &str) -> PathBuf {
    let path = PathBuf::from(path);
    assert!(
        path.exists(),
        "`{}` is not installed: run `cargo xtask setup`",
        path.display()
    );
    path
}

fn find<'p>(probes: &'p [Probe], name: &str) -> &'p Probe {
    probes
        .iter()
        .find(|probe| probe.symbol == name || probe.aliases.iter().any(|alias| alias == name))
        .unwrap_or_else(|| panic!("no `{name}` in {probes:#?}"))
}

fn has(probes: &[Probe], name: &str) -> bool {
    probes
        .iter()
        .any(|probe| probe.symbol == name || probe.aliases.iter().any(|alias| alias == name))
}

/// Compiles `source` with gcc (or another compiler) in a new folder.
fn compile(compiler: &str, source: &str, arguments: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (dir.path().join("source.c"), dir.path().join("out"));
    std::fs::write(&input, source).unwrap();
    let status = Command::new(compiler)
        .args(["-fno-builtin", "-o"])
        .args([&output, &input])
        .args(arguments)
        .status()
        .unwrap();
    assert!(status.success());
    (dir, output)
}

#[test]
fn glibc_is_probed_once_per_address_at_emulated_instructions() {
    let probes = plan_of(&Path::new(LIBRARIES).join("libc.so.6"), &[]);
    for name in [
        "malloc",
        "calloc",
        "realloc",
        "free",
        "posix_memalign",
        "valloc",
        "pvalloc",
        "reallocarray",
    ] {
        assert_eq!(
            find(&probes, name).symbol,
            name,
            "the standard name is shown"
        );
    }
    assert_eq!(find(&probes, "__libc_malloc").symbol, "malloc");
    assert_eq!(
        find(&probes, "aligned_alloc").entry_offset,
        find(&probes, "__libc_memalign").entry_offset
    );
    for name in ["malloc", "free", "realloc", "calloc"] {
        let probe = find(&probes, name);
        let is_emulated = probe.site.cost == Cost::Emulated;
        assert_eq!(is_emulated, EMULATED || name == "free", "{probe:?}");
    }
    let posix_memalign = find(&probes, "posix_memalign").function;
    assert_eq!(posix_memalign.outcome, Outcome::ErrorAndOutPointer);
    assert_eq!(posix_memalign.size, 2);
    assert!(!has(&probes, "freeaddrinfo") && !has(&probes, "__libc_freeres"));
}

#[test]
fn a_library_that_uses_malloc_is_not_an_allocator() {
    for library in ["libstdc++.so.6", "libm.so.6", "libdl.so.2"] {
        let path = installed(&format!("{LIBRARIES}/{library}"));
        assert_eq!(plan_of(&path, &[]), [], "{library}");
    }
}

#[test]
fn jemalloc_with_its_functions_with_flags_and_its_operators() {
    let path = installed(&format!("{LIBRARIES}/libjemalloc.so.2"));
    let probes = plan_of(&path, &[]);
    for name in [
        "malloc",
        "free",
        "realloc",
        "mallocx",
        "rallocx",
        "dallocx",
        "sdallocx",
        "memalign",
        "_Znwm",
        "_ZdlPv",
        "_ZdaPvmSt11align_val_t",
    ] {
        assert!(has(&probes, name), "{name}");
    }
    assert!(!has(&probes, "xallocx") && !has(&probes, "nallocx"));
    if EMULATED {
        assert_eq!(find(&probes, "free").site.cost, Cost::Emulated);
    }
    let rallocx = find(&probes, "rallocx").function;
    assert_eq!(
        (rallocx.operation, rallocx.block, rallocx.size),
        (Operation::Realloc, 0, 1)
    );
}

#[test]
fn tcmalloc_with_its_own_names_and_its_operators() {
    let path = installed(&format!("{LIBRARIES}/libtcmalloc_minimal.so.4"));
    let probes = plan_of(&path, &[]);
    let malloc = find(&probes, "malloc");
    assert!(
        malloc.aliases.iter().any(|alias| alias == "tc_malloc"),
        "{malloc:?}"
    );
    for name in [
        "tc_malloc_skip_new_handler",
        "tc_free_sized",
        "tc_new",
        "tc_deletearray_sized",
        "_Znwm",
    ] {
        assert!(has(&probes, name), "{name}");
    }
    assert!(!has(&probes, "tc_malloc_size") && !has(&probes, "malloc_stats"));
}

#[test]
fn mimalloc_with_its_heaps() {
    let path = installed(&format!("{LIBRARIES}/libmimalloc.so.2"));
    let probes = plan_of(&path, &[]);
    let malloc = find(&probes, "mi_malloc");
    assert_eq!(malloc.symbol, "malloc");
    if EMULATED {
        assert_eq!(malloc.site.cost, Cost::Emulated, "{malloc:?}");
        // The heap comes first where the probe is.
        assert_eq!(
            (malloc.function.size, Cookie(malloc.cookie()).size()),
            (0, 1)
        );
    }
    let heap_recalloc = find(&probes, "mi_heap_recalloc_aligned").function;
    assert_eq!(
        (
            heap_recalloc.operation,
            heap_recalloc.block,
            heap_recalloc.count,
            heap_recalloc.size
        ),
        (Operation::Realloc, 1, 2, 3)
    );
    let zalloc = find(&probes, "mi_zalloc_aligned_at").function;
    assert_eq!(
        (zalloc.size, zalloc.count, zalloc.block),
        (0, NO_ARGUMENT, NO_ARGUMENT)
    );
    assert!(
        !has(&probes, "mi_expand")
            && !has(&probes, "mi_heap_destroy")
            && !has(&probes, "mi_free_something")
    );
    // `mi_free_size` and `operator delete` with a size only jump to `free`.
    assert_eq!(find(&probes, "_ZdlPvm").symbol, "free");
    assert_eq!(find(&probes, "mi_free_aligned").symbol, "free");
}

#[test]
fn musl_is_an_allocator() {
    let path = installed(&musl());
    let probes = plan_of(&path, &[]);
    for name in [
        "malloc",
        "calloc",
        "realloc",
        "free",
        "aligned_alloc",
        "posix_memalign",
        "reallocarray",
    ] {
        assert_eq!(find(&probes, name).symbol, name);
    }
    if EMULATED {
        assert_eq!(find(&probes, "malloc").site.cost, Cost::Emulated);
        assert_eq!(find(&probes, "free").site.cost, Cost::Emulated);
    }
}

const USES_MALLOC: &str = "
#include <stdlib.h>
int main(void) { void *p = realloc(malloc(7), 8); free(p); free(calloc(1, 2)); return 0; }
";

#[test]
fn a_static_program_holds_its_own_allocator() {
    for pie in ["-static", "-static-pie"] {
        let (_dir, program) = compile("gcc", USES_MALLOC, &[pie]);
        let probes = plan_of(&program, &[]);
        for name in ["malloc", "realloc", "calloc", "free"] {
            let probe = find(&probes, name);
            let is_emulated = probe.site.cost == Cost::Emulated;
            assert!(is_emulated || !EMULATED, "{pie} {probe:?}");
        }
        let malloc = find(&probes, "malloc");
        assert!(
            malloc.aliases.iter().any(|alias| alias == "__libc_malloc"),
            "{malloc:?}"
        );
    }
}

#[test]
fn operators_linked_beside_libc_are_not_probed() {
    let source = "int main() { int *p = new int; delete p; return 0; }";
    let (_dir, program) = compile("g++", source, &["-static"]);
    let probes = plan_of(&program, &[]);
    assert!(has(&probes, "malloc"));
    assert!(
        !has(&probes, "_Znwm") && !has(&probes, "_ZdlPv"),
        "{probes:#?}"
    );
    assert!(!probes.iter().any(Probe::may_throw));
}

#[test]
fn the_return_addresses_of_a_sanitizer_stay_as_they_are() {
    let source = "#include <cstdlib>\nint main() { free(malloc(1)); delete new int; }";
    let (_dir, program) = compile("g++", source, &["-fsanitize=address", "-static-libasan"]);
    let probes = plan_of(&program, &[]);
    let malloc = find(&probes, "malloc");
    assert!(!malloc.ends.is_empty(), "{malloc:#?}");
    let code = std::fs::read(&program).unwrap();
    for &end in probes.iter().flat_map(|probe| &probe.ends) {
        let is_return = match Architecture::NATIVE {
            Architecture::Aarch64 => code[end as usize..].starts_with(&[0xc0, 0x03, 0x5f, 0xd6]),
            _ => code[end as usize] == 0xc3,
        };
        assert!(is_return, "{end:#x} is not a `ret`");
    }
    assert!(!probes.iter().any(Probe::may_throw));
    let libc = plan_of(&installed(&format!("{LIBRARIES}/libc.so.6")), &[]);
    assert!(libc.iter().all(|probe| probe.ends.is_empty()));
}

#[test]
fn a_static_musl_program_reports_a_free_once() {
    installed("/usr/bin/musl-gcc");
    let (_dir, program) = compile("musl-gcc", USES_MALLOC, &["-static"]);
    let probes = plan_of(&program, &[]);
    // `free` only jumps to `__libc_free`.
    assert_eq!(
        find(&probes, "free").entry_offset,
        find(&probes, "__libc_free").entry_offset
    );
    assert!(has(&probes, "malloc") && has(&probes, "realloc"));
}

#[test]
fn stripped_or_dynamic_files_have_no_allocator() {
    let (_dir, program) = compile("gcc", USES_MALLOC, &["-static", "-s"]);
    assert_eq!(plan_of(&program, &[]), []);
    let (_dir, program) = compile("gcc", USES_MALLOC, &["-pie"]);
    assert_eq!(plan_of(&program, &[]), []);
}

/// An allocator of one's own, with and without everything it needs.
const OWN: &str = "
#include <stddef.h>
static char arena[64];
void *PREFIX(malloc)(size_t size) { return arena + size; }
void *PREFIX(aligned_alloc)(size_t alignment, size_t size) { return arena + alignment + size; }
#ifdef FREE
void PREFIX(free)(void *p) { arena[0] = *(char *)p; }
#endif
__attribute__((weak)) void *_Znwm(size_t size) { return arena + size + 1; }
";

fn own_plan(prefix: &str, more: &[&str], extra: &[&str]) -> Vec<String> {
    let prefix = format!("-DPREFIX(name)={prefix}##name");
    let mut arguments = vec!["-shared", "-fPIC", "-O1", &prefix];
    arguments.extend(more);
    let (_dir, library) = compile("gcc", OWN, &arguments);
    let mut symbols: Vec<_> = plan_of(&library, extra)
        .into_iter()
        .map(|probe| probe.symbol)
        .collect();
    symbols.sort();
    symbols
}

#[test]
fn a_prefix_needs_allocation_and_release() {
    assert_eq!(own_plan("je_", &[], &[]), [""; 0]);
    assert_eq!(
        own_plan("je_", &["-DFREE"], &[]),
        ["_Znwm", "je_aligned_alloc", "je_free", "je_malloc"]
    );
}

#[test]
fn an_unknown_prefix_counts_on_the_users_word() {
    assert_eq!(own_plan("my_", &["-DFREE"], &[]), [""; 0]);
    assert_eq!(
        own_plan("my_", &["-DFREE"], &["my_"]),
        ["_Znwm", "my_aligned_alloc", "my_free", "my_malloc"]
    );
    // The condition is lifted as well.
    assert_eq!(
        own_plan("je_", &[], &["je_"]),
        ["_Znwm", "je_aligned_alloc", "je_malloc"]
    );
}

#[test]
fn the_standard_name_wins_for_two_shapes_at_one_address() {
    let source = "
        #include <stddef.h>
        void *calloc(size_t count, size_t size) { return (void *)(count * size); }
        void *mi_malloc(size_t size) __attribute__((alias(\"calloc\")));
        void free(void *p) { *(char *)p = 0; }
        void mi_free(void *p) __attribute__((alias(\"free\")));
    ";
    let (_dir, library) = compile("gcc", source, &["-shared", "-fPIC", "-w"]);
    let probes = plan_of(&library, &[]);
    assert_eq!(probes.len(), 2);
    assert_eq!(probes[0].symbol, "calloc");
    assert_eq!(probes[0].aliases, ["mi_malloc"]);
    assert_eq!((probes[0].function.count, probes[0].function.size), (0, 1));
}

#[test]
fn a_function_that_only_jumps_is_probed_at_its_target() {
    let source = "
        #include <stddef.h>
        __attribute__((noinline)) void *malloc(size_t size) { return (void *)(size * 3); }
        __attribute__((visibility(\"hidden\"))) void free(void *p) { *(char *)p = 0; }
        void free_sized(void *p, size_t size) { free(p); }
        void cfree(void *p) { *(char *)p = 1; }
        void vfree(void *p) { cfree(p); }
        void *valloc(size_t size) { return malloc(size + 1); }
    ";
    let (_dir, library) = compile("gcc", source, &["-shared", "-fPIC", "-O2", "-fno-inline"]);
    let probes = plan_of(&library, &[]);
    assert_eq!(find(&probes, "free_sized").symbol, "free");
    assert_eq!(
        find(&probes, "valloc").symbol,
        "valloc",
        "passes another size"
    );
}

/// It is accepted only if its slot has the relocation of a thread-local variable.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_thread_cache_of_libc_is_found() {
    let libc = Path::new(LIBRARIES).join("libc.so.6");
    let probes = plan_of(&libc, &[]);
    let with_cache = probes.iter().filter(|probe| probe.thread_cache.is_some());
    let names: Vec<&str> = with_cache.map(|probe| probe.symbol.as_str()).collect();
    assert_eq!(names, ["malloc"]);
    let malloc = find(&probes, "malloc");
    assert_eq!(
        malloc.site.arguments.register(0),
        0,
        "read from its own register"
    );
    assert_eq!(malloc.thread_cache.map(|cache| cache.lists), Some(0x80));
    assert!(malloc.line(&libc).why.ends_with(", thread cache found"));
}

#[test]
fn a_line_names_place_and_cost() {
    let libc = Path::new(LIBRARIES).join("libc.so.6");
    let probes = plan_of(&libc, &[]);
    let malloc = find(&probes, "malloc");
    let line = malloc.line(&libc);
    assert_eq!(line.library, libc.display().to_string());
    assert!(line.symbol.starts_with("malloc"));
    assert_eq!(line.file_offset, malloc.file_offset);
    assert_eq!(line.cost == "emulated", EMULATED);
    for probe in &probes {
        let line = probe.line(&libc);
        println!(
            "{:<26} {:#9x} {:<40} {:<14} {}",
            line.symbol, line.file_offset, line.instruction, line.cost, line.why
        );
    }
}

#[test]
fn corrupted_code_and_symbols_never_panic() {
    let original = std::fs::read(musl())
        .or_else(|_| std::fs::read(format!("{LIBRARIES}/libmimalloc.so.2")))
        .unwrap();
    let mut planned = 0;
    for round in 0..60_usize {
        let mut data = original.clone();
        for step in 0..200_usize {
            let at = (round * 7919 + step * 104_729 + round * step * 31) % data.len();
            data[at] = (round + step) as u8;
        }
        if let Ok(elf) = Elf::parse(&data) {
            planned += plan(&elf, &[]).len();
        }
    }
    assert!(planned > 0, "no corrupted file was planned for");
}

/// A library with a statically defined probe, as tests/fakecuda has it.
fn with_usdt() -> (tempfile::TempDir, PathBuf) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fakecuda");
    let source = format!("#include \"{}/libc10_cuda.c\"\n", folder.display());
    let folder = format!("-I{}", folder.display());
    compile("gcc", &source, &["-O1", "-shared", "-fPIC", &folder])
}

#[test]
fn a_statically_defined_probe_is_planned_at_its_notes_address() {
    let (_dir, path) = with_usdt();
    let probes = plan_of(&path, &[]);
    let probe = find(&probes, "pytorch:malloc");
    assert_eq!(probe.site.instruction, "nop");
    assert_eq!(probe.site.cost == Cost::Emulated, EMULATED);
    let usdt = probe.usdt.unwrap();
    assert_eq!(probe.cookie(), usdt.cookie);
    let bytes = std::fs::read(&path).unwrap();
    let elf = Elf::parse(&bytes).unwrap();
    let counter = elf
        .variables()
        .find(|variable| variable.name == "malloc_semaphore")
        .unwrap();
    assert_eq!(usdt.semaphore, elf.file_offset(counter.virt));
    let lacks = |elf: &Elf<'_>| lacking(elf, Path::new("libc10_cuda.so")).unwrap().symbols;
    assert!(lacks(&elf).is_empty());

    let (_dir, path) = compile("gcc", "int f(void) { return 0; }", &["-shared"]);
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(lacks(&Elf::parse(&bytes).unwrap()), ["pytorch:malloc"]);
}

#[test]
fn corrupted_notes_never_panic() {
    let (_dir, path) = with_usdt();
    let original = std::fs::read(path).unwrap();
    let note = b"stapsdt\0";
    let at = original
        .windows(note.len())
        .position(|window| window == note)
        .unwrap();
    let mut unlike = 0;
    for offset in 0..120 {
        for byte in [0, 1, 0x7f, 0xff] {
            let mut data = original.clone();
            data[at - 12 + offset] = byte;
            if let Ok(elf) = Elf::parse(&data) {
                unlike += usize::from(!has(&plan(&elf, &[]), "pytorch:malloc"));
            }
        }
    }
    assert!(unlike > 0, "every note was understood");
}

#[test]
fn a_caching_allocator_is_planned_by_its_row() {
    let source = "int pool_alloc(void **to, unsigned long size) { *to = &size; return size == 0; }
                  int pool_free(void *block) { return block == 0; }";
    let (_dir, path) = compile("gcc", source, &["-O1", "-shared", "-fPIC", "-w"]);
    let probes = plan_of(&path, &[]);
    let alloc = find(&probes, "pool_alloc");
    assert!(alloc.needs_return && alloc.function.layer.of_device());
    assert_eq!(
        (alloc.function.size, alloc.function.operation),
        (1, Operation::Alloc)
    );
    let free = find(&probes, "pool_free").function;
    assert_eq!((free.block, free.operation), (0, Operation::Free));
    let bytes = std::fs::read(&path).unwrap();
    let elf = Elf::parse(&bytes).unwrap();
    let found = lacking(&elf, Path::new("/opt/libpool.so.2")).unwrap();
    assert_eq!((found.library, found.symbols), ("a pool", vec![]));
}

/// Code for x86-64 of functions that memtrace probes behind their first instructions.
#[cfg(target_arch = "x86_64")]
const LATER: &str = "
void *malloc(unsigned long), *memalign(unsigned long, unsigned long);
int posix_memalign(void **, unsigned long, unsigned long);
void free(void *);
#define FUNCTION(name, code) \
    __asm__(\".globl \" #name \"; .type \" #name \", @function\\n\" #name \":\" code \"; ret\\n.size \" #name \", .-\" #name)
#ifdef ALIAS
__asm__(\".globl aligned_alloc; .type aligned_alloc, @function; aligned_alloc:\");
#endif
FUNCTION(malloc, \"xor %esi, %esi; push %rbx; pop %rbx\");
FUNCTION(memalign, \"mov %rsi, %rdx; mov %rdi, %rsi; xor %edi, %edi; jmp malloc\");
FUNCTION(posix_memalign, \"bsr %rsi, %rsi; push %rbx; pop %rbx\");
FUNCTION(free, \"mov %rdi, 8(%rdi); test %rdi, %rdi; je 1f; 1:\");
";

#[cfg(target_arch = "x86_64")]
#[test]
fn a_site_needs_only_the_arguments_that_the_program_reads() {
    let (_dir, library) = compile("gcc", LATER, &["-shared"]);
    let probes = plan_of(&library, &[]);
    let site = |name| {
        let probe = find(&probes, name);
        let cookie = Cookie(probe.cookie());
        (
            probe.site.instruction.as_str(),
            cookie.size(),
            cookie.block(),
        )
    };
    assert_eq!(site("malloc"), ("push rbx", 0, NO_ARGUMENT));
    assert_eq!(site("posix_memalign"), ("push rbx", 2, NO_ARGUMENT));
    // Its second argument is in the third register by then.
    let (jump, size, _) = site("memalign");
    assert!(jump.starts_with("jmp") && size == 2, "{jump} {size}");
    assert_eq!(find(&probes, "memalign").function.size, 1);
    // Not behind the write.
    assert_eq!(site("free"), ("mov [rdi+8],rdi", NO_ARGUMENT, 0));
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_site_serves_every_name_of_its_address() {
    let (_dir, library) = compile("gcc", LATER, &["-shared", "-DALIAS"]);
    let probes = plan_of(&library, &[]);
    let malloc = find(&probes, "malloc");
    assert_eq!(malloc.aliases, ["aligned_alloc"]);
    assert_eq!(malloc.site.cost, Cost::SingleStepped, "{malloc:?}");
}
