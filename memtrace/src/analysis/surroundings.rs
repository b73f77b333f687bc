//! What goes on beside a process's own memory: the machine, and its GPUs. All
//! of it is optional: a recording holds what could be read when it was made.

/// The machine over time. Series have a value for each of `times`; empty where it was not read.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Seconds since the start of the recording.
    pub times: Vec<f64>,
    /// Memory that no process has and no cache: slab that cannot be reclaimed, drivers. Bytes.
    pub kernel: Vec<f64>,
    /// Shared memory and tmpfs, mapped or not. Bytes.
    pub shared: Vec<f64>,
    /// Seconds so far in which some task waited for memory (PSI).
    pub stalled: Vec<f64>,
    /// Bytes swapped out so far.
    pub swapped_out: Vec<f64>,
}

/// A GPU's caching allocator in one process, over time.
#[derive(Clone, Debug, Default)]
pub struct Device {
    pub tgid: u32,
    pub index: u32,
    /// Seconds since the start of the recording.
    pub times: Vec<f64>,
    /// Handed out to tensors, bytes.
    pub allocated: Vec<f64>,
    /// Taken from the driver, bytes.
    pub reserved: Vec<f64>,
}

/// All that is known beside the processes.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    pub machine: Machine,
    pub devices: Vec<Device>,
}
