//! The kernel side's objects, built from the same sources by `cargo xtask build-ebpf`, and the choice between them.

use aya::{
    Ebpf,
    programs::{Program, ProgramError},
    sys::BpfHelper,
};

use super::{error::TracerError, features::has};

/// An object of the kernel side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) bytes: &'static [u8],
    /// It does without what the kernel has since Linux 5.11 to 5.17: `bpf_loop`, atomic instructions that return the old
    /// value, cookies, pointers as arguments of global functions.
    pub(super) is_legacy: bool,
}

/// Those for this architecture.
#[cfg(target_arch = "x86_64")]
static BYTES: [&[u8]; 2] = [
    aya::include_bytes_aligned!("../../bpf/memtrace.bpf.o"),
    aya::include_bytes_aligned!("../../bpf/legacy.bpf.o"),
];
#[cfg(target_arch = "aarch64")]
static BYTES: [&[u8]; 2] = [
    aya::include_bytes_aligned!("../../bpf/aarch64/memtrace.bpf.o"),
    aya::include_bytes_aligned!("../../bpf/aarch64/legacy.bpf.o"),
];

/// The one that needs [`NEEDED`].
pub(super) static USUAL: Object = Object {
    bytes: BYTES[0],
    is_legacy: false,
};

pub(super) static LEGACY: Object = Object {
    bytes: BYTES[1],
    is_legacy: true,
};

/// Whether this kernel needs the legacy object.
pub(crate) fn needs_legacy() -> bool {
    Object::for_this_kernel().is_legacy
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

/// A program of a loaded object.
///
/// # Errors
/// The object has none of this name and type.
pub(super) fn program<'a, P>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<P, TracerError>
where
    P: TryFrom<&'a mut Program, Error = ProgramError>,
{
    ebpf.program_mut(name)
        .ok_or(TracerError::Missing(name))?
        .try_into()
        .map_err(|source| TracerError::Program {
            program: name,
            source,
        })
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
