//! A helper process that outlives a killed collector just long enough to
//! continue the processes that were stopped for it.
//!
//! Its standard input is a pipe that the collector never writes to: the end of
//! the pipe is the end of the collector.

use std::{
    io::{self, Read},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::{Child, Command, Stdio},
    time::Duration,
};

use aya::maps::{Array, HashMap, Map, MapData};

/// Where the watchdog finds the STOPPED and the RECORDING map.
const MAP_FDS: [i32; 2] = [3, 4];

/// The hidden subcommand by which the collector starts it.
pub const SUBCOMMAND: &str = "watchdog";

/// A running watchdog. Dropping it ends it.
pub struct Watchdog(Child);

impl Watchdog {
    /// Starts one over the two maps of `Tracer::watchdog_maps`.
    pub fn spawn(maps: [OwnedFd; 2]) -> io::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command
            .arg(SUBCOMMAND)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let fds = maps.each_ref().map(AsRawFd::as_raw_fd);
        // SAFETY: dup, dup2 and setsid are async-signal-safe.
        unsafe {
            command.pre_exec(move || {
                // Out of the way first: a source may have a target's number.
                let high = fds.map(|fd| libc::fcntl(fd, libc::F_DUPFD, 10));
                for (source, target) in high.into_iter().zip(MAP_FDS) {
                    if source < 0 || libc::dup2(source, target) < 0 {
                        return Err(io::Error::last_os_error());
                    }
                    libc::close(source);
                }
                // A Ctrl-C at the terminal is not meant for it.
                libc::setsid();
                Ok(())
            });
        }
        command.spawn().map(Self)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // It has nothing left to do but to exit; its status tells nothing.
        let _ = self.0.wait();
    }
}

/// The watchdog's own main: waits for the collector's end, then continues what is stopped.
pub fn run() -> anyhow::Result<()> {
    let mut end = [0; 1];
    while io::stdin().read(&mut end)? != 0 {}
    // SAFETY: the collector passed both descriptors for this process to own.
    let [stopped, recording] = MAP_FDS.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    let mut recording: Array<MapData, u32> =
        Array::try_from(Map::Array(MapData::from_fd(recording)?))?;
    recording.set(0, 0, 0)?;
    let mut stopped: HashMap<MapData, u32, u32> =
        HashMap::try_from(Map::HashMap(MapData::from_fd(stopped)?))?;
    // Twice: a program that was past the switch may be stopping a process right
    // now, and is done long before the second look.
    for _ in 0..2 {
        let tgids: Vec<u32> = stopped.keys().filter_map(Result::ok).collect();
        for tgid in tgids {
            // SAFETY: no memory is involved. A process that is gone is no error.
            unsafe { libc::kill(tgid.cast_signed(), libc::SIGCONT) };
            let _ = stopped.remove(&tgid);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
