//! Against servers of this process, on the loopback device.

use std::{
    io::{BufRead, BufReader},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::mpsc::TryRecvError,
    thread::JoinHandle,
};

use tempfile::TempDir;

use super::*;
use crate::symbolize::{
    Detail, Frame, Symbolizer,
    debug_files::Proof,
    tests::{INLINED_C, address, assert_inlined_chain, compile, names, run},
};

const BUILD_ID: &str = "abcdef0123456789";

/// Answers connections, one after the other, as scripted, and then refuses them. Joined, it returns
/// the requested paths.
fn serve(script: Vec<Answer>) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let thread = std::thread::spawn(move || {
        let mut asked = Vec::new();
        for answer in script {
            let (stream, _) = listener.accept().unwrap();
            asked.push(answer(stream));
        }
        asked
    });
    (url, thread)
}

/// Returns the path of the request.
type Answer = Box<dyn FnOnce(TcpStream) -> String + Send>;

fn request(stream: &TcpStream) -> String {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next().unwrap().unwrap();
    while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
    first.split(' ').nth(1).unwrap().to_owned()
}

fn answer(head: &'static str, body: Vec<u8>) -> Answer {
    Box::new(move |mut stream| {
        let path = request(&stream);
        let len = body.len();
        write!(
            stream,
            "HTTP/1.1 {head}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        // A client that has read enough closes.
        let _ = stream.write_all(&body);
        path
    })
}

fn not_found() -> Answer {
    answer("404 Not Found", b"no".to_vec())
}

/// Promises a body, sends its beginning, and waits for the client to go away.
fn hang() -> Answer {
    Box::new(|mut stream| {
        let path = request(&stream);
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nbegin"
        )
        .unwrap();
        let _ = stream.read(&mut [0]);
        path
    })
}

/// A stripped library, and a server's files for it.
struct Program {
    dir: TempDir,
    library: PathBuf,
    debug: Vec<u8>,
    here: u64,
}

fn program() -> Program {
    let dir = TempDir::new().unwrap();
    let options = ["-g", "-Wl,--build-id=0xabcdef0123456789"];
    let library = compile(&dir, "gcc", "inlined.c", INLINED_C, &options);
    let here = address(&library, "here");
    let debug = dir.path().join("only debug");
    run(
        "objcopy",
        &[Path::new("--only-keep-debug"), &library, &debug],
    );
    run("strip", &[&library]);
    Program {
        debug: fs::read(debug).unwrap(),
        dir,
        library,
        here,
    }
}

impl Program {
    fn config(&self, urls: &[&str]) -> Config {
        let variables = |name: &str| match name {
            "DEBUGINFOD_URLS" => Some(urls.join(" ").into()),
            "DEBUGINFOD_CACHE_PATH" => Some(self.dir.path().join("cache").into()),
            _ => None,
        };
        Config::from_variables(variables).unwrap()
    }

    fn cached(&self) -> PathBuf {
        self.dir
            .path()
            .join("cache")
            .join(BUILD_ID)
            .join("debuginfo")
    }

    /// Frames of `here`, before and after the fetch.
    fn look_up(&self, config: Config) -> [Vec<Frame>; 2] {
        let client = Client::start(config).unwrap();
        let mut symbolizer = Symbolizer::default();
        let file = File::open(&self.library).unwrap();
        let module = symbolizer.module("/m", file, Some(BUILD_ID.to_owned()), None);
        let before = symbolizer.frames_at(module, self.here);
        let fetched = client.request(BUILD_ID).unwrap();
        if let Ok(Some(file)) = fetched.recv_timeout(client.patience()) {
            assert!(symbolizer.offer(module, file, Proof::FETCHED));
        }
        [before, symbolizer.frames_at(module, self.here)]
    }

    fn assert_lines(&self, frames: &[Frame]) {
        assert_inlined_chain(frames, &self.dir.path().join("inlined.c"));
    }
}

#[test]
fn a_fetched_file_gives_lines_and_is_kept() {
    let program = program();
    let (url, server) = serve(vec![answer("200 OK", program.debug.clone())]);
    let url = format!("{url}/");
    let [before, after] = program.look_up(program.config(&[&url]));
    assert_eq!(names(&before), [Some("physical")]);
    program.assert_lines(&after);
    let expected = format!("/buildid/{BUILD_ID}/debuginfo");
    assert_eq!(server.join().unwrap(), [expected]);
    assert_eq!(fs::read(program.cached()).unwrap(), program.debug);

    // The server is gone: from the cache.
    let [_, after] = program.look_up(program.config(&[&url]));
    program.assert_lines(&after);
}

#[test]
fn the_next_server_is_tried_for_a_missing_file() {
    let program = program();
    let (first, first_server) = serve(vec![not_found()]);
    let (second, second_server) = serve(vec![answer("200 OK", program.debug.clone())]);
    let [_, after] = program.look_up(program.config(&[&first, &second]));
    program.assert_lines(&after);
    assert_eq!(first_server.join().unwrap(), second_server.join().unwrap());
}

