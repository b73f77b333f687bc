//! The protocol: JSON-RPC 2.0, a message a line, with the methods of a server that has tools
//! (https://modelcontextprotocol.io/specification/2025-06-18).

use std::{
    io::{self, BufRead, Read, Write},
    sync::{
        Mutex, PoisonError,
        mpsc::{Receiver, channel},
    },
};

use serde_json::{Map, Value, json};

use super::tools::Tools;
use crate::escape::in_json;

/// Versions of the protocol, the preferred one first. They are alike in everything that is used here.
const VERSIONS: [&str; 3] = ["2025-06-18", "2025-03-26", "2024-11-05"];
/// Bytes of a message.
const LONGEST: u64 = 1 << 20;

const INSTRUCTIONS: &str = "memtrace records which memory a Linux process allocates and never frees. Begin with \
    `diagnose`: it names what grows, the line that allocates it and the line that keeps it. `sites`, `stack` and \
    `holders` go into detail, `compare` finds what grows on one machine only.";

/// Codes of errors (https://www.jsonrpc.org/specification).
#[derive(Clone, Copy)]
enum Code {
    Parse = -32700,
    InvalidRequest = -32600,
    MethodNotFound = -32601,
    InvalidParams = -32602,
}

/// Why a request has no result.
struct Refusal(Code, String);

/// Answers messages until `input` ends. Calls of tools are answered in their order by a thread of its own, so that a
/// long one does not keep others waiting.
///
/// # Errors
/// Input or output fails.
pub(super) fn serve(
    mut input: impl BufRead,
    output: impl Write + Send,
    tools: &Tools,
) -> io::Result<()> {
    let output = Mutex::new(output);
    let current = Mutex::new(None);
    std::thread::scope(|scope| {
        let (calls, waiting) = channel();
        let caller = scope.spawn(|| call_all(waiting, &output, &current, tools));
        let read = loop {
            let message = match next(&mut input) {
                Ok(Some(Ok(message))) => message,
                Ok(Some(Err(refusal))) => {
                    if let Err(error) = send(&output, &refused(Value::Null, refusal)) {
                        break Err(error);
                    }
                    continue;
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            if is_cancelled(&message, &current) {
                tools.stop_recording();
            } else if message.is_array() || message["method"] == "tools/call" {
                // It ends early only if the output fails, which its result says.
                let _ = calls.send(message);
            } else if let Some(answer) = answer(&message, tools)
                && let Err(error) = send(&output, &answer)
            {
                break Err(error);
            }
        };
        drop(calls);
        tools.stop();
        let called = caller
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        read.and(called)
    })
}

fn call_all(
    waiting: Receiver<Value>,
    output: &Mutex<impl Write>,
    current: &Mutex<Option<Value>>,
    tools: &Tools,
) -> io::Result<()> {
    for message in waiting {
        *lock(current) = message.get("id").cloned();
        let answer = answer(&message, tools);
        *lock(current) = None;
        answer.map_or(Ok(()), |answer| send(output, &answer))?;
    }
    Ok(())
}

/// Whether a message cancels the call that is being answered.
fn is_cancelled(message: &Value, current: &Mutex<Option<Value>>) -> bool {
    message["method"] == "notifications/cancelled"
        && lock(current)
            .as_ref()
            .is_some_and(|id| message["params"]["requestId"] == *id)
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The next message that is not empty; `None` at the end.
fn next(input: &mut impl BufRead) -> io::Result<Option<Result<Value, Refusal>>> {
    loop {
        let mut line = Vec::new();
        input.by_ref().take(LONGEST).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(None);
        }
        if line.len() as u64 == LONGEST && !line.ends_with(b"\n") {
            input.skip_until(b'\n')?;
            let why = format!("the message is longer than {LONGEST} bytes");
            return Ok(Some(Err(Refusal(Code::InvalidRequest, why))));
        }
        if !line.trim_ascii().is_empty() {
            let message = serde_json::from_slice(&line);
            return Ok(Some(
                message.map_err(|error| Refusal(Code::Parse, error.to_string())),
            ));
        }
    }
}

fn send(output: &Mutex<impl Write>, answer: &Value) -> io::Result<()> {
    let mut output = lock(output);
    writeln!(output, "{}", in_json(&answer.to_string()))?;
    output.flush()
}

/// The answer to a message, or to each of a batch; notifications and answers have none.
fn answer(message: &Value, tools: &Tools) -> Option<Value> {
    match message {
        Value::Array(batch) if !batch.is_empty() => {
            let answers: Vec<Value> = batch.iter().filter_map(|of| one(of, tools)).collect();
            (!answers.is_empty()).then(|| answers.into())
        }
        of => one(of, tools),
    }
}

fn one(message: &Value, tools: &Tools) -> Option<Value> {
    let invalid = |why: &str| refused(Value::Null, Refusal(Code::InvalidRequest, why.to_owned()));
    let Value::Object(fields) = message else {
        return Some(invalid("a message is an object"));
    };
    if fields.get("jsonrpc").is_none_or(|version| version != "2.0") {
        return Some(invalid("`jsonrpc` is not \"2.0\""));
    }
    let Some(Value::String(method)) = fields.get("method") else {
        let is_answer = fields.contains_key("result") || fields.contains_key("error");
        return (!is_answer).then(|| invalid("`method` is not a string"));
    };
    let id = match fields.get("id") {
        None => return None,
        Some(id @ (Value::String(_) | Value::Number(_))) => id.clone(),
        Some(_) => return Some(invalid("`id` is neither a string nor a number")),
    };
    let none = Map::new();
    let result = match fields.get("params") {
        None => result(method, &none, tools),
        Some(Value::Object(params)) => result(method, params, tools),
        Some(_) => Err(Refusal(
            Code::InvalidParams,
            "`params` is not an object".to_owned(),
        )),
    };
    Some(match result {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(refusal) => refused(id, refusal),
    })
}

fn refused(id: Value, Refusal(code, why): Refusal) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code as i32, "message": why } })
}

