//! NVIDIA's management library (NVML), as far as memtrace needs it. Functions and structures are those of `nvml.h` of
//! CUDA 11.5 and later.

use std::{
    ffi::{c_char, c_int, c_uint, c_ulonglong, c_void},
    ptr::null_mut,
};

use libloading::{Library, Symbol};

/// The name under which the driver installs it; the one without a number is for development.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// `nvmlReturn_t`.
const SUCCESS: c_int = 0;
const INSUFFICIENT_SIZE: c_int = 7;

/// `NVML_DEVICE_UUID_V2_BUFFER_SIZE`.
const UUID_BYTES: c_uint = 96;

/// Room for processes that start between counting them and listing them.
const HEADROOM: usize = 5;

/// Most processes of a device that are read.
const MOST_PROCESSES: usize = 1 << 16;

/// `NVML_VALUE_NOT_AVAILABLE`, in a process's memory.
const NOT_AVAILABLE: u64 = u64::MAX;

type Init = unsafe extern "C" fn() -> c_int;
type Count = unsafe extern "C" fn(*mut c_uint) -> c_int;
type ByIndex = unsafe extern "C" fn(c_uint, *mut *mut c_void) -> c_int;
type Uuid = unsafe extern "C" fn(*mut c_void, *mut c_char, c_uint) -> c_int;
type Memory = unsafe extern "C" fn(*mut c_void, *mut MemoryInfo) -> c_int;
type Processes = unsafe extern "C" fn(*mut c_void, *mut c_uint, *mut ProcessInfo) -> c_int;

/// `nvmlMemory_t`, bytes.
#[repr(C)]
#[derive(Default)]
struct MemoryInfo {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `nvmlProcessInfo_t`.
#[repr(C)]
#[derive(Clone, Default)]
struct ProcessInfo {
    pid: c_uint,
    /// Bytes.
    used: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// The library, once it is initialised. Like the driver it stays loaded.
pub(super) struct Nvml {
    library: Library,
}

/// A GPU of the machine.
pub(super) struct Gpu<'a> {
    nvml: &'a Nvml,
    handle: *mut c_void,
}

impl Nvml {
    /// Loads the library. `None`: it is not installed, or finds no driver.
    pub(super) fn load() -> Option<Self> {
        // SAFETY: the library's initialisers run, as in every program that is linked with it.
        let library = unsafe { Library::new(LIBRARY) };
        let library = library
            .inspect_err(|error| tracing::debug!("no memory of whole GPU processes: {error}"))
            .ok()?;
        let nvml = Self { library };
        // SAFETY: its type is that of `nvml.h`.
        let status = unsafe { nvml.function::<Init>(b"nvmlInit_v2")?() };
        if status != SUCCESS {
            tracing::debug!("no memory of whole GPU processes: nvmlInit_v2 returned {status}");
            return None;
        }
        Some(nvml)
    }

    /// GPUs of the machine, by index.
    pub(super) fn gpus(&self) -> Vec<Gpu<'_>> {
        let (Some(count), Some(by_index)) = (
            self.function::<Count>(b"nvmlDeviceGetCount_v2"),
            self.function::<ByIndex>(b"nvmlDeviceGetHandleByIndex_v2"),
        ) else {
            return Vec::new();
        };
        let mut gpus = 0;
        // SAFETY: the type is that of `nvml.h`; the argument is writable.
        if unsafe { count(&raw mut gpus) } != SUCCESS {
            return Vec::new();
        }
        let handles = (0..gpus).filter_map(|index| {
            let mut handle = null_mut();
            // SAFETY: as above.
            let status = unsafe { by_index(index, &raw mut handle) };
            (status == SUCCESS).then_some(Gpu { nvml: self, handle })
        });
        handles.collect()
    }

    fn function<T>(&self, name: &[u8]) -> Option<Symbol<'_, T>> {
        // SAFETY: callers name the type that `nvml.h` has for the function.
        unsafe { self.library.get(name) }.ok()
    }
}

impl Gpu<'_> {
    /// `GPU-` and a UUID.
    pub(super) fn uuid(&self) -> Option<String> {
        let function = self.nvml.function::<Uuid>(b"nvmlDeviceGetUUID")?;
        let mut text = [0_u8; UUID_BYTES as usize];
        // SAFETY: the type is that of `nvml.h`; the buffer has the length given, and outlives the call.
        let status = unsafe { function(self.handle, text.as_mut_ptr().cast(), UUID_BYTES) };
        let text = text.split(|byte| *byte == 0).next()?;
        (status == SUCCESS).then(|| String::from_utf8_lossy(text).into_owned())
    }

    /// Bytes of memory that it has.
    pub(super) fn capacity(&self) -> Option<u64> {
        let function = self.nvml.function::<Memory>(b"nvmlDeviceGetMemoryInfo")?;
        let mut memory = MemoryInfo::default();
        // SAFETY: the type is that of `nvml.h`; the argument is writable.
        let status = unsafe { function(self.handle, &raw mut memory) };
        (status == SUCCESS).then_some(memory.total)
    }

    /// Processes that compute on it, with the bytes that each uses; those whose use is not known are left out.
    pub(super) fn processes(&self) -> Vec<(u32, u64)> {
        let name = b"nvmlDeviceGetComputeRunningProcesses_v3";
        let Some(function) = self.nvml.function::<Processes>(name) else {
            return Vec::new();
        };
        let mut processes: Vec<ProcessInfo> = Vec::new();
        while processes.len() < MOST_PROCESSES {
            let mut count = processes.len() as c_uint;
            let room = match processes.is_empty() {
                true => null_mut(),
                false => processes.as_mut_ptr(),
            };
            // SAFETY: the type is that of `nvml.h`; there is room for `count` processes.
            let status = unsafe { function(self.handle, &raw mut count, room) };
            match status {
                SUCCESS => {
                    processes.truncate(count as usize);
                    break;
                }
                INSUFFICIENT_SIZE => {
                    let room = (count as usize).max(processes.len()) + HEADROOM;
                    processes.resize(room.min(MOST_PROCESSES), ProcessInfo::default());
                }
                _ => return Vec::new(),
            }
        }
        let known = processes.iter().filter(|of| of.used != NOT_AVAILABLE);
        known.map(|of| (of.pid, of.used)).collect()
    }
}
