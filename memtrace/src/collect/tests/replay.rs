//! A kernel side made of captured records, and a sink that keeps its messages.

use std::{
    cell::{Ref, RefCell, RefMut},
    collections::{BTreeSet, HashMap, HashSet},
    fs::File,
    path::Path,
    rc::Rc,
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

use memtrace_common::{
    code_map::{self, KnownFile},
    event::{Kind, Lifecycle},
    kernel::Sampling,
    loss::Reason,
    process::FileKey,
    python::{Imports, Interpreter},
};

use super::super::{
    capture,
    collector::{Collector, Parts},
    schedule::Tick,
    sink::{Message, Sink, Stopped},
};
use crate::{
    bpf::{
        Abilities, Attached, Kernel, Link, Losses, TracerError,
        decode::{self, Record},
        rows::{Loader, RowsError},
    },
    event::{Device, Layer, StackId},
    host::Redactor,
    ledger::DeviceTotals,
    pause::{Notice, Pause, PauseError},
    probes::Probe,
    recording::{self, Interval, Origin, ProcessRow},
    unwind::Table,
};

/// Added to every pid, so that none is a process of this machine (PID_MAX_LIMIT, include/linux/threads.h).
const ELSEWHERE: u32 = 1 << 24;

/// Records as the kernel side sent them.
#[derive(Clone)]
pub(super) struct Capture(Vec<Vec<u8>>);

impl Capture {
    pub(super) fn read(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/collect/tests/captures");
        let mut records = capture::read(&folder.join(format!("{name}.zst"))).unwrap();
        for record in &mut records {
            move_pids(record);
        }
        Self(records)
    }

    pub(super) fn records(&self) -> &[Vec<u8>] {
        &self.0
    }

    pub(super) fn decoded(&self) -> impl Iterator<Item = (Kind, Record<'_>)> {
        self.0.iter().map(|record| decode::decode(record).unwrap())
    }

    /// The launched process: nothing comes before it.
    pub(super) fn root(&self) -> u32 {
        pid_at(&self.0[0], 4)
    }

    pub(super) fn without(&self, is_lost: impl Fn(Kind, &Record<'_>) -> bool) -> Self {
        let kept = self.decoded().zip(&self.0);
        let kept = kept.filter(|((kind, record), _)| !is_lost(*kind, record));
        Self(kept.map(|(_, bytes)| bytes.clone()).collect())
    }

    /// Without the records between two shares of all; the first one stays because it names the process.
    pub(super) fn without_range(&self, from: f64, to: f64) -> Self {
        let at = |share: f64| ((self.0.len() as f64 * share) as usize).max(1);
        Self([&self.0[..at(from)], &self.0[at(to)..]].concat())
    }
}

fn pid_at(record: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(record[at..at + 4].try_into().unwrap())
}

fn move_pids(record: &mut [u8]) {
    let (kind, _) = decode::decode(record).unwrap();
    let mut places = vec![4, 8];
    if matches!(kind, Kind::Fork | Kind::Exec | Kind::Exit | Kind::Stopped) {
        places.push(std::mem::offset_of!(Lifecycle, other));
    }
    for at in places {
        let pid = pid_at(record, at);
        if pid != 0 {
            record[at..at + 4].copy_from_slice(&(pid + ELSEWHERE).to_ne_bytes());
        }
    }
}

/// Requests from the collector to the kernel side.
#[derive(Default)]
pub(super) struct Asked {
    pub(super) ended: BTreeSet<u32>,
    pub(super) forked: Vec<(u32, u32)>,
    /// Probes attached, by process.
    pub(super) attached: Vec<(u32, usize)>,
    pub(super) known: HashSet<u32>,
    pub(super) traced: HashSet<u32>,
    /// Mappings published last, by process.
    pub(super) published: HashMap<u32, Vec<code_map::Mapping>>,
    /// Processes whose code it requests again and again.
    pub(super) wanted: Vec<u32>,
    /// The losses it reports.
    pub(super) lost: Losses,
}

struct Captured {
    asked: Rc<RefCell<Asked>>,
    gate: Arc<Gate>,
}

/// A loader that drops tables, once the file's number was accepted.
#[derive(Default)]
pub(super) struct Gate {
    open: Mutex<HashSet<u32>>,
    changed: Condvar,
}

impl Gate {
    pub(super) fn let_pass(&self, execs: impl IntoIterator<Item = u32>) {
        self.open.lock().unwrap().extend(execs);
        self.changed.notify_all();
    }
}

impl Loader for Gate {
    fn load(&self, exec: u32, _: Option<&Table>) -> Result<(), RowsError> {
        let open = self.open.lock().unwrap();
        drop(self.changed.wait_while(open, |open| !open.contains(&exec)));
        Ok(())
    }
}

/// A pauser that records which threads may continue.
struct Noting(Rc<RefCell<Vec<u32>>>);

impl Pause for Noting {
    fn seize(&mut self, _: u32) -> Result<(), PauseError> {
        Ok(())
    }

    fn let_continue(&mut self, tid: u32) -> Result<(), PauseError> {
        self.0.borrow_mut().push(tid);
        Ok(())
    }

    fn traces(&self, _: u32) -> bool {
        true
    }

    fn release(&mut self, _: u32) -> Result<(), PauseError> {
        Ok(())
    }

    fn halt(&mut self, _: u32) -> Result<(), PauseError> {
        Ok(())
    }

    fn go_on(&mut self, _: u32) -> Result<(), PauseError> {
        Ok(())
    }

    fn notices(&mut self) -> Result<Vec<Notice>, PauseError> {
        Ok(Vec::new())
    }

    fn wake(&self) {}
}

impl Kernel for Captured {
    fn abilities(&self) -> Abilities {
        Abilities {
            heap: true,
            unwinds: true,
            python_frames: true,
            ..Abilities::default()
        }
    }

    fn tables(&self) -> Arc<dyn Loader> {
        Arc::clone(&self.gate) as Arc<dyn Loader>
    }

    fn set_recording(&mut self, _: bool) -> Result<(), TracerError> {
        Ok(())
    }

    fn trace(&mut self, tgid: u32) -> Result<u64, TracerError> {
        self.asked.borrow_mut().traced.insert(tgid);
        Ok(u64::from(tgid))
    }

    fn traces(&self, tgid: u32) -> bool {
        self.asked.borrow().traced.contains(&tgid)
    }

    fn attach(&mut self, tgid: u32, _: &File, probes: &[Probe]) -> Result<Attached, TracerError> {
        self.asked.borrow_mut().attached.push((tgid, probes.len()));
        Ok(Attached::default())
    }

    fn attach_unwinding(&mut self, _: u32, _: &File, _: &[u64]) -> Result<Vec<Link>, TracerError> {
        Ok(Vec::new())
    }

    fn attach_code_dealloc(&mut self, _: u32, _: &File, _: u64) -> Result<Vec<Link>, TracerError> {
        Ok(Vec::new())
    }

    fn set_code_ends(&mut self, _: u32, _: Option<u32>) -> Result<(), TracerError> {
        Ok(())
    }

    fn file_known(&mut self, _: FileKey, known: KnownFile) -> Result<(), TracerError> {
        self.asked.borrow_mut().known.insert(known.exec);
        Ok(())
    }

    fn watch_code(&mut self, _: u32) -> Result<(), TracerError> {
        Ok(())
    }

    fn distrust_code(&mut self, _: u32) -> Result<(), TracerError> {
        Ok(())
    }

    fn code_sequence(&self, _: u32) -> Result<u64, TracerError> {
        Ok(0)
    }

    fn is_code_behind(&self, _: u32) -> bool {
        false
    }

    fn publish_code(
        &mut self,
        tgid: u32,
        _: u64,
        mappings: &[code_map::Mapping],
    ) -> Result<(), TracerError> {
        let published = &mut self.asked.borrow_mut().published;
        published.insert(tgid, mappings.to_vec());
        Ok(())
    }

    fn code_forked(&mut self, parent: u32, child: u32) -> bool {
        self.asked.borrow_mut().forked.push((parent, child));
        true
    }

    fn code_ended(&mut self, tgid: u32) {
        assert!(
            self.asked.borrow_mut().ended.insert(tgid),
            "{tgid} ended twice"
        );
    }

    fn code_requests(&mut self) -> Vec<u32> {
        self.asked.borrow().wanted.clone()
    }

    fn set_interpreter(&mut self, _: u32, _: Option<Interpreter>) -> Result<(), TracerError> {
        Ok(())
    }

    fn set_imports(&mut self, _: u32, _: Option<Imports>) -> Result<(), TracerError> {
        Ok(())
    }

    fn set_pauser(&mut self, _: u32) -> Result<(), TracerError> {
        Ok(())
    }

    fn let_stopped_go(&mut self) {}

    fn threads_created(&self, _: u32) -> u64 {
        0
    }

    fn counters(&self) -> Result<(Losses, u64), TracerError> {
        Ok((self.asked.borrow().lost.clone(), 0))
    }

    fn sampling(&self) -> Result<Sampling, TracerError> {
        Ok(Sampling::default())
    }

    fn flush_log(&mut self) {}
}

struct Kept(Rc<RefCell<Vec<Message>>>);

impl Sink for Kept {
    fn send(&mut self, message: Message) -> Result<(), Stopped> {
        self.0.borrow_mut().push(message);
        Ok(())
    }

    fn finish(self: Box<Self>, _: u64, _: &dyn Fn() -> bool) -> Result<(), recording::Error> {
        Ok(())
    }
}

/// A collector of captured records.
pub(super) struct Replay {
    pub(super) collector: Collector,
    /// Processes with code objects run an interpreter of this version.
    pub(super) python_minor: Option<u32>,
    pub(super) gate: Arc<Gate>,
    asked: Rc<RefCell<Asked>>,
    kept: Rc<RefCell<Vec<Message>>>,
    continued: Rc<RefCell<Vec<u32>>>,
}

impl Replay {
    /// One that has begun to trace the capture's process.
    pub(super) fn of(capture: &Capture) -> Self {
        let mut replay = Self::idle();
        replay
            .collector
            .begin(capture.root(), Origin::Launched, 0, Duration::ZERO)
            .unwrap();
        replay
    }

    /// One that traces nothing yet.
    pub(super) fn idle() -> Self {
        let (asked, kept, continued) = (Rc::default(), Rc::default(), Rc::default());
        let gate = Arc::new(Gate::default());
        let collector = Collector::new(Parts {
            kernel: Box::new(Captured {
                asked: Rc::clone(&asked),
                gate: Arc::clone(&gate),
            }),
            pauser: Some(Box::new(Noting(Rc::clone(&continued)))),
            sink: Box::new(Kept(Rc::clone(&kept))),
            allocators: Vec::new(),
            redactor: Arc::new(Redactor::default()),
            page_size: 4096,
            fold: false,
            summarise_imports: false,
            least_rest: Duration::ZERO,
        })
        .unwrap();
        Self {
            collector,
            python_minor: None,
            gate,
            asked,
            kept,
            continued,
        }
    }

    pub(super) fn one(&mut self, record: &[u8]) {
        if let Some(minor) = self.python_minor
            && let Ok((Kind::PythonCode, Record::PythonCode(code, _))) = decode::decode(record)
        {
            let interpreter = Interpreter {
                minor,
                ..Interpreter::default()
            };
            let processes = &mut self.collector.processes;
            processes.set_interpreter(code.header.tgid, interpreter);
        }
        self.collector.handle(record).unwrap();
        self.collector.look_around();
    }

    /// Every record, and an interval at the end.
    pub(super) fn all(&mut self, capture: &Capture) {
        for record in capture.records() {
            self.one(record);
        }
        self.collector
            .interval(
                u64::MAX,
                Tick {
                    scan: true,
                    ..Tick::default()
                },
            )
            .unwrap();
    }

    pub(super) fn kernel(&self) -> Ref<'_, Asked> {
        self.asked.borrow()
    }

    pub(super) fn kernel_mut(&self) -> RefMut<'_, Asked> {
        self.asked.borrow_mut()
    }

    /// Threads that were continued, in order.
    pub(super) fn continued(&self) -> Vec<u32> {
        self.continued.borrow().clone()
    }

    /// Rows reported for processes.
    pub(super) fn rows(&self) -> Vec<ProcessRow> {
        let kept = self.kept.borrow();
        let rows = kept.iter().filter_map(|message| match message {
            Message::Process(row) => Some(row.clone()),
            _ => None,
        });
        rows.collect()
    }

    /// Untraced processes that were reported, with reasons.
    pub(super) fn untraced(&self) -> Vec<(u32, String)> {
        let kept = self.kept.borrow();
        let untraced = kept.iter().filter_map(|message| match message {
            Message::Untraced(of) => Some((of.tgid, of.why.clone())),
            _ => None,
        });
        untraced.collect()
    }

    pub(super) fn code_names(&self) -> Vec<String> {
        let kept = self.kept.borrow();
        let names = kept.iter().filter_map(|message| match message {
            Message::Code(_, code) => Some(code.name.clone()),
            _ => None,
        });
        names.collect()
    }

    fn intervals<T>(&self, of: impl Fn(&Interval) -> T) -> Vec<T> {
        let kept = self.kept.borrow();
        let intervals = kept.iter().filter_map(|message| match message {
            Message::Interval(interval) => Some(of(interval)),
            _ => None,
        });
        intervals.collect()
    }

    /// Losses of the last interval; there must have been one, or there is one now.
    pub(super) fn losses(&mut self) -> HashMap<Reason, u64> {
        self.collector.interval(u64::MAX, Tick::default()).unwrap();
        let losses = self.intervals(|interval| interval.losses.clone());
        losses
            .into_iter()
            .next_back()
            .unwrap()
            .into_iter()
            .collect()
    }

    /// Bytes and blocks ever allocated in a layer, all processes together.
    pub(super) fn allocated(&self, layer: Layer) -> (u64, u64) {
        let layers = self.intervals(|interval| interval.changes.layers.clone());
        // The last word on each.
        let last: HashMap<_, _> = layers.into_iter().flatten().collect();
        last.iter()
            .filter(|((_, of), _)| *of == layer)
            .fold((0, 0), |sum, (_, totals)| {
                let totals = totals.totals;
                (sum.0 + totals.alloc_bytes, sum.1 + totals.alloc_count)
            })
    }

    /// Totals last reported for a device, of any process.
    pub(super) fn device_totals(&self, device: Device) -> DeviceTotals {
        let devices = self.intervals(|interval| interval.changes.devices.clone());
        let mut all = devices.into_iter().flatten();
        let last = all.rfind(|((_, of), _)| *of == device);
        last.expect("something of the device").1
    }

    /// Stacks that have allocated in a layer.
    pub(super) fn sites(&self, layer: Layer) -> HashSet<StackId> {
        let sites = self.intervals(|interval| interval.changes.sites.clone());
        sites
            .into_iter()
            .flatten()
            .filter(|(key, _)| key.layer == layer)
            .map(|(key, _)| key.stack)
            .collect()
    }
}
