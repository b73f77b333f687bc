//! The programs, and their load while they are traced.

use crate::command::{self, root};
use anyhow::{Context, Result, bail, ensure};
use std::{
    fs,
    io::{BufRead, BufReader},
    net::{TcpListener, TcpStream},
    os::unix::{fs::chown, net::UnixStream, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Begins a workload in a folder of its own.
pub(crate) type Start = fn(&Path) -> Result<Workload>;

/// All of them, by name.
pub(crate) const WORKLOADS: [(&str, Start); 4] = [
    ("postgresql", postgresql),
    ("redis", redis),
    ("nginx", nginx),
    ("python", python),
];

/// A server is up within this time.
const UP: Duration = Duration::from_secs(30);

/// A running program. Everything ends when it is dropped.
pub(crate) struct Workload {
    /// Processes to trace.
    pub(crate) pids: Vec<u32>,
    /// Where it serves, if at a port.
    pub(crate) port: Option<u16>,
    /// Clients to start once it is traced.
    clients: Vec<Command>,
    /// Killed in this order.
    running: Vec<Running>,
}

impl Workload {
    /// Puts it under load.
    pub(crate) fn load(&mut self) -> Result<()> {
        for mut client in self.clients.drain(..) {
            client.stdout(Stdio::null()).stderr(Stdio::null());
            self.running.insert(0, Running::start(&mut client)?);
        }
        Ok(())
    }
}

/// Ended by SIGTERM when dropped, and waited for.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Result<Running> {
        command
            .stdin(Stdio::null())
            .spawn()
            .map(Running)
            .with_context(|| format!("cannot start `{}`", command::shown(command)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // SAFETY: a plain system call; the child has not been waited for, so the id is its own.
        unsafe { libc::kill(self.0.id().cast_signed(), libc::SIGTERM) };
        let _ = self.0.wait();
    }
}

fn wait_until(what: &str, mut up: impl FnMut() -> bool) -> Result<()> {
    let start = Instant::now();
    while !up() {
        ensure!(start.elapsed() < UP, "{what} does not start");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// A program of PostgreSQL, for the server in this folder and as its user: it refuses to run as root.
pub(crate) fn of_postgresql(folder: &Path, name: &str) -> Result<Command> {
    let (uid, gid) = postgres()?;
    let mut command = Command::new(newest("/usr/lib/postgresql")?.join("bin").join(name));
    command
        .uid(uid)
        .gid(gid)
        .current_dir(folder)
        .env("PGHOST", folder);
    Ok(command)
}

/// The user and group that own it.
fn postgres() -> Result<(u32, u32)> {
    let id = |flag| -> Result<u32> {
        Ok(command::output(Command::new("id").args([flag, "postgres"]))?.parse()?)
    };
    Ok((id("-u")?, id("-g")?))
}

/// PostgreSQL: its backends are followed from their fork on.
pub(crate) fn postgresql(folder: &Path) -> Result<Workload> {
    let (uid, gid) = postgres()?;
    chown(folder, Some(uid), Some(gid))?;
    let program = |name: &str| of_postgresql(folder, name);
    let data = folder.join("data");
    command::output(
        program("initdb")?
            .args(["-A", "trust", "--no-sync", "-D"])
            .arg(&data),
    )?;
    let server = Running::start(
        program("postgres")?
            .args(["-c", "listen_addresses=", "-c", "fsync=off", "-k"])
            .arg(folder)
            .arg("-D")
            .arg(&data)
            .stderr(Stdio::null()),
    )?;
    let socket = folder.join(".s.PGSQL.5432");
    wait_until("PostgreSQL", || UnixStream::connect(&socket).is_ok())?;
    wait_until("PostgreSQL", || {
        program("psql").is_ok_and(|mut psql| {
            command::output(psql.args(["-c", "SELECT 1", "postgres"])).is_ok()
        })
    })?;
    command::output(program("pgbench")?.args(["-i", "-q", "-s", "2", "postgres"]))?;
    let script = folder.join("load.sql");
    fs::copy(root().join("xtask/oracle/load.sql"), &script)?;
    let client = |options: &[&str]| -> Result<Command> {
        let mut client = program("pgbench")?;
        client
            .args(["-n", "-T", "100000"])
            .args(options)
            .arg("postgres");
        Ok(client)
    };
    Ok(Workload {
        pids: vec![server.0.id()],
        port: None,
        clients: vec![
            client(&["-c", "4"])?,
            client(&["-c", "2", "-f", &script.to_string_lossy()])?,
            // A connection, and so a backend, for each transaction.
            client(&["-c", "1", "-C", "-S", "--rate=20"])?,
        ],
        running: vec![server],
    })
}

pub(crate) fn redis(folder: &Path) -> Result<Workload> {
    let socket = folder.join("redis.sock");
    let server = Running::start(
        Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--unixsocket"])
            .arg(&socket)
            .current_dir(folder)
            .stdout(Stdio::null()),
    )?;
    wait_until("Redis", || UnixStream::connect(&socket).is_ok())?;
    let mut client = Command::new("redis-benchmark");
    client.arg("-s").arg(&socket);
    client.args([
        "-l", "-q", "-n", "100000", "-r", "10000", "-d", "200", "-c", "8",
    ]);
    Ok(Workload {
        pids: vec![server.0.id()],
        port: None,
        clients: vec![client],
        running: vec![server],
    })
}

pub(crate) fn nginx(folder: &Path) -> Result<Workload> {
    let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
    let config = folder.join("nginx.conf");
    let here = folder.display();
    fs::write(
        &config,
        format!(
            "daemon off; worker_processes 2; user root; pid {here}/pid; error_log {here}/error;\n\
             events {{ worker_connections 256; }}\n\
             http {{ access_log {here}/access; gzip on; gzip_min_length 1; gzip_types *;\n\
               client_body_temp_path {here}; proxy_temp_path {here}; fastcgi_temp_path {here};\n\
               uwsgi_temp_path {here}; scgi_temp_path {here};\n\
               server {{ listen 127.0.0.1:{port}; root {here}/www;\n\
                 location /proxy/ {{ proxy_pass http://127.0.0.1:{port}/; }} }} }}\n"
        ),
    )?;
    fs::create_dir(folder.join("www"))?;
    fs::write(
        folder.join("www/page.txt"),
        "all work and no play\n".repeat(2000),
    )?;
    let server = Running::start(
        Command::new("nginx")
            .arg("-p")
            .arg(folder)
            .arg("-c")
            .arg(&config),
    )?;
    wait_until("nginx", || TcpStream::connect(("127.0.0.1", port)).is_ok())?;
    let master = server.0.id();
    let mut pids = vec![master];
    let children = fs::read_to_string(format!("/proc/{master}/task/{master}/children"))?;
    for pid in children.split_whitespace() {
        pids.push(pid.parse()?);
    }
    let client = |path: &str, options: &[&str]| {
        let mut client = Command::new("ab");
        client
            // It allocates 32 bytes for each request beforehand.
            .args(["-q", "-r", "-t", "100000", "-n", "5000000", "-c", "4"])
            .args(["-H", "Accept-Encoding: gzip"])
            .args(options)
            .arg(format!("http://127.0.0.1:{port}/{path}"));
        client
    };
    Ok(Workload {
        pids,
        port: Some(port),
        clients: vec![client("page.txt", &["-k"]), client("proxy/page.txt", &[])],
        running: vec![server],
    })
}

/// Debian's Python, whose library has been optimised across files.
fn python(folder: &Path) -> Result<Workload> {
    let mut python = Command::new("/usr/bin/python3");
    python.arg(root().join("xtask/oracle/load.py"));
    script(python.current_dir(folder))
}

/// PyTorch of this virtual environment.
pub(crate) fn torch(environment: &Path) -> Result<Workload> {
    let mut python = Command::new(environment.join("bin/python"));
    script(python.arg(root().join("xtask/oracle/training.py")))
}

/// A script that says when it is ready, and then works.
fn script(command: &mut Command) -> Result<Workload> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut python = Running(child.with_context(|| format!("cannot start {command:?}"))?);
    let stdout = python.0.stdout.take().context("no stdout")?;
    match BufReader::new(stdout)
        .lines()
        .next()
        .transpose()?
        .as_deref()
    {
        Some("ready") => {}
        said => bail!("the script printed {said:?}, expected `ready`"),
    }
    Ok(Workload {
        pids: vec![python.0.id()],
        port: None,
        clients: Vec::new(),
        running: vec![python],
    })
}

/// The entry of a folder with the greatest number as its name.
fn newest(folder: &str) -> Result<PathBuf> {
    fs::read_dir(folder)
        .with_context(|| format!("cannot list `{folder}`"))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .max_by_key(|path| {
            path.file_name()
                .and_then(|name| name.to_str()?.parse::<u32>().ok())
        })
        .with_context(|| format!("`{folder}` is empty"))
}
