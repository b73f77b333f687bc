//! Hash maps of the kernel side whose elements a program reads and writes for us (`memtrace_common::element`), because
//! bpf(2) would cost events.

use std::{
    io,
    marker::PhantomData,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, PoisonError},
};

use aya::{Ebpf, maps::MapError, programs::RawTracePoint, sys::SyscallError};
use aya_obj::generated::{bpf_attr, bpf_cmd};
use memtrace_common::element::{Arguments, Element, KEY_WORDS, Operation, Table, VALUE_WORDS};
use zerocopy::IntoBytes;

use super::{
    error::TracerError,
    maps::descriptor,
    raw::{Plain, Shared, call},
};

pub(super) const PROGRAM: &str = "element";
const SLOTS: &str = "ELEMENTS";

/// The program, and the slot in which it is told what to do.
pub(super) struct Elements {
    program: OwnedFd,
    slot: u32,
    slots: Mutex<Shared<Element>>,
}

impl Elements {
    /// Slot `slot`, which nobody else uses.
    pub(super) fn new(program: OwnedFd, slots: BorrowedFd<'_>, slot: u32) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            program,
            slot,
            slots: Mutex::new(Shared::map(slots, slot as usize + 1)?),
        }))
    }

    /// Descriptors of the loaded program and of its slots.
    pub(super) fn descriptors(ebpf: &mut Ebpf) -> Result<[OwnedFd; 2], TracerError> {
        let slots = descriptor(ebpf, SLOTS)?;
        let program: &mut RawTracePoint = ebpf
            .program_mut(PROGRAM)
            .ok_or(TracerError::Missing(PROGRAM))?
            .try_into()
            .map_err(|source| TracerError::program(PROGRAM, source))?;
        let program = program
            .fd()
            .map_err(|source| TracerError::program(PROGRAM, source))?
            .as_fd()
            .try_clone_to_owned()
            .map_err(TracerError::State)?;
        Ok([program, slots])
    }

    /// Carries out an operation. The value is the one that was there, or `value`.
    fn operate<V: Plain>(
        &self,
        table: Table,
        operation: Operation,
        key: &[u8],
        value: Option<V>,
    ) -> io::Result<V> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let element = slots
            .get_mut(self.slot as usize)
            .ok_or(io::ErrorKind::InvalidInput)?;
        // Stays if the kernel does not run the program.
        element.result = libc::EIO as u64;
        if let Some(place) = element.key.as_mut_bytes().get_mut(..key.len()) {
            place.copy_from_slice(key);
        }
        if let Some(value) = &value
            && let Some(place) = element.value.as_mut_bytes().get_mut(..size_of::<V>())
        {
            place.copy_from_slice(value.as_bytes());
        }
        let arguments = Arguments {
            table: table as u64,
            operation: operation as u64,
            slot: u64::from(self.slot),
        };
        // SAFETY: an all-zero attribute is a valid one.
        let mut attr: bpf_attr = unsafe { std::mem::zeroed() };
        // SAFETY: this is the member for BPF_PROG_RUN, and only it is written.
        let run = unsafe { &mut attr.test };
        run.prog_fd = self.program.as_raw_fd().cast_unsigned();
        run.ctx_in = (&raw const arguments) as u64;
        run.ctx_size_in = size_of::<Arguments>() as u32;
        call(bpf_cmd::BPF_PROG_TEST_RUN, &attr)?;
        // SAFETY: a reference is valid to read; the kernel side has written to it.
        match unsafe { std::ptr::read_volatile(&raw const element.result) } {
            0 => {}
            errno => return Err(io::Error::from_raw_os_error(errno as i32)),
        }
        V::read_from_prefix(element.value.as_bytes())
            .map(|(value, _)| value)
            .map_err(|_| io::ErrorKind::InvalidData.into())
    }
}

/// A hash map by its elements.
pub(super) struct ElementMap<K, V> {
    elements: Arc<Elements>,
    table: Table,
    types: PhantomData<(K, V)>,
}

impl<K: Plain, V: Plain> ElementMap<K, V> {
    pub(super) fn new(elements: &Arc<Elements>, table: Table) -> Self {
        const {
            assert!(size_of::<K>() <= KEY_WORDS * size_of::<u64>());
            assert!(size_of::<V>() <= VALUE_WORDS * size_of::<u64>());
        }
        Self {
            elements: Arc::clone(elements),
            table,
            types: PhantomData,
        }
    }

    /// The value of a key.
    ///
    /// # Errors
    /// There is none, or the kernel refuses.
    pub(super) fn get(&self, key: K) -> Result<V, MapError> {
        self.operate(Operation::Get, key, None)
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// The map is full, or the kernel refuses.
    pub(super) fn insert(&mut self, key: K, value: V) -> Result<(), MapError> {
        self.operate(Operation::Insert, key, Some(value)).map(drop)
    }

    /// Removes a key and its value.
    ///
    /// # Errors
    /// There is none, or the kernel refuses.
    pub(super) fn remove(&mut self, key: K) -> Result<(), MapError> {
        self.operate(Operation::Remove, key, None).map(drop)
    }

    fn operate(&self, operation: Operation, key: K, value: Option<V>) -> Result<V, MapError> {
        let done = self
            .elements
            .operate(self.table, operation, key.as_bytes(), value);
        done.map_err(|io_error| match io_error.raw_os_error() {
            Some(libc::ENOENT) => MapError::KeyNotFound,
            _ => MapError::SyscallError(SyscallError {
                call: "bpf_prog_run",
                io_error,
            }),
        })
    }
}
