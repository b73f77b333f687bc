//! The loaded BPF object: its programs, their attachments, its maps.

use std::{
    fs, io,
    os::fd::{AsFd, AsRawFd},
    sync::Arc,
};

use aya::{
    Ebpf, EbpfLoader,
    maps::{Array, HashMap, MapData},
    programs::{ProgramError, RawTracePoint, TracePoint},
    util::KernelVersion,
};
use aya_log::EbpfLogger;
use memtrace_common::{
    code_map::{self, KnownFile},
    device::EntryPoint,
    element::{Table, slot},
    kernel::{Sampling, Settings},
    limits::{SCRATCHES, SPARE_SCRATCHES},
    loss::{COUNTER_EMITTED, COUNTER_WORDS, COUNTERS, Reason},
    process::{FileKey, Process, process_flags},
    python::{Imports, Interpreter},
    ring::CHUNK,
};

use super::{
    abi,
    attach::{Attached, Attacher, Plain, Programs, Way},
    btf,
    changes::Changes,
    code_maps::CodeMaps,
    elements::{self, ElementMap, Elements},
    error::TracerError,
    kernel::{Abilities, Kernel, Losses},
    link::Link,
    maps::{descriptor, take},
    object::{self, Object},
    options::Options,
    raw::{Raw, Shared},
    removal::detach,
    ring::{self, Ring},
    rows::{Loader, Rows},
    stops::StopMaps,
    tracefs,
};
use crate::probes::{Probe, device_libraries};

/// Program, category and name of the tracepoint, whether recording is wrong without it.
/// The optional ones do not exist on every architecture or kernel.
const TRACEPOINTS: &[(&str, &str, &str, bool)] = &[
    ("mmap_enter", "syscalls", "sys_enter_mmap", true),
    ("map_exit", "syscalls", "sys_exit_mmap", true),
    ("munmap_enter", "syscalls", "sys_enter_munmap", true),
    ("unmap_exit", "syscalls", "sys_exit_munmap", true),
    ("mremap_enter", "syscalls", "sys_enter_mremap", true),
    ("map_exit", "syscalls", "sys_exit_mremap", true),
    ("brk_enter", "syscalls", "sys_enter_brk", true),
    ("map_exit", "syscalls", "sys_exit_brk", true),
    ("shmat_enter", "syscalls", "sys_enter_shmat", false),
    ("map_exit", "syscalls", "sys_exit_shmat", false),
    ("shmdt_enter", "syscalls", "sys_enter_shmdt", false),
    ("unmap_exit", "syscalls", "sys_exit_shmdt", false),
    ("ptrace_enter", "syscalls", "sys_enter_ptrace", false),
];

/// Forks, execs and exits: as above, and the program for the raw tracepoint.
const LIFECYCLE: [(&str, &str, &str, &str); 3] = [
    ("process_fork", "task", "task_newtask", "process_fork_raw"),
    (
        "process_exec",
        "sched",
        "sched_process_exec",
        "process_exec_raw",
    ),
    (
        "process_exit",
        "sched",
        "sched_process_exit",
        "process_exit_raw",
    ),
];

/// From this version on, the kernel may skip programs of raw tracepoints (`memtrace-ebpf/src/lifecycle.rs`).
const RAW_ARE_SKIPPED: KernelVersion = KernelVersion::new(7, 0, 0);

fn raw_are_skipped() -> bool {
    KernelVersion::current().is_ok_and(|version| version >= RAW_ARE_SKIPPED)
}

