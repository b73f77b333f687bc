//! The stack use of the kernel side's functions, so that excess is noticed without a kernel. The
//! kernel adds up the frames along each call chain, callbacks of its helpers included, and refuses
//! more than 512 bytes (`check_max_stack_depth`, kernel/bpf/verifier.c). Since 6.13 it gives large frames a place for each
//! CPU instead, which uprobe programs must not have (`memtrace-ebpf/src/kernel_stack.rs`).

use anyhow::{Context, Result, bail};
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionIndex, SymbolKind};
use std::collections::BTreeMap;

/// Most bytes of any chain, with some room for what another compiler makes of it.
const LIMIT: u64 = 448;
/// The same of the legacy object, whose loops of loops take a frame more.
const LEGACY_LIMIT: u64 = 480;
/// Frames are rounded up to this many bytes; newer kernels round to 16.
const ROUNDED: u64 = 32;
/// Frames of at least as many bytes are private (BPF_PRIV_STACK_MIN_SIZE).
const PRIVATE: u64 = 64;
/// Sections of the programs that can be preempted.
const UPROBES: [&str; 2] = ["uprobe", "uretprobe"];
/// The helper that lets a program have no private frames (BPF_FUNC_tail_call).
const TAIL_CALL: i32 = 12;
/// Frames that a chain may have (MAX_CALL_FRAMES, include/linux/bpf_verifier.h).
const FRAMES: usize = 8;

const INSTRUCTION: usize = 8;
const FRAME_POINTER: u8 = 10;
// Operation codes and pseudo source registers of include/uapi/linux/bpf.h.
const CALL: u8 = 0x85;
const PSEUDO_CALL: u8 = 1;
const LOAD_WORD_PAIR: u8 = 0x18;
const MOVE: u8 = 0xbf;
const ADD: u8 = 0x07;
const CLASS: u8 = 0x07;
const LOAD: u8 = 0x01;
const STORE: u8 = 0x02;
const STORE_REGISTER: u8 = 0x03;

/// Section and offset.
type Place = (usize, u64);

#[derive(Debug, Default)]
struct Function {
    name: String,
    /// Bytes of its frame, rounded up.
    frame: u64,
    calls: Vec<Place>,
    is_uprobe: bool,
    has_tail_call: bool,
}

/// The chain of calls that takes most stack: its bytes, and its functions from the outermost.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chain {
    pub(super) bytes: u64,
    pub(super) functions: Vec<String>,
}

/// Finds the deepest chain of an object.
///
/// # Errors
/// The object cannot be read, a chain is too deep, a function calls itself, or a uprobe program would have private frames.
pub(super) fn check(object: &[u8]) -> Result<Chain> {
    deepest(&functions(object)?, LIMIT)
}

/// As [`check`], of the legacy object: its kernels have no private frames.
///
/// # Errors
/// As [`check`], but for those.
pub(super) fn check_legacy(object: &[u8]) -> Result<Chain> {
    let mut functions = functions(object)?;
    for function in functions.values_mut() {
        function.is_uprobe = false;
    }
    deepest(&functions, LEGACY_LIMIT)
}

fn deepest(functions: &BTreeMap<Place, Function>, limit: u64) -> Result<Chain> {
    let mut deepest = Chain {
        bytes: 0,
        functions: Vec::new(),
    };
    for &place in functions.keys() {
        let mut path = Vec::new();
        descend(functions, place, &mut path, &mut deepest)?;
    }
    if deepest.functions.is_empty() {
        bail!("the object has no function");
    }
    if deepest.bytes > limit {
        bail!(
            "a call chain of the kernel side uses {} bytes of stack, more than {limit}: {}",
            deepest.bytes,
            deepest.functions.join(" → ")
        );
    }
    Ok(deepest)
}

fn descend<'a>(
    functions: &'a BTreeMap<Place, Function>,
    place: Place,
    path: &mut Vec<&'a Function>,
    deepest: &mut Chain,
) -> Result<()> {
    let function = functions
        .get(&place)
        .with_context(|| format!("a call leads to no function: {place:?}"))?;
    path.push(function);
    let names = || {
        let names: Vec<_> = path.iter().map(|function| &*function.name).collect();
        names.join(" → ")
    };
    if path.len() > FRAMES {
        bail!("more than {FRAMES} frames: {}", names());
    }
    if path[0].is_uprobe && !path[0].has_tail_call && function.frame >= PRIVATE {
        bail!(
            "a frame of {} bytes in a uprobe program without a tail call: {}",
            function.frame,
            names()
        );
    }
    let bytes = path.iter().map(|function| function.frame).sum();
    if bytes > deepest.bytes {
        *deepest = Chain {
            bytes,
            functions: path
                .iter()
                .map(|function| format!("{} ({})", function.name, function.frame))
                .collect(),
        };
    }
    for &call in &function.calls {
        descend(functions, call, path, deepest)?;
    }
    path.pop();
    Ok(())
}

