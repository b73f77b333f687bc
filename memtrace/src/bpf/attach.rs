//! Attaches uprobes: all places of a file at once if the kernel can, otherwise one by one through
//! perf events.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fs, io, iter,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use aya::{
    Ebpf,
    programs::{ProgramError, UProbe},
};

use memtrace_common::function::Cookie;

use super::{
    cookies::Cookies,
    error::TracerError,
    event::Place,
    grace,
    link::Link,
    maps::descriptor,
    multi::{self, Ends, MultiError},
    object::{self, Object},
    one_by_one::{self, loaded},
    options::Options,
    raw,
    taken::{Places, Taken, attach_around},
    warmth::Warmth,
};
use crate::probes::Probe;

/// The probes of a file.
#[derive(Debug, Default)]
pub(crate) struct Attached {
    pub(crate) links: Vec<Link>,
    /// Offsets that another tracer probes, and memtrace with its semaphore. Each is reported once in a recording.
    pub(crate) shared: Vec<u64>,
    /// Offsets without a probe, because another tracer's excludes it. Each is reported once in a recording.
    pub(crate) taken: Vec<u64>,
}

/// The way of attaching uprobes, and the places that are not to be had.
pub(super) struct Attacher {
    pub(super) way: Way,
    taken: Taken,
}

/// The way of attaching uprobes.
pub(super) enum Way {
    /// Kernels from 6.10: all places of a file at once.
    Multi {
        programs: BTreeMap<Program, OwnedFd>,
        session: Option<Session>,
        /// By [`Plain`].
        plain: Vec<OwnedFd>,
        warmth: Option<Warmth>,
        own: OwnPrograms,
    },
    /// Older ones: a perf event for each.
    Perf {
        /// The programs do nothing: they measure the probes themselves.
        empty: bool,
        /// If perf events have none.
        cookies: Option<Cookies>,
    },
}

/// Programs with a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Program {
    Entry,
    Return,
    DeviceEntry,
    DeviceReturn,
    /// Of a static probe.
    Request,
    /// At a return instruction.
    End,
}

impl Program {
    const ALL: [Self; 6] = [
        Self::Entry,
        Self::Return,
        Self::DeviceEntry,
        Self::DeviceReturn,
        Self::Request,
        Self::End,
    ];

    /// The program for one end of a probe.
    fn of(probe: &Probe, at_return: bool) -> Self {
        match (probe.usdt.is_some(), probe.function.of_device(), at_return) {
            (true, ..) => Self::Request,
            (_, _, true) if !probe.ends.is_empty() => Self::End,
            (_, false, false) => Self::Entry,
            (_, false, true) => Self::Return,
            (_, true, false) => Self::DeviceEntry,
            (_, true, true) => Self::DeviceReturn,
        }
    }

    /// Whether it runs when a function has returned.
    fn at_return(self) -> bool {
        matches!(self, Self::Return | Self::DeviceReturn)
    }

    /// Whether it is loaded when it is needed.
    fn is_late(self) -> bool {
        matches!(self, Self::DeviceEntry | Self::DeviceReturn | Self::End)
    }

    /// `empty`: the program that does nothing in its place.
    fn name(self, empty: bool) -> &'static str {
        match (self, empty) {
            (Self::Entry, false) => "call_entry",
            (Self::Return, false) => "call_return",
            (Self::DeviceEntry, false) => "device_entry",
            (Self::DeviceReturn, false) => "device_return",
            (Self::Request, false) => "device_request",
            (Self::End, false) => "call_end",
            (Self::Return | Self::DeviceReturn, true) => "empty_return",
            (_, true) => "empty_entry",
        }
    }
}

/// Functions that programs call most: each has a program of its own.
const HOT: [&str; 2] = ["malloc", "free"];

/// Most such programs: the kernel verifies each when it is loaded.
const OWN_PROGRAMS: usize = 8;

/// The program for both ends of glibc's malloc, which leaves most returns alone (Linux 6.13).
const SESSION: &str = "malloc_session";

pub(super) struct Session {
    program: OwnedFd,
    /// Where functions find the blocks that they give next, by the functions' numbers.
    thread_caches: OwnedFd,
    /// The numbers of those that were published. Never republished: the kernel side may have revoked one.
    published: HashSet<u32>,
}

impl Session {
    /// Publishes the cache of a probed function. False if the function has none, or its number is too large.
    fn publish(&mut self, probe: &Probe) -> bool {
        let Some(cache) = probe.thread_cache else {
            return false;
        };
        let function = Cookie(probe.cookie()).index();
        if self.published.contains(&function) {
            return true;
        }
        match raw::update(self.thread_caches.as_fd(), function, cache) {
            Ok(()) => self.published.insert(function),
            Err(error) => {
                tracing::debug!("the cache of `{}` is left aside: {error}", probe.symbol);
                false
            }
        }
    }
}

