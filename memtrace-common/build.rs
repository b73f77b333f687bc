//! Numbers the ABI: a hash of this crate's sources without comments, blank lines and tests.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

#[path = "src/hash.rs"]
mod hash;

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=src");
    let sources = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("src");
    let mut files = Vec::new();
    collect(&sources, &mut files)?;
    files.sort();
    let mut abi = hash::SEED;
    for file in files {
        let text = fs::read_to_string(&file)?;
        let code = text
            .split("#[cfg(test)]\nmod tests")
            .next()
            .unwrap_or(&text);
        for line in code.lines().map(str::trim) {
            if !line.is_empty() && !line.starts_with("//") {
                abi = line
                    .bytes()
                    .fold(abi, |hash, byte| hash::mix(hash, byte.into()));
            }
        }
    }
    println!("cargo::rustc-env=MEMTRACE_ABI={abi:016x}");
    Ok(())
}

/// The sources of a folder, but for files of tests.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && !path.ends_with("tests.rs")
        {
            files.push(path);
        }
    }
    Ok(())
}
