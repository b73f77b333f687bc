//! Errors of the kernel side.

use std::{
    env,
    error::Error,
    fs::OpenOptions,
    io::{self, Write},
    iter,
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
};

use aya::{EbpfError, maps::MapError, programs::ProgramError};

use super::btf;

/// Why a snapshot of code could not be handed over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CodeError {
    #[error(transparent)]
    Map(#[from] MapError),
    #[error("no room for {0} more executable mappings")]
    Full(usize),
}

/// Why the kernel side could not be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TracerError {
    #[error(transparent)]
    Btf(#[from] btf::BtfError),
    #[error("cannot mount tracefs at `/sys/kernel/tracing`: {0}; run as root, or mount it")]
    Tracefs(io::Error),
    #[error("the kernel refused the tracing programs: {0}")]
    Load(#[from] EbpfError),
    #[error("the tracing programs lack {0}; the build is broken")]
    Missing(&'static str),
    #[error(
        "the tracing programs were built from other sources ({built_from:016x}, expected {:016x}); \
         run `cargo xtask build-ebpf`, then build memtrace again",
        memtrace_common::ABI
    )]
    Abi { built_from: u64 },
    #[error(
        "the kernel's verifier refused program `{program}`: {reason}; please report it with `{}`",
        log.display()
    )]
    Verifier {
        program: &'static str,
        reason: String,
        log: PathBuf,
    },
    #[error("the kernel refused program `{program}`: {}", headline(source))]
    Program {
        program: &'static str,
        source: ProgramError,
    },
    /// A program that is loaded when it is needed.
    #[error("{0}")]
    Late(String),
    #[error("cannot attach to tracepoint `{tracepoint}`: {source}")]
    Tracepoint {
        tracepoint: &'static str,
        source: ProgramError,
    },
    #[error("cannot probe `{symbol}` in process {tgid}: {source}")]
    Uprobe {
        symbol: String,
        tgid: u32,
        source: io::Error,
    },
    #[error("cannot probe process {tgid}: {source}")]
    Uprobes { tgid: u32, source: io::Error },
    #[error("cannot update a map of the kernel side: {0}")]
    Map(#[from] MapError),
    #[error(transparent)]
    Code(#[from] CodeError),
    #[error("cannot read the state of a program: {0}")]
    State(io::Error),
}

impl TracerError {
    /// Whether the cause is this error number.
    pub(super) fn is(&self, errno: i32) -> bool {
        let first: &dyn Error = self;
        let mut causes = iter::successors(Some(first), |&error| error.source());
        causes.any(|error| {
            let error = error.downcast_ref::<io::Error>();
            error.and_then(io::Error::raw_os_error) == Some(errno)
        })
    }

    /// A program could not be loaded. The verifier's log is written to a file.
    pub(super) fn program(program: &'static str, source: ProgramError) -> Self {
        let ProgramError::LoadError { verifier_log, .. } = &source else {
            return Self::Program { program, source };
        };
        let text = verifier_log.to_string();
        let Some(reason) = verdict(&text) else {
            return Self::Program { program, source };
        };
        match keep(program, &text) {
            Ok(log) => Self::Verifier {
                program,
                reason: reason.to_owned(),
                log,
            },
            Err(error) => {
                tracing::debug!("the verifier's log could not be written: {error}");
                Self::Program { program, source }
            }
        }
    }
}

/// An error in one line: without the verifier's log, but with its reason.
fn headline(error: &ProgramError) -> String {
    let ProgramError::LoadError {
        io_error,
        verifier_log,
    } = error
    else {
        return error.to_string();
    };
    match verdict(&verifier_log.to_string()) {
        Some(reason) => format!("{io_error}: {reason}"),
        None => io_error.to_string(),
    }
}

/// Lines that follow the reason.
const STATISTICS: [&str; 4] = [
    "verification time ",
    "stack depth ",
    "processed ",
    "insns processed ",
];

/// The last line of the verifier's log that is not a figure: its reason. `None` in an empty log.
fn verdict(log: &str) -> Option<&str> {
    log.lines()
        .map(str::trim)
        .rfind(|line| !line.is_empty() && !STATISTICS.iter().any(|start| line.starts_with(start)))
}

/// Writes a log into a new file of the folder for temporary ones.
fn keep(program: &str, log: &str) -> io::Result<PathBuf> {
    let name = format!("memtrace-verifier-{program}-{}.log", std::process::id());
    let path = env::temp_dir().join(name);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    file.write_all(log.as_bytes())?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn refusal(log: &str) -> ProgramError {
        ProgramError::LoadError {
            io_error: io::Error::from_raw_os_error(libc::EACCES),
            verifier_log: aya_obj::VerifierLog::new(log.to_owned()),
        }
    }

    /// As Linux 6.12 writes it.
    const LOG: &str = "0: R1=ctx() R10=fp0\n1: (85) call pc+7\n\
        combined stack size of 4 calls is 560. Too large\n\
        verification time 2043915 usec\nstack depth 128+0+96\n\
        processed 56837 insns (limit 1000000) max_states_per_insn 4\n\n";

    #[test]
    fn a_refusal_is_one_line_with_the_reason_and_names_the_log() {
        let error = TracerError::program("call_return", refusal(LOG));
        let TracerError::Verifier { log, .. } = &error else {
            panic!("{error:?}");
        };
        assert_eq!(fs::read_to_string(log).unwrap(), LOG);
        fs::remove_file(log).unwrap();
        let text = error.to_string();
        assert_eq!(text.lines().count(), 1);
        assert!(text.contains("combined stack size of 4 calls is 560. Too large"));
        assert!(text.contains(log.to_str().unwrap()));
    }

    #[test]
    fn without_a_log_the_error_number_has_to_do() {
        let text = TracerError::program("call_return", refusal("")).to_string();
        assert_eq!(
            text,
            "the kernel refused program `call_return`: Permission denied (os error 13)"
        );
    }

    #[test]
    fn the_reason_precedes_the_figures() {
        let reason =
            verdict("5: (85) call unknown#181\ninvalid func unknown#181\nprocessed 6 insns");
        assert_eq!(reason, Some("invalid func unknown#181"));
        assert_eq!(verdict("processed 6 insns\n"), None);
    }
}