/// Programs without a cookie.
#[derive(Clone, Copy)]
pub(super) enum Plain {
    /// Stops a thread that an exception is about to unwind through probed functions.
    Unwinding,
    /// Counts the ends of Python's code objects.
    CodeDealloc,
}

/// Their names.
const PLAIN: [&str; 2] = ["unwinding", "code_dealloc"];

/// The programs of an [`Attacher`], before they are loaded.
pub(super) struct Programs {
    /// The programs do nothing: they measure the probes themselves.
    empty: bool,
    multi: Option<multi::Prepared>,
    cookies: Option<Cookies>,
    /// Returns may be left alone.
    session: bool,
    thread_caches: OwnedFd,
}

impl Programs {
    /// Those of `object`, whose maps `ebpf` holds.
    ///
    /// # Errors
    /// A map is missing, or the object is not as expected.
    pub(super) fn new(ebpf: &Ebpf, object: Object, options: &Options) -> Result<Self, TracerError> {
        let multi = match options.one_by_one || object.is_legacy {
            true => None,
            false => multi::Prepared::new(ebpf, object.bytes).map_or_else(not_multi, Some),
        };
        let cookies = object.is_legacy.then(|| Cookies::new(ebpf)).transpose()?;
        Ok(Self {
            empty: options.empty_probes,
            multi,
            cookies,
            // The kernel's walk along frame pointers begins where the probe is: at the return it is in the caller.
            session: !options.empty_probes && !options.frame_pointers,
            thread_caches: descriptor(ebpf, "THREAD_CACHES")?,
        })
    }

    /// Loads them for multi links, if that is not refused.
    pub(super) fn load(mut self) -> Attacher {
        let (empty, cookies) = (self.empty, self.cookies.take());
        let way = self.load_multi().unwrap_or_else(|| {
            grace::need_short();
            Way::Perf { empty, cookies }
        });
        Attacher {
            way,
            taken: Taken::default(),
        }
    }

    fn load_multi(self) -> Option<Way> {
        let prepared = self.multi?;
        prepared.try_links().map_or_else(not_multi, Some)?;
        let first: Vec<Program> = Program::ALL
            .into_iter()
            .filter(|program| !program.is_late())
            .collect();
        let names = first.iter().map(|program| program.name(self.empty));
        let names: Vec<_> = names.chain(PLAIN).collect();
        let (loaded, session) = std::thread::scope(|scope| {
            let session = (self.session && prepared.has_sessions())
                .then(|| scope.spawn(|| prepared.load(SESSION, Ends::Both)));
            let loaded = prepared.load_all(&names);
            (loaded, session.and_then(|program| program.join().ok()))
        });
        let mut programs: Vec<_> = loaded.map_or_else(not_multi, Some)?;
        let plain = programs.split_off(first.len());
        let failed = |error: &_| tracing::debug!("returns are always probed: {error}");
        let session = session.and_then(|program| program.inspect_err(failed).ok());
        Some(Way::Multi {
            programs: first.into_iter().zip(programs).collect(),
            session: session.map(|program| Session {
                program,
                thread_caches: self.thread_caches,
                published: HashSet::new(),
            }),
            warmth: Warmth::start(&plain[0])
                .inspect_err(|error| tracing::debug!("{error}"))
                .ok(),
            plain,
            own: OwnPrograms {
                empty: self.empty,
                prepared: Box::new(prepared),
                by_cookie: HashMap::new(),
            },
        })
    }
}

fn not_multi<T>(error: MultiError) -> Option<T> {
    tracing::debug!("uprobes one by one: {error}");
    None
}

/// Whether a probe is worth a program of its own.
fn is_hot(probe: &Probe) -> bool {
    let mut names = iter::once(&probe.symbol).chain(&probe.aliases);
    Program::of(probe, false) == Program::Entry && names.any(|name| HOT.contains(&name.as_str()))
}

/// Programs that are loaded when they are needed: copies of the program for entries, each for one function, and others.
pub(super) struct OwnPrograms {
    empty: bool,
    prepared: Box<multi::Prepared>,
    /// `None`: it could not be loaded.
    by_cookie: HashMap<u64, Option<OwnedFd>>,
}

