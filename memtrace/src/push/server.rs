//! The servers that profiles can be sent to, and their protocols.

use std::{fmt, io::Write, str::FromStr, time::Duration};

use flate2::{Compression, write::GzEncoder};
use prost::Message;

use super::message::{
    ExportResponse, Label, LabelSet, PushRequest, PushSeries, RawSample, WriteRawRequest,
    WriteSeries,
};
use crate::{
    escape::clean,
    http,
    recording::{Origin, Snapshot},
    render,
    view::Filter,
};

/// Without any progress.
const LIMIT: Duration = Duration::from_secs(10);
/// For one profile: the end of a recording waits for at most two.
const WHOLE: Duration = Duration::from_secs(30);
/// Bytes of an answer that are read.
const ANSWER: u64 = 1 << 16;
/// Characters of an answer that are shown.
const SHOWN: usize = 200;

/// The variable with the value of the header `Authorization`.
const AUTHORIZATION: &str = "MEMTRACE_PUSH_AUTHORIZATION";

/// A server, such as `pyroscope=http://localhost:4040`.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    engine: Engine,
    /// Without a slash at the end.
    url: String,
    headers: Vec<Header>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Engine {
    Pyroscope,
    Parca,
    Otlp,
}

/// A header of each request. Its value may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Header {
    name: String,
    value: String,
}

/// Why a server has no profile.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Render(#[from] render::Error),
    #[error("cannot compress the profile: {0}")]
    Compress(std::io::Error),
    #[error("{0}")]
    Http(#[from] ureq::Error),
    #[error("the server answers {status}{}: {}", of(answer), advice(*status))]
    Refused { status: u16, answer: String },
    #[error("the server refuses the profile: {0}")]
    Rejected(String),
}

fn of(answer: &str) -> String {
    match answer {
        "" => String::new(),
        answer => format!(" (`{answer}`)"),
    }
}

fn advice(status: u16) -> String {
    match status {
        401 | 403 => format!("set {AUTHORIZATION} to `Bearer TOKEN` or `Basic BASE64`"),
        404 | 405 | 415 => "check that it is the server that `--push` names".to_owned(),
        413 => "raise the server's limit for the size of a profile".to_owned(),
        429 => "raise `--every`".to_owned(),
        _ => "see the server's log".to_owned(),
    }
}

impl Server {
    /// With headers, and `Authorization` from the environment.
    pub(crate) fn with_headers(mut self, headers: Vec<Header>) -> Self {
        self.headers = headers;
        let from_environment = std::env::var(AUTHORIZATION).ok();
        self.headers.extend(from_environment.map(|value| Header {
            name: "Authorization".into(),
            value,
        }));
        self
    }

    /// Sends the sites of a snapshot; false if none has any memory.
    pub(super) fn send(&self, snapshot: &Snapshot) -> Result<bool, Error> {
        let all = Filter::default();
        let mut profile = Vec::new();
        let sites = match self.engine {
            Engine::Pyroscope | Engine::Parca => render::pprof(&mut profile, snapshot, &all)?,
            Engine::Otlp => render::otlp(&mut profile, snapshot, &all)?,
        };
        if sites == 0 {
            return Ok(false);
        }
        match self.engine {
            Engine::Pyroscope => self.push(profile, snapshot)?,
            Engine::Parca => self.write_raw(profile, snapshot)?,
            Engine::Otlp => self.export(&profile)?,
        }
        Ok(true)
    }

    /// Pyroscope's `PusherService`, in Connect's protocol.
    fn push(&self, raw_profile: Vec<u8>, snapshot: &Snapshot) -> Result<(), Error> {
        let series = PushSeries {
            labels: labels(snapshot),
            samples: vec![RawSample { raw_profile }],
        };
        let request = PushRequest {
            series: vec![series],
        };
        let headers = [("Content-Type", "application/proto")];
        let path = "/push.v1.PusherService/Push";
        self.post(path, &headers, &request.encode_to_vec())?;
        Ok(())
    }

