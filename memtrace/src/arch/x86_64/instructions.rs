//! Instructions: sites, and jump targets. The kernel decides which ones it emulates in its
//! arch/x86/kernel/uprobes.c, in `branch_setup_xol_ops` (near jumps, near conditional jumps,
//! relative calls, nops) and `push_setup_xol_ops` (push of a register); everything else is
//! single-stepped out of line.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Formatter, Instruction, InstructionInfoFactory,
    IntelFormatter, Mnemonic, OpAccess, OpKind, Register,
};

use crate::arch::site::{Cost, Forward, ProbeSite, Why};

/// Number of instructions examined, from the first on. Few: everything before the site runs before
/// the event is taken.
const REACH: usize = 6;

/// See [`crate::arch::probe_site`]. The rule: the first emulated instruction such that those before
/// it leave the argument registers, the stack pointer and the control flow alone, and that no jump
/// within the function leads past the first instruction and not past the site (it would fire again
/// in the same call). Jumps from another function, or from a part of this one that the compiler
/// moved away (`.cold`), are not searched for: those return behind the branch that led to them, and
/// a site is never behind a branch.
pub(crate) fn probe_site(body: &[u8], size_known: bool) -> ProbeSite {
    let code = Code64 { body };
    let Some(first) = code.instructions().next() else {
        return ProbeSite {
            offset: 0,
            instruction: String::new(),
            cost: Cost::Unknown,
            why: Why::NotDecoded,
        };
    };
    if code.is_emulated(&first) {
        return site(&first, Cost::Emulated, Why::FirstIsEmulated);
    }
    let why = match code.later_emulated() {
        None => Why::NoneIsEmulated,
        Some(_) if !size_known => Why::SizeUnknown,
        Some(later) if code.has_jump_to(1..=later.ip()) => Why::JumpTarget,
        Some(later) => return site(&later, Cost::Emulated, Why::LaterIsEmulated),
    };
    site(&first, Cost::SingleStepped, why)
}

/// See [`crate::arch::forwards`].
pub(crate) fn forwards(body: &[u8]) -> Option<Forward> {
    let jump = Code64 { body }
        .instructions()
        .find(|instruction| !is_marker(instruction))?;
    match jump.flow_control() {
        FlowControl::UnconditionalBranch => {
            near_target(&jump).map(|target| Forward::To(target.cast_signed()))
        }
        FlowControl::IndirectBranch if jump.is_ip_rel_memory_operand() => {
            let slot = jump.ip_rel_memory_address();
            Some(Forward::Through(slot.cast_signed()))
        }
        _ => None,
    }
}

/// The instructions of `body`, which begins at address `start`.
fn decode(body: &[u8], start: u64) -> impl Iterator<Item = Instruction> {
    let mut decoder = Decoder::with_ip(64, body, start, DecoderOptions::NONE);
    std::iter::from_fn(move || decoder.can_decode().then(|| decoder.decode()))
}

/// Targets of the direct jumps of `body`, which begins at address `start`.
pub(crate) fn jumps(body: &[u8], start: u64) -> impl Iterator<Item = u64> {
    decode(body, start)
        .filter(|instruction| {
            matches!(
                instruction.flow_control(),
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
            )
        })
        .map(|instruction| instruction.near_branch_target())
}

/// Addresses that `body`, which begins at address `start`, computes from its own (`lea ADDRESS(%rip)`).
pub(crate) fn addresses_taken(body: &[u8], start: u64) -> impl Iterator<Item = u64> {
    decode(body, start)
        .filter(|instruction| {
            instruction.mnemonic() == Mnemonic::Lea && instruction.is_ip_rel_memory_operand()
        })
        .map(|instruction| instruction.ip_rel_memory_address())
}

fn site(instruction: &Instruction, cost: Cost, why: Why) -> ProbeSite {
    let mut formatter = IntelFormatter::new();
    let options = formatter.options_mut();
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_uppercase_hex(false);
    options.set_branch_leading_zeros(false);
    options.set_show_branch_size(false);
    let mut text = String::new();
    formatter.format(instruction, &mut text);
    ProbeSite {
        offset: instruction.ip(),
        instruction: text,
        cost,
        why,
    }
}