impl OwnPrograms {
    /// Loads the missing programs of some probes in parallel, up to [`OWN_PROGRAMS`].
    fn load(&mut self, probes: &[&Probe]) {
        let cookies = probes.iter().map(|probe| probe.cookie());
        let new: BTreeSet<u64> = cookies
            .filter(|cookie| !self.by_cookie.contains_key(cookie))
            .collect();
        let new: Vec<u64> = new
            .into_iter()
            .take(OWN_PROGRAMS - self.by_cookie.len())
            .collect();
        let load = |cookie| {
            let entry = Program::Entry.name(self.empty);
            let program = self.prepared.load_for(entry, cookie);
            let program = program.inspect_err(|error| tracing::debug!("{error}"));
            program.ok()
        };
        let loaded: Vec<_> = std::thread::scope(|scope| {
            let start = |&cookie: &u64| {
                let thread = std::thread::Builder::new();
                // If no thread can be started, the function uses the shared program.
                thread.spawn_scoped(scope, move || load(cookie)).ok()
            };
            let loading: Vec<_> = new.iter().map(start).collect();
            let loaded = loading.into_iter();
            loaded.map(|thread| thread?.join().ok()?).collect()
        });
        self.by_cookie.extend(new.into_iter().zip(loaded));
    }

    /// Loads the missing ones of these programs.
    fn complete(
        &self,
        programs: &mut BTreeMap<Program, OwnedFd>,
        needed: impl Iterator<Item = Program>,
    ) -> Result<(), TracerError> {
        let missing: BTreeSet<Program> = needed
            .filter(|program| !programs.contains_key(program))
            .collect();
        let names = missing.iter().map(|program| program.name(self.empty));
        let loaded = self.prepared.load_all(&names.collect::<Vec<_>>());
        let loaded = loaded.map_err(|error| TracerError::Late(error.to_string()))?;
        programs.extend(missing.into_iter().zip(loaded));
        Ok(())
    }

    /// The program of a probe, if it has its own.
    fn of(&self, probe: &Probe) -> Option<&OwnedFd> {
        self.by_cookie.get(&probe.cookie())?.as_ref()
    }

    /// All that the kernel accepted.
    fn loaded(&self) -> impl Iterator<Item = &OwnedFd> {
        self.by_cookie.values().flatten()
    }
}

impl Attacher {
    /// Loads the programs that [`Programs::load`] did not load.
    pub(super) fn load(&self, ebpf: &mut Ebpf) -> Result<(), TracerError> {
        let Way::Perf { empty, .. } = &self.way else {
            return Ok(());
        };
        let names = Program::ALL.map(|program| program.name(*empty));
        for program in names.into_iter().chain(PLAIN) {
            let uprobe: &mut UProbe = object::program(ebpf, program)?;
            match uprobe.load() {
                Ok(()) | Err(ProgramError::AlreadyLoaded) => {}
                Err(source) => return Err(TracerError::program(program, source)),
            }
        }
        Ok(())
    }

    /// The programs that aya has not loaded.
    pub(super) fn programs(&self) -> Vec<&OwnedFd> {
        match &self.way {
            Way::Multi {
                programs,
                session,
                plain,
                own,
                ..
            } => {
                let session = session.iter().map(|session| &session.program);
                let all = programs.values().chain(plain).chain(session);
                all.chain(own.loaded()).collect()
            }
            Way::Perf { .. } => Vec::new(),
        }
    }

    /// Loads the programs that would be loaded later.
    ///
    /// # Errors
    /// The kernel refuses one.
    pub(super) fn load_rest(&mut self) -> Result<(), TracerError> {
        match &mut self.way {
            Way::Multi { programs, own, .. } => own.complete(programs, Program::ALL.into_iter()),
            Way::Perf { .. } => Ok(()),
        }
    }

