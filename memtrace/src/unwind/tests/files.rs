//! Places of descriptions in files, other contents of these places, and damaged files.

use super::{Random, build, library, oracle::Oracle};
use crate::{
    file::{self, FileBytes},
    unwind::{
        CompileError, Table,
        contexts::Contexts,
        image::{Cfi, Image},
        rules::{NO_ROW, STOP},
    },
};
use object::ReadRef;
use std::{fs, path::Path};

/// The table answers as gimli does for all code around; returns it.
fn agrees_everywhere(bytes: &[u8]) -> Table {
    let table = Table::compile(bytes).unwrap().unwrap();
    let image = Image::parse(bytes).unwrap().unwrap();
    let mut oracle = Oracle::new(&image);
    let ends = Contexts::of(bytes).ends;
    let (start, end) = (oracle.fdes()[0].0, oracle.fdes()[oracle.fdes().len() - 1].1);
    for addr in start.saturating_sub(100)..end + 100 {
        let rule = table.lookup(addr);
        let entry = image
            .entry
            .filter(|entry| (*entry..*entry + 64).contains(&addr));
        let expected = oracle.slowly(addr);
        let ends_here = entry.is_some() || ends.contains(&(addr + 1)) && expected == NO_ROW;
        if !ends_here || rule != STOP {
            assert_eq!(rule, expected, "{addr:#x}");
        }
    }
    table
}

const FUNCTION: &str = "int called(int); int function(int n) { return called(n) + called(n + 1); }";

#[test]
fn debug_frame_is_the_fallback_for_eh_frame() {
    let bare = [
        "-shared",
        "-nostdlib",
        "-fPIC",
        "-O1",
        "-fno-asynchronous-unwind-tables",
    ];
    let without = build(
        "gcc",
        "c",
        FUNCTION,
        &[&bare[..], &["-Wl,--no-ld-generated-unwind-info"]].concat(),
    );
    assert_eq!(Table::compile(&*without).unwrap(), None);

    let with = build(
        "gcc",
        "c",
        FUNCTION,
        &[&bare[..], &["-g", "-Wl,--no-ld-generated-unwind-info"]].concat(),
    );
    let image = Image::parse(&*with).unwrap().unwrap();
    assert!(matches!(image.cfi, Cfi::Debug(_)));
    let table = agrees_everywhere(&with);
    assert!(table.rules.len() > 3, "{:?}", table.rules);
}

#[test]
fn eh_frame_is_found_without_section_headers() {
    let path = library("libgcc_s.so.1");
    let mut bytes = fs::read(path).unwrap();
    let whole = Table::compile(&*bytes).unwrap().unwrap();
    // e_shoff, e_shnum and e_shstrndx (System V gABI, chapter 4).
    bytes[0x28..0x30].fill(0);
    bytes[0x3c..0x40].fill(0);
    assert_eq!(Table::compile(&*bytes).unwrap(), Some(whole));
}

#[test]
fn a_file_is_read_as_its_bytes_are_and_may_be_truncated_meanwhile() {
    let whole = fs::read(library("libgcc_s.so.1")).unwrap();
    let expected = Table::compile(&*whole).unwrap();
    assert!(expected.is_some());
    for len in (0..whole.len()).step_by(4096).chain([whole.len()]) {
        let file = file::of_bytes(&whole).unwrap();
        let bytes = FileBytes::new(&file);
        // The length is read once: from here on the file claims to be complete.
        assert_eq!((&bytes).len(), Ok(whole.len() as u64));
        file.set_len(len as u64).unwrap();
        let of_file = Table::compile(&bytes);
        if len == 0 {
            assert!(matches!(of_file, Err(CompileError::NotElf(_))));
        } else {
            // Without the section headers at the end, or without the sections they name.
            let of_file = of_file.unwrap();
            assert!(of_file.is_none() || of_file == expected, "{len}");
            assert!(of_file.is_some() || len < whole.len());
        }
    }
}