/// A function's code, its first byte at address 0.
struct Code64<'a> {
    body: &'a [u8],
}

impl Code64<'_> {
    /// Consecutive instructions from the first on, up to bytes that are not an instruction.
    fn instructions(&self) -> impl Iterator<Item = Instruction> {
        let mut decoder = Decoder::with_ip(64, self.body, 0, DecoderOptions::NONE);
        std::iter::from_fn(move || decoder.can_decode().then(|| decoder.decode()))
            .take_while(|instruction| !instruction.is_invalid())
    }

    fn later_emulated(&self) -> Option<Instruction> {
        let mut factory = InstructionInfoFactory::new();
        for instruction in self.instructions().take(REACH) {
            if self.is_emulated(&instruction) {
                return Some(instruction);
            }
            if !only_computes(&mut factory, &instruction) {
                return None;
            }
        }
        None
    }

    fn has_jump_to(&self, targets: std::ops::RangeInclusive<u64>) -> bool {
        let mut decoder = Decoder::with_ip(64, self.body, 0, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            // Bytes that are not an instruction (a jump table among the code) are skipped.
            decoder.decode_out(&mut instruction);
            if near_target(&instruction).is_some_and(|target| targets.contains(&target)) {
                return true;
            }
        }
        false
    }

    fn is_emulated(&self, instruction: &Instruction) -> bool {
        let start = instruction.ip() as usize;
        let bytes = self
            .body
            .get(start..start + instruction.len())
            .unwrap_or_default();
        match bytes {
            // push_setup_xol_ops: a register, with at most REX.B before it.
            [0x50..=0x57] | [0x41, 0x50..=0x57] => true,
            // branch_setup_xol_ops, near only; with a 66 prefix the kernel refuses the probe.
            [0xeb, _] | [0x70..=0x7f, _] => true,
            [0xe8 | 0xe9, _, _, _, _] | [0x0f, 0x80..=0x8f, _, _, _, _] => true,
            // nop, and on recent kernels the 5-byte nop, which 6.18 even turns into a call. Other
            // long nops are emulated only by the newest, `66 90` is refused by kernels before 2023,
            // endbr64 is stepped.
            [0x90] | [0x0f, 0x1f, 0x44, 0x00, 0x00] => true,
            _ => false,
        }
    }
}

/// Whether after the instruction the arguments are still in their registers,
/// the return address is still at the stack pointer, and the next one follows.
fn only_computes(factory: &mut InstructionInfoFactory, instruction: &Instruction) -> bool {
    const KEPT: [Register; 7] = [
        Register::RDI,
        Register::RSI,
        Register::RDX,
        Register::RCX,
        Register::R8,
        Register::R9,
        Register::RSP,
    ];
    instruction.flow_control() == FlowControl::Next
        && !factory
            .info(instruction)
            .used_registers()
            .iter()
            .any(|used| {
                let written = matches!(
                    used.access(),
                    OpAccess::Write
                        | OpAccess::CondWrite
                        | OpAccess::ReadWrite
                        | OpAccess::ReadCondWrite
                );
                written && KEPT.contains(&used.register().full_register())
            })
}

fn near_target(instruction: &Instruction) -> Option<u64> {
    let near = instruction.op_count() == 1
        && matches!(
            instruction.op0_kind(),
            OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
        );
    near.then(|| instruction.near_branch_target())
}

