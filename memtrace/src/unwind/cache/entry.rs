//! A table as bytes, little-endian: [`MAGIC`], [`VERSION`], then the numbers of
//! first page, pages, rules, words and bytes of build id, four bytes each, then
//! the build id as hex, the rules, the words, and the SHA-256 of all before.

use crate::unwind::Table;
use memtrace_common::{
    unwind::Rule,
    unwind_table::{Exec, exec_state},
};
use sha2::{Digest, Sha256};

const MAGIC: &[u8; 8] = b"mtunwind";

/// To be increased whenever the same file would compile to another table.
pub(super) const VERSION: u32 = 3;

const DIGEST: usize = 32;

pub(super) fn encode(table: &Table, build_id: &str) -> Vec<u8> {
    let counts = [
        VERSION,
        table.exec.first_page,
        table.exec.pages,
        table.rules.len() as u32,
        table.words.len() as u32,
        build_id.len() as u32,
    ];
    let mut bytes = Vec::with_capacity(
        MAGIC.len()
            + size_of_val(&counts)
            + build_id.len()
            + size_of_val(table.rules.as_slice())
            + size_of_val(table.words.as_slice())
            + DIGEST,
    );
    bytes.extend(MAGIC);
    bytes.extend(counts.iter().flat_map(|count| count.to_le_bytes()));
    bytes.extend(build_id.as_bytes());
    for rule in &table.rules {
        bytes.extend([rule.cfa, rule.fp]);
        bytes.extend(rule.fp_offset.to_le_bytes());
        bytes.extend(rule.cfa_offset.to_le_bytes());
    }
    for word in &table.words {
        bytes.extend(word.to_le_bytes());
    }
    let digest = Sha256::digest(&bytes);
    bytes.extend(digest);
    bytes
}

/// `None` unless the bytes are the whole, well-formed table of that build id.
pub(super) fn decode(bytes: &[u8], build_id: &str) -> Option<Table> {
    let (content, digest) = bytes.split_last_chunk::<DIGEST>()?;
    if Sha256::digest(content).as_slice() != digest {
        return None;
    }
    let mut rest = content.strip_prefix(MAGIC)?;
    let mut count = || {
        let (count, after) = rest.split_first_chunk()?;
        rest = after;
        Some(u32::from_le_bytes(*count))
    };
    let version = count()?;
    let exec = Exec {
        state: exec_state::ROWS,
        pad: 0,
        first_page: count()?,
        pages: count()?,
    };
    let [rules, words, id_len] = [count()? as usize, count()? as usize, count()? as usize];
    if version != VERSION || id_len != build_id.len() {
        return None;
    }
    let rest = rest.strip_prefix(build_id.as_bytes())?;
    let (rules, words_bytes) = rest.split_at_checked(rules.checked_mul(size_of::<Rule>())?)?;
    if words_bytes.len() != words.checked_mul(4)? {
        return None;
    }
    let rules = rules.as_chunks().0.iter().map(rule).collect();
    let words = words_bytes.as_chunks().0.iter();
    Table::checked(
        exec,
        rules,
        words.map(|word| u32::from_le_bytes(*word)).collect(),
    )
}

fn rule(&[cfa, fp, low, high, rest @ ..]: &[u8; size_of::<Rule>()]) -> Rule {
    Rule {
        cfa,
        fp,
        fp_offset: i16::from_le_bytes([low, high]),
        cfa_offset: i32::from_le_bytes(rest),
    }
}