fn functions(object: &[u8]) -> Result<BTreeMap<Place, Function>> {
    let file = object::File::parse(object).context("the kernel side is not an ELF object")?;
    let mut functions = BTreeMap::new();
    for symbol in file.symbols() {
        let (SymbolKind::Text, Some(SectionIndex(index)), 1..) =
            (symbol.kind(), symbol.section_index(), symbol.size())
        else {
            continue;
        };
        let name = shown(symbol.name()?);
        let section = file.section_by_index(SectionIndex(index))?;
        let data = section.data()?;
        let is_uprobe = UPROBES.contains(&section.name()?);
        let (start, end) = (symbol.address(), symbol.address() + symbol.size());
        let code = usize::try_from(start)
            .ok()
            .zip(usize::try_from(end).ok())
            .and_then(|(start, end)| data.get(start..end))
            .with_context(|| format!("`{name}` ends beyond its section"))?;
        let mut function = Function {
            name,
            frame: frame(code),
            calls: Vec::new(),
            is_uprobe,
            has_tail_call: code.chunks_exact(INSTRUCTION).any(is_tail_call),
        };
        for (offset, relocation) in section.relocations() {
            if !(start..end).contains(&offset) {
                continue;
            }
            let RelocationTarget::Symbol(target) = relocation.target() else {
                continue;
            };
            let target = file.symbol_by_index(target)?;
            let Some(SectionIndex(to)) = target.section_index() else {
                continue;
            };
            let is_code =
                file.section_by_index(SectionIndex(to))?.kind() == object::SectionKind::Text;
            let instruction = &data[offset as usize..];
            let immediate = i64::from(immediate(instruction));
            let addend = match instruction[0] {
                CALL if instruction[1] >> 4 == PSEUDO_CALL => (immediate + 1) * INSTRUCTION as i64,
                // The address of a function: one that a helper calls back.
                LOAD_WORD_PAIR if is_code => immediate,
                _ => continue,
            };
            function
                .calls
                .push((to, target.address().wrapping_add_signed(addend)));
        }
        // A callback is called from several places, a loop that is unrolled calls many times.
        function.calls.sort_unstable();
        function.calls.dedup();
        functions.insert((index, start), function);
    }
    Ok(functions)
}

/// Bytes of the frame of a function: as far down as it goes from the frame pointer.
fn frame(code: &[u8]) -> u64 {
    let mut lowest = 0;
    // Registers that hold a copy of the frame pointer, to which the offset of a variable is added.
    let mut copies = [false; 16];
    for instruction in code.chunks_exact(INSTRUCTION) {
        let (operation, registers) = (instruction[0], instruction[1]);
        let (to, from) = (registers & 15, registers >> 4);
        let offset = i32::from(i16::from_le_bytes([instruction[2], instruction[3]]));
        let class = operation & CLASS;
        let below = if class == LOAD && from == FRAME_POINTER
            || matches!(class, STORE | STORE_REGISTER) && to == FRAME_POINTER
        {
            offset
        } else if operation == ADD && copies[usize::from(to)] {
            immediate(instruction)
        } else {
            0
        };
        lowest = lowest.min(below);
        copies[usize::from(to)] = operation == MOVE && from == FRAME_POINTER;
    }
    u64::from(lowest.unsigned_abs())
        .max(1)
        .next_multiple_of(ROUNDED)
}

fn is_tail_call(instruction: &[u8]) -> bool {
    instruction[0] == CALL && instruction[1] >> 4 == 0 && immediate(instruction) == TAIL_CALL
}

fn immediate(instruction: &[u8]) -> i32 {
    match instruction.get(4..8) {
        Some(&[a, b, c, d]) => i32::from_le_bytes([a, b, c, d]),
        _ => 0,
    }
}