/// Instructions that compilers put before a function's own first instruction.
fn is_marker(instruction: &Instruction) -> bool {
    instruction.code() == Code::Endbr64 || instruction.mnemonic() == Mnemonic::Nop
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(body: &[u8]) -> (u64, Cost, Why) {
        let site = probe_site(body, true);
        (site.offset, site.cost, site.why)
    }

    const FIRST: (u64, Cost, Why) = (0, Cost::Emulated, Why::FirstIsEmulated);
    const STEPPED: (u64, Cost, Why) = (0, Cost::SingleStepped, Why::NoneIsEmulated);
    const fn later(offset: u64) -> (u64, Cost, Why) {
        (offset, Cost::Emulated, Why::LaterIsEmulated)
    }

    #[test]
    fn glibcs_free_is_probed_at_its_je() {
        // test rdi,rdi; je +0xbf; push rbp
        let body = [0x48, 0x85, 0xff, 0x0f, 0x84, 0xbf, 0, 0, 0, 0x55];
        let site = probe_site(&body, true);
        assert_eq!(chosen(&body), later(3));
        assert_eq!(site.instruction, "je 0xc8");
    }

    #[test]
    fn an_emulated_first_instruction_is_taken() {
        for body in [
            &[0x55][..],               // push rbp
            &[0x41, 0x54],             // push r12
            &[0xe9, 1, 0, 0, 0],       // jmp
            &[0xeb, 1],                // jmp short
            &[0x74, 1],                // je short
            &[0x0f, 0x84, 1, 0, 0, 0], // je
            &[0xe8, 1, 0, 0, 0],       // call
            &[0x90],                   // nop
            &[0x0f, 0x1f, 0x44, 0, 0], // 5-byte nop
        ] {
            assert_eq!(chosen(body), FIRST, "{body:x?}");
            // The rest need not be examined.
            assert_eq!(probe_site(body, false).cost, Cost::Emulated, "{body:x?}");
        }
    }

    #[test]
    fn single_stepped_instructions_are_known() {
        for body in [
            &[0x48, 0x55, 0xc3][..],         // push rbp with REX.W
            &[0xff, 0x35, 0, 0, 0, 0, 0xc3], // push [rip]
            &[0x6a, 0, 0xc3],                // push 0
            &[0xff, 0xe0],                   // jmp rax
            &[0xff, 0xd0, 0xc3],             // call rax
            &[0xe3, 0, 0xc3],                // jrcxz
            &[0xf3, 0x0f, 0x1e, 0xfa, 0xc3], // endbr64
            &[0x0f, 0x1f, 0x40, 0, 0xc3],    // 4-byte nop
            &[0x66, 0x90, 0xc3],             // 2-byte nop
            &[0xf3, 0x90, 0xc3],             // pause
            &[0x41, 0x90, 0xc3],             // xchg r8,rax
            &[0xc3],                         // ret
        ] {
            assert_eq!(chosen(body), STEPPED, "{body:x?}");
        }
    }

    #[test]
    fn endbr_is_passed_over() {
        // endbr64; push rbp
        assert_eq!(chosen(&[0xf3, 0x0f, 0x1e, 0xfa, 0x55]), later(4));
    }

    #[test]
    fn an_argument_that_changes_ends_the_search() {
        for body in [
            &[0x48, 0x89, 0xc7, 0x55][..],   // mov rdi,rax; push rbp
            &[0x31, 0xf6, 0x55],             // xor esi,esi
            &[0xb2, 0x01, 0x55],             // mov dl,1
            &[0xb5, 0x01, 0x55],             // mov ch,1
            &[0x41, 0xff, 0xc0, 0x55],       // inc r8d
            &[0x4d, 0x0f, 0x44, 0xc8, 0x55], // cmove r9,r8
            &[0x48, 0xf7, 0xe6, 0x55],       // mul rsi (writes rdx)
            &[0xf3, 0xaa, 0x55],             // rep stosb (writes rdi, rcx)
            &[0x0f, 0xa2, 0x55],             // cpuid
        ] {
            assert_eq!(chosen(body), STEPPED, "{body:x?}");
        }
    }

    #[test]
    fn reading_arguments_and_writing_elsewhere_is_fine() {
        // mov rax,rdi; cmp byte [rip+x],0; mov r10,rsi; xor ebp,ebp; push rbx
        let body = [
            0x48, 0x89, 0xf8, 0x80, 0x3d, 1, 0, 0, 0, 0, 0x49, 0x89, 0xf2, 0x31, 0xed, 0x53,
        ];
        assert_eq!(chosen(&body), later(15));
    }

    #[test]
    fn a_moved_stack_pointer_ends_the_search() {
        for body in [
            &[0x48, 0x83, 0xec, 0x08, 0x55][..],   // sub rsp,8; push rbp
            &[0x48, 0x8d, 0x64, 0x24, 0xf8, 0x55], // lea rsp,[rsp-8]
            &[0x6a, 0x00, 0x55],                   // push 0
            &[0x9c, 0x55],                         // pushf
            &[0xc8, 0, 0, 0, 0x55],                // enter
            &[0x5d, 0x55],                         // pop rbp
        ] {
            assert_eq!(chosen(body), STEPPED, "{body:x?}");
        }
    }

    #[test]
    fn a_change_of_flow_ends_the_search() {
        for body in [
            &[0xff, 0xd0, 0x55][..], // call rax; push rbp
            &[0xc3, 0x55],           // ret
            &[0x0f, 0x05, 0x55],     // syscall
            &[0x0f, 0x0b, 0x55],     // ud2
            &[0xe3, 0x00, 0x55],     // jrcxz
            &[0xcc, 0x55],           // int3
        ] {
            assert_eq!(chosen(body), STEPPED, "{body:x?}");
        }
    }

    #[test]
    fn the_search_ends_after_six_instructions() {
        let body = |before: usize| {
            // mov eax,eax
            let mut body = [0x89, 0xc0].repeat(before);
            body.push(0x55);
            body
        };
        assert_eq!(chosen(&body(5)), later(10));
        assert_eq!(chosen(&body(6)), STEPPED);
    }

    #[test]
    fn a_jump_to_the_site_forbids_it() {
        let stepped = (0, Cost::SingleStepped, Why::JumpTarget);
        // test rdi,rdi; je +0; jmp TARGET
        let body = |target: u8| [0x48, 0x85, 0xff, 0x74, 0x00, 0xeb, target.wrapping_sub(7)];
        assert_eq!(chosen(&body(3)), stepped, "to the site");
        assert_eq!(chosen(&body(1)), stepped, "into the code before it");
        assert_eq!(
            chosen(&body(0)),
            later(3),
            "to the start: another call in effect"
        );
        assert_eq!(chosen(&body(5)), later(3), "behind it");
        assert_eq!(chosen(&body(0x70)), later(3), "out of the function");
        // The same after bytes that are not an instruction (06, 07).
        let mut far = vec![0x48, 0x85, 0xff, 0x74, 0x00, 0xc3, 0x06, 0x07];
        far.extend([0xeb, 3u8.wrapping_sub(10)]);
        assert_eq!(chosen(&far), stepped);
    }

    #[test]
    fn without_a_size_only_the_first_instruction_is_safe() {
        let body = [0x48, 0x85, 0xff, 0x74, 0x00, 0xc3];
        let site = probe_site(&body, false);
        assert_eq!(
            (site.offset, site.cost, site.why),
            (0, Cost::SingleStepped, Why::SizeUnknown)
        );
    }

    #[test]
    fn invalid_instructions_are_not_decoded() {
        for body in [&[][..], &[0x06], &[0x48], &[0x0f, 0x84, 0]] {
            let site = probe_site(body, true);
            assert_eq!((site.offset, site.why), (0, Why::NotDecoded), "{body:x?}");
        }
        // A good first instruction, then none.
        assert_eq!(chosen(&[0x89, 0xc0, 0x06]), STEPPED);
    }

    #[test]
    fn only_a_plain_jump_forwards() {
        use Forward::{Through, To};
        for (body, expected) in [
            (&[0xeb, 0x10][..], Some(To(0x12))),
            (&[0xe9, 0xf0, 0xff, 0xff, 0xff], Some(To(-11))),
            (&[0xf3, 0x0f, 0x1e, 0xfa, 0xeb, 0x10], Some(To(0x16))),
            // jmp [rip+0x10], bnd jmp [rip-0x10]
            (&[0xff, 0x25, 0x10, 0, 0, 0], Some(Through(0x16))),
            (
                &[0xf2, 0xff, 0x25, 0xf0, 0xff, 0xff, 0xff],
                Some(Through(-9)),
            ),
            // je; jmp rax; jmp [rax]; xor esi,esi before the jump; call
            (&[0x74, 0x10], None),
            (&[0xff, 0xe0], None),
            (&[0xff, 0x20], None),
            (&[0x31, 0xf6, 0xeb, 0x10], None),
            (&[0xe8, 0, 0, 0, 0], None),
            (&[], None),
        ] {
            assert_eq!(forwards(body), expected, "{body:x?}");
        }
    }
}
