use crate::unwind::{
    CompileError, Table,
    rules::{NO_ROW, UNSUPPORTED},
    table::MAX_PAGES,
    writer::Writer,
};
use memtrace_common::unwind::{Rule, cfa};

fn sp(offset: i32) -> Rule {
    Rule {
        cfa: cfa::SP,
        cfa_offset: offset,
        ..Rule::default()
    }
}

/// A table of rows, the last of which only ends the code.
fn table(rows: &[(u64, Rule)]) -> Table {
    let mut writer = Writer::new(rows[0].0, rows[rows.len() - 1].0).unwrap();
    for &(addr, rule) in rows {
        writer.row(addr, rule);
    }
    let table = writer.finish().unwrap();
    let Table { exec, rules, words } = table.clone();
    assert_eq!(Table::checked(exec, rules, words).as_ref(), Some(&table));
    table
}

/// Every address of all pages around is looked up.
fn holds(rows: &[(u64, Rule)]) {
    let table = table(rows);
    let (first, last) = (rows[0].0 >> 16, rows[rows.len() - 1].0 >> 16);
    for addr in first.saturating_sub(1) << 16..(last + 2) << 16 {
        let index = rows.partition_point(|row| row.0 <= addr);
        let expected = index.checked_sub(1).map_or(NO_ROW, |row| rows[row].1);
        assert_eq!(table.lookup(addr), expected, "{addr:#x}");
    }
}

#[test]
fn rows_hold_up_to_the_next() {
    holds(&[(0x1_0010, sp(8)), (0x1_0011, sp(16)), (0x1_0040, NO_ROW)]);
}

#[test]
fn code_begins_and_ends_with_a_page() {
    holds(&[(0x3_0000, sp(8)), (0x4_0000, NO_ROW)]);
    holds(&[(0x3_0000, sp(8)), (0x3_ffff, sp(16)), (0x4_0000, NO_ROW)]);
    holds(&[(0, sp(8)), (1, NO_ROW)]);
}

#[test]
fn pages_without_rows_of_their_own_continue() {
    holds(&[
        (0x5_fff0, sp(8)),
        (0x6_0008, sp(16)),
        (0x9_0000, sp(24)),
        (0x9_0001, NO_ROW),
        (0xb_0000, sp(32)),
        (0xd_0000, NO_ROW),
    ]);
}

#[test]
fn a_page_may_be_full() {
    let mut rows: Vec<_> = (0..0x1_0000)
        .map(|low| (0x7_0000 + low, sp(8 + (low as i32 & 7))))
        .collect();
    rows.push((0x8_0000, NO_ROW));
    holds(&rows);
}

#[test]
fn rules_beyond_the_16_bits_of_their_ids_are_unsupported() {
    let known = (1 << 16) - 2;
    let mut rows: Vec<_> = (0..known + 10).map(|n| (2 * n, sp(n as i32))).collect();
    rows.push((2 * (known + 10), NO_ROW));
    let table = table(&rows);
    for (addr, rule) in rows {
        let expected = if (known * 2..(known + 10) * 2).contains(&addr) {
            UNSUPPORTED
        } else {
            rule
        };
        assert_eq!(table.lookup(addr), expected, "{addr:#x}");
    }
}

#[test]
fn no_table_is_larger_than_the_kernel_side_reads() {
    assert!(Writer::new(0x1234, MAX_PAGES << 16).is_ok());
    for (start, end) in [
        (0x1234, (MAX_PAGES << 16) + 1),
        (0, u64::MAX),
        (u64::MAX - 1, u64::MAX),
    ] {
        let error = Writer::new(start, end).err();
        assert!(
            matches!(error, Some(CompileError::TooLarge { .. })),
            "{start:#x}"
        );
    }
}
