//! Redacts data that must not be recorded: secrets always, names and paths on request. A short hash
//! takes their place, so that equal values still compare as equal.

use crate::recording::variables::{self, SHORT};

/// Parts of names whose values are secrets, whatever they look like.
const SECRET_NAMES: &[&str] = &[
    "TOKEN",
    "SECRET",
    "PASSW",
    "PASSPHRASE",
    "CREDENTIAL",
    "AUTHORIZATION",
    "APIKEY",
    "ACCESSKEY",
    "AUTHKEY",
    "PRIVATEKEY",
    "_PWD",
];

/// Words of such names.
const SECRET_WORDS: &[&str] = &["KEY", "KEYS", "PASS"];

/// Beginnings of tokens of well-known services.
const SECRET_STARTS: &[&str] = &[
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "hf_",
    "sk-",
    "sk_live_",
    "rk_live_",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "xoxs-",
    "AKIA",
    "ASIA",
    "AIza",
    "ya29.",
    "eyJ",
    "npm_",
    "pypi-",
    "dop_v1_",
    "shpat_",
    "SG.",
];

/// Shortest token that such a beginning makes a secret.
const SHORTEST_TOKEN: usize = 12;
/// Shortest run of letters and digits that is taken for random.
const SHORTEST_RANDOM: usize = 16;
/// Shortest number in hexadecimal that is: that of an MD5, and of many API keys.
const SHORTEST_HEX: usize = 32;

/// Separators of words within a value.
const SEPARATORS: &[char] = &[
    ' ', '\t', '\n', ',', ';', ':', '=', '&', '?', '"', '\'', '|', '(', ')', '@', '#', '<', '>',
];

/// Folders that are the same everywhere and reveal no names.
const PUBLIC: &[&str] = &[
    "/usr/", "/lib/", "/lib64/", "/lib32/", "/bin/", "/sbin/", "/etc/", "/proc/", "/sys/", "/dev/",
];

/// Folders below which a path is public again. Paths of different machines are matched from here on.
const PUBLIC_AGAIN: &[&str] = &["/site-packages/", "/dist-packages/", "/lib/python3."];

/// Bytes of the hash of a folder: files of different folders must not become one.
const FOLDER: usize = 4;

/// Replaces secrets, and with [`Redactor::everything`] also host names, user names and paths.
#[derive(Clone, Debug, Default)]
pub(crate) struct Redactor {
    everything: bool,
    /// Names to replace wherever they are.
    words: Vec<String>,
}

impl Redactor {
    /// One that replaces host names, user names and paths too.
    pub(crate) fn everything() -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let users = ["SUDO_USER", "USER", "LOGNAME"].map(std::env::var);
        Self::with_names(
            users
                .into_iter()
                .flatten()
                .chain([host.trim().to_owned()])
                .collect(),
        )
    }

    fn with_names(mut words: Vec<String>) -> Self {
        // Shorter ones would match in unrelated words.
        words.retain(|word| word.len() >= 3 && word != "root" && word != "localhost");
        words.sort_by_key(|word| std::cmp::Reverse(word.len()));
        words.dedup();
        Self {
            everything: true,
            words,
        }
    }

    /// Whether host names, user names and paths are replaced.
    pub(crate) fn is_everything(&self) -> bool {
        self.everything
    }

    /// Whether not even a hash of this variable is recorded: it would confirm a guess at a weak password or,
    /// with [`Redactor::everything`], at a user's name.
    pub(crate) fn withholds(&self, name: &str) -> bool {
        is_secret_name(name) || self.everything && variables::is_of_session(name)
    }

    /// The value of something called `name`, without secrets.
    pub(crate) fn value(&self, name: &str, value: &str) -> String {
        if is_secret_name(name) && !value.is_empty() {
            return hash(value);
        }
        self.text(value)
    }

    /// Text of several words, paths and URLs, without secrets.
    pub(crate) fn text(&self, text: &str) -> String {
        if text.contains("-----BEGIN ") {
            return hash(text);
        }
        let text = without_credentials(text);
        let mut clean = String::with_capacity(text.len());
        let mut after_secret_name = false;
        for word in text.split_inclusive(SEPARATORS) {
            let (token, separator) = match word.char_indices().next_back() {
                Some((at, last)) if SEPARATORS.contains(&last) => word.split_at(at),
                _ => (word, ""),
            };
            if after_secret_name && !token.is_empty() {
                clean += &hash(token);
            } else {
                clean += &self.token(token);
            }
            // `password=…`, `api_key: …`
            after_secret_name = is_secret_name(token) && matches!(separator, "=" | ":")
                || after_secret_name && token.is_empty();
            clean += separator;
        }
        clean
    }

    /// The arguments of a command, including values after an option such as `--token`.
    pub(crate) fn arguments(&self, arguments: &[String]) -> Vec<String> {
        let mut before = "";
        arguments
            .iter()
            .map(|argument| {
                let option = std::mem::replace(&mut before, argument);
                if option.starts_with('-') && !option.contains('=') && !argument.starts_with('-') {
                    self.value(option, argument)
                } else {
                    self.text(argument)
                }
            })
            .collect()
    }

    /// A path: unchanged, or with its folder replaced if it may contain a name. Parts below a
    /// folder of Python packages stay.
    pub(crate) fn path(&self, path: &str) -> String {
        if !self.everything || PUBLIC.iter().any(|public| path.starts_with(public)) {
            return path.to_owned();
        }
        let kept = PUBLIC_AGAIN
            .iter()
            .filter_map(|name| path.rfind(name))
            .max()
            .or_else(|| path.rfind('/'));
        match kept {
            None | Some(0) => self.words(path),
            Some(at) => {
                let (folder, rest) = path.split_at(at);
                let folder = variables::hash(folder, FOLDER);
                format!("/{folder}{}", self.words(rest))
            }
        }
    }

    /// A name of a host or a user.
    pub(crate) fn name(&self, name: &str) -> String {
        match self.everything && !name.is_empty() {
            true => hash(name),
            false => name.to_owned(),
        }
    }

    fn token(&self, token: &str) -> String {
        if looks_secret(token) {
            hash(token)
        } else if self.everything && token.contains('/') {
            self.path(token)
        } else {
            self.words(token)
        }
    }

    fn words(&self, text: &str) -> String {
        let words = self.words.iter();
        words.fold(text.to_owned(), |text, word| {
            text.replace(word, &hash(word))
        })
    }
}

