//! Tables of real files compared with gimli's results for the same addresses.

use super::{Random, library, oracle::Oracle, said_by};
use crate::unwind::{
    Table,
    contexts::Contexts,
    image::Image,
    rules::{NO_ROW, STOP, UNSUPPORTED},
};
use memtrace_common::unwind::{Memory, Registers, step};
use std::{fs, path::Path, process::Command};

const ADDRESSES: usize = 100_000;

/// FDEs that the searches without an index may read for one file.
const SLOW_BUDGET: usize = 4_000_000;

/// Memory with arbitrary words, some zero and some unreadable.
struct Noise(u64);

impl Memory for Noise {
    fn read(&self, abs_addr: u64) -> Option<u64> {
        let word = Random(abs_addr ^ self.0 | 1)
            .next()
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        match word % 16 {
            0 => None,
            1 => Some(0),
            _ => Some(word >> 16),
        }
    }
}

/// Registers as code at `pc` could have them, roughly.
fn registers(pc: u64, random: &mut Random) -> Registers {
    let sp = random.next() >> 17;
    let fp = match random.below(8) {
        0 => random.next(),
        _ => sp.wrapping_add(random.below(1 << 16)),
    };
    Registers {
        pc,
        sp,
        fp,
        extra: sp.wrapping_add(random.below(1 << 16)),
        extra_is: random.below(3),
    }
}

#[test]
fn libc() {
    agrees(&library("libc.so.6"));
}

#[test]
fn libstdcxx() {
    agrees(&library("libstdc++.so.6"));
}

#[test]
fn libcrypto() {
    agrees(&library("libcrypto.so.3"));
}

#[test]
fn python() {
    let print = "import sys; print(sys.executable)";
    let path = said_by(Command::new("/usr/bin/python3").args(["-c", print]));
    agrees(Path::new(&path));
}

/// A large C++ program, at fixed addresses.
#[test]
fn cplusplus_compiler() {
    let path = said_by(Command::new("g++").arg("-print-prog-name=cc1plus"));
    agrees(Path::new(&path));
}

/// Larger, and made by LLVM.
#[test]
fn rust_compiler() {
    let sysroot = said_by(Command::new("rustc").args(["--print", "sysroot"]));
    let driver = fs::read_dir(Path::new(&sysroot).join("lib"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .find(|entry| {
            entry
                .file_name()
                .to_string_lossy()
                .starts_with("librustc_driver-")
        });
    agrees(&driver.expect("librustc_driver in rustc's sysroot").path());
}

fn agrees(path: &Path) {
    let bytes = fs::read(path).unwrap();
    let table = Table::compile(&*bytes).unwrap().unwrap();
    let Table { exec, rules, words } = table.clone();
    assert!(
        Table::checked(exec, rules, words).is_some(),
        "the table is not well-formed"
    );

    let image = Image::parse(&*bytes).unwrap().unwrap();
    let ends = Contexts::of(&*bytes).ends;
    let mut oracle = Oracle::new(&image);
    let fdes = oracle.fdes().to_vec();
    for pair in fdes.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "FDEs overlap at {:#x}", pair[1].0);
    }
    let (start, end) = (fdes[0].0, fdes[fdes.len() - 1].1);
    let slow_every = (ADDRESSES * fdes.len()).div_ceil(SLOW_BUDGET);
    let (mut unsupported, mut followed) = (0, 0);
    let mut random = Random(0x5eed);
    for index in 0..ADDRESSES {
        let addr = if index % 2 == 0 {
            start + random.below(end - start)
        } else {
            let (_, _, offset) = fdes[random.below(fdes.len() as u64) as usize];
            let boundaries = oracle.boundaries(offset);
            let boundary = boundaries[random.below(boundaries.len() as u64) as usize];
            boundary - 1 + random.below(3)
        };
        let at = registers(addr, &mut random);
        let memory = Noise(random.next());
        let rule = table.lookup(addr);
        let (expected, caller) = oracle.ask(addr, &at, &memory);
        if rule != expected {
            // The exceptions: undescribed entry points and return addresses of coroutines.
            let entry = image
                .entry
                .filter(|entry| (*entry..*entry + 64).contains(&addr));
            let context = expected == NO_ROW && ends.contains(&(addr + 1));
            assert!(
                rule == STOP && (entry.is_some() || context),
                "{addr:#x}: {rule:?}, not {expected:?}"
            );
            continue;
        }
        if index % slow_every == 0 {
            assert_eq!(rule, oracle.slowly(addr), "{addr:#x}");
        }
        let stepped = step(rule, &at, &memory);
        assert_eq!(stepped, caller, "{addr:#x}: {rule:?} at {at:x?}");
        unsupported += usize::from(rule == UNSUPPORTED);
        followed += usize::from(stepped.is_ok());
    }
    println!(
        "{}: {} FDEs, {} rules, {} words, {unsupported} of {ADDRESSES} unsupported, {followed} followed",
        path.display(),
        fdes.len(),
        table.rules.len(),
        table.words.len(),
    );
    // Hand-written cryptography keeps the CFA in other registers at times.
    assert!(
        unsupported < ADDRESSES / 50,
        "{unsupported} addresses are unsupported"
    );
    assert!(
        followed > ADDRESSES / 2,
        "only {followed} addresses led to a caller"
    );
}
