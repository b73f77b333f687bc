//! Every shape of description that there is a rule for, and near misses.

use super::{build, oracle::Oracle};
use crate::unwind::{
    Table,
    image::Image,
    rules::{STOP, UNSUPPORTED},
};
use memtrace_common::arch::{SIGNAL_EXTRA, SIGNAL_FP, SIGNAL_PC, SIGNAL_SP};
use memtrace_common::unwind::{Memory, Registers, Rule, cfa, extra, fp, held, step};
use std::mem::offset_of;

/// Directives of GNU as, and the rule after them. `.cfi_escape` is given raw: 0x0f is
/// DW_CFA_def_cfa_expression, 0x10 DW_CFA_expression, 0x14 DW_CFA_val_offset, 0x16
/// DW_CFA_val_expression (DWARF 5, table 7.29); 0x70 + n is DW_OP_breg n, 6 DW_OP_deref,
/// 0x23 DW_OP_plus_uconst, 0x30 + n DW_OP_lit n, 0x22 DW_OP_plus (table 7.9).
const SHAPES: [(&str, Rule); 49] = [
    ("", of(cfa::SP, 8)),
    (".cfi_def_cfa_offset 0x7fffffff", of(cfa::SP, i32::MAX)),
    (".cfi_def_cfa_offset 0x80000000", UNSUPPORTED),
    (".cfi_def_cfa rbp, 16", of(cfa::FP, 16)),
    (".cfi_def_cfa rbp, -16", of(cfa::FP, -16)),
    (".cfi_def_cfa rbx, 16", of(cfa::EXTRA, 16)),
    (".cfi_def_cfa rax, 16", UNSUPPORTED),
    (".cfi_escape 0x0f, 2, 0x77, 24", of(cfa::SP, 24)),
    (".cfi_escape 0x0f, 2, 0x76, 24", of(cfa::FP, 24)),
    // PLT entries.
    (
        ".cfi_escape 0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22",
        of(cfa::PLT, 11),
    ),
    (
        ".cfi_escape 0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3a, 0x2a, 0x33, 0x24, 0x22",
        of(cfa::PLT, 10),
    ),
    (
        ".cfi_escape 0x0f, 11, 0x77, 0, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22",
        UNSUPPORTED,
    ),
    (
        ".cfi_escape 0x0f, 11, 0x77, 8, 0x80, 1, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22",
        UNSUPPORTED,
    ),
    (
        ".cfi_escape 0x0f, 11, 0x77, 8, 0x80, 0, 0x37, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22",
        UNSUPPORTED,
    ),
    (
        ".cfi_escape 0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x34, 0x24, 0x22",
        UNSUPPORTED,
    ),
    // Realigned stacks, and hand-written code that keeps the old stack pointer in memory.
    (
        ".cfi_escape 0x0f, 3, 0x76, 0x78, 6",
        deref(cfa::DEREF_FP, -8, 0),
    ),
    (
        ".cfi_escape 0x0f, 5, 0x77, 40, 6, 0x23, 16",
        deref(cfa::DEREF_SP, 40, 16),
    ),
    (
        ".cfi_escape 0x0f, 5, 0x77, 0, 6, 0x38, 0x22",
        deref(cfa::DEREF_SP, 0, 8),
    ),
    (
        ".cfi_escape 0x0f, 5, 0x76, 0xc0, 0xb8, 0x02, 6",
        UNSUPPORTED,
    ),
    (
        ".cfi_escape 0x0f, 7, 0x76, 0, 6, 0x23, 0xc0, 0xb8, 0x02",
        UNSUPPORTED,
    ),
    (".cfi_escape 0x0f, 4, 0x76, 0, 0x94, 4", UNSUPPORTED),
    (".cfi_escape 0x0f, 4, 0x76, 0, 6, 6", UNSUPPORTED),
    (".cfi_escape 0x0f, 3, 0x73, 0, 6", UNSUPPORTED),
    (
        ".cfi_escape 0x0f, 6, 0x77, 0, 6, 0x38, 0x1c, 0x96",
        UNSUPPORTED,
    ),
    // The place of the frame pointer.
    (".cfi_offset rbp, -16", with_fp(fp::AT_CFA, -16)),
    (".cfi_offset rbp, -32768", with_fp(fp::AT_CFA, i16::MIN)),
    (".cfi_offset rbp, -32776", UNSUPPORTED),
    (".cfi_same_value rbp", of(cfa::SP, 8)),
    (".cfi_undefined rbp", of(cfa::SP, 8)),
    (".cfi_register rbp, rax", UNSUPPORTED),
    (
        ".cfi_escape 0x10, 6, 2, 0x76, 0x70",
        with_fp(fp::AT_FP, -16),
    ),
    (
        ".cfi_escape 0x10, 6, 4, 0x76, 0xc0, 0xb8, 0x02",
        UNSUPPORTED,
    ),
    (".cfi_escape 0x10, 6, 2, 0x77, 0x70", UNSUPPORTED),
    (".cfi_escape 0x14, 6, 2", UNSUPPORTED),
    (".cfi_escape 0x16, 6, 2, 0x76, 0", UNSUPPORTED),
    // The place of the extra register.
    (".cfi_offset rbx, -16", with_extra(2)),
    (".cfi_offset rbx, -496", with_extra(62)),
    (".cfi_offset rbx, -504", with_extra(extra::LOST)),
    (".cfi_same_value rbx", of(cfa::SP, 8)),
    (".cfi_register rbx, rax", with_extra(extra::LOST)),
    (
        ".cfi_escape 0x10, 3, 2, 0x76, 0x70",
        with_extra(extra::LOST),
    ),
    (".cfi_undefined rbx", of(cfa::SP, 8)),
    // The place of the caller.
    (".cfi_undefined rip", STOP),
    (".cfi_same_value rip", UNSUPPORTED),
    (".cfi_offset rip, -16", UNSUPPORTED),
    (".cfi_register rip, rax", UNSUPPORTED),
    (".cfi_offset rsp, -24", UNSUPPORTED),
    (".cfi_escape 0x14, 7, 0", of(cfa::SP, 8)),
    // A signal frame without a layout.
    (".cfi_signal_frame", UNSUPPORTED),
];

