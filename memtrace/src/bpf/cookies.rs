//! Cookies of probes whose programs have none (before Linux 5.15): they find one by the number in front of the path of
//! the probed file.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, OwnedFd},
};

use aya::Ebpf;
use memtrace_common::numbered_path::{NUMBERS, prefix};

use super::{error::TracerError, maps::descriptor, raw};

pub(super) struct Cookies {
    by_number: OwnedFd,
    /// From 1 on.
    numbers: HashMap<u64, u32>,
}

impl Cookies {
    pub(super) fn new(ebpf: &Ebpf) -> Result<Self, TracerError> {
        Ok(Self {
            by_number: descriptor(ebpf, "COOKIES")?,
            numbers: HashMap::new(),
        })
    }

    /// The path of a file for a probe with this cookie.
    ///
    /// # Errors
    /// There are too many cookies.
    pub(super) fn path(&mut self, cookie: u64, path: &str) -> Result<String, TracerError> {
        let next = self.numbers.len() as u32 + 1;
        let number = match self.numbers.get(&cookie) {
            Some(&number) => number,
            None if next < NUMBERS => {
                let updated = raw::update(self.by_number.as_fd(), next, cookie);
                updated.map_err(TracerError::State)?;
                self.numbers.insert(cookie, next);
                next
            }
            None => return Err(TracerError::State(io::ErrorKind::StorageFull.into())),
        };
        Ok(prefix(number).collect::<String>() + path)
    }
}
