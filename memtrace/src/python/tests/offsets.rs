//! The interpreter's own description of its layout.

use super::{super::offsets::*, *};
use memtrace_common::python::{Interpreter, NONE};

/// The first bytes of `_PyRuntime` in a running 3.13.0 (pyenv, gcc, x86-64).
const RECORDED: &[u8] = include_bytes!("debug_offsets_3.13.0.bin");

fn described(minor: u32, bytes: &[u8]) -> Result<Interpreter, Error> {
    let candidate = Candidate {
        minor,
        runtime: 0x1000,
        eval: [[0x10, 0x20], [0, 0]],
        handlers: None,
        code_dealloc: None,
        description: bytes.to_vec(),
    };
    interpreter(&candidate, 7, 0x5000_0000)
}

/// The same for a running 3.14.10 (Debian).
const RECORDED_3_14: &[u8] = include_bytes!("debug_offsets_3.14.10.bin");

#[test]
fn each_versions_description_matches_its_headers() {
    // By offsetof, compiled with the headers of that installation.
    let of_3_13 = Interpreter {
        runtime: 0x5000_1000,
        eval: [[0x10, 0x20], [0, 0]],
        exec: 7,
        minor: 13,
        runtime_interpreters: 632,
        interpreter_next: 7264,
        interpreter_threads: 7344,
        thread_next: 8,
        thread_id: 152,
        thread_frame: 72,
        cframe_frame: NONE,
        frame_code: 0,
        frame_previous: 8,
        frame_instruction: 56,
        frame_boundary: 70,
        code_instructions: 200,
        code_filename: 112,
        code_name: 128,
        code_linetable: 136,
        code_first_line: 68,
        str_ascii_data: 40,
        str_compact_data: 56,
        str_length: 16,
        str_state: 32,
        bytes_size: 16,
        bytes_data: 32,
    };
    assert_eq!(described(13, RECORDED).unwrap(), of_3_13);
    let of_3_14 = Interpreter {
        minor: 14,
        runtime_interpreters: 808,
        interpreter_next: 7272,
        frame_boundary: 74,
        code_instructions: 208,
        ..of_3_13
    };
    assert_eq!(described(14, RECORDED_3_14).unwrap(), of_3_14);
}

#[test]
fn other_interpreters_are_refused() {
    let with = |word: usize, value: u64| {
        let mut bytes = RECORDED.to_vec();
        bytes[word * 8..][..8].copy_from_slice(&value.to_le_bytes());
        described(13, &bytes)
    };
    assert!(matches!(with(0, 0), Err(Error::Damaged(_))));
    assert!(matches!(with(2, 1), Err(Error::FreeThreaded(13))));
    assert!(with(1, 0x030d_01c2).is_ok(), "a release candidate");
    for version in [0x030d_00a6, 0x030d_00b4, 0x030e_00f0, 0x0001_030d_00f0] {
        assert!(
            matches!(with(1, version), Err(Error::OtherVersion { minor: 13, got }) if got == version),
            "{version:#x}"
        );
    }
    // A file that has none.
    assert!(matches!(described(13, &[]), Err(Error::Damaged(_))));
}

#[test]
fn a_damaged_description_never_panics() {
    let mut random = random();
    for (minor, original) in [(13, RECORDED.to_vec()), (14, RECORDED_3_14.to_vec())] {
        let (mut taken, mut refused) = (0, 0);
        for _ in 0..4000 {
            let mut bytes = original.clone();
            for _ in 0..1 + random() % 4 {
                let at = random() as usize % bytes.len();
                bytes[at] = [random() as u8, 0, 0xff][random() as usize % 3];
            }
            match described(minor, &bytes) {
                Ok(_) => taken += 1,
                Err(_) => refused += 1,
            }
        }
        assert!(
            taken > 0 && refused > 0,
            "3.{minor}: {taken} taken, {refused} refused"
        );
    }
}
