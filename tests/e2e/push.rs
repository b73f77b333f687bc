//! Profiles of a running recording, sent to servers of this process that speak the protocols of Pyroscope, Parca and
//! OpenTelemetry.

use flate2::read::GzDecoder;
use memtrace_tests::{
    Fixture, deadline,
    profiles::{Totals, otlp, pprof},
    record::{BEGUN, command, report},
    running::Running,
    targets,
};
use prost::Message;
use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::Command,
    sync::mpsc::{Receiver, Sender, channel},
};

const TOKEN: &str = "Bearer not-to-be-found-anywhere";
const TENANT: &str = "tenant-that-is-not-recorded";

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct RawSample {
    #[prost(bytes = "vec", tag = "1")]
    raw_profile: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct PyroscopeRequest {
    #[prost(message, repeated, tag = "1")]
    series: Vec<PyroscopeSeries>,
}

#[derive(Clone, PartialEq, Message)]
struct PyroscopeSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<RawSample>,
}

#[derive(Clone, PartialEq, Message)]
struct ParcaRequest {
    #[prost(message, repeated, tag = "2")]
    series: Vec<ParcaSeries>,
    #[prost(bool, tag = "3")]
    normalized: bool,
}

#[derive(Clone, PartialEq, Message)]
struct ParcaSeries {
    #[prost(message, optional, tag = "1")]
    labels: Option<LabelSet>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<RawSample>,
}

#[derive(Clone, PartialEq, Message)]
struct LabelSet {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
}

