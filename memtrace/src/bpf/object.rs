//! The kernel side's objects, built from the same sources by `cargo xtask build-ebpf`, and the choice between them.

use aya::{
    programs::ProgramType,
    sys::{BpfHelper, is_helper_supported},
};

/// An object of the kernel side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) bytes: &'static [u8],
    /// It does without what the kernel has since Linux 5.11 to 5.17: `bpf_loop`, atomic instructions that return the old
    /// value, cookies, pointers as arguments of global functions.
    pub(super) is_legacy: bool,
}

/// The one that needs [`NEEDED`].
pub(super) static USUAL: Object = Object {
    bytes: aya::include_bytes_aligned!("../../bpf/memtrace.bpf.o"),
    is_legacy: false,
};

pub(super) static LEGACY: Object = Object {
    bytes: aya::include_bytes_aligned!("../../bpf/legacy.bpf.o"),
    is_legacy: true,
};

/// What the kernel has to offer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Feature {
    pub(crate) name: &'static str,
    /// The version of Linux that brought it.
    pub(crate) since: &'static str,
}

/// Helpers that even the legacy object needs.
const OLDEST: [(BpfHelper, Feature); 3] = [
    (
        BpfHelper::BPF_FUNC_probe_read_user,
        Feature {
            name: "bpf_probe_read_user",
            since: "5.5",
        },
    ),
    (
        BpfHelper::BPF_FUNC_send_signal_thread,
        Feature {
            name: "bpf_send_signal_thread",
            since: "5.6",
        },
    ),
    (
        BpfHelper::BPF_FUNC_ringbuf_reserve,
        Feature {
            name: "bpf_ringbuf_reserve",
            since: "5.8",
        },
    ),
];

/// Something that the kernel side needs and this kernel lacks.
pub(crate) fn missing_feature() -> Option<Feature> {
    let mut needed = OLDEST.into_iter();
    let lacking = needed.find(|(helper, _)| !has(*helper))?;
    Some(lacking.1)
}

/// Whether this kernel needs the legacy object.
pub(crate) fn needs_legacy() -> bool {
    Object::for_this_kernel().is_legacy
}

/// Whether the kernel has a helper. A kernel that refuses the trial for another reason refuses every program.
fn has(helper: BpfHelper) -> bool {
    is_helper_supported(ProgramType::KProbe, helper).unwrap_or(true)
}

/// Helpers that came last (Linux 5.15 and 5.17). Kernels that have them have everything else that the usual object needs.
const NEEDED: [BpfHelper; 3] = [
    BpfHelper::BPF_FUNC_loop,
    BpfHelper::BPF_FUNC_get_attach_cookie,
    BpfHelper::BPF_FUNC_task_pt_regs,
];

impl Object {
    /// The one for the kernel that runs. By what that can do: vendors add features to old versions.
    pub(super) fn for_this_kernel() -> Self {
        match NEEDED.into_iter().all(has) {
            true => USUAL,
            false => LEGACY,
        }
    }
}

#[cfg(test)]
mod tests {
    use aya_obj::generated::bpf_insn;

    use super::*;

    /// Instructions of an object that kernels before Linux 5.11 to 5.17 refuse.
    fn new_instructions(object: Object) -> usize {
        const CALL: u8 = 0x85;
        // BPF_STX | BPF_ATOMIC, of words and of double words. Other operations than adding (0) came with Linux 5.12.
        const ATOMIC: [u8; 2] = [0xc3, 0xdb];
        let new_helpers = [
            BpfHelper::BPF_FUNC_get_current_task_btf as i32,
            BpfHelper::BPF_FUNC_get_attach_cookie as i32,
            BpfHelper::BPF_FUNC_get_func_ip as i32,
            BpfHelper::BPF_FUNC_task_pt_regs as i32,
            BpfHelper::BPF_FUNC_loop as i32,
        ];
        let is_new = |instruction: &&bpf_insn| {
            let calls_helper = instruction.code == CALL && instruction.src_reg() == 0;
            (calls_helper && new_helpers.contains(&instruction.imm))
                || (ATOMIC.contains(&instruction.code) && instruction.imm != 0)
        };
        let object = aya_obj::Object::parse(object.bytes).unwrap();
        let functions = object.functions.values();
        let instructions = functions.flat_map(|function| &function.instructions);
        instructions.filter(is_new).count()
    }

    #[test]
    fn only_the_usual_object_has_what_older_kernels_refuse() {
        assert_eq!(new_instructions(LEGACY), 0);
        assert!(new_instructions(USUAL) > 0);
    }
}
