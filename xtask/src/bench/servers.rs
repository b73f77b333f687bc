//! Servers under load: each runs once for all rounds, and memtrace comes and goes.

use super::{
    child::Collector,
    paired::{self, Measured, Subject, Way},
    peers::{Counting, Peer},
    table::Table,
    workloads::{Kind, Means, Workload},
};
use crate::{
    command::{find, output},
    oracle::workloads::{self as started, Start, of_postgresql},
};
use anyhow::{Context, Result, bail, ensure};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::Command,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Of each measurement that is limited by time.
const SECONDS: u32 = 3;
/// Of each measurement of Redis.
const REQUESTS: u32 = 200_000;
/// Connections to nginx.
const CONNECTIONS: usize = 4;

/// Requests per second under its load, from the server in this folder and at this port.
type Load = fn(&Path, Option<u16>) -> Result<f64>;

pub(super) struct Server {
    start: Start,
    load: Load,
    /// Whether one process does all work: other tools count no more than one.
    alone: bool,
}

pub(super) fn workloads() -> Vec<Workload> {
    let row = |name: &str, what: &str, unit, missing: Option<&str>, server| Workload {
        name: name.to_owned(),
        what: what.to_owned(),
        unit,
        kind: match missing {
            Some(packages) => Kind::Missing(format!("not installed: `apt-get install {packages}`")),
            None => Kind::Server(server),
        },
    };
    let without = |programs: &[&str], packages| {
        let lacks = programs.iter().any(|program| find(program).is_none());
        lacks.then_some(packages)
    };
    // PostgreSQL's own programs are not in PATH.
    let postgresql = !Path::new("/usr/lib/postgresql").is_dir();
    vec![
        row(
            "postgresql",
            "pgbench, 2 clients",
            "transactions/s",
            postgresql.then_some("postgresql"),
            Server {
                start: started::postgresql,
                load: pgbench,
                alone: false,
            },
        ),
        row(
            "postgresql-connect",
            "pgbench -S -C, a backend for each transaction",
            "transactions/s",
            postgresql.then_some("postgresql"),
            Server {
                start: started::postgresql,
                load: pgbench_connecting,
                alone: false,
            },
        ),
        row(
            "redis",
            "redis-benchmark, SET of 200 bytes, 8 clients",
            "requests/s",
            without(
                &["redis-server", "redis-benchmark"],
                "redis-server redis-tools",
            ),
            Server {
                start: started::redis,
                load: redis,
                alone: true,
            },
        ),
        row(
            "nginx",
            "a compressed page of 42 KB, 4 connections",
            "requests/s",
            without(&["nginx"], "nginx-light"),
            Server {
                start: started::nginx,
                load: nginx,
                alone: false,
            },
        ),
    ]
}

impl Server {
    pub(super) fn measure(
        &self,
        subject: &Subject,
        ways: &mut Vec<Way>,
        means: &Means,
    ) -> Result<Table> {
        if means.peers && self.alone {
            ways.push(Way::Peer(Peer::Bpftrace));
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
        // Not in the target folder: a server that is not root's must get there.
        let folder = std::env::temp_dir().join(format!("memtrace-bench-{now}"));
        fs::create_dir(&folder)?;
        let table = self.rounds(subject, ways, means, &folder);
        let _ = fs::remove_dir_all(&folder);
        table
    }

    fn rounds(
        &self,
        subject: &Subject,
        ways: &[Way],
        means: &Means,
        folder: &Path,
    ) -> Result<Table> {
        let server = (self.start)(folder)?;
        let (first, others) = server.pids.split_first().context("no process to trace")?;
        let others: Vec<String> = others.iter().map(u32::to_string).collect();
        let load = || (self.load)(folder, server.port);
        // Fills caches and tables.
        load()?;
        let missing = |way| match way {
            Way::Peer(peer) => peer.missing(folder),
            _ => None,
        };
        paired::run(subject, ways, means.rounds, missing, |way| match way {
            Way::Untraced => Ok(Measured::alone(load()?)),
            Way::Record(options) => {
                let pids = others.iter().flat_map(|pid| ["-p", pid]);
                let options: Vec<&str> = options.iter().copied().chain(pids).collect();
                let file = means.folder.join("bench.mtr");
                let collector = Collector::attach(means.memtrace, *first, &file, &options)?;
                let rate = load()?;
                Measured::traced(rate, way, &collector.interrupt()?)
            }
            Way::Peer(_) => {
                let counting = Counting::start(*first)?;
                let rate = load()?;
                counting.finish()?;
                Ok(Measured::alone(rate))
            }
        })
    }
}

fn pgbench(folder: &Path, _: Option<u16>) -> Result<f64> {
    pgbench_with(folder, &["-c", "2"])
}

fn pgbench_connecting(folder: &Path, _: Option<u16>) -> Result<f64> {
    pgbench_with(folder, &["-S", "-C"])
}

fn pgbench_with(folder: &Path, options: &[&str]) -> Result<f64> {
    let mut client = of_postgresql(folder, "pgbench")?;
    client.args(["-n", "-T", &SECONDS.to_string()]);
    client.args(options).arg("postgres");
    let printed = output(&mut client)?;
    transactions(&printed).with_context(|| format!("pgbench printed no rate: {printed}"))
}

/// `tps = N (without initial connection time)`.
fn transactions(printed: &str) -> Option<f64> {
    let line = printed
        .lines()
        .find_map(|line| line.strip_prefix("tps = "))?;
    line.split(' ').next()?.parse().ok()
}

fn redis(folder: &Path, _: Option<u16>) -> Result<f64> {
    let mut client = Command::new("redis-benchmark");
    client.arg("-s").arg(folder.join("redis.sock"));
    client.args(["-t", "set", "-r", "10000", "-d", "200", "-c", "8", "--csv"]);
    let printed = output(client.args(["-n", &REQUESTS.to_string()]))?;
    sets(&printed).with_context(|| format!("redis-benchmark printed no rate: {printed}"))
}

/// `"SET","N",…`.
fn sets(printed: &str) -> Option<f64> {
    let line = printed
        .lines()
        .find_map(|line| line.strip_prefix("\"SET\",\""))?;
    line.split('"').next()?.parse().ok()
}

/// A client of its own, as wrk and ab are rarely installed.
fn nginx(_: &Path, port: Option<u16>) -> Result<f64> {
    let port = port.context("nginx has no port")?;
    let start = Instant::now();
    let end = start + Duration::from_secs(SECONDS.into());
    let counts: Result<Vec<u64>> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CONNECTIONS)
            .map(|_| scope.spawn(move || requests(port, end)))
            .collect();
        clients
            .into_iter()
            .map(|client| match client.join() {
                Ok(count) => count,
                Err(_) => bail!("a client panicked"),
            })
            .collect()
    });
    Ok(counts?.iter().sum::<u64>() as f64 / start.elapsed().as_secs_f64())
}

