//! Code objects from records.

use super::{super::CodeObject, *};
use crate::frames::FrameKind;
use memtrace_common::python::{Code, FILENAME, Interpreter, LINETABLE, NAME, Text};

/// The bytes behind a record.
fn areas(filename: &[u8], name: &[u8], linetable: &[u8]) -> Vec<u8> {
    [(filename, FILENAME), (name, NAME), (linetable, LINETABLE)]
        .into_iter()
        .flat_map(|(bytes, size)| {
            let mut area = bytes[..bytes.len().min(size)].to_vec();
            area.resize(size, 0);
            area
        })
        .collect()
}

fn text(length: usize, width: u16) -> Text {
    Text {
        object: 0x1000,
        length: length.try_into().unwrap(),
        width,
        ascii: 0,
    }
}

fn decode(code: &Code, areas: &[u8]) -> CodeObject {
    let interpreter = Interpreter {
        minor: 11,
        ..Interpreter::default()
    };
    CodeObject::decode(code, areas, &interpreter, unreadable())
}

#[test]
fn characters_of_every_width_are_text() {
    let code = Code {
        filename: text(4, 1),
        name: text(3, 2),
        ..Code::default()
    };
    let ucs2: Vec<u8> = [0x811a_u16, 0x672c, 0xd800]
        .iter()
        .flat_map(|unit| unit.to_ne_bytes())
        .collect();
    let decoded = decode(&code, &areas(b"\xe9t\xe9!", &ucs2, b""));
    assert_eq!(decoded.filename, "été!");
    assert_eq!(decoded.name, "脚本\u{fffd}");

    let ucs4: Vec<u8> = [0x20000_u32, 0x61, 0x11_0000]
        .iter()
        .flat_map(|unit| unit.to_ne_bytes())
        .collect();
    let code = Code {
        filename: text(3, 4),
        name: text(0, 1),
        ..Code::default()
    };
    let decoded = decode(&code, &areas(&ucs4, b"", b""));
    assert_eq!(decoded.filename, "\u{20000}a\u{fffd}");
    assert_eq!(decoded.name, "");
}

#[test]
fn unreadable_parts_are_marked() {
    let long = "x".repeat(2 * NAME);
    let code = Code {
        filename: Text::default(),
        name: text(long.len(), 1),
        first_line: 3,
        ..Code::default()
    };
    let decoded = decode(&code, &areas(b"", long.as_bytes(), b""));
    assert_eq!(decoded.filename, "<stale>");
    assert_eq!(decoded.name, format!("{}…", &long[..NAME]));

    let frame = decoded.frame(decoded.line(0));
    assert_eq!(frame.kind, FrameKind::Python);
    assert_eq!((frame.file.as_deref(), frame.line), (Some("<stale>"), None));
    assert_eq!(frame.module, None);
    assert_eq!(decoded.line(u32::MAX), Some(3));
}

#[test]
fn random_records_never_panic() {
    let mut random = random();
    let full = areas(&[0xff; FILENAME], &[0xff; NAME], &[0xff; LINETABLE]);
    for _ in 0..2000 {
        let mut part = || Text {
            object: random(),
            length: [random() as u32, random() as u32 % 300][random() as usize % 2],
            width: random() as u16 % 6,
            ascii: random() as u16 % 3,
        };
        let code = Code {
            filename: part(),
            name: part(),
            code: random(),
            linetable: random(),
            linetable_len: random() as u32 % 5000,
            first_line: random() as u32,
            ..Code::default()
        };
        let cut = random() as usize % (full.len() + 1);
        let decoded = decode(&code, &full[..cut]);
        decoded.frame(decoded.line(random() as u32));
    }
}
