//! Comments in the programs that mark the lines that a verdict has to name.

use anyhow::{Context, Result};
use std::path::Path;

/// The lines of a file that end in the comment `WORD`, or in `WORD: FAULT, …` with this fault.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn lines(path: &Path, word: &str, fault: Option<&str>) -> Result<Vec<u32>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read `{}`", path.display()))?;
    let numbered = text.lines().zip(1..);
    let marked = numbered.filter(|(line, _)| is_marked(line, word, fault));
    Ok(marked.map(|(_, number)| number).collect())
}

fn is_marked(line: &str, word: &str, fault: Option<&str>) -> bool {
    let comments = ["# ", "// ", "/* "];
    let mut comment = comments
        .iter()
        .filter_map(|sign| line.split_once(sign)?.1.strip_prefix(word));
    comment.any(|rest| match (rest.strip_prefix(": "), fault) {
        (None, _) => true,
        (Some(faults), Some(fault)) => faults.split(", ").any(|of| of == fault),
        (Some(_), None) => false,
    })
}