/// The loaded kernel side. Dropping it takes every probe away.
pub(crate) struct Tracer {
    ebpf: Ebpf,
    changes: Changes,
    processes: ElementMap<u32, Process>,
    threads_created: ElementMap<u32, u64>,
    files: ElementMap<FileKey, KnownFile>,
    recording: Array<MapData, u32>,
    pauser: Array<MapData, u32>,
    /// Of each CPU.
    counters: Shared<[u64; COUNTER_WORDS]>,
    stop_maps: StopMaps,
    log: Option<EbpfLogger<&'static dyn log::Log>>,
    /// Links of tracepoints.
    tracepoints: Vec<Link>,
    attacher: Attacher,
    /// The kernel side's maps of addresses.
    pub code: CodeMaps,
    rows: Arc<Rows>,
    has_file_versions: bool,
    /// Stacks are walked by unwind tables.
    pub unwinds: bool,
    /// Stacks are to have their Python frames.
    pub python_frames: bool,
    /// The malloc family is to be probed.
    pub heap: bool,
    /// Walks are sent to be verified.
    pub verifies: bool,
    sampling: Array<MapData, Raw<Sampling>>,
    /// Processes whose tracing began here.
    traced: u32,
    /// tracefs was mounted by us.
    pub mounted_tracefs: bool,
    object: Object,
}

/// Loads the programs of probes, and at the same time those of tracepoints.
fn load(ebpf: &mut Ebpf, programs: Programs) -> Result<Attacher, TracerError> {
    std::thread::scope(|scope| {
        let attacher = scope.spawn(|| programs.load());
        load_raw(ebpf, elements::PROGRAM)?;
        for (program, _, _, raw) in LIFECYCLE {
            if raw_are_skipped() {
                load_tracepoint(ebpf, program)?;
            } else {
                load_raw(ebpf, raw)?;
            }
        }
        for &(name, ..) in TRACEPOINTS {
            load_tracepoint(ebpf, name)?;
        }
        attacher.join().map_err(|_| TracerError::Missing("probes"))
    })
}

/// One more than the highest number of a CPU that this machine may ever have.
fn possible_cpus() -> Result<usize, TracerError> {
    let listed = fs::read_to_string("/sys/devices/system/cpu/possible");
    let listed = listed.map_err(TracerError::State)?;
    // Ranges in ascending order (Documentation/admin-guide/cputopology.rst).
    let last = listed.trim().rsplit([',', '-']).next();
    last.and_then(|last| last.parse::<usize>().ok())
        .map(|last| last + 1)
        .ok_or_else(|| TracerError::State(io::ErrorKind::InvalidData.into()))
}

fn load_raw(ebpf: &mut Ebpf, name: &'static str) -> Result<(), TracerError> {
    let program: &mut RawTracePoint = object::program(ebpf, name)?;
    program
        .load()
        .map_err(|source| TracerError::program(name, source))
}

fn load_tracepoint(ebpf: &mut Ebpf, name: &'static str) -> Result<(), TracerError> {
    let program: &mut TracePoint = object::program(ebpf, name)?;
    match program.load() {
        Ok(()) | Err(ProgramError::AlreadyLoaded) => Ok(()),
        Err(source) => Err(TracerError::program(name, source)),
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        detach(std::mem::take(&mut self.tracepoints));
    }
}

