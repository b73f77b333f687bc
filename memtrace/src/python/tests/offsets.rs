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
    };
    interpreter(&candidate, 7, 0x5000_0000, &|address, buffer| {
        assert_eq!(address, 0x5000_1000);
        buffer.copy_from_slice(&bytes[..buffer.len()]);
        Ok(())
    })
}

/// Not recorded: made from the declaration of `_Py_DebugOffsets` of 3.14, with values that
/// tell the members apart.
fn made_for_3_14() -> Vec<u8> {
    const VERSION: u64 = 0x030e_00f0;
    let structure = |members: &[u64]| {
        let size = members.iter().max().unwrap() + 8;
        [&[size], members].concat()
    };
    let words = [
        vec![u64::from_le_bytes(*b"xdebugpy"), VERSION, 0],
        // runtime_state: finalizing, interpreters_head
        structure(&[600, 808]),
        // interpreter_state: id, next, threads_head, threads_main, gc, imports_modules, sysdict, builtins,
        // ceval_gil, gil_runtime_state, .enabled, .locked, .holder, code_object_generation, tlbc_generation
        structure(&[
            7260, 7264, 7344, 7352, 7400, 7500, 7600, 7700, 8, 10, 0, 12, 14, 7800, 0,
        ]),
        // thread_state: prev, next, interp, current_frame, thread_id, native_thread_id, datastack_chunk, status
        structure(&[0, 8, 16, 72, 152, 160, 200, 32]),
        // interpreter_frame: previous, executable, instr_ptr, localsplus, owner, stackpointer, tlbc_index
        structure(&[8, 0, 56, 80, 74, 64, 0]),
        // code_object: filename, name, qualname, linetable, firstlineno, argcount, localsplusnames,
        // localspluskinds, co_code_adaptive, co_tlbc
        structure(&[112, 120, 128, 136, 68, 52, 96, 104, 208, 0]),
        // pyobject, type_object, tuple_object, list_object
        structure(&[8]),
        structure(&[24, 88, 168]),
        structure(&[24, 16]),
        structure(&[24, 17]),
        // set_object: used, table, mask
        structure(&[25, 40, 32]),
        // dict_object, float_object, long_object
        structure(&[33, 41]),
        structure(&[18]),
        structure(&[19, 26]),
        // bytes_object: ob_size, ob_sval
        structure(&[16, 32]),
        // unicode_object: state, length, asciiobject_size
        structure(&[32, 16, 40]),
        // gc, gen_object, llist_node, debugger_support
        structure(&[21]),
        structure(&[22, 23, 27]),
        vec![0, 8],
        vec![28, 29, 30, 31, 32, 512],
    ];
    words
        .concat()
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect()
}

#[test]
fn each_versions_description_gives_what_its_headers_say() {
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
        str_kind_shift: 2,
        str_ascii_shift: 6,
        str_length: 16,
        str_state: 32,
        bytes_size: 16,
        bytes_data: 32,
    };
    assert_eq!(described(13, RECORDED).unwrap(), of_3_13);
    let of_3_14 = Interpreter {
        minor: 14,
        runtime_interpreters: 808,
        frame_boundary: 74,
        code_instructions: 208,
        str_kind_shift: 16,
        str_ascii_shift: 20,
        ..of_3_13
    };
    assert_eq!(described(14, &made_for_3_14()).unwrap(), of_3_14);
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
    assert!(matches!(
        interpreter(
            &Candidate {
                minor: 13,
                runtime: 0,
                eval: [[0; 2]; 2],
                handlers: None
            },
            0,
            0x1000,
            unreadable()
        ),
        Err(Error::Read {
            address: 0x1000,
            ..
        })
    ));
}

#[test]
fn a_damaged_description_never_panics() {
    let mut random = random();
    for (minor, original) in [(13, RECORDED.to_vec()), (14, made_for_3_14())] {
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
