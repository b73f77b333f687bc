//! A kernel side that waits for calls of functions and records nothing.

use std::{fs::File, os::fd::AsRawFd};

use aya::{
    Ebpf, EbpfLoader,
    maps::{Array, MapData},
    programs::UProbe,
};

use super::{
    abi,
    error::TracerError,
    event::Place,
    link::Link,
    maps::take,
    object::{Object, program},
    one_by_one::{attach, loaded},
    removal::detach,
};

const PROGRAM: &str = "awaited_call";

/// The functions that are waited for.
pub(crate) struct AwaitedCalls {
    ebpf: Ebpf,
    called: Array<MapData, u32>,
    links: Vec<Link>,
}

impl Drop for AwaitedCalls {
    fn drop(&mut self) {
        detach(std::mem::take(&mut self.links));
    }
}

impl AwaitedCalls {
    /// Loads the program.
    pub(crate) fn load() -> Result<Self, TracerError> {
        let object = Object::for_this_kernel();
        abi::check(object.bytes)?;
        let mut ebpf = EbpfLoader::new().load(object.bytes)?;
        let uprobe: &mut UProbe = program(&mut ebpf, PROGRAM)?;
        uprobe
            .load()
            .map_err(|source| TracerError::program(PROGRAM, source))?;
        Ok(Self {
            called: Array::try_from(take(&mut ebpf, "CALLED")?)?,
            ebpf,
            links: Vec::new(),
        })
    }

    /// Also waits for the function at `offset`, bytes, of the file, in all threads of a process.
    ///
    /// # Errors
    /// The process is gone, or the kernel cannot probe the function.
    pub(crate) fn add(
        &mut self,
        tgid: u32,
        file: &File,
        (symbol, offset): (&str, u64),
    ) -> Result<(), TracerError> {
        // The path of our descriptor leads to the very inode; its name may mean another file elsewhere.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let place = Place {
            offset,
            semaphore: 0,
            at_return: false,
        };
        let program = loaded(&mut self.ebpf, PROGRAM)?;
        let link = attach(program, tgid, &path, (symbol, place), 0)?;
        self.links.push(link);
        Ok(())
    }

    /// The process that made the last of the calls, if there were any.
    ///
    /// # Errors
    /// The kernel side's map cannot be read.
    pub(crate) fn caller(&self) -> Result<Option<u32>, TracerError> {
        let called = self.called.get(&0, 0)?;
        Ok((called != 0).then_some(called))
    }
}
