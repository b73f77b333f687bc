//! Instructions: sites, and jump targets. The kernel decides which ones it emulates in its
//! arch/x86/kernel/uprobes.c, in `branch_setup_xol_ops` (near jumps, near conditional jumps,
//! relative calls, nops) and `push_setup_xol_ops` (push of a register); everything else is
//! single-stepped out of line.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Formatter, Instruction, InstructionInfoFactory,
    IntelFormatter, Mnemonic, OpAccess, OpKind, Register,
};

use crate::arch::site::{ARGUMENTS, Cost, Forward, Places, ProbeSite, Reads, Why};

/// Number of instructions examined, from the first on. Nobody can see an effect of those before the
/// site, so the limit only ends the search; the furthest site that was found is the 14th instruction
/// (docs/reference/probes.md).
const REACH: usize = 16;

/// The longest instruction, bytes.
const LONGEST: usize = 15;

/// See [`crate::arch::BEGINNING`].
pub(crate) const BEGINNING: u64 = (REACH * LONGEST) as u64;

/// See [`crate::arch::probe_site`]. The rule: the first emulated instruction at which an argument
/// register still holds each argument that is read, such that those before it leave memory, the
/// stack pointer and the control flow alone, and that no jump within the function leads past the
/// first instruction and not past the site (it would fire again in the same call). A write to memory
/// may be the release itself: another thread could be given the block before the event is taken.
///
/// Jumps from another function, or from a part of this one that the compiler moved away (`.cold`),
/// are not searched for: those return behind the branch that led to them, and a site is never behind
/// a branch.
pub(crate) fn probe_site(body: &[u8], size_known: bool, reads: Reads) -> ProbeSite {
    let code = Code64 { body };
    let Some(first) = code.instructions().next() else {
        return ProbeSite {
            offset: 0,
            instruction: String::new(),
            cost: Cost::Unknown,
            why: Why::NotDecoded,
            arguments: Places::UNMOVED,
        };
    };
    if code.is_emulated(&first) {
        return site(
            &first,
            Cost::Emulated,
            Why::FirstIsEmulated,
            Places::UNMOVED,
        );
    }
    let why = match code.later_emulated(reads) {
        None => Why::NoneIsEmulated,
        Some(_) if !size_known => Why::SizeUnknown,
        Some((later, _)) if code.has_jump_to(1..=later.ip()) => Why::JumpTarget,
        Some((later, arguments)) => {
            return site(&later, Cost::Emulated, Why::LaterIsEmulated, arguments);
        }
    };
    site(&first, Cost::SingleStepped, why, Places::UNMOVED)
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

/// See [`crate::arch::returns`].
pub(crate) fn returns(body: &[u8]) -> Vec<u64> {
    let leaves = |instruction: &Instruction| match instruction.flow_control() {
        FlowControl::IndirectBranch => true,
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
            instruction.near_branch_target() >= body.len() as u64
        }
        _ => false,
    };
    if decode(body, 0).any(|instruction| leaves(&instruction)) {
        return Vec::new();
    }
    decode(body, 0)
        .filter(|instruction| instruction.flow_control() == FlowControl::Return)
        .map(|instruction| instruction.ip())
        .collect()
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

fn site(instruction: &Instruction, cost: Cost, why: Why, arguments: Places) -> ProbeSite {
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
        arguments,
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

    /// The site, and where the arguments are there.
    fn later_emulated(&self, reads: Reads) -> Option<(Instruction, Places)> {
        let mut factory = InstructionInfoFactory::new();
        let mut values = Values::at_entry();
        for instruction in self.instructions().take(REACH) {
            if self.is_emulated(&instruction)
                && let Some(places) = reads.found(values.arguments())
            {
                return Some((instruction, places));
            }
            if !values.pass(&mut factory, &instruction, reads.frame()) {
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

/// The arguments that the general registers hold, by the registers' numbers in instructions.
struct Values([Option<u8>; 16]);

impl Values {
    /// System V ABI for x86-64, section 3.2.3.
    const ARGUMENTS: [Register; ARGUMENTS] = [
        Register::RDI,
        Register::RSI,
        Register::RDX,
        Register::RCX,
        Register::R8,
        Register::R9,
    ];

    fn at_entry() -> Values {
        let mut values = Values([None; 16]);
        for (index, register) in (0..).zip(Self::ARGUMENTS) {
            values.0[register.number()] = Some(index);
        }
        values
    }

    fn arguments(&self) -> [Option<u8>; ARGUMENTS] {
        Self::ARGUMENTS.map(|register| self.0[register.number()])
    }

    /// Whether the instruction leaves memory, the stack pointer and, where a walk needs it, the
    /// frame alone, and the next one follows. If so, its effect on the registers is taken in.
    fn pass(
        &mut self,
        factory: &mut InstructionInfoFactory,
        instruction: &Instruction,
        frame: bool,
    ) -> bool {
        let info = factory.info(instruction);
        let mut memory = info.used_memory().iter();
        if instruction.flow_control() != FlowControl::Next
            || instruction.has_lock_prefix()
            || memory.any(|used| writes(used.access()))
        {
            return false;
        }
        let copied = (instruction.mnemonic() == Mnemonic::Mov
            && instruction.op0_register().is_gpr64()
            && instruction.op1_register().is_gpr64())
        .then(|| self.0[instruction.op1_register().number()]);
        for used in info.used_registers() {
            let register = used.register().full_register();
            if !writes(used.access()) || !register.is_gpr() {
                continue;
            }
            let of_frame = [Register::RBP, Register::RBX].contains(&register);
            if register == Register::RSP || (frame && of_frame) {
                return false;
            }
            self.0[register.number()] = copied.flatten();
        }
        true
    }
}

/// Whether something may be written.
pub(super) fn writes(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
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
mod tests;
