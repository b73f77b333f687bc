//! Which processes may write to memtrace's terminal.

use std::{
    fs::{self, Metadata},
    os::unix::fs::{FileTypeExt, MetadataExt},
};

/// Whether memtrace's terminal is the controlling terminal of process `tgid`, or its input, output or error.
pub(crate) fn is_shared_with(tgid: u32) -> bool {
    let controlling = |pid: i32| {
        let stat = procfs::process::Process::new(pid).and_then(|process| process.stat());
        stat.ok()
            .map(|stat| stat.tty_nr)
            .filter(|terminal| *terminal != 0)
    };
    let ours = controlling(std::process::id().cast_signed());
    ours.is_some() && ours == controlling(tgid.cast_signed())
        || (0..3).any(|fd| is_same_device("/proc/self/fd/2", &format!("/proc/{tgid}/fd/{fd}")))
}

/// Whether both files are the same character device.
fn is_same_device(a: &str, b: &str) -> bool {
    let device = |file: &str| {
        let of = fs::metadata(file).ok();
        let of = of.filter(|of| of.file_type().is_char_device());
        of.as_ref().map(Metadata::rdev)
    };
    device(a).is_some_and(|a| device(b) == Some(a))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_known_by_their_numbers() {
        assert!(is_same_device("/dev/null", "/dev/null"));
        assert!(!is_same_device("/dev/null", "/dev/zero"));
        assert!(!is_same_device("/proc/self/exe", "/proc/self/exe"));
        assert!(!is_same_device("/dev/null", "/no/such/file"));
    }
}
