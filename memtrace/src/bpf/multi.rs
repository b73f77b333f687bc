//! Uprobes by the dozen: `BPF_TRACE_UPROBE_MULTI` links (Linux 6.6, usable from
//! 6.10: the first ones took the process filter for a thread filter).
//!
//! One link holds any number of places of a file and takes them away together; perf events are
//! removed one by one, each waiting for RCU under a lock of the whole machine, which held up
//! children that wait for their probes for seconds. aya 0.14 cannot attach this way; hence the two
//! system calls here.

use std::{
    borrow::Cow,
    ffi::c_char,
    ffi::{CStr, CString},
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use aya::Ebpf;
use aya_obj::{
    Object,
    generated::{
        BPF_ALU64, BPF_CALL, BPF_DW, BPF_IMM, BPF_JMP, BPF_LD, BPF_MOV, BPF_X, bpf_attach_type,
        bpf_attr, bpf_cmd, bpf_func_id::BPF_FUNC_get_attach_cookie, bpf_insn, bpf_prog_type,
    },
};

use super::{exit::uninterrupted, maps::map_fd, raw::bpf, taken::Places};
use crate::probes::Probe;

/// BPF_F_UPROBE_MULTI_RETURN, include/uapi/linux/bpf.h.
const AT_RETURN: u32 = 1;

/// BPF_TRACE_UPROBE_SESSION, there (Linux 6.13).
const SESSION: u32 = 57;

/// The program that tests whether the kernel has such links.
const TRIED: &str = "empty_entry";

/// The ends of calls at which a program runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    Entry,
    Return,
    /// At the function's return instructions.
    Instruction,
    /// At entries, and at the returns that it chooses: a session.
    Both,
    /// Where its perf event is.
    OfEvent,
}

impl Ends {
    fn attach_type(self) -> u32 {
        match self {
            Ends::Entry | Ends::Return | Ends::Instruction => {
                bpf_attach_type::BPF_TRACE_UPROBE_MULTI as u32
            }
            Ends::Both => SESSION,
            Ends::OfEvent => 0,
        }
    }
}

