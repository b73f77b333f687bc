//! `cargo xtask verdicts --snapshots`: recordings for memtrace's test of first screens, small and
//! with little about the machine that made them.

use crate::command::{PACKAGE, cargo, output, root, run};
use anyhow::{Context, Result};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Removes facts about the machine that no verdict on these programs depends on: names of host and
/// kernel, figures of the machine and of control groups, and most facts with their texts.
const STRIP: &str = "
    CREATE TEMP TABLE gone AS SELECT process, field, value FROM fact JOIN string ON string.id = field
        WHERE text <> 'malloc.provider' AND text NOT LIKE 'gpu.%.memory';
    DELETE FROM fact WHERE (process, field) IN (SELECT process, field FROM gone);
    DELETE FROM string WHERE id IN (
        SELECT field FROM gone UNION SELECT value FROM gone
        EXCEPT SELECT * FROM (
            SELECT function FROM frame UNION SELECT module FROM frame
            UNION SELECT build_id FROM frame UNION SELECT file FROM frame
            UNION SELECT unresolved FROM frame UNION SELECT thread FROM stack
            UNION SELECT field FROM fact UNION SELECT value FROM fact));
    UPDATE site_history SET peak_ns = 0;
    DELETE FROM system;
    DELETE FROM cgroup;
    DELETE FROM in_cgroup;
    UPDATE recording SET meta = json_set(meta, '$.host', '-', '$.kernel', '-');
    VACUUM;
";

/// Where the test looks for them.
fn folder() -> PathBuf {
    root().join("tests/snapshots")
}

/// Keeps a recording for the test.
pub(super) fn keep(recording: &Path, name: &str) -> Result<()> {
    let stripped = recording.with_extension("stripped");
    std::fs::copy(recording, &stripped)
        .with_context(|| format!("cannot copy `{}`", recording.display()))?;
    output(Command::new("sqlite3").arg(&stripped).arg(STRIP)).context("apt-get install sqlite3")?;
    let kept = folder().join(format!("{name}.mtr.zst"));
    let mut zstd = Command::new("zstd");
    zstd.args(["-19", "--force", "--quiet", "-o"]);
    output(zstd.arg(kept).arg(&stripped)).context("apt-get install zstd")?;
    Ok(())
}

/// Makes the test write the first screens of the kept recordings.
pub(super) fn write_texts() -> Result<()> {
    let mut test = cargo();
    test.args(["test", "--package", PACKAGE, "--lib", "first_screen"]);
    run(test.env("MEMTRACE_SNAPSHOTS", "write"))
}

#[cfg(test)]
mod tests {
    use super::folder;
    use crate::verdicts::{pairs, scenarios::SCENARIOS};

    #[test]
    fn every_program_has_a_snapshot_of_its_first_screen() {
        let scenarios = SCENARIOS.iter().map(|scenario| scenario.name);
        for name in pairs::snapshot_names().chain(scenarios.map(str::to_owned)) {
            for extension in ["mtr.zst", "txt"] {
                let file = folder().join(format!("{name}.{extension}"));
                assert!(file.exists(), "`{}` is missing", file.display());
            }
        }
    }
}