/// A function's name without the crate's hash.
fn shown(name: &str) -> String {
    format!("{:#}", rustc_demangle::demangle(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `operation to, from` with an offset and an immediate.
    fn instruction(operation: u8, to: u8, from: u8, offset: i16, immediate: i32) -> [u8; 8] {
        let [low, high] = offset.to_le_bytes();
        let [a, b, c, d] = immediate.to_le_bytes();
        [operation, from << 4 | to, low, high, a, b, c, d]
    }

    #[test]
    fn a_frame_is_as_deep_as_its_deepest_access() {
        let spill = instruction(0x7b, 10, 1, -40, 0);
        let other = instruction(0x7b, 6, 1, -400, 0);
        let load = instruction(0x79, 2, 10, -48, 0);
        let copy = instruction(MOVE, 2, 10, 0, 0);
        let between = instruction(MOVE, 3, 6, 0, 0);
        let below = instruction(ADD, 2, 0, 0, -100);
        assert_eq!(frame(&[]), 32);
        assert_eq!(frame(&[spill, other].concat()), 64);
        assert_eq!(frame(&[load].concat()), 64);
        assert_eq!(frame(&[copy, between, below].concat()), 128);
        // A term of a sum does not address a variable.
        assert_eq!(frame(&[between, below].concat()), 32);
    }

    fn tree(frames: &[(u64, &[u64])]) -> BTreeMap<Place, Function> {
        let function = |(number, &(frame, calls)): (usize, &(u64, &[u64]))| {
            let function = Function {
                name: number.to_string(),
                frame,
                calls: calls.iter().map(|&call| (0, call)).collect(),
                ..Function::default()
            };
            ((0, number as u64), function)
        };
        frames.iter().enumerate().map(function).collect()
    }

    #[test]
    fn the_chain_that_takes_most_is_found_and_named() {
        let functions = tree(&[(96, &[1, 2]), (32, &[]), (64, &[3]), (224, &[])]);
        let chain = deepest(&functions, LIMIT).unwrap();
        assert_eq!(chain.bytes, 384);
        assert_eq!(chain.functions, ["0 (96)", "2 (64)", "3 (224)"]);
    }

    #[test]
    fn a_chain_beyond_the_limit_is_refused_by_its_names() {
        let error = deepest(&tree(&[(256, &[1]), (224, &[])]), LIMIT).unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("480 bytes of stack, more than 448: 0 (256) → 1 (224)")
        );
    }

    #[test]
    fn a_uprobe_without_a_tail_call_has_small_frames_only() {
        let mut functions = tree(&[(32, &[1]), (64, &[])]);
        assert!(deepest(&functions, LIMIT).is_ok());
        let uprobe = functions.get_mut(&(0, 0)).unwrap();
        uprobe.is_uprobe = true;
        let error = deepest(&functions, LIMIT).unwrap_err().to_string();
        assert!(error.ends_with("without a tail call: 0 → 1"), "{error}");
        functions.get_mut(&(0, 0)).unwrap().has_tail_call = true;
        assert!(deepest(&functions, LIMIT).is_ok());
    }

    #[test]
    fn a_tail_call_is_the_helper_of_that_number() {
        assert!(is_tail_call(&instruction(CALL, 0, 0, 0, 12)));
        assert!(!is_tail_call(&instruction(CALL, 0, 0, 0, 14)));
        assert!(!is_tail_call(&instruction(CALL, 0, PSEUDO_CALL, 0, 12)));
    }

    #[test]
    fn recursion_and_calls_to_nowhere_are_refused() {
        assert!(deepest(&tree(&[(32, &[0])]), LIMIT).is_err());
        assert!(deepest(&tree(&[(32, &[7])]), LIMIT).is_err());
        assert!(deepest(&tree(&[]), LIMIT).is_err());
    }

    #[test]
    fn the_committed_object_has_chains_through_its_callbacks() {
        let object = std::fs::read(super::super::OBJECTS[0].path()).unwrap();
        let functions = functions(&object).unwrap();
        let calls = |caller: &str, called: &str| {
            let mut named = functions
                .values()
                .filter(|function| function.name == caller);
            let caller = named.next().unwrap_or_else(|| panic!("no `{caller}`"));
            caller
                .calls
                .iter()
                .any(|call| functions[call].name.ends_with(called))
        };
        assert!(
            functions
                .values()
                .any(|function| function.is_uprobe && function.has_tail_call)
        );
        assert!(calls("call_return", "walk"));
        // Called by bpf_loop.
        assert!(calls("walk", "next_frame"));
    }
}