#[test]
fn the_kernels_own_library_has_a_table() {
    // SAFETY: getauxval takes any number.
    let start = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let vdso = maps.lines().find(|line| line.ends_with("[vdso]")).unwrap();
    let range = vdso.split(' ').next().unwrap();
    let [from, to] =
        [0, 1].map(|n| u64::from_str_radix(range.split('-').nth(n).unwrap(), 16).unwrap());
    assert_eq!(from, start);
    let mut bytes = vec![0; (to - from) as usize];
    let memory = fs::File::open("/proc/self/mem").unwrap();
    std::os::unix::fs::FileExt::read_exact_at(&memory, &mut bytes, start).unwrap();
    agrees_everywhere(&bytes);
}

#[test]
fn an_entry_point_that_nothing_describes_ends_the_stack() {
    let main = "int main(void) { return 0; }";
    let bytes = build("musl-gcc", "c", main, &["-static"]);
    let table = agrees_everywhere(&bytes);
    let entry = Image::parse(&*bytes).unwrap().unwrap().entry.unwrap();
    assert_eq!(table.lookup(entry - 1), NO_ROW);
    assert_eq!(table.lookup(entry), STOP);
    assert_eq!(table.lookup(entry + 63), STOP);
    assert_eq!(table.lookup(entry + 64), NO_ROW);

    // The dynamic loader's is assembler, too.
    let loader = fs::read(Path::new("/lib64/ld-linux-x86-64.so.2")).unwrap();
    let entry = Image::parse(&*loader).unwrap().unwrap().entry.unwrap();
    assert_eq!(
        Table::compile(&*loader).unwrap().unwrap().lookup(entry),
        STOP
    );

    // A library's entry point means nothing, whatever its header contains.
    let mut bytes = build(
        "gcc",
        "c",
        FUNCTION,
        &["-shared", "-fPIC", "-Wl,--no-as-needed"],
    );
    let first = Oracle::new(&Image::parse(&*bytes).unwrap().unwrap()).fdes()[0].0;
    bytes[0x18..0x20].copy_from_slice(&(first - 1).to_le_bytes());
    assert_eq!(Image::parse(&*bytes).unwrap().unwrap().entry, None);
}

/// A library with a function of this name that makes contexts, `lead` bytes after another function.
/// The context's first function returns to an address 24 bytes further on, in undescribed code.
fn maker(name: &str, lead: u64) -> (Vec<u8>, u64) {
    let source = format!(
        ".text\n.globl first\n.type first, @function\n.cfi_startproc\nfirst: ret\n.cfi_endproc\n\
         .org {lead}\n.globl {name}\n.type {name}, @function\n{name}:\n\
         lea 1f(%rip), %rcx\nmov %rcx, (%rdi)\nlea data(%rip), %rcx\nret\n\
         .org {lead} + 24, 0x90\n1: xor %edi, %edi\nhlt\n.size {name}, . - {name}\n\
         .data\n.skip 8\ndata: .quad 0\n"
    );
    let bytes = build("gcc", "s", &source, &["-shared", "-nostdlib"]);
    let start = Oracle::new(&Image::parse(&*bytes).unwrap().unwrap()).fdes()[0].0;
    (bytes, start + lead + 24)
}

#[test]
fn a_coroutines_stack_ends_at_its_makers_return_address() {
    for name in ["make_fcontext", "bthread_make_fcontext", "makecontext"] {
        let (bytes, end) = maker(name, 16);
        let table = agrees_everywhere(&bytes);
        let rules = (end - 30..end + 10).map(|addr| table.lookup(addr));
        let stops: Vec<_> = (end - 30..)
            .zip(rules)
            .filter(|(_, rule)| *rule == STOP)
            .collect();
        assert_eq!(stops, [(end - 1, STOP)], "{name}");
    }
}