impl Tracer {
    /// Loads and verifies the programs and attaches the tracepoints. Nothing is
    /// recorded before [`Tracer::set_recording`].
    pub(crate) fn load(options: Options) -> Result<(Self, Ring), TracerError> {
        let object = Object::for_this_kernel();
        abi::check(object.bytes)?;
        let offsets = btf::kernel_offsets()?;
        let mounted_tracefs = tracefs::ensure_mounted().map_err(TracerError::Tracefs)?;
        // So that a position's place is a mask away.
        let ring_bytes = options.ring_bytes.next_power_of_two();
        let cpus = possible_cpus()?;
        let spares = u32::try_from(cpus).unwrap_or(u32::MAX) * SCRATCHES;
        let scratches = spares + SPARE_SCRATCHES;
        let settings = Settings {
            follow: u32::from(options.follow),
            unwind: u32::from(!options.frame_pointers),
            time_walks: u32::from(options.time_walks),
            page_size: u32::try_from(crate::process::page_size()).unwrap_or(4096),
            spares,
            pad: 0,
            ring_bytes: u64::from(ring_bytes),
            ring_mask: (ring::chunks(ring_bytes) as usize * CHUNK - 1) as u64,
            wake_bytes: u64::from(ring_bytes / 4),
            verify_every: options.verify_every,
            verify_bytes: u64::from(ring_bytes / 4),
        };
        let mut loader = EbpfLoader::new();
        // In the loader until it loads.
        let legacy_offsets;
        if object.is_legacy {
            legacy_offsets = Raw(btf::legacy_offsets()?);
            loader
                .override_global("LEGACY_OFFSETS", &legacy_offsets, true)
                .map_max_entries("RECORDS", ring_bytes);
        } else {
            loader.map_max_entries("RING", ring::chunks(ring_bytes));
        }
        let mut ebpf = loader
            .override_global("OFFSETS", &Raw(offsets), true)
            .override_global("SETTINGS", &Raw(settings), true)
            .map_max_entries("COUNTERS_MAP", u32::try_from(cpus).unwrap_or(u32::MAX))
            .map_max_entries("SCRATCH", scratches)
            .map_max_entries("MEMOS", 2 * scratches)
            .map_max_entries("CODES", scratches)
            .load(object.bytes)?;
        let programs = Programs::new(&ebpf, object, &options)?;
        let attacher = load(&mut ebpf, programs)?;
        // Maps first: one that is taken after its programs are loaded lives on in them,
        // one that is dropped before would be gone.
        let ring = Ring::of(&mut ebpf, object, ring_bytes)?;
        let [program, slots] = Elements::descriptors(&mut ebpf)?;
        let stop_maps = StopMaps::of(&ebpf, &program, &slots)?;
        let elements =
            Elements::new(program, slots.as_fd(), slot::COLLECTOR).map_err(TracerError::State)?;
        let mut tracer = Self {
            rows: Arc::new(Rows::new(&ebpf)?),
            code: CodeMaps::take(&mut ebpf, &elements)?,
            changes: Changes::of(&ebpf)?,
            has_file_versions: offsets.inode_mtime_sec != 0,
            unwinds: !options.frame_pointers,
            python_frames: options.python_frames,
            heap: options.heap,
            verifies: options.verify_every != 0,
            sampling: Array::try_from(take(&mut ebpf, "SAMPLING")?)?,
            traced: 0,
            stop_maps,
            processes: ElementMap::new(&elements, Table::Processes),
            threads_created: ElementMap::new(&elements, Table::ThreadsCreated),
            files: ElementMap::new(&elements, Table::Files),
            recording: Array::try_from(take(&mut ebpf, "RECORDING")?)?,
            pauser: Array::try_from(take(&mut ebpf, "HOLDER")?)?,
            counters: Shared::map(descriptor(&ebpf, "COUNTERS_MAP")?.as_fd(), cpus)
                .map_err(TracerError::State)?,
            ebpf,
            log: None,
            tracepoints: Vec::new(),
            attacher,
            mounted_tracefs,
            object,
        };
        match EbpfLogger::init(&mut tracer.ebpf) {
            Ok(log) => tracer.log = Some(log),
            Err(error) => tracing::debug!("the kernel side's log is not available: {error}"),
        }
        tracer.attacher.load(&mut tracer.ebpf)?;
        tracer.publish_entry_points()?;
        tracer.attach_tracepoints()?;
        Ok((tracer, ring))
    }

    /// Publishes which of the driver's functions are probed wherever they turn out to be.
    fn publish_entry_points(&mut self) -> Result<(), TracerError> {
        let mut map: HashMap<MapData, Raw<EntryPoint>, u32> =
            HashMap::try_from(take(&mut self.ebpf, "ENTRY_POINTS")?)?;
        for (number, (name, _)) in (0..).zip(device_libraries::entry_points()) {
            if let Some(key) = EntryPoint::new(name) {
                map.insert(Raw(key), number, 0)?;
            }
        }
        Ok(())
    }

