mod files;
mod libraries;
mod oracle;
#[cfg(target_arch = "x86_64")]
mod shapes;
mod writer;

use super::{Table, rules::NO_ROW};
use memtrace_common::{unwind::Rule, unwind_table::RowSearch};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

impl Table {
    /// The rule for an address as the file means it, searched as the kernel side does.
    pub(in crate::unwind) fn lookup(&self, vaddr: u64) -> Rule {
        self.search(vaddr).unwrap_or(NO_ROW)
    }

    fn search(&self, vaddr: u64) -> Option<Rule> {
        let page = (vaddr >> 16).checked_sub(self.exec.first_page.into())?;
        if page >= self.exec.pages.into() {
            return None;
        }
        let word = |index: u32| self.words.get(index as usize).copied();
        let (first, end) = (word(page as u32)?, word(page as u32 + 1)?);
        let mut search = RowSearch::new(first, end, vaddr);
        for _ in 0..RowSearch::STEPS {
            if search.narrow(word(search.probe())?) {
                break;
            }
        }
        self.rules.get(search.rule() as usize).copied()
    }
}

/// xorshift64 (Marsaglia 2003).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// A system library, by its name.
pub(super) fn library(name: &str) -> PathBuf {
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"]
        .iter()
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("{name} is missing; `cargo xtask setup` installs it"))
}

/// The output of a command, without surrounding white space.
fn said_by(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| {
        panic!("cannot run {command:?}: {error}; `cargo xtask setup` installs it")
    });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap().trim().into()
}

/// A file that `compiler` makes of `source`, in the language that `extension` stands for.
fn build(compiler: &str, extension: &str, source: &str, options: &[&str]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let [input, output] =
        [format!("in.{extension}"), "out".into()].map(|name| folder.path().join(name));
    fs::write(&input, source).unwrap();
    said_by(
        Command::new(compiler)
            .args(options)
            .arg("-o")
            .arg(&output)
            .arg(&input),
    );
    fs::read(output).unwrap()
}
