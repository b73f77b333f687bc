//! tracefs, which has the numbers of the kernel's tracepoints.

use std::{ffi::CString, io, path::Path};

const MOUNT_POINT: &str = "/sys/kernel/tracing";

/// Mounts tracefs at its usual place if it is mounted nowhere. True if it had to.
pub(super) fn ensure_mounted() -> io::Result<bool> {
    for place in [MOUNT_POINT, "/sys/kernel/debug/tracing"] {
        if Path::new(place).join("events").is_dir() {
            return Ok(false);
        }
    }
    let [source, target, kind] =
        ["nodev", MOUNT_POINT, "tracefs"].map(|text| CString::new(text).unwrap_or_default());
    // SAFETY: three valid C strings and no data.
    let result = unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            0,
            std::ptr::null(),
        )
    };
    if result == 0 {
        Ok(true)
    } else {
        Err(io::Error::last_os_error())
    }
}
