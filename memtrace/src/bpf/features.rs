//! What the kernel side cannot do without, found by trying: vendors add features to old versions.

use std::os::fd::{AsFd, OwnedFd};

use aya::{
    programs::ProgramType,
    sys::{BpfHelper, is_helper_supported},
};
use aya_obj::generated::{bpf_attr, bpf_cmd, bpf_insn, bpf_map_type, bpf_prog_type};

use super::raw::{self, bpf};

/// What the kernel has to offer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Feature {
    pub(crate) name: &'static str,
    /// The version of Linux that brought it.
    pub(crate) since: &'static str,
}

/// Features that even the legacy object needs, oldest first.
const OLDEST: [(fn() -> bool, Feature); 5] = [
    (
        || has(BpfHelper::BPF_FUNC_probe_read_user),
        Feature {
            name: "bpf_probe_read_user",
            since: "5.5",
        },
    ),
    (
        || has(BpfHelper::BPF_FUNC_send_signal_thread),
        Feature {
            name: "bpf_send_signal_thread",
            since: "5.6",
        },
    ),
    (
        || has(BpfHelper::BPF_FUNC_ringbuf_reserve),
        Feature {
            name: "bpf_ringbuf_reserve",
            since: "5.8",
        },
    ),
    (
        runs_raw_tracepoints,
        Feature {
            name: "BPF_PROG_TEST_RUN for raw tracepoints",
            since: "5.10",
        },
    ),
    (
        has_inner_maps_of_any_size,
        Feature {
            name: "inner maps of different sizes",
            since: "5.10",
        },
    ),
];

/// Something that the kernel side needs and this kernel lacks.
pub(crate) fn missing_feature() -> Option<Feature> {
    let mut needed = OLDEST.into_iter();
    let (_, lacking) = needed.find(|(is_there, _)| !is_there())?;
    Some(lacking)
}

/// Whether the kernel has a helper. A kernel that refuses the trial for another reason refuses every program.
pub(super) fn has(helper: BpfHelper) -> bool {
    is_helper_supported(ProgramType::KProbe, helper).unwrap_or(true)
}

/// Whether a program of a raw tracepoint can be run by a system call, which `elements.rs` does. True if that cannot be
/// tried.
fn runs_raw_tracepoints() -> bool {
    let program = raw_tracepoint();
    let run = program.and_then(|program| raw::run(program.as_fd(), &[0]));
    // ENOTSUPP of the kernel: the program's type cannot be run.
    const ENOTSUPP: i32 = 524;
    let error = run.err().and_then(|error| error.raw_os_error());
    !matches!(error, Some(libc::EINVAL | ENOTSUPP))
}

/// A program that only returns 0.
fn raw_tracepoint() -> std::io::Result<OwnedFd> {
    // BPF_ALU64 | BPF_MOV | BPF_K, and BPF_JMP | BPF_EXIT.
    let instructions = [0xb7, 0x95].map(|code| bpf_insn {
        code,
        _bitfield_align_1: [],
        _bitfield_1: bpf_insn::new_bitfield_1(0, 0),
        off: 0,
        imm: 0,
    });
    // SAFETY: an all-zero attribute is a valid one.
    let mut attr: bpf_attr = unsafe { std::mem::zeroed() };
    // SAFETY: this is the member for BPF_PROG_LOAD, and only it is written.
    let load = unsafe { &mut attr.__bindgen_anon_3 };
    load.prog_type = bpf_prog_type::BPF_PROG_TYPE_RAW_TRACEPOINT as u32;
    load.insns = instructions.as_ptr() as u64;
    load.insn_cnt = instructions.len() as u32;
    load.license = c"GPL".as_ptr() as u64;
    bpf(bpf_cmd::BPF_PROG_LOAD, &attr)
}

/// Whether maps of different sizes may be elements of one map: the flag of such maps. True if that cannot be tried.
fn has_inner_maps_of_any_size() -> bool {
    const BPF_F_INNER_MAP: u32 = 1 << 12;
    // SAFETY: an all-zero attribute is a valid one.
    let mut attr: bpf_attr = unsafe { std::mem::zeroed() };
    // SAFETY: this is the member for BPF_MAP_CREATE, and only it is written.
    let create = unsafe { &mut attr.__bindgen_anon_1 };
    create.map_type = bpf_map_type::BPF_MAP_TYPE_ARRAY as u32;
    create.key_size = size_of::<u32>() as u32;
    create.value_size = size_of::<u32>() as u32;
    create.max_entries = 1;
    create.map_flags = BPF_F_INNER_MAP;
    match bpf(bpf_cmd::BPF_MAP_CREATE, &attr) {
        Ok(_) => true,
        Err(error) => error.raw_os_error() != Some(libc::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_has_every_feature_as_root() {
        // Not allowed, they could not be told from missing ones.
        raw_tracepoint().unwrap();
        for (is_there, feature) in OLDEST {
            assert!(is_there(), "{feature:?}");
        }
    }

    #[test]
    fn a_helper_that_no_kernel_has_is_missing_as_root() {
        assert!(!has(BpfHelper::__BPF_FUNC_MAX_ID));
    }
}
