//! A headless Chromium, driven by its debugging protocol through two pipes: neither ports nor other programs are needed.
//! Knows no page.

use anyhow::{Context, Result, bail};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader, PipeReader, Write, pipe},
    os::{fd::AsRawFd, unix::process::CommandExt},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// One page of a browser.
pub(crate) struct Browser {
    child: Child,
    to: std::io::PipeWriter,
    from: Receiver<Value>,
    next: u64,
    session: Option<String>,
    loads: u64,
    /// Errors and warnings of the page.
    complaints: Vec<String>,
}

/// A size of the window, and the colours that the user prefers.
#[derive(Clone, Copy)]
pub(crate) struct Look {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) is_dark: bool,
}

impl Browser {
    /// Starts a browser; its files are kept in `profile`, which is emptied.
    pub(crate) fn start(profile: &Path) -> Result<Browser> {
        let _ = fs::remove_dir_all(profile);
        let (commands, to) = pipe()?;
        let (from, answers) = pipe()?;
        let mut chromium = Command::new("chromium");
        chromium
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--hide-scrollbars",
                "--remote-debugging-pipe",
            ])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("about:blank")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let ends = [commands.as_raw_fd(), answers.as_raw_fd()];
        // SAFETY: dup2 may be called between fork and exec, and both descriptors are open.
        unsafe {
            chromium.pre_exec(move || {
                // Chromium reads from 3 and writes to 4. Above them first, lest one replaces the other.
                let copies = [
                    libc::fcntl(ends[0], libc::F_DUPFD, 5),
                    libc::fcntl(ends[1], libc::F_DUPFD, 5),
                ];
                for (copy, wanted) in copies.into_iter().zip([3, 4]) {
                    if copy < 0 || libc::dup2(copy, wanted) < 0 {
                        return Err(std::io::Error::last_os_error());
                    }
                }
                Ok(())
            });
        }
        let child = chromium.spawn().context("cannot start `chromium`")?;
        let mut browser = Browser {
            child,
            to,
            from: received(from),
            next: 0,
            session: None,
            loads: 0,
            complaints: Vec::new(),
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }))?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", attach)?;
        browser.session = session["sessionId"].as_str().map(Into::into);
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}))?;
        }
        Ok(browser)
    }

    /// Opens a file and waits until it is loaded.
    ///
    /// # Errors
    /// When the browser ends or does not answer.
    pub(crate) fn open(&mut self, file: &Path) -> Result<()> {
        let before = self.loads;
        let url = format!("file://{}", file.display());
        self.call("Page.navigate", json!({ "url": url }))?;
        while self.loads == before {
            let message = self.receive()?;
            self.note(&message);
        }
        Ok(())
    }

    /// Changes the window and the preferred colours.
    ///
    /// # Errors
    /// When the browser ends or does not answer.
    pub(crate) fn look(&mut self, look: Look) -> Result<()> {
        let size = json!({
            "width": look.width,
            "height": look.height,
            "deviceScaleFactor": 1,
            "mobile": false,
        });
        self.call("Emulation.setDeviceMetricsOverride", size)?;
        let scheme = if look.is_dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call(
            "Emulation.setEmulatedMedia",
            json!({ "features": features }),
        )?;
        // Observers of sizes run before the next frame is drawn.
        self.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")?;
        Ok(())
    }

    /// The value of a JavaScript expression; promises are awaited.
    ///
    /// # Errors
    /// When it throws.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Result<Value> {
        let answer = self.call(
            "Runtime.evaluate",
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true }),
        )?;
        if let Some(details) = answer.get("exceptionDetails") {
            bail!("`{expression}`: {}", thrown(details));
        }
        Ok(answer["result"]["value"].clone())
    }

    /// Roles of the parts that a screen reader can reach and that have no name for it.
    ///
    /// # Errors
    /// When the browser ends or does not answer.
    pub(crate) fn unnamed(&mut self) -> Result<Vec<String>> {
        let tree = self.call("Accessibility.getFullAXTree", json!({}))?;
        let nodes = tree["nodes"].as_array().cloned().unwrap_or_default();
        let is_focusable = |node: &Value| {
            let mut properties = node["properties"].as_array().into_iter().flatten();
            properties.any(|of| of["name"] == "focusable" && of["value"]["value"] == true)
        };
        let focusable: Vec<&Value> = nodes.iter().filter(|node| is_focusable(node)).collect();
        if focusable.len() < 2 {
            bail!("the accessibility tree is empty");
        }
        let unnamed = focusable.into_iter().filter(|node| {
            let name = node["name"]["value"].as_str();
            name.is_none_or(|name| name.trim().is_empty())
        });
        Ok(unnamed
            .map(|node| node["role"]["value"].to_string())
            .collect())
    }

    /// Presses a key and releases it.
    ///
    /// # Errors
    /// When the browser ends or does not answer.
    pub(crate) fn press(&mut self, key: &str) -> Result<()> {
        for kind in ["rawKeyDown", "keyUp"] {
            self.call(
                "Input.dispatchKeyEvent",
                json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": key_code(key) }),
            )?;
        }
        Ok(())
    }

    /// Types text into the focused field.
    ///
    /// # Errors
    /// When the browser ends or does not answer.
    pub(crate) fn type_text(&mut self, text: &str) -> Result<()> {
        self.call("Input.insertText", json!({ "text": text }))
            .map(|_| ())
    }

    /// Drags the mouse from one point to another.
    ///
    /// # Errors
    /// When the browser ends or does not answer.
    pub(crate) fn drag(&mut self, from: (f64, f64), to: (f64, f64)) -> Result<()> {
        for (kind, (x, y), buttons) in [
            ("mousePressed", from, 1),
            ("mouseMoved", to, 1),
            ("mouseReleased", to, 0),
        ] {
            let event = json!({
                "type": kind, "x": x, "y": y, "button": "left", "buttons": buttons, "clickCount": 1,
            });
            self.call("Input.dispatchMouseEvent", event)?;
        }
        Ok(())
    }

    /// Writes a picture of the window, or of the whole page, as PNG.
    pub(crate) fn picture(&mut self, file: &Path, is_whole: bool) -> Result<()> {
        let options = json!({ "format": "png", "captureBeyondViewport": is_whole });
        let answer = self.call("Page.captureScreenshot", options)?;
        let png = BASE64_STANDARD.decode(answer["data"].as_str().unwrap_or_default())?;
        fs::write(file, png).with_context(|| format!("cannot write `{}`", file.display()))
    }

    /// Errors and warnings since the last call.
    pub(crate) fn complaints(&mut self) -> Vec<String> {
        std::mem::take(&mut self.complaints)
    }

    fn call(&mut self, method: &str, params: Value) -> Result<Value> {
        self.next += 1;
        let id = self.next;
        let mut message = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{message}\0").as_bytes())?;
        loop {
            let message = self.receive()?;
            self.note(&message);
            if message["id"] == id {
                if let Some(error) = message.get("error") {
                    bail!("{method}: {error}");
                }
                return Ok(message["result"].clone());
            }
        }
    }

    fn receive(&mut self) -> Result<Value> {
        let answer = self.from.recv_timeout(PATIENCE);
        answer.context("chromium has ended or does not answer")
    }

    fn note(&mut self, message: &Value) {
        let params = &message["params"];
        match message["method"].as_str().unwrap_or_default() {
            "Page.loadEventFired" => self.loads += 1,
            "Runtime.exceptionThrown" => self.complaints.push(thrown(&params["exceptionDetails"])),
            "Runtime.consoleAPICalled" => self.complaints.push(params["args"].to_string()),
            "Log.entryAdded" => self.complaints.push(params["entry"]["text"].to_string()),
            _ => {}
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn thrown(details: &Value) -> String {
    let exception = details["exception"]["description"].as_str();
    exception.map_or_else(|| details.to_string(), Into::into)
}

fn key_code(key: &str) -> u32 {
    match key {
        "Enter" => 13,
        "Escape" => 27,
        "End" => 35,
        "Home" => 36,
        "ArrowLeft" => 37,
        "ArrowUp" => 38,
        "ArrowRight" => 39,
        "ArrowDown" => 40,
        _ => 0,
    }
}

/// Messages end with a zero byte.
fn received(pipe: PipeReader) -> Receiver<Value> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut message = Vec::new();
        while pipe
            .read_until(0, &mut message)
            .is_ok_and(|length| length > 0)
        {
            message.pop();
            let Ok(value) = serde_json::from_slice(&message) else {
                break;
            };
            if sender.send(value).is_err() {
                break;
            }
            message.clear();
        }
    });
    receiver
}
