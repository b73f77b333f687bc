use super::*;
use crate::arch::LIBRARIES;
use std::path::Path;

fn open(library: &str) -> Vec<u8> {
    std::fs::read(Path::new(LIBRARIES).join(library)).unwrap()
}

#[test]
fn libc_has_a_name_a_loader_and_functions() {
    let bytes = open("libc.so.6");
    let elf = Elf::parse(&bytes).unwrap();
    assert_eq!(elf.architecture, Architecture::NATIVE);
    assert_eq!(elf.soname.as_deref(), Some("libc.so.6"));
    let loader = match elf.architecture {
        Architecture::Aarch64 => "ld-linux-aarch64.so.1",
        _ => "ld-linux-x86-64.so.2",
    };
    assert_eq!(elf.needed, [loader]);
    let build_id = elf.build_id.as_deref().unwrap();
    assert_eq!(build_id.len(), 40);
    assert!(
        build_id
            .bytes()
            .all(|byte| b"0123456789abcdef".contains(&byte))
    );

    let find = |name| elf.functions().find(|function| function.name == name);
    let malloc = find("malloc").unwrap();
    assert!(malloc.size > 16);
    assert_eq!(elf.file_offset(malloc.virt), Some(malloc.file_offset));
    assert_eq!(
        elf.code(malloc.file_offset, malloc.size).len() as u64,
        malloc.size
    );
    let variables: Vec<_> = elf.variables().map(|variable| variable.name).collect();
    assert!(variables.contains(&"environ") && !variables.contains(&"malloc"));
    assert_eq!(find("strlen"), None, "an IFUNC's address is its resolver's");
    assert_eq!(
        find("__tls_get_addr"),
        None,
        "an undefined symbol has no address"
    );
}

#[test]
fn addresses_outside_the_file_have_no_offset() {
    let bytes = open("libc.so.6");
    let elf = Elf::parse(&bytes).unwrap();
    let last = elf.segments().last().unwrap();
    assert!(!last.execute);
    assert_eq!(elf.file_offset(last.virt + last.file_size), None);
    assert_eq!(elf.file_offset(u64::MAX), None);
    assert_eq!(elf.code(last.file_offset, 16), b"");
    assert_eq!(elf.code(u64::MAX, u64::MAX), b"");
    let end = last.virt + last.file_size;
    assert!(elf.initial(end - 8, 8).is_some());
    assert_eq!(elf.initial(end - 7, 8), None);
    assert_eq!(elf.initial(end, 0), None);
}

#[test]
fn files_other_than_elf_are_refused() {
    assert!(matches!(Elf::parse(&Vec::new()), Err(ElfError::NotElf)));
    assert!(matches!(
        Elf::parse(&b"#!/bin/sh\n".to_vec()),
        Err(ElfError::NotElf)
    ));
    assert!(matches!(
        Elf::parse(&b"\x7fELF\x01".to_vec()),
        Err(ElfError::NotSupported)
    ));
    assert!(matches!(
        Elf::parse(&b"\x7fELF\x02".to_vec()),
        Err(ElfError::Malformed(_))
    ));
    assert!(matches!(
        Elf::parse(&open("/dev/null")),
        Err(ElfError::NotElf)
    ));
}

/// A small real library: 20 to 70 KiB.
fn small_library() -> Vec<u8> {
    open("libdl.so.2")
}

#[test]
fn a_truncated_file_never_panics() {
    let data = small_library();
    assert!(read_all(&data) > 0);
    for len in (0..data.len()).step_by(37).chain(0..1024.min(data.len())) {
        read_all(&data[..len].to_vec());
    }
}

#[test]
fn a_corrupted_file_never_panics() {
    let original = small_library();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        // xorshift64: the same corruptions on every run.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    let mut readable = 0;
    for round in 0..4000 {
        let mut data = original.clone();
        // The headers and the section headers at the end decide most.
        let range = match round % 3 {
            0 => 0..1024,
            1 => data.len() - 2048..data.len(),
            _ => 0..data.len(),
        };
        for _ in 0..1 + random() % 32 {
            let at = range.start + random() % range.len();
            data[at] = [random() as u8, 0, 0xff][random() % 3];
        }
        readable += usize::from(read_all(&data) > 0);
    }
    assert!(readable > 0, "no corrupted file got past its header");
}
