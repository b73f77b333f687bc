//! `cargo xtask verifier`: what the kernel's verifier has to do for each
//! program, and the memory of the maps.

use crate::command::{self, build_memtrace};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::process::Command;

/// Most instructions that the verifier may have to look at for one program. The kernel's
/// own limit is a million, and it counts differently from version to version.
const LIMIT: u64 = 100_000;

/// `cargo xtask verifier`.
///
/// # Errors
/// When not root, the programs cannot be loaded, or one exceeds the limit.
pub(crate) fn run() -> Result<()> {
    command::need_root("the verifier's report")?;
    let memtrace = build_memtrace(false)?;
    let loaded = command::output(Command::new(memtrace).args(["check", "--loaded"]))?;
    let loaded: Value = serde_json::from_str(&loaded).context("`check --loaded` gave no JSON")?;
    let list = |key: &str| {
        loaded
            .get(key)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    let name = |entry: &Value| entry["name"].as_str().unwrap_or_default().to_owned();
    let number = |entry: &Value, key: &str| entry[key].as_u64().unwrap_or(0);

    println!(
        "{:<18}{:>18}{:>24}",
        "program", "translated bytes", "instructions verified"
    );
    let mut beyond = Vec::new();
    let programs = list("programs");
    for program in &programs {
        let verified = number(program, "verified_instructions");
        println!(
            "{:<18}{:>18}{verified:>24}",
            name(program),
            number(program, "translated_bytes")
        );
        if verified > LIMIT {
            beyond.push(name(program));
        }
    }
    println!("\n{:<18}{:>12}{:>18}", "map", "entries", "kernel bytes");
    let maps = list("maps");
    for map in &maps {
        println!(
            "{:<18}{:>12}{:>18}",
            name(map),
            number(map, "entries"),
            number(map, "bytes")
        );
    }
    let total: u64 = maps.iter().map(|map| number(map, "bytes")).sum();
    println!("{:<18}{:>12}{total:>18}", "all", "");
    if programs.is_empty() {
        bail!("no program was loaded");
    }
    if !beyond.is_empty() {
        bail!(
            "more than {LIMIT} instructions verified: {}",
            beyond.join(", ")
        );
    }
    Ok(())
}
