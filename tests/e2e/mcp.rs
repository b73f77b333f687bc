//! `memtrace mcp` answers a client with the conclusions of the other commands, in a few KB.

use memtrace_tests::{
    Fixture,
    record::{self, Record},
    running::Running,
    targets, until,
};
use serde_json::{Value, json};
use std::path::Path;

/// Bytes of an answer: its text and its data.
const ANSWER: usize = 12_000;

/// A client that has said hello.
struct Client {
    server: Running,
    requests: u64,
}

impl Client {
    fn start(options: &[&str]) -> Self {
        let server = Running::start(record::command(["mcp"]).args(options));
        let mut client = Self {
            server,
            requests: 0,
        };
        let hello = client.request(
            "initialize",
            json!({
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": { "name": "test", "version": "1" },
            }),
        );
        assert_eq!(hello["protocolVersion"], "2025-06-18");
        assert_eq!(hello["serverInfo"]["name"], "memtrace");
        client
            .server
            .send("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
        client
    }

    fn send(&mut self, method: &str, params: Value) {
        self.requests += 1;
        let id = self.requests;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.server.send(&format!("{request}\n"));
    }

    #[track_caller]
    fn request(&mut self, method: &str, params: Value) -> Value {
        self.send(method, params);
        let line = self
            .server
            .await_stdout(&format!("{{\"id\":{},", self.requests));
        let mut answer: Value = serde_json::from_str(&line).expect("JSON");
        answer["result"].take()
    }

    /// The text and the data of a tool's answer.
    #[track_caller]
    fn call(&mut self, tool: &str, arguments: Value) -> (String, Value) {
        let mut result = self.request(
            "tools/call",
            json!({ "name": tool, "arguments": arguments }),
        );
        assert_eq!(result["isError"], false, "{result}");
        let size = result.to_string().len();
        assert!(size < ANSWER, "{tool}: {size} bytes");
        let text = result["content"][0]["text"].as_str().expect("text");
        (text.to_owned(), result["structuredContent"].take())
    }

    /// Closes the connection; everything that was written to standard output was a message.
    #[track_caller]
    fn end(mut self) {
        self.server.close_stdin();
        let finished = self.server.wait().expect_code(0);
        for line in finished.stdout.lines() {
            let message: Value = serde_json::from_str(line).expect("a message a line");
            assert_eq!(message["jsonrpc"], "2.0");
        }
    }
}

/// A recording of a Python program whose list grows.
fn of_sessions(fixture: &Fixture) -> std::path::PathBuf {
    let mut command = targets::python("docs/sessions.py");
    let server = Running::start(command.arg("10000000"));
    server.await_stdout("ready ");
    let record = Record::attach(fixture, server.pid(), &["-d", "20s"]);
    let file = record.file.clone();
    record.running.wait().expect_code(0);
    file
}

fn name(path: &Path) -> &str {
    path.to_str().expect("a path of ASCII")
}

#[test]
fn answers_are_those_of_the_other_commands() {
    let fixture = Fixture::new();
    let file = of_sessions(&fixture);
    let file = name(&file);
    let mut client = Client::start(&[]);
    let tools = client.request("tools/list", json!({}));
    let tools: Vec<_> = tools["tools"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|tool| tool["name"].as_str().expect("a name").to_owned())
        .collect();
    assert_eq!(tools, ["diagnose", "sites", "stack", "holders", "compare"]);

    let diagnosis = record::memtrace(["diagnose", "--format", "json", file]).expect_code(0);
    let diagnosis: Value = serde_json::from_str(&diagnosis.stdout).expect("JSON");
    let expected = diagnosis["verdicts"]
        .as_array()
        .expect("verdicts")
        .iter()
        .find(|of| of["scope"] == "process")
        .expect("a verdict on the process");
    // Patterns, not a file of them: a client that names recordings reads no others.
    for (suppressions, wrong) in [
        (json!("/etc/shadow"), "expected a sequence"),
        (json!(["/etc/shadow"]), "leak:PATTERN"),
    ] {
        let arguments = json!({ "file": file, "suppressions": suppressions });
        let params = json!({ "name": "diagnose", "arguments": arguments });
        let refused = client.request("tools/call", params);
        assert_eq!(refused["isError"], true, "{refused}");
        assert!(refused.to_string().contains(wrong), "{refused}");
    }
    let hidden = json!({ "file": file, "suppressions": ["leak:*"] });
    let (_, data) = client.call("diagnose", hidden);
    assert_eq!(data["entries"][0]["lines"], json!([]), "{data}");
    let (text, data) = client.call("diagnose", json!({ "file": file }));
    let finding = &data["entries"][0];
    assert_eq!(finding["class"], expected["class"], "{data}");
    assert_eq!(finding["grade"], expected["grade"], "{data}");
    assert_eq!(finding["bytes_per_s"], expected["bytes_per_s"], "{data}");
    let line = &finding["lines"][0];
    let source = name(&targets::source("docs/sessions.py")).to_owned();
    assert_eq!(line["allocated_by"]["file"], source.as_str(), "{data}");
    let kept_by = line["kept_by"]["what"].as_str().expect("a holder");
    assert!(kept_by.contains("sessions"), "{data}");
    assert!(text.contains("allocated by: "), "{text}");
    assert!(text.contains(kept_by), "{text}");

    let report = record::report(Path::new(file));
    let heap = report.sites.iter().filter(|site| site.layer == "heap");
    let live: Vec<u64> = heap.map(|site| site.counts.live_bytes).collect();
    let heap = json!({ "file": file, "by": "site", "layer": "heap", "at": "end", "limit": 1 });
    let (_, sites) = client.call("sites", heap);
    assert_eq!(
        sites["entries"][0]["live_bytes"],
        json!(live.iter().max()),
        "{sites}"
    );
    assert_eq!(sites["entries"].as_array().map(Vec::len), Some(1));
    assert_eq!(sites["left_out"], live.len() - 1, "{sites}");
    let (text, _) = client.call("sites", json!({ "file": file, "match": "sessions.py" }));
    assert!(text.contains("sessions.py:"), "{text}");

    let (text, _) = client.call("stack", json!({ "file": file, "match": "sessions.py" }));
    assert!(text.contains("sessions.py:"), "{text}");
    let (text, holders) = client.call("holders", json!({ "file": file }));
    assert!(text.contains("__main__"), "{text}");
    assert!(holders["entries"][0]["held"].is_array(), "{holders}");

    let (text, same) = client.call("compare", json!({ "baselines": [file], "new": file }));
    assert!(text.contains("no site grows faster"), "{text}");
    assert_eq!(same["entries"], json!([]), "{same}");
    client.end();
}

#[test]
fn errors_are_answers_that_say_what_to_do() {
    let fixture = Fixture::new();
    let other = fixture.path("other.mtr");
    std::fs::write(&other, "no recording").expect("a file");
    let mut client = Client::start(&[]);
    for (tool, arguments, words) in [
        ("diagnose", json!({}), "`file` is missing"),
        (
            "diagnose",
            json!({ "file": name(&other) }),
            "is not a memtrace recording",
        ),
        ("sites", json!({ "file": "/no/such.mtr" }), "/no/such.mtr"),
    ] {
        let call = json!({ "name": tool, "arguments": arguments });
        let result = client.request("tools/call", call);
        assert_eq!(result["isError"], true, "{result}");
        let text = result["content"][0]["text"].as_str().expect("text");
        assert!(text.contains(words), "{text}");
    }
    client.server.send("{\n");
    let answer = client.server.await_stdout("{\"error\":");
    assert!(answer.contains("-32700"), "{answer}");
    client.end();
}

#[test]
fn a_recording_ends_with_its_client_and_the_process_goes_on() {
    let fixture = Fixture::new();
    let mut command = targets::python("docs/sessions.py");
    let mut target = Running::start(command.arg("10000000"));
    target.await_stdout("ready ");
    let mut client = Client::start(&["--allow-record"]);
    for (arguments, wrong) in [
        (
            json!({ "pid": 1, "seconds": 1, "output": "/etc/cron.d/x" }),
            ".mtr",
        ),
        (json!({ "pid": 1, "seconds": 0 }), "seconds"),
    ] {
        let refused = client.request(
            "tools/call",
            json!({ "name": "record", "arguments": arguments }),
        );
        assert!(refused.to_string().contains(wrong), "{refused}");
    }
    let short = fixture.path("short.mtr");
    let arguments = json!({ "pid": target.pid(), "seconds": 1, "output": name(&short) });
    let (text, data) = client.call("record", arguments.clone());
    assert!(text.contains("next: call `diagnose`"), "{text}");
    assert_eq!(data["file"], name(&short));
    assert!(!record::report(&short).sites.is_empty());
    let again = client.request(
        "tools/call",
        json!({ "name": "record", "arguments": arguments }),
    );
    assert_eq!(again["isError"], true, "an existing file: {again}");

    let long = fixture.path("long.mtr");
    let arguments = json!({ "pid": target.pid(), "seconds": 600, "output": name(&long) });
    client.send(
        "tools/call",
        json!({ "name": "record", "arguments": arguments }),
    );
    until("sites in the recording", || {
        let report = record::try_report(&long).ok()?;
        (!report.sites.is_empty()).then_some(())
    });
    // Others are answered meanwhile.
    client.request("ping", json!({}));
    client.end();
    assert!(!record::report(&long).sites.is_empty());
    let complete = record::memtrace(["report", name(&long)]).expect_code(0);
    assert!(
        !complete.stdout.contains("INCOMPLETE"),
        "{}",
        complete.stdout
    );
    target.expect_alive();
}