const fn of(cfa: u8, cfa_offset: i32) -> Rule {
    Rule {
        cfa,
        cfa_offset,
        fp: fp::SAME,
        fp_offset: 0,
    }
}

const fn deref(cfa: u8, offset: i16, addend: i16) -> Rule {
    of(cfa, (addend as i32) << 16 | offset.cast_unsigned() as i32)
}

const fn with_fp(fp: u8, fp_offset: i16) -> Rule {
    Rule {
        fp,
        fp_offset,
        ..of(cfa::SP, 8)
    }
}

const fn with_extra(kind: u8) -> Rule {
    Rule {
        fp: kind << extra::SHIFT,
        ..of(cfa::SP, 8)
    }
}

/// Bytes from one function to the next.
const FUNCTION: u64 = 16;

/// A library of functions with these directives, and the address of the first.
fn library(directives: &[&str]) -> (Vec<u8>, u64) {
    let mut source = String::from(".intel_syntax noprefix\n.text\n.balign 16\n");
    for directives in directives {
        source += &format!(".cfi_startproc\n{directives}\nret\n.balign 16\n.cfi_endproc\n");
    }
    let bytes = build("gcc", "s", &source, &["-shared", "-nostdlib"]);
    let image = Image::parse(&*bytes).unwrap().unwrap();
    let first = Oracle::new(&image).fdes()[0].0;
    (bytes, first)
}

#[test]
fn shapes_become_rules() {
    let (bytes, first) = library(&SHAPES.map(|(directives, _)| directives));
    let table = Table::compile(&*bytes).unwrap().unwrap();
    for (addr, (directives, rule)) in (first..).step_by(FUNCTION as usize).zip(SHAPES) {
        assert_eq!(table.lookup(addr), rule, "{directives}");
        assert_eq!(table.lookup(addr + FUNCTION - 1), rule, "{directives}");
    }
}

/// Words that depend on their address, above all stacks.
struct Words;

impl Memory for Words {
    fn read(&self, abs_addr: u64) -> Option<u64> {
        Some(abs_addr + (1 << 40))
    }
}

#[test]
fn rules_agree_with_dwarf() {
    let (bytes, first) = library(&SHAPES.map(|(directives, _)| directives));
    let image = Image::parse(&*bytes).unwrap().unwrap();
    let mut oracle = Oracle::new(&image);
    for (addr, (directives, rule)) in (first..).step_by(FUNCTION as usize).zip(SHAPES) {
        for pc in addr..addr + FUNCTION {
            let at = Registers {
                pc,
                sp: 0x7ffc_0000_0000,
                fp: 0x7ffc_0000_1000,
                extra: 0x7ffc_0000_2000,
                extra_is: held::VALUE,
            };
            let expected = oracle.ask(pc, &at, &Words).1;
            assert_eq!(step(rule, &at, &Words), expected, "{directives} at {pc:#x}");
        }
    }
}

/// Directives for a signal frame with registers at these offsets from the stack pointer.
fn signal_frame([rbx, rbp, rsp, rip]: [u64; 4]) -> String {
    let saved = [(3, rbx), (6, rbp), (7, rsp), (16, rip)].map(|(register, offset)| {
        // An offset of 64 to 8191 takes two bytes of signed LEB128.
        let (low, high) = (offset & 0x7f | 0x80, offset >> 7);
        format!(".cfi_escape 0x10, {register}, 3, 0x77, {low}, {high}\n")
    });
    format!(".cfi_signal_frame\n{}", saved.concat())
}

#[test]
fn only_the_known_signal_frame_is_followed() {
    let gregs = offset_of!(libc::ucontext_t, uc_mcontext) + offset_of!(libc::mcontext_t, gregs);
    let place = |register: i32| gregs as u64 + 8 * register as u64;
    let registers = [libc::REG_RBX, libc::REG_RBP, libc::REG_RSP, libc::REG_RIP];
    let places = registers.map(place);
    assert_eq!(places, [SIGNAL_EXTRA, SIGNAL_FP, SIGNAL_SP, SIGNAL_PC]);

    let known = signal_frame(places);
    let mut variants = vec![known.clone(), known.replace(".cfi_signal_frame", "")];
    for moved in 0..places.len() {
        let mut places = places;
        places[moved] += 8;
        variants.push(signal_frame(places));
    }
    let (bytes, first) = library(&variants.iter().map(String::as_str).collect::<Vec<_>>());
    let table = Table::compile(&*bytes).unwrap().unwrap();
    assert_eq!(table.lookup(first), of(cfa::SIGNAL, 0));
    for addr in (first..)
        .step_by(FUNCTION as usize)
        .take(variants.len())
        .skip(1)
    {
        assert_eq!(table.lookup(addr), UNSUPPORTED);
    }
}