/// Why this way of attaching cannot be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum MultiError {
    #[error(transparent)]
    Parse(#[from] aya_obj::ParseError),
    #[error(transparent)]
    Relocation(#[from] aya_obj::relocation::EbpfRelocationError),
    #[error(transparent)]
    Btf(#[from] aya_obj::btf::BtfError),
    #[error("cannot keep the maps: {0}")]
    Maps(io::Error),
    #[error("the kernel refused the object's types: {0}")]
    Types(io::Error),
    #[error("the object has no program `{0}`")]
    Missing(&'static str),
    #[error("the kernel refused program `{program}`: {source}")]
    Load {
        program: &'static str,
        source: io::Error,
    },
    #[error("program `{0}` does not use a cookie as expected")]
    Cookie(&'static str),
    #[error("the kernel has no such links")]
    Unknown,
    #[error("the kernel filters threads instead of processes")]
    ThreadFilter,
}

/// Programs of an object, ready to be loaded.
pub(super) struct Prepared {
    object: Object,
    types: Option<OwnedFd>,
    #[expect(dead_code, reason = "the instructions contain their numbers")]
    maps: Vec<OwnedFd>,
}

impl Prepared {
    /// Programs of an object whose maps `ebpf` holds.
    ///
    /// # Errors
    /// The object is not as expected, or the kernel refuses its types.
    pub(super) fn new(ebpf: &Ebpf, object: &[u8]) -> Result<Prepared, MultiError> {
        let mut object = Object::parse(object)?;
        let maps = std::mem::take(&mut object.maps);
        let sections = object
            .functions
            .keys()
            .map(|(section, _)| *section)
            .collect();
        let fds: Vec<_> = maps
            .iter()
            .filter_map(|(name, map)| {
                let fd = map_fd(ebpf.map(name)?)?.try_clone_to_owned();
                Some(fd.map(|fd| (name.as_str(), fd, map)))
            })
            .collect::<Result<_, _>>()
            .map_err(MultiError::Maps)?;
        let by_name = fds
            .iter()
            .map(|(name, fd, map)| (*name, fd.as_raw_fd(), *map));
        object.relocate_maps(by_name, &sections)?;
        let fds = fds.into_iter().map(|(_, fd, _)| fd).collect();
        object.relocate_calls(&sections)?;
        object.sanitize_functions(aya::features());
        let types = load_types(&mut object)?;
        Ok(Prepared {
            object,
            types,
            maps: fds,
        })
    }

    /// Tests whether the kernel has such links.
    ///
    /// # Errors
    /// A kernel before 6.6 does not; one whose filter is broken is refused here.
    pub(super) fn try_links(&self) -> Result<(), MultiError> {
        // This program comes first because it uses no program array. The first user of such an array fixes its type
        // (`bpf_prog_map_compatible`, kernel/bpf/core.c), and the kernel would then refuse the programs of perf events.
        let program = self.load(TRIED, Ends::Entry)?;
        // Some kernels load programs of a type that they cannot attach.
        if refusal(&program, 0, Ends::Entry) == Some(libc::EINVAL) {
            return Err(MultiError::Unknown);
        }
        // Commit 46ba0e49b642 ("bpf: fix multi-uprobe PID filtering logic") added a check that
        // refuses an impossible pid before the path is examined.
        if refusal(&program, u32::MAX, Ends::Entry) != Some(libc::EINVAL) {
            return Err(MultiError::ThreadFilter);
        }
        Ok(())
    }

    /// Whether the kernel has sessions.
    pub(super) fn has_sessions(&self) -> bool {
        let program = self.load(TRIED, Ends::Both);
        program.is_ok_and(|program| refusal(&program, 0, Ends::Both) != Some(libc::EINVAL))
    }

    /// Loads a program.
    pub(super) fn load(&self, name: &'static str, ends: Ends) -> Result<OwnedFd, MultiError> {
        self.load_one(name, ends, None)
    }

    /// Loads programs that run at one end, at the same time, because the verifier takes its time for each.
    ///
    /// # Errors
    /// The kernel refuses one.
    pub(super) fn load_all(&self, names: &[&'static str]) -> Result<Vec<OwnedFd>, MultiError> {
        std::thread::scope(|scope| {
            let load = |&name| scope.spawn(move || self.load(name, Ends::Entry));
            let loading: Vec<_> = names.iter().map(load).collect();
            let loaded = loading.into_iter();
            loaded
                .map(|program| program.join().unwrap_or(Err(MultiError::Unknown)))
                .collect()
        })
    }

    /// Loads a copy of a program in which the cookie is a constant. This saves a helper call, and the verifier
    /// removes the code for other functions.
    ///
    /// # Errors
    /// The program does not use its cookie as expected, or the kernel refuses it.
    pub(super) fn load_for(
        &self,
        name: &'static str,
        cookie: u64,
        ends: Ends,
    ) -> Result<OwnedFd, MultiError> {
        self.load_one(name, ends, Some(cookie))
    }

    fn load_one(
        &self,
        name: &'static str,
        ends: Ends,
        cookie: Option<u64>,
    ) -> Result<OwnedFd, MultiError> {
        let object = &self.object;
        let program = object.programs.get(name).ok_or(MultiError::Missing(name))?;
        let function = object
            .functions
            .get(&program.function_key())
            .ok_or(MultiError::Missing(name))?;
        let mut instructions = Cow::from(&function.instructions);
        if let Some(cookie) = cookie {
            let fix = match ends {
                Ends::OfEvent => fix_placeholder,
                _ => fix_cookie,
            };
            fix(instructions.to_mut(), cookie).ok_or(MultiError::Cookie(name))?;
        }
        // SAFETY: an all-zero attribute is a valid one.
        let mut attr: bpf_attr = unsafe { std::mem::zeroed() };
        // SAFETY: this is the member for BPF_PROG_LOAD, and only it is written.
        let load = unsafe { &mut attr.__bindgen_anon_3 };
        load.prog_type = bpf_prog_type::BPF_PROG_TYPE_KPROBE as u32;
        load.expected_attach_type = ends.attach_type();
        load.insns = instructions.as_ptr() as u64;
        load.insn_cnt = u32::try_from(instructions.len()).unwrap_or(u32::MAX);
        load.license = program.license.as_ptr() as u64;
        let functions = function.func_info.func_info_bytes();
        if let Some(types) = &self.types {
            load.prog_btf_fd = types.as_raw_fd().cast_unsigned();
            load.func_info = functions.as_ptr() as u64;
            load.func_info_cnt = u32::try_from(function.func_info.func_info.len()).unwrap_or(0);
            load.func_info_rec_size = u32::try_from(function.func_info_rec_size).unwrap_or(0);
        }
        for (to, from) in load.prog_name.iter_mut().zip(name.bytes().take(15)) {
            *to = c_char::from_ne_bytes([from]);
        }
        let refused = match bpf(bpf_cmd::BPF_PROG_LOAD, &attr) {
            Ok(program) => return Ok(program),
            Err(error) => error,
        };
        // Load again to get the verifier's reasons.
        let mut log = vec![0; 1 << 20];
        // SAFETY: as above.
        let load = unsafe { &mut attr.__bindgen_anon_3 };
        load.log_level = 1;
        load.log_buf = log.as_mut_ptr() as u64;
        load.log_size = 1 << 20;
        let _ = bpf(bpf_cmd::BPF_PROG_LOAD, &attr);
        tracing::debug!("{}", String::from_utf8_lossy(&log).trim_end_matches('\0'));
        Err(MultiError::Load {
            program: name,
            source: refused,
        })
    }
}

/// The error of attaching a program to `/`, which cannot be probed. It shows how far the kernel got.
fn refusal(program: &OwnedFd, pid: u32, ends: Ends) -> Option<i32> {
    match create_link(program, pid, c"/", [&[0], &[0], &[0]], ends) {
        Err(error) => error.raw_os_error(),
        Ok(_) => None,
    }
}

/// Replaces the only call that returns the cookie, and the instruction before it that sets its argument, with a load of a
/// constant, which has the same length. `None`: they are not as expected.
fn fix_cookie(instructions: &mut [bpf_insn], cookie: u64) -> Option<()> {
    const CALL: u8 = (BPF_JMP | BPF_CALL) as u8;
    const COPY: u8 = (BPF_ALU64 | BPF_MOV | BPF_X) as u8;
    const LOAD: u8 = (BPF_LD | BPF_IMM | BPF_DW) as u8;
    let pairs = instructions.windows(2);
    let mut gives = pairs.enumerate().filter(|(_, pair)| {
        let call = &pair[1];
        let calls = call.code == CALL && call.src_reg() == 0;
        calls && call.imm == BPF_FUNC_get_attach_cookie as i32
    });
    let (at, pair) = gives.next()?;
    if gives.next().is_some() || pair[0].code != COPY || pair[0].dst_reg() != 1 {
        return None;
    }
    // Into register 0, which holds results.
    let half = |code, imm: u64| bpf_insn {
        code,
        _bitfield_align_1: [],
        _bitfield_1: bpf_insn::new_bitfield_1(0, 0),
        off: 0,
        imm: (imm as u32).cast_signed(),
    };
    instructions[at] = half(LOAD, cookie);
    instructions[at + 1] = half(0, cookie >> 32);
    Some(())
}

/// What a program loads in place of the cookie where probes have none (`memtrace-ebpf/src/cookie.rs`).
const PLACEHOLDER: u64 = 0xe36f_6f6b_6965_2121;

/// Replaces the constants that stand for the cookie. `None`: there is none.
fn fix_placeholder(instructions: &mut [bpf_insn], cookie: u64) -> Option<()> {
    let halves = |value: u64| [value as u32, (value >> 32) as u32].map(u32::cast_signed);
    let mut fixed = None;
    for at in 1..instructions.len() {
        if let Some([first, second]) = instructions.get_mut(at - 1..=at)
            && first.code == (BPF_LD | BPF_IMM | BPF_DW) as u8
            && [first.imm, second.imm] == halves(PLACEHOLDER)
        {
            [first.imm, second.imm] = halves(cookie);
            fixed = Some(());
        }
    }
    fixed
}

/// The object's BTF, by which the kernel finds callback functions.
fn load_types(object: &mut Object) -> Result<Option<OwnedFd>, MultiError> {
    let Some(features) = aya::features().btf() else {
        return Ok(None);
    };
    let Some(btf) = object.fixup_and_sanitize_btf(features)? else {
        return Ok(None);
    };
    let bytes = btf.to_bytes();
    // SAFETY: an all-zero attribute is a valid one.
    let mut attr: bpf_attr = unsafe { std::mem::zeroed() };
    // SAFETY: this is the member for BPF_BTF_LOAD, and only it is written.
    let load = unsafe { &mut attr.__bindgen_anon_7 };
    load.btf = bytes.as_ptr() as u64;
    load.btf_size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    bpf(bpf_cmd::BPF_BTF_LOAD, &attr)
        .map(Some)
        .map_err(MultiError::Types)
}

/// Attaches a loaded program to places of the file at `path`, in one process.
pub(super) fn attach(
    program: &OwnedFd,
    tgid: u32,
    path: &str,
    (probes, places): (&[&Probe], &Places),
    ends: Ends,
) -> io::Result<OwnedFd> {
    if ends == Ends::Instruction {
        let offsets = probes.iter().flat_map(|probe| probe.ends.iter().copied());
        return attach_plain(program, tgid, path, &offsets.collect::<Vec<_>>());
    }
    let path = CString::new(path)?;
    let offsets: Vec<u64> = probes.iter().map(|probe| probe.file_offset).collect();
    let cookies: Vec<u64> = probes.iter().map(|probe| probe.cookie()).collect();
    let semaphore = |probe: &&Probe| places.semaphore(probe, probe.file_offset);
    let semaphores: Vec<u64> = probes.iter().map(semaphore).collect();
    create_link(
        program,
        tgid,
        &path,
        [&offsets, &semaphores, &cookies],
        ends,
    )
}

/// Attaches a loaded program that needs no cookie to offsets of the file at `path`, in one process.
pub(super) fn attach_plain(
    program: &OwnedFd,
    tgid: u32,
    path: &str,
    offsets: &[u64],
) -> io::Result<OwnedFd> {
    let path = CString::new(path)?;
    let none = vec![0; offsets.len()];
    create_link(program, tgid, &path, [offsets, &none, &none], Ends::Entry)
}

fn create_link(
    program: &OwnedFd,
    pid: u32,
    path: &CStr,
    [offsets, semaphores, cookies]: [&[u64]; 3],
    ends: Ends,
) -> io::Result<OwnedFd> {
    // SAFETY: an all-zero attribute is a valid one.
    let mut attr: bpf_attr = unsafe { std::mem::zeroed() };
    // SAFETY: this is the member for BPF_LINK_CREATE, and only it is written.
    let link = unsafe { &mut attr.link_create };
    link.__bindgen_anon_1.prog_fd = program.as_raw_fd().cast_unsigned();
    link.attach_type = ends.attach_type();
    // SAFETY: the member for this attach type.
    let multi = unsafe { &mut link.__bindgen_anon_3.uprobe_multi };
    multi.path = path.as_ptr() as u64;
    multi.offsets = offsets.as_ptr() as u64;
    multi.ref_ctr_offsets = semaphores.as_ptr() as u64;
    multi.cookies = cookies.as_ptr() as u64;
    multi.cnt = u32::try_from(offsets.len()).unwrap_or(u32::MAX);
    multi.flags = if ends == Ends::Return { AT_RETURN } else { 0 };
    multi.pid = pid;
    uninterrupted(|| bpf(bpf_cmd::BPF_LINK_CREATE, &attr))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::object::{LEGACY, USUAL};

    #[test]
    fn the_cookie_of_a_copy_is_a_constant() {
        let object = Object::parse(USUAL.bytes).unwrap();
        let instructions = |name: &str| {
            let program = object.programs.get(name).unwrap();
            object.functions[&program.function_key()]
                .instructions
                .clone()
        };
        let before = instructions("call_entry");
        let mut copy = before.clone();
        fix_cookie(&mut copy, 0x1234_5678_9abc_def0).unwrap();
        let changed = (0..copy.len()).filter(|&at| {
            let (old, new) = (&before[at], &copy[at]);
            old.code != new.code || old.imm != new.imm
        });
        let changed: Vec<usize> = changed.collect();
        let [first, second] = changed[..] else {
            panic!("{changed:?}");
        };
        assert_eq!(second, first + 1);
        assert_eq!((copy[first].code, copy[first].dst_reg()), (0x18, 0));
        assert_eq!(copy[first].imm as u32, 0x9abc_def0);
        assert_eq!(copy[second].imm, 0x1234_5678);
        assert!(fix_cookie(&mut copy, 1).is_none(), "it has none any more");
        assert!(fix_cookie(&mut instructions("call_return"), 1).is_none());
    }

    #[test]
    fn programs_without_cookies_have_a_placeholder() {
        let object = Object::parse(LEGACY.bytes).unwrap();
        for (name, has_one) in [("call_entry", true), ("call_return", false)] {
            let program = object.programs.get(name).unwrap();
            let mut code = object.functions[&program.function_key()]
                .instructions
                .clone();
            let fixed = fix_placeholder(&mut code, 0x1234_5678_9abc_def0);
            assert_eq!(fixed.is_some(), has_one, "{name}");
            assert!(fix_placeholder(&mut code, 1).is_none(), "{name}");
        }
    }
}