fn hash(value: &str) -> String {
    variables::hash(value, SHORT)
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let mut words = name.split(|c: char| !c.is_ascii_alphanumeric());
    SECRET_NAMES.iter().any(|secret| name.contains(secret))
        || words.any(|word| SECRET_WORDS.contains(&word))
}

/// `SCHEME://USER:PASSWORD@HOST` with a hash in the place of user and password.
fn without_credentials(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        clean += before;
        let end = after.find(['/', '?', '#', ' ', '"', '\'']);
        let (authority, tail) = after.split_at(end.unwrap_or(after.len()));
        match authority.rsplit_once('@') {
            Some((user, host)) => clean += &format!("{}@{host}", hash(user)),
            None => clean += authority,
        }
        rest = tail;
    }
    clean + rest
}

fn looks_secret(token: &str) -> bool {
    let known = SECRET_STARTS.iter().any(|start| token.starts_with(start));
    if known && token.len() >= SHORTEST_TOKEN {
        return true;
    }
    // Paths have hexadecimal names too (Nix), and each part is short or public.
    if token.starts_with(['/', '.', '~']) {
        return false;
    }
    let parts = token.split(|c: char| !c.is_ascii_alphanumeric());
    parts.into_iter().any(|part| {
        let is_hex = part.len() >= SHORTEST_HEX && part.bytes().all(|b| b.is_ascii_hexdigit());
        is_hex || looks_random(part)
    })
}