#[test]
fn contexts_made_by_unknown_functions_are_not_coroutines() {
    for name in ["make_context", "make_fcontext_of", "make"] {
        let (bytes, end) = maker(name, 16);
        assert_eq!(Contexts::of(&*bytes), Contexts::default(), "{name}");
        assert_eq!(agrees_everywhere(&bytes).lookup(end - 1), NO_ROW, "{name}");
    }
    // Without symbols it cannot be known.
    let (bytes, _) = maker("make_fcontext", 16);
    assert!(!Contexts::of(&*bytes).ends.is_empty());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("library");
    fs::write(&path, &bytes).unwrap();
    let symbols = ["--strip-all", "--remove-section=.dynsym"];
    super::said_by(
        std::process::Command::new("objcopy")
            .args(symbols)
            .arg(&path),
    );
    let stripped = fs::read(&path).unwrap();
    assert_eq!(Contexts::of(&*stripped), Contexts::default());
}

#[test]
fn a_described_byte_keeps_its_rule() {
    // glibc's own, and one whose end directly follows described code.
    let libc = fs::read(library("libc.so.6")).unwrap();
    let table = Table::compile(&*libc).unwrap().unwrap();
    let ends = Contexts::of(&*libc).ends;
    let stops = ends.iter().filter(|end| table.lookup(**end - 1) == STOP);
    assert_eq!(stops.count(), 1, "{ends:x?}");

    let source = ".text\n.globl makecontext\n.type makecontext, @function\n.cfi_startproc\n\
                  makecontext: lea 1f(%rip), %rcx\nret\n.cfi_endproc\n1: hlt\n\
                  .size makecontext, . - makecontext\n";
    let bytes = build("gcc", "s", source, &["-shared", "-nostdlib"]);
    let [end] = Contexts::of(&*bytes).ends[..] else {
        panic!("one address is taken")
    };
    let table = agrees_everywhere(&bytes);
    assert_ne!(table.lookup(end - 1), STOP);
    assert_ne!(table.lookup(end - 1), NO_ROW);
}

#[test]
fn a_greenlets_stack_ends_in_its_first_function() {
    let name = "_ZN8greenlet12UserGreenlet15inner_bootstrapEP9_greenletP7_object";
    let source = format!(
        "int called(int); int {name}(int n) {{ return called(n) + called(n + 1); }}\n\
         int after(int n) {{ return called(n) + called(n + 2); }}"
    );
    let bytes = build(
        "gcc",
        "c",
        &source,
        &["-shared", "-nostdlib", "-fPIC", "-O1"],
    );
    let table = Table::compile(&*bytes).unwrap().unwrap();
    let image = Image::parse(&*bytes).unwrap().unwrap();
    let mut oracle = Oracle::new(&image);
    let [range] = &Contexts::of(&*bytes).outermost[..] else {
        panic!("one function")
    };
    assert!(range.clone().all(|addr| table.lookup(addr) == STOP));
    for addr in (range.start - 32..range.start).chain(range.end..range.end + 64) {
        assert_eq!(table.lookup(addr), oracle.slowly(addr), "{addr:#x}");
    }
}

/// A description of `length` bytes of code from `start` on, in a hand-written `.eh_frame`;
/// after each advance of 8 bytes the CFA is 8 further.
fn fde(start: u64, length: u64, rows: u64, offset: u64) -> String {
    let rows: String = (0..rows)
        .map(|row| format!(".byte 0x0e, {}, 0x48\n", offset + 8 * row))
        .collect();
    format!(
        "0: .long 2f - 1f\n1: .long 1b - cie\n.long code + {start} - .\n.long {length}\n\
         .uleb128 0\n{rows}.balign 8\n2:\n"
    )
}

