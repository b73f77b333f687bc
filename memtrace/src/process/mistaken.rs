//! What else the name of a program that cannot be launched may be: a process, or a script.

use std::path::Path;

/// Interpreters by the ending of scripts.
const INTERPRETERS: [(&str, &str); 5] = [
    ("js", "node"),
    ("pl", "perl"),
    ("py", "python3"),
    ("rb", "ruby"),
    ("sh", "sh"),
];

/// What to do instead, for the end of an error; empty if nothing is known.
pub(super) fn remedy(program: &Path, is_executable: bool) -> String {
    let name = program.display();
    let pid: Option<u32> = program.to_str().and_then(|name| name.parse().ok());
    if pid.is_some_and(|pid| Path::new("/proc").join(pid.to_string()).exists()) {
        return format!("; to attach to a process: `-p {name}`");
    }
    if !program.is_file() {
        return String::new();
    }
    if is_executable {
        return format!("; it is in this folder: `./{name}`");
    }
    let ending = program.extension().unwrap_or_default();
    let interpreter = INTERPRETERS.iter().find(|(of, _)| ending == *of);
    match interpreter {
        Some((_, interpreter)) => {
            format!("; run it with its interpreter: `{interpreter} {name}`")
        }
        None => "; make it executable (`chmod +x`), or run a script with its interpreter".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_and_scripts_are_recognised() {
        let own = std::process::id().to_string();
        let process = remedy(Path::new(&own), false);
        assert_eq!(process, format!("; to attach to a process: `-p {own}`"));
        assert_eq!(remedy(Path::new("4294967295"), false), "");
        assert_eq!(remedy(Path::new("no-such-program"), false), "");

        let folder = tempfile::tempdir().unwrap();
        assert_eq!(remedy(folder.path(), false), "");
        let script = folder.path().join("leak.py");
        std::fs::write(&script, "").unwrap();
        let name = script.display();
        let run = format!("; run it with its interpreter: `python3 {name}`");
        assert_eq!(remedy(&script, false), run);
        let here = format!("; it is in this folder: `./{name}`");
        assert_eq!(remedy(&script, true), here);
        let other = folder.path().join("data");
        std::fs::write(&other, "").unwrap();
        assert!(remedy(&other, false).contains("chmod +x"));
    }
}