/// Whether letters and digits alternate as in no word or version.
fn looks_random(part: &str) -> bool {
    let class = |byte: u8| match byte {
        b'0'..=b'9' => 0,
        b'a'..=b'z' => 1,
        _ => 2,
    };
    let classes: Vec<_> = part.bytes().map(class).collect();
    let digits = classes.iter().filter(|class| **class == 0).count();
    let changes = classes.windows(2).filter(|pair| pair[0] != pair[1]).count();
    part.len() >= SHORTEST_RANDOM && digits >= 2 && digits < part.len() - 1 && changes >= 5
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apparent_secrets_are_not_kept() {
        let secrets = Redactor::default();
        for (text, secret) in [
            ("ghp_16C7e42F292c6912E7710c838347Ae178B4a", "16C7e42F"),
            ("x=hf_abcdefghijklmnop", "abcdefgh"),
            ("https://me:hunter2@example.org/simple", "hunter2"),
            ("https://example.org/?sig=a1B2c3D4e5F6g7H8i9", "a1B2c3"),
            ("postgres://u:p%40ss@h/db a", "p%40ss"),
            ("key: 9e107d9d372bb6826bd81d3542a419d6", "9e107d"),
            ("AKIAIOSFODNN7EXAMPLE", "IOSFOD"),
            ("wJalrXUtnFEMI/K7MDENG1/bPxRfiCYEX2AMPLE3KEY", "bPxRfi"),
            ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0", "hbGci"),
            ("-----BEGIN PRIVATE KEY-----\nabc", "abc"),
            ("password=short", "short"),
            ("a,api_key: short", "short"),
        ] {
            let clean = secrets.text(text);
            assert!(!clean.contains(secret), "{text} → {clean}");
            assert!(clean.contains('#'), "{text} → {clean}");
            assert_eq!(clean, secrets.text(text), "equal values stay equal");
        }
        assert_ne!(
            secrets.text("hf_abcdefghijklm"),
            secrets.text("hf_abcdefghijkln")
        );
        assert!(!secrets.value("TORCH_API_TOKEN", "short").contains("short"));
    }

    #[test]
    fn names_of_secrets_are_known() {
        let redactor = Redactor::default();
        for name in [
            "DB_PASSWORD",
            "MYSQL_PWD",
            "SMTP_PASS",
            "SIGNING_KEY",
            "AWS_ACCESS_KEY_ID",
            "apiKey",
            "GITHUB_TOKEN",
            "MEMTRACE_PUSH_AUTHORIZATION",
        ] {
            assert!(redactor.withholds(name), "{name}");
        }
        for name in ["PWD", "OLDPWD", "HOME", "KEYBOARD", "BYPASS", "UCX_IB_PKEY"] {
            assert!(!redactor.withholds(name), "{name}");
        }
        let redactor = Redactor::everything();
        assert!(redactor.withholds("HOME") && redactor.withholds("PWD"));
        assert!(!redactor.withholds("SHELL"));
    }

    #[test]
    fn explanatory_values_are_kept() {
        for text in [
            "expandable_segments:True,garbage_collection_threshold:0.8",
            "glibc.cpu.hwcaps=-AVX512F,-AVX2_Usable:glibc.malloc.arena_max=2",
            "AVX512_CORE_AMX_FP16",
            "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2",
            "/nix/store/7gx4kiv5m0i7d7qkixq2cwzbr10lvxwc-glibc-2.27/lib/libc.so.6",
            "granularity=fine,compact,1,0",
            "cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64",
            "https://download.pytorch.org/whl/cu118",
            "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
            "0,1,2,3",
            "",
        ] {
            assert_eq!(Redactor::default().text(text), text);
        }
    }

    #[test]
    fn an_argument_after_a_secret_option_is_not_kept() {
        let arguments = ["run", "--token", "abc", "--password=abc", "-v", "abc"].map(String::from);
        let clean = Redactor::default().arguments(&arguments);
        assert_eq!((clean[1].as_str(), clean[5].as_str()), ("--token", "abc"));
        assert!(
            !clean[2].contains("abc") && !clean[3].contains("abc"),
            "{clean:?}"
        );
    }

    #[test]
    fn everything_hides_names_and_folders() {
        let redactor = Redactor::with_names(vec!["alice".into(), "box17".into(), "x".into()]);
        for text in [
            "/home/alice/lib/libx.so.1",
            "LD=/srv/alice:/opt/box17/a",
            "box17",
            "of alice",
            "https://box17/alice",
        ] {
            let clean = redactor.text(text);
            assert!(
                !clean.contains("alice") && !clean.contains("box17"),
                "{clean}"
            );
        }
        assert!(
            redactor
                .path("/home/alice/lib/libx.so.1")
                .ends_with("/libx.so.1")
        );
        assert_eq!(redactor.path("/usr/lib/libc.so.6"), "/usr/lib/libc.so.6");
        let package = redactor.path("/home/alice/v/lib/python3.11/site-packages/numpy/a.py");
        assert!(package.ends_with("/site-packages/numpy/a.py"), "{package}");
        assert!(!package.contains("alice"));
        let library = redactor.path("/home/alice/py/lib/python3.11/json/decoder.py");
        assert!(
            library.ends_with("/lib/python3.11/json/decoder.py"),
            "{library}"
        );
        assert_ne!(redactor.name("box17"), "box17");
        let plain = Redactor::default();
        assert_eq!(plain.path("/home/alice/a"), "/home/alice/a");
        assert_eq!(plain.name("box17"), "box17");
    }
}