#[test]
fn a_file_missing_on_all_servers_leaves_local_names() {
    let program = program();
    let (url, server) = serve(vec![not_found()]);
    let [before, after] = program.look_up(program.config(&[&url]));
    assert_eq!(before, after);
    assert_eq!(names(&after), [Some("physical")]);
    server.join().unwrap();
    assert!(!program.cached().exists());
}

#[test]
fn a_file_of_another_build_is_refused() {
    let program = program();
    let other = fs::read(std::env::current_exe().unwrap()).unwrap();
    for body in [b"<html>".to_vec(), other] {
        let (url, server) = serve(vec![answer("200 OK", body)]);
        let [_, after] = program.look_up(program.config(&[&url]));
        assert_eq!(names(&after), [Some("physical")]);
        server.join().unwrap();
        let folder = program.cached().parent().unwrap().to_owned();
        assert_eq!(fs::read_dir(folder).unwrap().count(), 0);
    }
}

#[test]
fn a_file_beyond_the_limit_is_refused() {
    let program = program();
    let (url, server) = serve(vec![answer("200 OK", program.debug.clone())]);
    let mut config = program.config(&[&url]);
    config.max_bytes = program.debug.len() as u64 - 1;
    let [_, after] = program.look_up(config);
    assert_eq!(names(&after), [Some("physical")]);
    server.join().unwrap();
}

#[test]
fn a_hanging_server_is_given_up_but_not_one_without_the_file() {
    let program = program();
    let (slow, _) = serve(vec![hang()]);
    let mut config = program.config(&[&slow]);
    config.timeout = Duration::from_millis(100);
    let mut fetcher = Fetcher::new(config);
    assert!(fetcher.debug_file(BUILD_ID).is_none());
    assert!(fetcher.config.urls.is_empty());

    let (good, server) = serve(vec![not_found(), answer("200 OK", program.debug.clone())]);
    let mut fetcher = Fetcher::new(program.config(&[&good]));
    assert!(fetcher.debug_file("0123456789").is_none());
    assert!(fetcher.debug_file(BUILD_ID).is_some());
    assert_eq!(server.join().unwrap().len(), 2);
}

#[test]
fn a_request_waits_for_no_server() {
    let program = program();
    let (url, server) = serve(vec![hang()]);
    let config = program.config(&[&url]);
    let client = Client::start(config).unwrap();
    // The timeout is 90 s: had anything waited, the server would have gone on first.
    let fetched = client.request(BUILD_ID).unwrap();
    assert!(matches!(fetched.try_recv(), Err(TryRecvError::Empty)));
    assert!(!server.is_finished());
}

#[test]
fn an_encrypted_connection_is_tried() {
    let program = program();
    let first_byte: Answer = Box::new(|mut stream| {
        let mut record = [0; 1];
        stream.read_exact(&mut record).unwrap();
        // A handshake record (RFC 8446, section 5.1), and no request in the clear.
        assert_eq!(record, [22]);
        String::new()
    });
    let (url, server) = serve(vec![first_byte]);
    let url = url.replace("http:", "https:");
    let [_, after] = program.look_up(program.config(&[&url]));
    assert_eq!(names(&after), [Some("physical")]);
    server.join().unwrap();
}

#[test]
fn a_module_with_debug_information_needs_no_other() {
    let program = program();
    let lacks = |path: &Path| {
        let file = File::open(path).unwrap();
        let (_, wanted) = Symbolizer::default().add("/m", file, None, Detail::Full);
        wanted.lacks_debug_info
    };
    assert!(lacks(&program.library));
    let options = ["-g", "-Wl,--build-id=0xabcdef0123456789"];
    let library = compile(&program.dir, "gcc", "inlined.c", INLINED_C, &options);
    assert!(!lacks(&library));
    assert!(!lacks(&program.dir.path().join("inlined.c")), "not ELF");
}

#[test]
fn the_environment_is_read_as_elfutils_does() {
    let config = |variables: &[(&str, &str)]| {
        Config::from_variables(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.into())
        })
    };
    let urls = (
        "DEBUGINFOD_URLS",
        "ima:enforcing https://a/ \n http://b file:///c",
    );
    let read = config(&[urls, ("HOME", "/h")]).unwrap();
    assert_eq!(read.urls, ["https://a", "http://b"]);
    assert_eq!(read.cache, Path::new("/h/.cache/debuginfod_client"));
    assert_eq!(read.timeout, Duration::from_secs(90));
    let read = config(&[urls, ("HOME", "/h"), ("XDG_CACHE_HOME", "/x")]).unwrap();
    assert_eq!(read.cache, Path::new("/x/debuginfod_client"));
    let path = ("DEBUGINFOD_CACHE_PATH", "/p");
    let read = config(&[urls, path, ("DEBUGINFOD_TIMEOUT", "5"), ("HOME", "/h")]).unwrap();
    assert_eq!(
        (read.cache.as_path(), read.timeout.as_secs()),
        (Path::new("/p"), 5)
    );
    let read = config(&[urls, path, ("DEBUGINFOD_TIMEOUT", "soon")]).unwrap();
    assert_eq!(read.timeout, Duration::from_secs(90));
    assert!(matches!(config(&[urls]), Err(ConfigError::NoCache)));
    assert!(matches!(config(&[path]), Err(ConfigError::NoUrls)));
}