struct Request {
    path: String,
    /// By name in lower case.
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Request {
    fn read(stream: &TcpStream) -> Option<Request> {
        let mut stream = BufReader::new(stream);
        let mut line = || {
            let mut line = String::new();
            stream.read_line(&mut line).ok()?;
            Some(line.trim_end().to_owned())
        };
        let first = line()?;
        let path = first.split(' ').nth(1)?.to_owned();
        let mut headers = BTreeMap::new();
        while let Some((name, value)) = line()?.split_once(": ") {
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        let length = headers.get("content-length")?.parse().ok()?;
        let mut body = vec![0; length];
        stream.read_exact(&mut body).ok()?;
        Some(Request {
            path,
            headers,
            body,
        })
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).expect(name)
    }
}

/// A server: takes a request, and returns its answer's type and body with what was sent.
type Protocol = fn(&Request) -> (&'static str, Vec<u8>, Totals);

fn check_labels(labels: &[Label]) {
    let labels = labels.iter();
    let labels: BTreeMap<&str, &str> = labels.map(|of| (&*of.name, &*of.value)).collect();
    assert_eq!(labels["__name__"], "memory");
    assert!(labels["service_name"].starts_with("exact"), "{labels:?}");
}

fn only_profile(samples: &[RawSample]) -> Totals {
    assert_eq!(samples.len(), 1);
    pprof::read(&samples[0].raw_profile).totals()
}

fn pyroscope(request: &Request) -> (&'static str, Vec<u8>, Totals) {
    assert_eq!(request.path, "/push.v1.PusherService/Push");
    let kind = "application/proto";
    assert_eq!(request.header("content-type"), kind);
    let sent = PyroscopeRequest::decode(&*request.body).expect("a request");
    check_labels(&sent.series[0].labels);
    (kind, vec![], only_profile(&sent.series[0].samples))
}

fn parca(request: &Request) -> (&'static str, Vec<u8>, Totals) {
    let path = "/parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw";
    assert_eq!(request.path, path);
    let kind = "application/grpc-web+proto";
    assert_eq!(request.header("content-type"), kind);
    let (head, message) = request.body.split_at(5);
    assert_eq!(head[0], 0, "not compressed");
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
    assert_eq!(length as usize, message.len());
    let sent = ParcaRequest::decode(message).expect("a request");
    assert!(sent.normalized);
    let series = &sent.series[0];
    check_labels(&series.labels.as_ref().expect("labels").labels);
    let trailers = b"grpc-status: 0\r\n";
    let answer = [
        &[0, 0, 0, 0, 0][..],
        &[0x80, 0, 0, 0, trailers.len() as u8],
        trailers,
    ];
    (kind, answer.concat(), only_profile(&series.samples))
}

fn collector(request: &Request) -> (&'static str, Vec<u8>, Totals) {
    assert_eq!(request.path, "/v1development/profiles");
    let kind = "application/x-protobuf";
    assert_eq!(request.header("content-type"), kind);
    assert_eq!(request.header("content-encoding"), "gzip");
    let mut bytes = Vec::new();
    let mut unpacked = GzDecoder::new(&*request.body);
    unpacked.read_to_end(&mut bytes).expect("gzip");
    (kind, vec![], otlp::read(&bytes).totals())
}

/// Answers requests until the listener is gone; the first with an error.
fn serve(listener: &TcpListener, protocol: Protocol, accepted: &Sender<Totals>) {
    for (number, stream) in listener.incoming().enumerate() {
        let mut stream = stream.expect("a connection");
        let Some(request) = Request::read(&stream) else {
            continue;
        };
        assert_eq!(request.header("authorization"), TOKEN);
        assert_eq!(request.header("x-scope-orgid"), TENANT);
        let (kind, body, totals) = protocol(&request);
        let status = match number {
            0 => "503 Service Unavailable",
            _ => "200 OK",
        };
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).expect("it listens");
        stream.write_all(&body).expect("it listens");
        if number > 0 && accepted.send(totals).is_err() {
            return;
        }
    }
}

fn server(protocol: Protocol) -> (String, Receiver<Totals>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (sender, receiver) = channel();
    std::thread::spawn(move || serve(&listener, protocol, &sender));
    (url, receiver)
}

/// Allocations are sent once, although the first attempt fails, and live memory with each profile.
fn pushed_to(engine: &str, protocol: Protocol) {
    let fixture = Fixture::new();
    let (url, accepted) = server(protocol);
    let truth = fixture.path("truth");
    let library = targets::library("constructor.c");
    let mut target = Command::new(targets::program("exact.c"));
    let mut target = Running::start(target.arg("hold").args([&truth, &library]));
    target.await_stdout("ready");
    let file = fixture.path("pushed.mtr");
    let mut record = command(["record", "--no-fold", "--every", "1s", "-o"]);
    record
        .arg(&file)
        .arg(format!("--push={engine}={url}"))
        .arg("--push-header")
        .arg(format!("X-Scope-OrgID: {TENANT}"))
        .arg("-p")
        .arg(target.pid().to_string())
        .env("MEMTRACE_PUSH_AUTHORIZATION", TOKEN);
    let record = Running::start(&mut record);
    record.await_stderr(BEGUN);
    target.send("x");
    target.await_stdout("done");

    let mut profiles = vec![accepted.recv_timeout(deadline()).expect("a profile")];
    record.signal(libc::SIGINT);
    let finished = record.wait().expect_code(0);
    profiles.extend(accepted.try_iter());
    assert!(profiles.len() >= 2, "one more at the end");

    let mut expected = Totals::new();
    for of in report(&file).totals {
        let figures = [of.live_bytes, of.alloc_bytes, of.live_count, of.alloc_count];
        expected.insert((of.tgid, of.layer), figures);
    }
    let allocated = |totals: &Totals| {
        let figures = totals.iter().map(|(of, figures)| (of.clone(), figures));
        let figures = figures.map(|(of, figures)| (of, [figures[1], figures[3]]));
        let figures: BTreeMap<_, _> = figures.filter(|(_, of)| *of != [0, 0]).collect();
        figures
    };
    let mut sent: BTreeMap<(u32, String), [u64; 2]> = BTreeMap::new();
    for (of, [bytes, count]) in profiles.iter().flat_map(&allocated) {
        let sum = sent.entry(of).or_default();
        sum[0] += bytes;
        sum[1] += count;
    }
    assert_eq!(sent, allocated(&expected));
    let key = (target.pid(), "heap".to_owned());
    let last = profiles.last().expect("a profile")[&key];
    let end = expected[&key];
    assert!(end[0] > 0);
    assert_eq!((last[0], last[2]), (end[0], end[2]));

    let stderr = &finished.stderr;
    assert_eq!(stderr.matches("no profile sent").count(), 1, "{stderr}");
    let count = profiles.len();
    let sentence = format!("{count} profiles sent to `{url}`; 1 attempt failed");
    assert!(stderr.contains(&sentence), "{stderr}");
    let recording = fs::read(&file).expect("it was written");
    for secret in [TOKEN, TENANT] {
        let found = |text: &[u8]| text.windows(secret.len()).any(|of| of == secret.as_bytes());
        assert!(!found(&recording) && !found(stderr.as_bytes()), "{secret}");
    }
}

#[test]
fn to_pyroscope() {
    pushed_to("pyroscope", pyroscope);
}

#[test]
fn to_parca() {
    pushed_to("parca", parca);
}

#[test]
fn to_a_collector_of_opentelemetry() {
    pushed_to("otlp", collector);
}

/// Records a command that ends at once; only its end is sent.
fn begin_short(file: &Path, address: SocketAddr) -> Running {
    let mut record = command(["record", "-o"]);
    record
        .arg(file)
        .arg(format!("--push=otlp=http://{address}"))
        .args(["--", "true"]);
    Running::start(&mut record)
}

#[test]
fn a_server_that_is_not_there_does_not_stop_a_recording() {
    let fixture = Fixture::new();
    // Its port is free again.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let file = fixture.path("pushed.mtr");
    let finished = begin_short(&file, address).wait().expect_code(0);
    let stderr = &finished.stderr;
    assert!(stderr.contains("0 profiles sent"), "{stderr}");
    assert!(stderr.contains("also the last one"), "{stderr}");
    assert!(!report(&file).totals.is_empty());
}

#[test]
fn a_signal_ends_the_wait_for_a_server_that_does_not_answer() {
    let fixture = Fixture::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let file = fixture.path("pushed.mtr");
    let record = begin_short(&file, address);
    let connection = listener.accept().expect("a connection at the end");
    record.signal(libc::SIGINT);
    let finished = record.wait().expect_code(0);
    let stderr = &finished.stderr;
    assert!(stderr.contains("the last profile was not sent"), "{stderr}");
    assert!(!report(&file).totals.is_empty());
    drop(connection);
}
