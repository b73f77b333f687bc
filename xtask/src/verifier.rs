//! `cargo xtask verifier`: the work of the kernel's verifier for each program, and the memory of
//! the maps.

use crate::{command, vm::Session};
use anyhow::{Result, anyhow, bail};
use serde_json::Value;

/// Most instructions that the verifier may process for one program. The kernel's own limit is a
/// million, and versions count differently.
const LIMIT: u64 = 200_000;

/// The program of uprobe sessions (Linux 6.13), by its name in the kernel.
const SESSION: &str = "malloc_session";

/// Lists what was loaded; else keeps the reason, with the end of the verifier's log.
const SCRIPT: &str = r#"cd /tmp
"$MEMTRACE_BIN" check --loaded > "$OUT/loaded.json" 2> "$OUT/refused" ||
    tail -n 40 memtrace-verifier-*.log >> "$OUT/refused""#;

/// `cargo xtask verifier`.
///
/// # Errors
/// When not root, the programs cannot be loaded, or one exceeds the limit.
pub(crate) fn run(kernels: &[String]) -> Result<()> {
    command::need_root("the verifier's report")?;
    command::build_workspace()?;
    let mut columns = Vec::new();
    for name in ["host"]
        .into_iter()
        .chain(kernels.iter().map(String::as_str))
    {
        let session = Session::run(name, SCRIPT)?;
        let loaded: Value = serde_json::from_str(&session.read("loaded.json")?).map_err(|_| {
            let reason = session.read("refused").unwrap_or_default();
            anyhow!(
                "the kernel side does not load on {}:\n{reason}",
                session.kernel
            )
        })?;
        columns.push((session.kernel, loaded));
    }
    let list = |loaded: &Value, key: &str| {
        loaded
            .get(key)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    let name = |entry: &Value| entry["name"].as_str().unwrap_or_default().to_owned();
    let number = |entry: &Value, key: &str| entry[key].as_u64().unwrap_or(0);
    let Some((_, here)) = columns.first() else {
        bail!("no kernel");
    };

    print!("{:<18}{:>18}", "program", "translated bytes");
    for (kernel, _) in &columns {
        print!("{kernel:>28}");
    }
    println!();
    let mut beyond = Vec::new();
    let mut programs: Vec<Value> = Vec::new();
    for (_, loaded) in &columns {
        for program in list(loaded, "programs") {
            // Each kernel has a few that others do not need.
            if !programs.iter().any(|known| name(known) == name(&program)) {
                programs.push(program);
            }
        }
    }
    for program in &programs {
        let name_here = name(program);
        print!("{name_here:<18}{:>18}", number(program, "translated_bytes"));
        for (kernel, loaded) in &columns {
            let there = list(loaded, "programs");
            let there = there.iter().find(|there| name(there) == name_here);
            let verified = there.map_or(0, |there| number(there, "verified_instructions"));
            // Kernels report it since Linux 5.16.
            let is_legacy = loaded["legacy"] == Value::Bool(true);
            if there.is_some() && is_legacy {
                print!("{:>28}", "loaded");
                continue;
            }
            print!("{verified:>28}");
            // Not loaded where the kernel lacks what it needs.
            let needless = name_here == SESSION && loaded["sessions"] == Value::Bool(false);
            // None: it was not loaded.
            if verified > LIMIT || (verified == 0 && !needless) {
                beyond.push(format!("{name_here} on {kernel}: {verified}"));
            }
        }
        println!();
    }
    print!("{:<36}", "load time");
    for (_, loaded) in &columns {
        print!("{:>25} ms", number(loaded, "load_ms"));
    }
    println!("\n\n{:<18}{:>12}{:>18}", "map", "entries", "kernel bytes");
    let maps = list(here, "maps");
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
            "more than {LIMIT} instructions verified, or none: {}",
            beyond.join(", ")
        );
    }
    Ok(())
}