    /// Parca's `ProfileStoreService`, in gRPC-Web's protocol, which needs no HTTP/2.
    fn write_raw(&self, raw_profile: Vec<u8>, snapshot: &Snapshot) -> Result<(), Error> {
        let series = WriteSeries {
            labels: Some(LabelSet {
                labels: labels(snapshot),
            }),
            samples: vec![RawSample { raw_profile }],
        };
        let request = WriteRawRequest {
            series: vec![series],
            normalized: true,
        };
        let message = request.encode_to_vec();
        let mut framed = vec![0];
        framed.extend(
            u32::try_from(message.len())
                .unwrap_or(u32::MAX)
                .to_be_bytes(),
        );
        framed.extend(message);
        let headers = [
            ("Content-Type", "application/grpc-web+proto"),
            ("X-Grpc-Web", "1"),
        ];
        let path = "/parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw";
        let answer = self.post(path, &headers, &framed)?;
        let in_header = answer.grpc_status.filter(|status| status != "0");
        match in_header.or_else(|| grpc_failure(&answer.body)) {
            None => Ok(()),
            Some(failure) => Err(Error::Rejected(failure)),
        }
    }

    /// OTLP over HTTP.
    fn export(&self, profile: &[u8]) -> Result<(), Error> {
        let mut compressed = GzEncoder::new(Vec::new(), Compression::default());
        let compressed = compressed
            .write_all(profile)
            .and_then(|()| compressed.finish())
            .map_err(Error::Compress)?;
        let headers = [
            ("Content-Type", "application/x-protobuf"),
            ("Content-Encoding", "gzip"),
        ];
        let answer = self.post("/v1development/profiles", &headers, &compressed)?;
        // Collectors may answer in another encoding, but only to other requests.
        let answer = ExportResponse::decode(&*answer.body).unwrap_or_default();
        match answer.partial_success {
            Some(part) if part.rejected_profiles > 0 => {
                Err(Error::Rejected(shown(part.error_message.as_bytes())))
            }
            _ => Ok(()),
        }
    }

    fn post(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<Answer, Error> {
        let agent = http::agent(LIMIT, WHOLE);
        let mut request = agent.post(format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        for Header { name, value } in &self.headers {
            request = request.header(name, value);
        }
        let request = request.config().http_status_as_error(false).build();
        let mut response = request.send(body)?;
        let status = response.status();
        let grpc_status = response.headers().get("grpc-status");
        let grpc_status = grpc_status.and_then(|value| Some(value.to_str().ok()?.to_owned()));
        let body = response.body_mut().with_config().limit(ANSWER);
        // Without a body the status still counts.
        let body = body.read_to_vec().unwrap_or_default();
        match status.is_success() {
            true => Ok(Answer { body, grpc_status }),
            false => Err(Error::Refused {
                status: status.as_u16(),
                answer: shown(&body),
            }),
        }
    }
}

struct Answer {
    body: Vec<u8>,
    grpc_status: Option<String>,
}

/// The status in the trailers of an answer, unless it is 0. They are a frame of their own, with lines as in HTTP.
fn grpc_failure(mut body: &[u8]) -> Option<String> {
    while let Some((head, rest)) = body.split_at_checked(5) {
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        let (frame, rest) = rest.split_at_checked(length as usize)?;
        let trailers = String::from_utf8_lossy(frame);
        let value = |name: &str| {
            let mut lines = trailers.lines().filter_map(|line| line.split_once(':'));
            let (_, value) = lines.find(|(of, _)| of.eq_ignore_ascii_case(name))?;
            Some(value.trim().to_owned())
        };
        if head[0] & 0x80 != 0 {
            let status = value("grpc-status").filter(|status| status != "0")?;
            let message = value("grpc-message").unwrap_or_default();
            return Some(shown(format!("gRPC status {status} {message}").as_bytes()));
        }
        body = rest;
    }
    None
}

/// Text of a server, to print.
fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let text: String = text.trim().chars().take(SHOWN).collect();
    clean(&text)
}

/// Labels of a profile: its kind, the program that the recording is about, and the host. Others are labels of samples.
fn labels(snapshot: &Snapshot) -> Vec<Label> {
    let rows = || snapshot.processes.iter().map(|process| &process.row);
    let first = rows().find(|row| row.origin != Origin::Child);
    let program = first.or_else(|| rows().next());
    let program = program.map_or("unknown", |row| &row.comm);
    let labels = [
        ("__name__", "memory"),
        ("service_name", program),
        ("host", &snapshot.meta.host),
    ];
    let labels = labels.map(|(name, value)| Label {
        name: name.into(),
        value: clean(value),
    });
    labels.into()
}

impl FromStr for Server {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{}` does not name a server: give `pyroscope=URL`, `parca=URL` or `otlp=URL`, such as \
                 `pyroscope=http://localhost:4040`",
                text.split('@').next_back().unwrap_or_default()
            )
        };
        let (engine, url) = text.split_once('=').ok_or_else(wrong)?;
        let engine = match engine {
            "pyroscope" => Engine::Pyroscope,
            "parca" => Engine::Parca,
            "otlp" => Engine::Otlp,
            _ => return Err(wrong()),
        };
        let host = url
            .strip_prefix("http://")
            .or_else(|| url.strip_prefix("https://"))
            .filter(|rest| !rest.is_empty() && !rest.starts_with('/'))
            .ok_or_else(wrong)?;
        if host.contains('@') {
            return Err(format!(
                "a URL with a name or a password would be visible to all users: leave it out, and set {AUTHORIZATION}"
            ));
        }
        let authority = host.split('/').next().unwrap_or_default();
        let port = match authority.rsplit_once(':') {
            // An IPv6 address without a port.
            Some((_, port)) if !authority.ends_with(']') => port,
            _ => "80",
        };
        if host.contains(['?', '#', ' ']) || port.parse::<u16>().is_err() {
            return Err(wrong());
        }
        Ok(Self {
            engine,
            url: url.trim_end_matches('/').to_owned(),
            headers: Vec::new(),
        })
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

