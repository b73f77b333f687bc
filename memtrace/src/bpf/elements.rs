//! Hash maps of the kernel side. A program of the kernel side reads and writes their elements
//! (`memtrace_common::element`), because bpf(2) would cost events.

use std::{
    io,
    marker::PhantomData,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, PoisonError},
};

use aya::{Ebpf, maps::MapError, programs::RawTracePoint};
use memtrace_common::element::{Element, KEY_WORDS, Operation, Table, VALUE_WORDS};
use zerocopy::IntoBytes;

use super::{
    error::TracerError,
    maps::descriptor,
    raw::{Plain, Shared, run},
};

pub(super) const PROGRAM: &str = "element";
const SLOTS: &str = "ELEMENTS";

/// The program, and the slot that describes an operation to it.
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

    /// Carries out an operation: `before` writes key and value into the slot, `after` reads the value.
    fn operate<R>(
        &self,
        table: Table,
        operation: Operation,
        before: impl FnOnce(&mut Element),
        after: impl FnOnce(&Element) -> R,
    ) -> io::Result<R> {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = slots
            .at(self.slot as usize)
            .ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: only the program below uses the slot while the lock is held.
        let element = unsafe { &mut *slot };
        before(element);
        // Stays if the kernel does not run the program.
        element.result = libc::EIO as u64;
        let arguments = [table as u64, operation as u64, u64::from(self.slot)];
        run(self.program.as_fd(), &arguments)?;
        // SAFETY: as above; the program has ended. Read anew, since it wrote.
        let element = unsafe { slot.read_volatile() };
        match element.result {
            0 => Ok(after(&element)),
            errno => Err(io::Error::from_raw_os_error(errno as i32)),
        }
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
        let value = self.operate(Operation::Get, key, None, |element| {
            let value = V::read_from_prefix(element.value.as_bytes());
            value.ok().map(|(value, _)| value)
        })?;
        value.ok_or_else(|| MapError::IoError(io::ErrorKind::InvalidData.into()))
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// The map is full, or the kernel refuses.
    pub(super) fn insert(&mut self, key: K, value: V) -> Result<(), MapError> {
        self.operate(Operation::Insert, key, Some(value), |_| ())
    }

    /// Removes a key and its value.
    ///
    /// # Errors
    /// There is none, or the kernel refuses.
    pub(super) fn remove(&mut self, key: K) -> Result<(), MapError> {
        self.operate(Operation::Remove, key, None, |_| ())
    }

    fn operate<R>(
        &self,
        operation: Operation,
        key: K,
        value: Option<V>,
        after: impl FnOnce(&Element) -> R,
    ) -> Result<R, MapError> {
        let before = |element: &mut Element| {
            write(element.key.as_mut_bytes(), key.as_bytes());
            if let Some(value) = &value {
                write(element.value.as_mut_bytes(), value.as_bytes());
            }
        };
        let done = self.elements.operate(self.table, operation, before, after);
        done.map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT) => MapError::KeyNotFound,
            _ => MapError::IoError(error),
        })
    }
}

/// Writes to the beginning of a place, which has room for it ([`ElementMap::new`]).
fn write(place: &mut [u8], bytes: &[u8]) {
    if let Some(place) = place.get_mut(..bytes.len()) {
        place.copy_from_slice(bytes);
    }
}
