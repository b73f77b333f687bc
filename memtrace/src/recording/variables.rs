//! Environment variables among the facts: whether all names were recorded, and the hashes in place
//! of unrecorded values.

use sha2::{Digest, Sha256};

use crate::file::hex;

/// The field that records whether the names of all variables of a process were recorded. Recordings
/// of earlier versions lack it.
pub(crate) const NAMES: &str = "environment.names";

/// All names were recorded: a variable that is missing was not set.
pub(crate) const ALL: &str = "all";
/// Some names are missing: not text, overwritten by the program, or beyond the limit.
pub(crate) const IN_PART: &str = "in part";
/// The environment could not be read.
pub(crate) const UNREADABLE: &str = "unreadable";

/// Stands for a value that is not empty and not recorded.
pub(crate) const WITHHELD: &str = "(set)";

/// Bytes of the hash that replaces a value. Each hash fits one value in 65,536: a list of common
/// passwords has several that fit, but a guess among a few values can be confirmed. So secrets
/// recognised by their names get no hash.
pub(crate) const SHORT: usize = 2;

/// Variables that differ from one session to the next. They name users, hosts and folders.
const OF_SESSIONS: &[&str] = &[
    "_",
    "COLUMNS",
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
    "HOME",
    "HOSTNAME",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "LINES",
    "LOGNAME",
    "LS_COLORS",
    "MAIL",
    "OLDPWD",
    "PWD",
    "SHLVL",
    "SSH_AUTH_SOCK",
    "SSH_CLIENT",
    "SSH_CONNECTION",
    "SSH_TTY",
    "SUDO_COMMAND",
    "SUDO_GID",
    "SUDO_UID",
    "SUDO_USER",
    "SYSTEMD_EXEC_PID",
    "TERM",
    "TERM_PROGRAM",
    "TERM_SESSION_ID",
    "TMUX",
    "TMUX_PANE",
    "USER",
    "WINDOWID",
    "XDG_RUNTIME_DIR",
    "XDG_SESSION_ID",
];

/// Whether a variable differs between sessions for reasons of its own.
pub(crate) fn is_of_session(name: &str) -> bool {
    OF_SESSIONS.contains(&name)
}

/// `#` and the first `bytes` of the SHA-256 of `memtrace`, a zero byte and `text`: the same on all machines.
pub(crate) fn hash(text: &str, bytes: usize) -> String {
    let digest = Sha256::digest(format!("memtrace\0{text}"));
    format!("#{}", hex(digest.get(..bytes).unwrap_or(&digest)))
}

/// Stands for the value of a variable.
pub(crate) fn hashed(name: &str, value: &str) -> String {
    hash(&format!("{name}={value}"), SHORT)
}

/// Whether `value` is a result of [`hashed`].
pub(crate) fn is_hashed(value: &str) -> bool {
    let digits = value.strip_prefix('#').unwrap_or_default();
    digits.len() == 2 * SHORT && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_equal_values_of_a_name_have_equal_hashes() {
        // printf 'memtrace\0A=1' | sha256sum
        assert_eq!(hashed("A", "1"), "#6d7c");
        assert_ne!(hashed("A", "1"), hashed("A", "2"));
        assert_ne!(hashed("A", "1"), hashed("B", "1"));
        assert!(is_hashed(&hashed("A", "")));
        for other in ["", "#", "1234", "#12345678", "#12g4", "(set)"] {
            assert!(!is_hashed(other), "{other}");
        }
    }
}