/// A library whose `.eh_frame` has these, and a common information entry that repeats the place of
/// the return address this many times.
fn described(fdes: &[String], repeats: usize) -> Vec<u8> {
    let source = format!(
        ".text\n.globl code\n.hidden code\ncode: .skip 512, 0x90\n\
         .section .eh_frame, \"a\", @unwind\n\
         cie: .long 2f - 1f\n1: .long 0\n.byte 1\n.asciz \"zR\"\n.uleb128 1\n.sleb128 -8\n\
         .byte 16\n.uleb128 1\n.byte 0x1b, 0x0c, 7, 8, 0x90, 1\n\
         .rept {repeats}\n.byte 0x90, 1\n.endr\n.balign 8\n2:\n\
         {}.long 0\n",
        fdes.concat()
    );
    let options = ["-shared", "-nostdlib", "-Wl,--no-eh-frame-hdr"];
    build("gcc", "s", &source, &options)
}

#[test]
fn common_entries_are_read_up_to_a_length() {
    let fdes = [fde(0, 64, 4, 8)];
    let whole = Table::compile(&*described(&fdes, 2000)).unwrap();
    assert!(whole.is_some());
    assert_eq!(Table::compile(&*described(&fdes, 2100)).unwrap(), None);
}

#[test]
fn where_descriptions_overlap_the_first_one_counts() {
    let fdes = [
        // One within another, the outer first.
        fde(0, 64, 4, 8),
        fde(16, 16, 2, 40),
        // The inner first.
        fde(140, 10, 1, 16),
        fde(100, 80, 8, 48),
        fde(150, 60, 3, 24),
        // Twice the same.
        fde(256, 32, 2, 8),
        fde(256, 32, 2, 64),
        // Next to each other, in descending order.
        fde(340, 20, 2, 8),
        fde(320, 20, 2, 8),
        // Rows past the end, an empty one, and an overlap at its end.
        fde(400, 10, 8, 8),
        fde(405, 0, 1, 8),
        fde(409, 3, 1, 80),
    ];
    let bytes = described(&fdes, 0);
    let image = Image::parse(&*bytes).unwrap().unwrap();
    assert_eq!(Oracle::new(&image).fdes().len(), fdes.len() - 1);
    agrees_everywhere(&bytes);
}

#[test]
fn files_of_other_processors_are_refused() {
    let not_elf = |bytes: &[u8]| matches!(Table::compile(bytes), Err(CompileError::NotElf(_)));
    assert!(not_elf(b""));
    assert!(not_elf(b"\x7fELF"));
    assert!(not_elf(&[0x20; 4096]));
    let mut bytes = fs::read(library("libgcc_s.so.1")).unwrap();
    // e_machine: EM_AARCH64.
    bytes[0x12] = 183;
    let error = Table::compile(&*bytes).err();
    assert!(
        matches!(error, Some(CompileError::Machine(183))),
        "{error:?}"
    );
}

#[test]
fn damage_never_panics_and_leaves_a_well_formed_table() {
    let whole = fs::read(library("libgcc_s.so.1")).unwrap();
    let image = Image::parse(&*whole).unwrap().unwrap();
    let Cfi::Eh(section) = &image.cfi else {
        panic!("no .eh_frame")
    };
    let bytes = gimli::Section::reader(section).slice();
    let start = bytes.as_ptr() as u64 - whole.as_ptr() as u64;
    let mut random = Random(0xda3a9e);
    for round in 0..2000 {
        let mut damaged = whole.clone();
        // The headers, or the description.
        let (from, len) = match round % 4 {
            0 => (0, 1024),
            _ => (start, bytes.len() as u64),
        };
        for _ in 0..=random.below(8) {
            damaged[(from + random.below(len)) as usize] = random.next() as u8;
        }
        if round % 16 == 0 {
            damaged.truncate(random.below(whole.len() as u64) as usize);
        }
        if let Ok(Some(Table { exec, rules, words })) = Table::compile(&*damaged) {
            assert!(
                Table::checked(exec, rules, words).is_some(),
                "round {round}"
            );
        }
    }
}
