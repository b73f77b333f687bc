//! Finds glibc's cache of free blocks of a thread in the code of malloc ([`memtrace_common::thread_cache`]). No symbol
//! names it, and its offset from the thread pointer differs between processes.

use std::collections::HashSet;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind,
    Register,
};
use memtrace_common::thread_cache::ThreadCache;

/// The code of malloc takes a block as follows, with other instructions between these:
///
/// ```text
/// mov r12, [rip+SLOT]
/// mov rdx, fs:[r12]            the cache
/// lea rdi, [rbp+INDEX]         rbp is the number of the list
/// mov rax, [rdx+rdi*8+OFFSET]  its first block
/// test al, 0xf
/// shr rsi, 0xc                 the next block is kept encrypted, from 2.32 on
/// ```
///
/// `slot` is relative to the first instruction. `None` if no path through `body`, a whole function, is like this.
pub(crate) fn thread_cache(body: &[u8]) -> Option<ThreadCache> {
    let mut paths = vec![(0, State::default())];
    let mut visited = HashSet::new();
    let mut factory = InstructionInfoFactory::new();
    while let Some((start, mut state)) = paths.pop() {
        let Some(rest) = usize::try_from(start).ok().and_then(|at| body.get(at..)) else {
            continue;
        };
        let mut decoder = Decoder::with_ip(64, rest, start, DecoderOptions::NONE);
        while decoder.can_decode() {
            let instruction = decoder.decode();
            if instruction.is_invalid() || !visited.insert(instruction.ip()) {
                break;
            }
            if let Some(found) = state.pass(&mut factory, &instruction) {
                return Some(found);
            }
            match instruction.flow_control() {
                FlowControl::Next | FlowControl::Call => {}
                FlowControl::ConditionalBranch => {
                    paths.push((instruction.near_branch_target(), state.clone()));
                }
                FlowControl::UnconditionalBranch => {
                    paths.push((instruction.near_branch_target(), state));
                    break;
                }
                _ => break,
            }
        }
    }
    None
}

/// What a register holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    /// The word at this distance from the function's start.
    Slot(u64),
    /// A pointer to the cache.
    Cache { slot: u64 },
    /// The number of the list plus a constant, words.
    Index(u64),
    /// The first block, or a copy of its address.
    Block(ThreadCache),
}

/// What a path has found so far.
#[derive(Clone, Default)]
struct State {
    registers: [Option<Value>; 16],
    /// The lowest bits of the block's address were tested.
    is_tested: bool,
}

impl State {
    /// Takes in an instruction. `Some` at the last one of the pattern.
    fn pass(
        &mut self,
        factory: &mut InstructionInfoFactory,
        instruction: &Instruction,
    ) -> Option<ThreadCache> {
        let value = match instruction.mnemonic() {
            Mnemonic::Mov if instruction.op0_register().is_gpr64() => self.moved(instruction),
            Mnemonic::Lea if instruction.op0_register().is_gpr64() => {
                let plain = instruction.memory_index() == Register::None
                    && instruction.memory_base().is_gpr64();
                plain.then(|| Value::Index(instruction.memory_displacement64()))
            }
            Mnemonic::Test if instruction.op1_kind() == OpKind::Immediate8 => {
                let block = self.of(instruction.op0_register());
                self.is_tested |=
                    instruction.immediate8() == 0xf && matches!(block, Some(Value::Block(_)));
                None
            }
            Mnemonic::Shr if instruction.immediate8() == 12 && self.is_tested => {
                if let Some(Value::Block(cache)) = self.of(instruction.op0_register()) {
                    return Some(cache);
                }
                None
            }
            _ => None,
        };
        for used in factory.info(instruction).used_registers() {
            let register = used.register().full_register();
            if register.is_gpr() && super::instructions::writes(used.access()) {
                self.registers[register.number()] = None;
            }
        }
        if let Some(value) = value {
            self.registers[instruction.op0_register().number()] = Some(value);
        }
        None
    }

