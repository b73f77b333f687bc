//! Suppressions as LeakSanitizer reads them
//! (<https://clang.llvm.org/docs/AddressSanitizer.html#suppressing-memory-leaks>):
//! a line `leak:PATTERN` hides the leaks whose stack has PATTERN in the name of
//! a function, a source file or a module.

use crate::frames::Frame;

/// Patterns of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Suppressions {
    patterns: Vec<String>,
}

/// A line that does not have the format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: `{text}`, expected `leak:PATTERN`, a comment (`#`) or nothing")]
pub(crate) struct NoSuppression {
    /// From 1.
    pub line: usize,
    pub text: String,
}

impl Suppressions {
    /// Reads a suppressions file's text.
    ///
    /// # Errors
    ///
    /// At the first line that is not empty, a comment or a suppression of leaks.
    pub(crate) fn parse(text: &str) -> Result<Suppressions, NoSuppression> {
        let mut patterns = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match line.strip_prefix("leak:") {
                Some(pattern) if !pattern.is_empty() => patterns.push(pattern.into()),
                _ => {
                    return Err(NoSuppression {
                        line: number,
                        text: line.into(),
                    });
                }
            }
        }
        Ok(Suppressions { patterns })
    }

    /// The first pattern that a stack matches.
    pub(crate) fn matching(&self, frames: &[&Frame]) -> Option<&str> {
        let names = || {
            frames.iter().flat_map(|frame| {
                [&frame.function, &frame.file, &frame.module]
                    .into_iter()
                    .flatten()
            })
        };
        let mut patterns = self.patterns.iter();
        patterns
            .find(|pattern| names().any(|name| matches(pattern, name)))
            .map(String::as_str)
    }
}

/// Whether `pattern` is found in `text`. `*` stands for anything, `^` at the beginning and `$` at the
/// end hold it to those of the text.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, from_start) = match pattern.strip_prefix('^') {
        Some(rest) => (rest, true),
        None => (pattern, false),
    };
    let (pattern, to_end) = match pattern.strip_suffix('$') {
        Some(rest) => (rest, true),
        None => (pattern, false),
    };
    let mut parts: Vec<&str> = pattern.split('*').collect();
    let Some(last) = parts.pop() else {
        return true;
    };
    let mut rest = text;
    let mut anchored = from_start;
    for part in parts {
        let found = match anchored {
            true => rest.starts_with(part).then_some(0),
            false => rest.find(part),
        };
        match found {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
        anchored = false;
    }
    match (anchored, to_end) {
        (true, true) => rest == last,
        (true, false) => rest.starts_with(last),
        (false, true) => rest.ends_with(last),
        (false, false) => rest.contains(last),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::fixture::native;

    #[test]
    fn patterns_are_found_anywhere_unless_held() {
        for (pattern, text, expected) in [
            ("cache", "my_cache_fill", true),
            ("^cache", "my_cache_fill", false),
            ("^my*fill$", "my_cache_fill", true),
            ("fill$", "my_cache_filler", false),
            ("a*b*c", "xxaxxbxxcxx", true),
            ("a*c*b", "xxaxxbxxcxx", false),
            ("^exact$", "exact", true),
            ("^exact$", "exactly", false),
            ("*", "anything", true),
            ("ü*", "grün", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} in {text}");
        }
    }

    #[test]
    fn functions_files_and_modules_are_looked_at() {
        let text = "# known\n\nleak:libfoo.so\n  leak:Cache::fill  \n";
        let suppressions = Suppressions::parse(text).unwrap();
        let found = |frame: Frame| suppressions.matching(&[&frame]).map(str::to_owned);
        let by_module = found(native("f", "/usr/lib/libfoo.so.2"));
        assert_eq!(by_module.as_deref(), Some("libfoo.so"));
        let by_function = found(native("Cache::fill(int)", "/bin/x"));
        assert_eq!(by_function.as_deref(), Some("Cache::fill"));
        assert_eq!(found(native("main", "/bin/x")), None);
        assert_eq!(suppressions.matching(&[]), None);
    }

    #[test]
    fn other_lines_are_refused_with_their_number() {
        let error = Suppressions::parse("leak:a\nrace:b\n").unwrap_err();
        assert_eq!(error.line, 2);
        assert!(error.to_string().contains("`race:b`"), "{error}");
        assert!(Suppressions::parse("leak:\n").is_err());
    }
}
