//! Debug files from debuginfod servers (debuginfod(8), HTTP interface
//! `/buildid/BUILDID/debuginfo`), configured by the environment and cached in
//! the folder of elfutils' own client (debuginfod_find_debuginfo(3)).
//!
//! A separate thread fetches one file after the other, so that nothing waits for a server; the
//! requester gets an open file at the end of a channel. A server that did not answer in time is not
//! used again.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, Sender, channel},
    time::Duration,
};

use super::debug_files;
use crate::{http, own_folder};

/// Servers to fetch from, and time limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// `http://` or `https://`, without a slash at the end.
    urls: Vec<String>,
    cache: PathBuf,
    /// Without any progress.
    pub(crate) timeout: Duration,
    /// For one file.
    max_time: Duration,
    max_bytes: u64,
}

/// The defaults if elfutils has no limit.
const MAX_TIME: Duration = Duration::from_secs(600);
const MAX_BYTES: u64 = 8 << 30;
/// elfutils' default of DEBUGINFOD_TIMEOUT.
const TIMEOUT: Duration = Duration::from_secs(90);

/// Why nothing can be fetched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error(
        "DEBUGINFOD_URLS names no server, expected URLs separated by spaces, such as \
         `https://debuginfod.debian.net` (with sudo: `sudo --preserve-env=DEBUGINFOD_URLS`)"
    )]
    NoUrls,
    #[error("no cache directory for debuginfod: set DEBUGINFOD_CACHE_PATH or HOME")]
    NoCache,
    #[error("no cache directory for debuginfod: {0}; set DEBUGINFOD_CACHE_PATH")]
    CannotCache(io::Error),
}

impl Config {
    /// Reads DEBUGINFOD_URLS, DEBUGINFOD_CACHE_PATH, DEBUGINFOD_TIMEOUT and DEBUGINFOD_MAXTIME
    /// (seconds), and DEBUGINFOD_MAXSIZE (bytes).
    ///
    /// # Errors
    /// No server or no cache is named, or the cache is not to be used.
    pub(crate) fn from_env() -> Result<Self, ConfigError> {
        let config =
            Self::from_variables(|name| std::env::var_os(name).filter(|value| !value.is_empty()))?;
        own_folder::make(&config.cache).map_err(ConfigError::CannotCache)?;
        Ok(config)
    }

    fn from_variables(get: impl Fn(&str) -> Option<OsString>) -> Result<Self, ConfigError> {
        let number = |name| get(name)?.to_str()?.parse().ok().filter(|&n: &u64| n > 0);
        let seconds = |name| number(name).map(Duration::from_secs);
        let urls = get("DEBUGINFOD_URLS").unwrap_or_default();
        let urls: Vec<String> = urls
            .to_string_lossy()
            .split_whitespace()
            // Others stand for policies (`ima:enforcing`) or schemes of libcurl.
            .filter(|url| url.starts_with("http://") || url.starts_with("https://"))
            .map(|url| url.trim_end_matches('/').to_owned())
            .collect();
        if urls.is_empty() {
            return Err(ConfigError::NoUrls);
        }
        let cache = get("DEBUGINFOD_CACHE_PATH").map(PathBuf::from).or_else(|| {
            let of_home = || Some(PathBuf::from(get("HOME")?).join(".cache"));
            let caches = get("XDG_CACHE_HOME").map(PathBuf::from).or_else(of_home)?;
            Some(caches.join("debuginfod_client"))
        });
        Ok(Self {
            urls,
            cache: cache.ok_or(ConfigError::NoCache)?,
            timeout: seconds("DEBUGINFOD_TIMEOUT").unwrap_or(TIMEOUT),
            max_time: seconds("DEBUGINFOD_MAXTIME").unwrap_or(MAX_TIME),
            max_bytes: number("DEBUGINFOD_MAXSIZE").unwrap_or(MAX_BYTES),
        })
    }
}

/// Handle of the thread, which ends with it (or with the process, if a server keeps it).
pub(crate) struct Client {
    requests: Sender<Request>,
    timeout: Duration,
}

struct Request {
    build_id: String,
    reply: Sender<Option<File>>,
}

impl Client {
    /// Starts the thread.
    pub(crate) fn start(config: Config) -> io::Result<Self> {
        let (requests, receiver) = channel::<Request>();
        let timeout = config.timeout;
        std::thread::Builder::new()
            .name("memtrace-fetch".to_owned())
            .spawn(move || {
                let mut fetcher = Fetcher::new(config);
                for Request { build_id, reply } in receiver {
                    // The requester may have stopped waiting.
                    let _ = reply.send(fetcher.debug_file(&build_id));
                }
            })?;
        Ok(Self { requests, timeout })
    }