    /// The value that a `mov` to a register of 64 bits gives it.
    fn moved(&self, instruction: &Instruction) -> Option<Value> {
        if instruction.op1_register().is_gpr64() {
            return self.of(instruction.op1_register());
        }
        if instruction.op1_kind() != OpKind::Memory {
            return None;
        }
        if instruction.is_ip_rel_memory_operand() {
            return Some(Value::Slot(instruction.ip_rel_memory_address()));
        }
        let displacement = instruction.memory_displacement64();
        let base = self.of(instruction.memory_base());
        if instruction.segment_prefix() == Register::FS {
            return match base? {
                Value::Slot(slot) if displacement == 0 => Some(Value::Cache { slot }),
                _ => None,
            };
        }
        let Value::Cache { slot } = base? else {
            return None;
        };
        if instruction.memory_index() == Register::None || instruction.memory_index_scale() != 8 {
            return None;
        }
        let index = match self.of(instruction.memory_index()) {
            Some(Value::Index(index)) => index,
            _ => 0,
        };
        Some(Value::Block(ThreadCache {
            slot: slot.cast_signed(),
            lists: index.checked_mul(8)?.checked_add(displacement)?,
        }))
    }

    fn of(&self, register: Register) -> Option<Value> {
        let register = register.full_register();
        register
            .is_gpr()
            .then(|| self.registers[register.number()])?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The path of Debian 12's malloc (2.36) that takes a block from the cache: the rest is left out.
    const TAKES: &[u8] = &[
        0x4c, 0x8b, 0x25, 0x08, 0xa4, 0x13, 0x00, // mov r12, [rip+0x13a408]
        0x64, 0x49, 0x8b, 0x14, 0x24, // mov rdx, fs:[r12]
        0x48, 0x8d, 0x7d, 0x10, // lea rdi, [rbp+0x10]
        0x48, 0x8b, 0x04, 0xfa, // mov rax, [rdx+rdi*8]
        0xa8, 0x0f, // test al, 0xf
        0x75, 0x08, // jne
        0x48, 0x89, 0xc6, // mov rsi, rax
        0x48, 0xc1, 0xee, 0x0c, // shr rsi, 0xc
        0xc3, // ret
    ];

    const FOUND: ThreadCache = ThreadCache {
        slot: 0x13_a408 + 7,
        lists: 0x80,
    };

    #[test]
    fn the_cache_is_found_where_a_block_is_taken_from_it() {
        assert_eq!(thread_cache(TAKES), Some(FOUND));
    }

    #[test]
    fn it_is_found_behind_a_jump() {
        // test rdi, rdi; js +1; then a call that returns nothing of interest, skipped by a jump.
        let mut body = vec![0x48, 0x85, 0xff, 0x78, 0x02, 0xeb, 0x02, 0x90, 0xc3];
        let before = body.len() as i64;
        body.extend_from_slice(TAKES);
        let expected = ThreadCache {
            slot: FOUND.slot + before,
            ..FOUND
        };
        assert_eq!(thread_cache(&body), Some(expected));
    }

    #[test]
    fn each_part_of_the_pattern_is_needed() {
        // Without the segment; another shift (2.31 keeps the next block as it is); another mask; a scale of 4.
        for (at, byte) in [(7, 0x90), (30, 0x0b), (21, 0x07), (19, 0xba)] {
            let mut body = TAKES.to_vec();
            body[at] = byte;
            assert_eq!(thread_cache(&body), None, "{at}");
        }
        assert_eq!(thread_cache(&TAKES[7..]), None, "the slot is not read");
        for len in 0..TAKES.len() - 1 {
            let found = thread_cache(&TAKES[..len]);
            assert_eq!(found, None, "{len}");
        }
    }

    #[test]
    fn a_register_that_is_overwritten_is_forgotten() {
        let mut body = TAKES[..12].to_vec();
        body.extend_from_slice(&[0x31, 0xd2]); // xor edx, edx
        body.extend_from_slice(&TAKES[12..]);
        assert_eq!(thread_cache(&body), None);
    }
}
