//! The outcome of one check, with the finding and its remedy.

use std::fmt;

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Ok,
    Missing,
    /// Unknown: the check itself could not be made.
    Unknown,
}

impl Outcome {
    pub(super) fn name(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::Missing => "missing",
            Outcome::Unknown => "unknown",
        }
    }
}

/// One thing that tracing needs or profits from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    pub name: &'static str,
    pub outcome: Outcome,
    /// Whether tracing is impossible without it.
    pub required: bool,
    /// The finding, in a few words.
    pub detail: String,
    /// The fix; present if something is missing or could be better.
    pub help: Option<String>,
}

impl Check {
    pub(super) fn new(name: &'static str, outcome: Outcome, detail: impl Into<String>) -> Self {
        Self {
            name,
            outcome,
            required: true,
            detail: detail.into(),
            help: None,
        }
    }

    pub(super) fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        Self::new(name, Outcome::Ok, detail)
    }

    pub(super) fn missing(
        name: &'static str,
        detail: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self::new(name, Outcome::Missing, detail).help(help)
    }

    pub(super) fn unknown(name: &'static str, detail: impl Into<String>) -> Self {
        Self::new(name, Outcome::Unknown, detail)
    }

    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    pub(super) fn optional(mut self) -> Self {
        self.required = false;
        self
    }
}

/// One line, for an error message.
impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.detail)?;
        match &self.help {
            Some(help) => write!(f, "; {help}"),
            None => Ok(()),
        }
    }
}