    /// Requests the debug file of a build id (lower-case hex); `None` if it is not a build id.
    pub(crate) fn request(&self, build_id: &str) -> Option<Receiver<Option<File>>> {
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if build_id.len() < 8 || !build_id.bytes().all(is_hex) {
            return None;
        }
        let (reply, receiver) = channel();
        let request = Request {
            build_id: build_id.to_owned(),
            reply,
        };
        self.requests.send(request).ok().map(|()| receiver)
    }

    /// How long to wait for all requested files when nothing else is left to do.
    pub(crate) fn patience(&self) -> Duration {
        self.timeout
    }
}

/// Why one server did not give a file.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("{0}")]
    Http(#[from] ureq::Error),
    #[error("cannot write to the cache: {0}")]
    Cache(io::Error),
    #[error("the transfer was interrupted: {0}")]
    Transfer(io::Error),
    #[error("expected at most {0} bytes (DEBUGINFOD_MAXSIZE), got more")]
    TooLarge(u64),
    #[error("the server sent something other than an ELF file of this build id")]
    WrongFile,
}

impl FetchError {
    /// Whether the same will happen to the next file.
    fn is_lasting(&self) -> bool {
        match self {
            Self::Http(ureq::Error::StatusCode(_)) => false,
            Self::Http(_) | Self::Transfer(_) | Self::Cache(_) => true,
            Self::TooLarge(_) | Self::WrongFile => false,
        }
    }
}

struct Fetcher {
    config: Config,
    agent: ureq::Agent,
}

impl Fetcher {
    fn new(config: Config) -> Self {
        let agent = http::agent(config.timeout, config.max_time);
        Self { config, agent }
    }

    fn debug_file(&mut self, build_id: &str) -> Option<File> {
        let folder = self.config.cache.join(build_id);
        let path = folder.join("debuginfo");
        // elfutils marks a build id that no server had by an empty file, which has no build id.
        if let Some(file) = open_checked(&path, build_id) {
            return Some(file);
        }
        let mut lasting = Vec::new();
        let mut found = None;
        for (index, url) in self.config.urls.iter().enumerate() {
            match self.fetch(url, build_id, &path) {
                Ok(file) => {
                    found = Some(file);
                    break;
                }
                Err(error) if error.is_lasting() => {
                    tracing::warn!("giving up on the debuginfod server `{url}`: {error}");
                    lasting.push(index);
                }
                Err(error) => tracing::debug!("no debug file of {build_id} from `{url}`: {error}"),
            }
        }
        for index in lasting.into_iter().rev() {
            self.config.urls.remove(index);
        }
        found
    }

    fn fetch(&self, url: &str, build_id: &str, path: &Path) -> Result<File, FetchError> {
        let url = format!("{url}/buildid/{build_id}/debuginfo");
        let mut response = self.agent.get(&url).call()?;
        let folder = path.parent().unwrap_or(path);
        fs::create_dir_all(folder)
            .and_then(|()| require_own(folder))
            .map_err(FetchError::Cache)?;
        // Under its name only once it is complete: others use the cache meanwhile.
        let partial = folder.join(format!("debuginfo.{}", std::process::id()));
        let done = self
            .receive(&mut response.body_mut().as_reader(), &partial)
            .and_then(|()| open_checked(&partial, build_id).ok_or(FetchError::WrongFile))
            .and_then(|file| {
                fs::rename(&partial, path).map_err(FetchError::Cache)?;
                Ok(file)
            });
        if done.is_err() {
            // It may not exist.
            let _ = fs::remove_file(&partial);
        }
        done
    }

    fn receive(&self, body: &mut impl Read, partial: &Path) -> Result<(), FetchError> {
        // Left behind by an earlier process of this number, or put there by someone else.
        let _ = fs::remove_file(partial);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(partial)
            .map_err(FetchError::Cache)?;
        let mut left = self.config.max_bytes;
        let mut buffer = vec![0; 1 << 16];
        loop {
            let len = body.read(&mut buffer).map_err(FetchError::Transfer)?;
            if len == 0 {
                return Ok(());
            }
            left = left
                .checked_sub(len as u64)
                .ok_or(FetchError::TooLarge(self.config.max_bytes))?;
            let part = buffer.get(..len).unwrap_or_default();
            file.write_all(part).map_err(FetchError::Cache)?;
        }
    }
}

/// Refuses a folder that another user could fill: root must not write to a place of their choice.
fn require_own(folder: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(folder)?;
    // SAFETY: geteuid has no preconditions and cannot fail.
    let is_own = metadata.is_dir() && metadata.uid() == unsafe { libc::geteuid() };
    if is_own && metadata.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        "the cache directory is writable by another user; set DEBUGINFOD_CACHE_PATH",
    ))
}

fn open_checked(path: &Path, build_id: &str) -> Option<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
        .ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    debug_files::has_build_id(&file, build_id).then_some(file)
}

#[cfg(test)]
mod tests;
