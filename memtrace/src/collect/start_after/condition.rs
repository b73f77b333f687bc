//! The conditions after which a recording can begin (`memtrace record --start-after`), as users write them.

use super::growth::{STEP, STEPS};
use crate::units;
use std::{fmt, str::FromStr, time::Duration};

/// What a recording waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StartAfter {
    Time(Duration),
    /// SIGUSR1 to memtrace.
    Signal,
    /// The processes and their descendants have more resident memory than this, bytes.
    Resident(u64),
    /// They have more resident memory than these percent of what they may use.
    Share(u8),
    /// Their resident memory grows, see [`Growth`].
    Growing,
    /// They call this function, native or of Python.
    Function(String),
    /// A call of theirs is at this line of a Python program, or past it in the same function.
    Line {
        file: String,
        line: u32,
    },
}

impl FromStr for StartAfter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "SIGUSR1" => return Ok(Self::Signal),
            "growing" => return Ok(Self::Growing),
            "rss" => {
                return Err("for the shell `>` names a file: quote it, as in `'rss>2G'`".to_owned());
            }
            _ => {}
        }
        if let Some(limit) = text.strip_prefix("rss>") {
            return match limit.strip_suffix('%') {
                Some(percent) => percent
                    .parse()
                    .ok()
                    .filter(|percent| (1..=100).contains(percent))
                    .map(Self::Share)
                    .ok_or_else(|| format!("`{limit}` is not a share from `1%` to `100%`")),
                None => units::parse_size(limit).map(Self::Resident),
            };
        }
        if let Ok(time) = units::parse_duration(text) {
            return Ok(Self::Time(time));
        }
        if let Some((file, line)) = text.rsplit_once(':')
            && let Ok(line) = line.parse()
            && !file.is_empty()
        {
            let file = file.to_owned();
            return Ok(Self::Line { file, line });
        }
        if is_function(text) {
            // As people write any function.
            let name = text.strip_suffix("()").unwrap_or(text);
            return Ok(Self::Function(name.to_owned()));
        }
        Err(format!(
            "`{text}` is not a time such as 30s, `rss>SIZE`, `rss>PERCENT%`, `growing`, \
             `SIGUSR1`, a function or `FILE.py:LINE`"
        ))
    }
}

/// Whether a text can be the name of a function. Otherwise memtrace would wait for a misspelt line or signal.
fn is_function(text: &str) -> bool {
    // Parameters and arguments of templates may be anything.
    let name = text.split(['(', '<']).next().unwrap_or(text);
    name.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && !name.starts_with("SIG")
        && !name.ends_with(".py")
        && !name.contains(|c: char| c.is_whitespace() || "/>%".contains(c))
        && !name.replace("::", "").contains(':')
}

impl fmt::Display for StartAfter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(time) => {
                let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                write!(f, "in {}", units::duration(ns))
            }
            Self::Signal => write!(f, "at SIGUSR1: `kill -USR1 {}`", std::process::id()),
            Self::Resident(bytes) => {
                write!(f, "when more than {} are resident", units::size(*bytes))
            }
            Self::Share(percent) => write!(
                f,
                "when more than {percent} % of the memory that the processes may use are resident"
            ),
            Self::Growing => write!(
                f,
                "when resident memory has been growing for {} s",
                STEP.as_secs() * STEPS as u64
            ),
            Self::Function(name) => write!(f, "when `{name}` is called"),
            Self::Line { file, line } => write!(f, "when a call is at {file}:{line}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_sizes_and_the_signal_are_read() {
        let read = |text: &str| text.parse::<StartAfter>();
        assert_eq!(read("30s"), Ok(StartAfter::Time(Duration::from_secs(30))));
        assert_eq!(read("rss>2G"), Ok(StartAfter::Resident(2 << 30)));
        assert_eq!(read("SIGUSR1"), Ok(StartAfter::Signal));
        assert_eq!(read("rss>80%"), Ok(StartAfter::Share(80)));
        assert_eq!(read("growing"), Ok(StartAfter::Growing));
        let function = |name: &str| Ok(StartAfter::Function(name.to_owned()));
        for name in [
            "step",
            "ns::Trainer::step",
            "Trainer.step",
            "f(char const*, a::b<int>)",
        ] {
            assert_eq!(read(name), function(name));
        }
        assert_eq!(read("step()"), function("step"));
        let line = Ok(StartAfter::Line {
            file: "train.py".to_owned(),
            line: 30,
        });
        assert_eq!(read("train.py:30"), line);
        assert!(read("rss").unwrap_err().contains("quote it"));
        for wrong in [
            "", "rss>", "rss>much", "rss>0%", "rss>101%", "rss>%", "SIGUSR2", "30x", ":5",
            "a.py:x", "a.py", "a b", "rsss>1g", "a/b",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