impl FromStr for Header {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once(':');
        let (name, value) = parts.ok_or("expected a header such as `X-Scope-OrgID: team`")?;
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err("expected the name of a header before the colon".into());
        }
        if value.chars().any(char::is_control) {
            return Err("expected the value of a header on one line".into());
        }
        Ok(Self {
            name: name.into(),
            value: value.trim().into(),
        })
    }
}

/// Without the value.
impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: …", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_an_engine_and_a_url() {
        let parse = |text: &str| text.parse::<Server>();
        let server = parse("pyroscope=https://host.example/prefix/").unwrap();
        assert_eq!(server.engine, Engine::Pyroscope);
        assert_eq!(server.to_string(), "https://host.example/prefix");
        assert_eq!(
            parse("parca=http://[::1]:7070").unwrap().engine,
            Engine::Parca
        );
        for url in ["http://h:4318", "http://h", "https://[::1]/x:y"] {
            assert_eq!(parse(&format!("otlp={url}")).unwrap().engine, Engine::Otlp);
        }
        for wrong in [
            "",
            "http://localhost:4040",
            "pyroscope",
            "pyroscope=",
            "pyroscope=localhost:4040",
            "pyroscope=http://",
            "pyroscope=http:///x",
            "grafana=http://h",
            "otlp=http://h/?x=1",
            "otlp=http://h:99999",
            "otlp=http://h:port/x",
        ] {
            let error = parse(wrong).unwrap_err();
            assert!(error.contains("pyroscope=URL"), "{wrong}: {error}");
        }
        for secret in ["otlp=http://me:hunter2@h", "me:hunter2@h"] {
            let error = parse(secret).unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_header_hides_its_value() {
        let header: Header = "X-Scope-OrgID: te:am ".parse().unwrap();
        assert_eq!((&*header.name, &*header.value), ("X-Scope-OrgID", "te:am"));
        assert!(!format!("{header:?}").contains("te:am"));
        for wrong in ["", "x", ": x", "a b: c"] {
            assert!(wrong.parse::<Header>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn trailers_have_the_status_of_grpc() {
        let frame = |kind: u8, text: &str| {
            let length = (text.len() as u32).to_be_bytes();
            [&[kind][..], &length, text.as_bytes()].concat()
        };
        let ok = [frame(0, ""), frame(0x80, "grpc-status: 0\r\n")].concat();
        assert_eq!(grpc_failure(&ok), None);
        let trailers = "Grpc-Status:16\r\ngrpc-message: no token\r\n";
        let refused = frame(0x80, trailers);
        let failure = grpc_failure(&refused).unwrap();
        assert_eq!(failure, "gRPC status 16 no token");
        assert_eq!(grpc_failure(b"<html>"), None);
    }
}