fn result(method: &str, params: &Map<String, Value>, tools: &Tools) -> Result<Value, Refusal> {
    let string = |name: &str| match params.get(name) {
        Some(Value::String(value)) => Ok(value.as_str()),
        _ => Err(Refusal(
            Code::InvalidParams,
            format!("`{name}` is not a string"),
        )),
    };
    match method {
        "initialize" => {
            let wanted = string("protocolVersion")?;
            let known = VERSIONS.into_iter().find(|version| *version == wanted);
            Ok(json!({
                "protocolVersion": known.unwrap_or(VERSIONS[0]),
                "capabilities": { "tools": {} },
                "serverInfo": {
                    "name": "memtrace", "title": "memtrace", "version": env!("CARGO_PKG_VERSION"),
                },
                "instructions": INSTRUCTIONS,
            }))
        }
        "ping" => Ok(json!({})),
        "tools/list" => Ok(json!({ "tools": tools.list() })),
        "tools/call" => {
            let name = string("name")?;
            let arguments = params
                .get("arguments")
                .cloned()
                .unwrap_or_else(|| json!({}));
            let known = || tools.names().collect::<Vec<_>>().join(", ");
            tools.call(name, arguments).ok_or_else(|| {
                let why = format!("unknown tool `{name}`, expected one of {}", known());
                Refusal(Code::InvalidParams, why)
            })
        }
        _ => Err(Refusal(
            Code::MethodNotFound,
            format!("unknown method `{method}`"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answers to these lines.
    fn answers(input: &str) -> Vec<Value> {
        let mut output = Vec::new();
        serve(input.as_bytes(), &mut output, &Tools::new(None)).unwrap();
        let output = String::from_utf8(output).unwrap();
        output
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    fn code(input: &str) -> (Value, Value) {
        let answers = answers(input);
        assert_eq!(answers.len(), 1, "{input}: {answers:?}");
        (
            answers[0]["id"].clone(),
            answers[0]["error"]["code"].clone(),
        )
    }

    fn request(method: &str, params: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#)
    }

    #[test]
    fn versions_are_negotiated() {
        let version = |wanted: &str| {
            let params = format!(r#"{{"protocolVersion":"{wanted}","capabilities":{{}}}}"#);
            answers(&request("initialize", &params))[0]["result"]["protocolVersion"].clone()
        };
        for known in VERSIONS {
            assert_eq!(version(known), known);
        }
        assert_eq!(version("1999-01-01"), "2025-06-18");
        assert_eq!(code(&request("initialize", "{}")).1, -32602);
    }

    #[test]
    fn malformed_messages_get_the_codes_of_json_rpc() {
        for (input, expected) in [
            ("{", -32700),
            ("\u{fffd}", -32700),
            ("[]", -32600),
            ("7", -32600),
            (r#"{"id":1,"method":"ping"}"#, -32600),
            (r#"{"jsonrpc":"2.0","id":1}"#, -32600),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600),
        ] {
            assert_eq!(code(input), (Value::Null, expected.into()), "{input}");
        }
        for (input, expected) in [
            (request("resources/list", "{}"), -32601),
            (request("ping", "[]"), -32602),
            (request("tools/call", "{}"), -32602),
            (request("tools/call", r#"{"name":"frob"}"#), -32602),
        ] {
            assert_eq!(code(&input), (1.into(), expected.into()), "{input}");
        }
        let deep = "[".repeat(100_000);
        assert_eq!(code(&deep).1, -32700);
    }

    #[test]
    fn a_message_that_is_too_long_is_skipped() {
        let long = "x".repeat(LONGEST as usize + 9);
        let answers = answers(&format!("{long}\n{}\n", request("ping", "{}")));
        assert_eq!(answers[0]["error"]["code"], -32600);
        assert_eq!(answers[1]["result"], json!({}));
    }

    #[test]
    fn notifications_and_answers_are_not_answered() {
        let input = r#"
            {"jsonrpc":"2.0","method":"notifications/initialized"}
            {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}
            {"jsonrpc":"2.0","method":"frob"}
            {"jsonrpc":"2.0","id":1,"result":{}}
        "#;
        assert_eq!(answers(input), Vec::<Value>::new());
    }

    #[test]
    fn a_batch_has_one_answer() {
        let ping = request("ping", "{}");
        let batch = format!(r#"[{ping},{{"jsonrpc":"2.0","method":"x"}},3]"#);
        let answers = answers(&batch);
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0][0]["id"], 1);
        assert_eq!(answers[0][1]["error"]["code"], -32600);
        assert_eq!(answers[0].as_array().unwrap().len(), 2);
    }

    #[test]
    fn every_call_before_the_end_is_answered() {
        let call = request(
            "tools/call",
            r#"{"name":"diagnose","arguments":{"file":"/no/such.mtr"}}"#,
        );
        let answers = answers(&format!("{call}\n{call}\n"));
        assert_eq!(answers.len(), 2);
        assert!(
            answers.iter().all(|of| of["result"]["isError"] == true),
            "{answers:?}"
        );
    }
}