/// Requests over one connection until the time is over.
fn requests(port: u16, end: Instant) -> Result<u64> {
    let mut connection = connect(port)?;
    let mut count = 0;
    while Instant::now() < end {
        connection.get_mut().write_all(
            b"GET /page.txt HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n",
        )?;
        let keep = answer(&mut connection)?;
        count += 1;
        if !keep {
            connection = connect(port)?;
        }
    }
    Ok(count)
}

fn connect(port: u16) -> Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    Ok(BufReader::new(stream))
}

/// Reads one answer, of known length or in chunks. Whether the server keeps the connection: after
/// some requests (`keepalive_requests`) it does not.
fn answer(from: &mut impl BufRead) -> Result<bool> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    ensure!(
        line.starts_with("HTTP/1.1 200"),
        "the server answered {line:?}"
    );
    let (mut keep, mut length, mut chunks) = (true, None, false);
    loop {
        line.clear();
        ensure!(from.read_line(&mut line)? > 0, "an answer ends early");
        let header = line.trim_end().to_ascii_lowercase();
        match header.split_once(": ") {
            None => break,
            Some(("connection", "close")) => keep = false,
            Some(("transfer-encoding", "chunked")) => chunks = true,
            Some(("content-length", bytes)) => length = Some(bytes.parse()?),
            Some(_) => {}
        }
    }
    if let Some(bytes) = length {
        skip(from, bytes)?;
        return Ok(keep);
    }
    ensure!(chunks, "an answer has no length");
    loop {
        line.clear();
        from.read_line(&mut line)?;
        let bytes = u64::from_str_radix(line.trim_end(), 16)
            .with_context(|| format!("{line:?} is no length"))?;
        // With the line's end after it.
        skip(from, bytes + 2)?;
        if bytes == 0 {
            return Ok(keep);
        }
    }
}

fn skip(from: &mut impl BufRead, bytes: u64) -> Result<()> {
    let read = std::io::copy(&mut from.take(bytes), &mut std::io::sink())?;
    ensure!(read == bytes, "an answer ends early");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_found_in_what_clients_print() {
        let pgbench = "latency average = 1.5 ms\ntps = 1290.52 (without initial connection time)\n";
        assert_eq!(transactions(pgbench), Some(1290.52));
        assert_eq!(transactions("latency average = 1.5 ms\n"), None);
        let redis = "\"test\",\"rps\",\"avg_latency_ms\"\n\"SET\",\"98522.16\",\"0.066\"\n";
        assert_eq!(sets(redis), Some(98522.16));
        assert_eq!(sets("\"test\",\"rps\"\n\"GET\",\"9.0\"\n"), None);
    }

    #[test]
    fn answers_are_read_to_their_end() {
        let chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                      3\r\nabc\r\n0\r\n\r\n";
        let length = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nab";
        let both = [chunks, length, "rest"].concat();
        let mut from = both.as_bytes();
        assert!(answer(&mut from).unwrap(), "kept");
        assert!(!answer(&mut from).unwrap(), "closed");
        assert_eq!(from, b"rest");
    }

    #[test]
    fn answers_that_are_cut_or_refused_are_errors() {
        for text in [
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab",
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab",
            "",
        ] {
            assert!(answer(&mut text.as_bytes()).is_err(), "{text:?}");
        }
    }
}