    /// Attaches the probes of one file, open at `file`, in one process. Releases
    /// first: a release without its allocation is known to be one, an allocation
    /// without its release looks like a leak.
    pub(super) fn attach(
        &mut self,
        ebpf: &mut Ebpf,
        tgid: u32,
        file: &fs::File,
        probes: &[Probe],
    ) -> Result<Attached, TracerError> {
        // The path of our descriptor leads to the very inode, whatever its name means in any mount
        // namespace.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let (mut allocating, releasing): (Vec<&Probe>, Vec<&Probe>) =
            probes.iter().partition(|probe| probe.needs_return);
        let taken = self.taken.of(file);
        let known = taken.clone();
        let mut links = Vec::new();
        match &mut self.way {
            Way::Multi {
                programs,
                session,
                own,
                warmth,
                ..
            } => {
                let mut attach = |program: &OwnedFd, probes: &[&Probe], ends| {
                    let mut attach = |probes: &[&Probe], places: &_| {
                        multi::attach(program, tgid, &path, (probes, places), ends)
                            .map(Link::Multi)
                            .map_err(|source| TracerError::Uprobes { tgid, source })
                    };
                    links.extend(attach_around(probes, taken, &mut attach)?);
                    Ok::<_, TracerError>(())
                };
                let ends = |probe| [false, true].map(|at_return| Program::of(probe, at_return));
                own.complete(programs, probes.iter().flat_map(ends))?;
                let in_session: Vec<&Probe> = match session {
                    Some(session) => allocating
                        .extract_if(.., |probe| session.publish(probe))
                        .collect(),
                    None => Vec::new(),
                };
                let rest = releasing.iter().chain(&allocating).copied();
                own.load(&rest.filter(|probe| is_hot(probe)).collect::<Vec<_>>());
                // Returns before entries: an entry without its return would look in flight forever.
                for (probes, ends) in [
                    (&releasing, Ends::Entry),
                    (&allocating, Ends::Return),
                    (&allocating, Ends::Entry),
                ] {
                    let mut shared = probes.clone();
                    if ends == Ends::Entry {
                        for &probe in probes {
                            if let Some(program) = own.of(probe) {
                                attach(program, &[probe], ends)?;
                            }
                        }
                        shared.retain(|probe| own.of(probe).is_none());
                    }
                    for (&program, fd) in programs.iter() {
                        let of_program: Vec<&Probe> = shared
                            .iter()
                            .copied()
                            .filter(|probe| Program::of(probe, ends == Ends::Return) == program)
                            .collect();
                        if !of_program.is_empty() {
                            let ends = match program {
                                Program::End => Ends::Instruction,
                                _ => ends,
                            };
                            attach(fd, &of_program, ends)?;
                        }
                    }
                }
                if let Some(session) = session.as_ref().filter(|_| !in_session.is_empty()) {
                    attach(&session.program, &in_session, Ends::Both)?;
                }
                if let Some(warmth) = warmth {
                    warmth.keep();
                }
            }
            Way::Perf { empty, cookies } => {
                let ends = |probe| [true, false].map(|at_return| (probe, at_return));
                let releasing = releasing.into_iter().map(|probe| (probe, false));
                for (probe, at_return) in releasing.chain(allocating.into_iter().flat_map(ends)) {
                    let program = Program::of(probe, at_return);
                    let offsets = match program {
                        Program::End => &probe.ends[..],
                        _ => &[probe.file_offset],
                    };
                    for &offset in offsets {
                        let mut attach = |_: &[&Probe], places: &Places| {
                            let place = Place {
                                offset,
                                semaphore: places.semaphore(probe, offset),
                                at_return: program.at_return(),
                            };
                            let program = loaded(ebpf, program.name(*empty))?;
                            let attach = |path: &str, cookie| {
                                let place = (&*probe.symbol, place);
                                one_by_one::attach(program, tgid, path, place, cookie)
                            };
                            match cookies.as_mut() {
                                _ if *empty => attach(&path, 0),
                                Some(cookies) => attach(&cookies.path(probe.cookie(), &path)?, 0),
                                None => attach(&path, probe.cookie()),
                            }
                        };
                        links.extend(attach_around(&[probe], taken, &mut attach)?);
                    }
                }
            }
        }
        if links.is_empty() && !probes.is_empty() {
            // The file itself is the reason.
            let source = io::Error::from_raw_os_error(libc::EINVAL);
            return Err(TracerError::Uprobes { tgid, source });
        }
        let (shared, taken) = taken.new_since(&known);
        Ok(Attached {
            links,
            shared,
            taken,
        })
    }

    /// Attaches a program to offsets of the file, open at `file`, in one process.
    pub(super) fn attach_plain(
        &self,
        ebpf: &mut Ebpf,
        program: Plain,
        tgid: u32,
        file: &fs::File,
        offsets: &[u64],
    ) -> Result<Vec<Link>, TracerError> {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        match &self.way {
            Way::Multi { plain, .. } => {
                let link = multi::attach_plain(&plain[program as usize], tgid, &path, offsets)
                    .map_err(|source| TracerError::Uprobes { tgid, source })?;
                Ok(vec![Link::Multi(link)])
            }
            Way::Perf { .. } => {
                let name = PLAIN[program as usize];
                let program = loaded(ebpf, name)?;
                let attach = |&offset: &u64| {
                    let place = Place {
                        offset,
                        semaphore: 0,
                        at_return: false,
                    };
                    one_by_one::attach(program, tgid, &path, (name, place), 0)
                };
                offsets.iter().map(attach).collect()
            }
        }
    }
}