    fn attach_tracepoints(&mut self) -> Result<(), TracerError> {
        for (program, category, tracepoint, raw) in LIFECYCLE {
            if raw_are_skipped() {
                self.attach_tracepoint(program, category, tracepoint)?;
                continue;
            }
            let program: &mut RawTracePoint = object::program(&mut self.ebpf, raw)?;
            program
                .attach(tracepoint)
                .map_err(|source| TracerError::Tracepoint { tracepoint, source })?;
        }
        for &(program, category, tracepoint, required) in TRACEPOINTS {
            match self.attach_tracepoint(program, category, tracepoint) {
                Err(error) if required => return Err(error),
                Err(error) => tracing::debug!("{error}"),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    fn attach_tracepoint(
        &mut self,
        program: &'static str,
        category: &str,
        tracepoint: &'static str,
    ) -> Result<(), TracerError> {
        let program: &mut TracePoint = object::program(&mut self.ebpf, program)?;
        let link = program
            .attach(category, tracepoint)
            .and_then(|id| program.take_link(id))
            .map_err(|source| TracerError::Tracepoint { tracepoint, source })?;
        self.tracepoints.push(Link::Tracepoint(link));
        Ok(())
    }

    /// Whether the kernel side is the one for kernels before Linux 5.17.
    pub(crate) fn is_legacy(&self) -> bool {
        self.object.is_legacy
    }

    /// Whether one link holds all probes of a file (Linux 6.10).
    pub(crate) fn has_multi_links(&self) -> bool {
        matches!(self.attacher.way, Way::Multi { .. })
    }

    /// Loads the programs that are otherwise loaded when something needs them.
    pub(crate) fn load_rest(&mut self) -> Result<(), TracerError> {
        self.attacher.load_rest()
    }

    /// Whether one program serves both ends of glibc's malloc (Linux 6.13).
    pub(crate) fn has_sessions(&self) -> bool {
        matches!(
            self.attacher.way,
            Way::Multi {
                session: Some(_),
                ..
            }
        )
    }

    /// Runs of our programs that the kernel skipped, in any process, because a program or a call of bpf(2) was running on
    /// the same CPU (`recursion_misses`, kernel/bpf/syscall.c).
    fn skipped(&self) -> Result<u64, TracerError> {
        let mut skipped = 0;
        let mut fds: Vec<i32> = self
            .ebpf
            .programs()
            .filter_map(|(_, program)| Some(program.fd().ok()?.as_fd().as_raw_fd()))
            .collect();
        fds.extend(self.attacher.programs().into_iter().map(AsRawFd::as_raw_fd));
        for fd in fds {
            let path = format!("/proc/self/fdinfo/{fd}");
            let info = fs::read_to_string(path).map_err(TracerError::State)?;
            skipped += info
                .lines()
                .find_map(|line| line.strip_prefix("recursion_misses:"))
                .and_then(|count| count.trim().parse::<u64>().ok())
                .unwrap_or(0);
        }
        Ok(skipped)
    }

    /// The maps that the pauser needs.
    pub(crate) fn stop_maps(&self) -> &StopMaps {
        &self.stop_maps
    }
}

impl Kernel for Tracer {
    fn abilities(&self) -> Abilities {
        Abilities {
            heap: self.heap,
            unwinds: self.unwinds,
            python_frames: self.python_frames,
            verifies: self.verifies,
            has_file_versions: self.has_file_versions,
        }
    }

    fn tables(&self) -> Arc<dyn Loader> {
        Arc::clone(&self.rows) as Arc<dyn Loader>
    }

    fn set_recording(&mut self, on: bool) -> Result<(), TracerError> {
        Ok(self.recording.set(0, u32::from(on), 0)?)
    }

    fn trace(&mut self, tgid: u32) -> Result<u64, TracerError> {
        // Any value that other processes are unlikely to have, an earlier one of this number included.
        self.traced += 1;
        let image = u64::from(tgid) << 32 | u64::from(self.traced);
        let process = Process {
            epoch: image,
            image,
            space: tgid,
            flags: process_flags::ACTIVE,
        };
        self.processes.insert(tgid, process)?;
        self.changes.announce();
        Ok(image)
    }

    fn traces(&self, tgid: u32) -> bool {
        self.processes.get(tgid).is_ok()
    }

    fn attach(
        &mut self,
        tgid: u32,
        file: &fs::File,
        probes: &[Probe],
    ) -> Result<Attached, TracerError> {
        self.attacher.attach(&mut self.ebpf, tgid, file, probes)
    }

    fn attach_unwinding(
        &mut self,
        tgid: u32,
        file: &fs::File,
        offsets: &[u64],
    ) -> Result<Vec<Link>, TracerError> {
        self.attacher
            .attach_plain(&mut self.ebpf, Plain::Unwinding, tgid, file, offsets)
    }

    fn attach_code_dealloc(
        &mut self,
        tgid: u32,
        file: &fs::File,
        offset: u64,
    ) -> Result<Vec<Link>, TracerError> {
        self.attacher
            .attach_plain(&mut self.ebpf, Plain::CodeDealloc, tgid, file, &[offset])
    }

    fn set_code_ends(&mut self, tgid: u32, exec: Option<u32>) -> Result<(), TracerError> {
        Ok(self.code.set_code_ends(tgid, exec)?)
    }

    fn file_known(&mut self, key: FileKey, known: KnownFile) -> Result<(), TracerError> {
        Ok(self.files.insert(key, known)?)
    }

    fn watch_code(&mut self, tgid: u32) -> Result<(), TracerError> {
        Ok(self.code.begin(tgid)?)
    }

    fn distrust_code(&mut self, tgid: u32) -> Result<(), TracerError> {
        Ok(self.code.distrust(tgid)?)
    }

    fn code_sequence(&self, tgid: u32) -> Result<u64, TracerError> {
        Ok(self.code.sequence(tgid)?)
    }

    fn is_code_behind(&self, tgid: u32) -> bool {
        self.code.is_behind(tgid)
    }

    fn publish_code(
        &mut self,
        tgid: u32,
        sequence: u64,
        mappings: &[code_map::Mapping],
    ) -> Result<(), TracerError> {
        Ok(self.code.publish(tgid, sequence, mappings)?)
    }

    fn code_forked(&mut self, parent: u32, child: u32) -> bool {
        self.code.forked(parent, child)
    }

    fn code_ended(&mut self, tgid: u32) {
        self.code.ended(tgid);
    }

    fn code_requests(&mut self) -> Vec<u32> {
        self.code.requests()
    }

    fn set_interpreter(
        &mut self,
        tgid: u32,
        interpreter: Option<Interpreter>,
    ) -> Result<(), TracerError> {
        Ok(self.code.set_interpreter(tgid, interpreter)?)
    }

    fn set_imports(&mut self, tgid: u32, imports: Option<Imports>) -> Result<(), TracerError> {
        Ok(self.code.set_imports(tgid, imports)?)
    }

    fn set_pauser(&mut self, pauser: u32) -> Result<(), TracerError> {
        Ok(self.pauser.set(0, pauser, 0)?)
    }

    fn let_stopped_go(&mut self) {
        let stopped = self.stop_maps.marked();
        for tid in stopped {
            // SAFETY: no memory is involved. A vanished thread is not an error.
            unsafe { libc::kill(tid.cast_signed(), libc::SIGCONT) };
        }
    }

    fn threads_created(&self, tgid: u32) -> u64 {
        self.threads_created.get(tgid).unwrap_or(0)
    }

    fn counters(&self) -> Result<(Losses, u64), TracerError> {
        let sum = |slot: usize| -> u64 {
            let read = |counters: &[u64; COUNTER_WORDS]| {
                // SAFETY: a reference is valid to read; the kernel side counts meanwhile.
                unsafe { (&raw const counters[slot]).read_volatile() }
            };
            self.counters.iter().map(read).sum()
        };
        let sums: [u64; COUNTERS as usize] = std::array::from_fn(sum);
        let skipped = self.skipped()?;
        let mut losses: Losses = Reason::ALL
            .into_iter()
            .filter_map(|reason| Some((reason, *sums.get(reason.slot()? as usize)?)))
            .collect();
        *losses.entry(Reason::ProgramSkipped).or_default() += skipped;
        Ok((losses, sums[COUNTER_EMITTED as usize]))
    }

    fn sampling(&self) -> Result<Sampling, TracerError> {
        Ok(self.sampling.get(&0, 0)?.0)
    }

    fn flush_log(&mut self) {
        if let Some(log) = &mut self.log {
            log.flush();
        }
    }
}
