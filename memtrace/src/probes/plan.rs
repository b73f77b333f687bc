//! From a file's symbols to the list of its probes.
//!
//! Every allocation function of every mapped file is probed, whether or not
//! the loader prefers another file's: a call of the loser (through dlsym, from
//! within its own file) is then seen too, and an allocation function entered
//! while another of the same thread is in flight is ignored in the kernel.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use memtrace_common::{
    function::{Function, Operation},
    thread_cache::ThreadCache,
};

use super::{device_libraries, probe::Probe, reads, usdt};
use crate::arch::{self, Forward, Reads};
use crate::frames::{
    allocators,
    functions::{EXTENSIONS, FAMILY, OPERATORS, Row},
};
use crate::process::elf::{Elf, FunctionSymbol};

/// Functions by which an exception begins, or a thread is unwound for another reason (Itanium C++
/// ABI: Exception Handling; `_Unwind_ForcedUnwind` is pthread_exit's and pthread_cancel's).
const UNWINDING: &[&str] = &[
    "__cxa_allocate_exception",
    "__cxa_allocate_dependent_exception",
    "__cxa_rethrow",
    "_Unwind_ForcedUnwind",
];

/// Longest function that is searched for jumps, bytes. No allocation function
/// comes near; a symbol table that claims more is not believed.
const MAX_BODY: u64 = 1 << 20;

/// Plans the probes of a file.
///
/// A file counts as an allocator under a prefix if it defines both a function that allocates and
/// one that frees under it: a lone `free` is something else. `extra` are prefixes vouched for by
/// the user, which skip this check. C++ operators count in files that are allocators under some
/// prefix, except libc. The names of device libraries mean the same wherever they are defined.
///
/// Allocating functions come before freeing ones. (The order in which they are attached is decided
/// by the attaching side.)
pub(crate) fn plan(elf: &Elf<'_>, extra: &[String]) -> Vec<Probe> {
    let candidates = candidates(elf, extra);
    let mut places = merge(candidates);
    drop_forwarders(elf, &mut places);
    let mut probes: Vec<Probe> = places.into_values().map(|place| place.probe(elf)).collect();
    if is_sanitizer(elf) {
        for probe in probes.iter_mut().filter(|probe| probe.needs_return) {
            probe.function.may_throw = false;
            probe.ends = ends(elf, probe.entry_offset);
        }
    }
    probes.sort_by_key(|probe| (!probe.needs_return, probe.entry_offset));
    probes.extend(usdt::probes(elf));
    probes
}

/// Whether the file has the runtime of a sanitizer. Its functions unwind the stack for their own reports, and its operators
/// end the process where others throw.
fn is_sanitizer(elf: &Elf<'_>) -> bool {
    let mut functions = elf.functions();
    functions.any(|symbol| symbol.name == "__sanitizer_set_report_fd")
}

/// The return instructions of the function that begins at `offset`, offsets into the file.
fn ends(elf: &Elf<'_>, offset: u64) -> Vec<u64> {
    let sizes = elf
        .functions()
        .filter(|symbol| symbol.file_offset == offset);
    let size = sizes.map(|symbol| symbol.size).max().unwrap_or(0);
    let returns = arch::returns(elf.architecture, body(elf, offset, size));
    returns.into_iter().map(|at| offset + at).collect()
}

/// A symbol that matches a row, and the rank of its name.
struct Candidate<'data> {
    symbol: FunctionSymbol<'data>,
    function: Function,
    /// Group of the name: its prefix's place, operators last. Also the rank
    /// by which one of several names of an address is chosen.
    group: usize,
}

/// Most functions of one file that are probed: a tenant's file may have millions of one name.
const MOST_CANDIDATES: usize = 1 << 12;

fn candidates<'data>(elf: &Elf<'data>, extra: &[String]) -> Vec<Candidate<'data>> {
    let known = allocators::prefixes().count();
    let operators = known + extra.len();
    let libraries = operators + 1;
    let names = Names::new(extra, operators);
    let mut found: Vec<Candidate<'data>> = Vec::new();
    for symbol in elf.functions() {
        if found.len() == MOST_CANDIDATES {
            tracing::warn!(
                "a file has more than {MOST_CANDIDATES} functions to probe: the others are left out"
            );
            break;
        }
        if let Some((group, function)) = names.find(symbol.name) {
            found.push(Candidate {
                symbol,
                function,
                group,
            });
        }
    }
    let has = |group: usize, free: bool| {
        found.iter().any(|candidate| {
            candidate.group == group && (candidate.function.operation == Operation::Free) == free
        })
    };
    let complete = |group: usize| match (has(group, false), has(group, true)) {
        (true, true) => true,
        (allocates, frees) => group >= known && (allocates || frees),
    };
    let mut accepted: HashSet<usize> = (0..operators).filter(|&group| complete(group)).collect();
    // Beside libc's own malloc the operators are libstdc++'s, linked statically: they
    // call malloc, so their probes would add nothing.
    let of_libc = elf
        .functions()
        .any(|function| function.name.starts_with("__libc_start_main"));
    if !accepted.is_empty() && !of_libc {
        accepted.insert(operators);
    }
    accepted.extend(libraries..libraries + device_libraries::all().count());
    found.retain(|candidate| accepted.contains(&candidate.group));
    drop_alternatives(&mut found);
    found
}

/// Keeps the first of several names if only one of them may be probed.
fn drop_alternatives(found: &mut Vec<Candidate<'_>>) {
    let present: HashSet<&str> = found
        .iter()
        .map(|candidate| candidate.symbol.name)
        .collect();
    let others: HashSet<&str> = device_libraries::all()
        .flat_map(|library| library.alternatives)
        .flat_map(|names| names.iter().filter(|name| present.contains(**name)).skip(1))
        .copied()
        .collect();
    found.retain(|candidate| !others.contains(candidate.symbol.name));
}

/// Start of unwinding in a file that defines it: offsets into the file, bytes, sorted.
pub(crate) fn unwinding(elf: &Elf<'_>) -> Vec<u64> {
    let mut offsets: Vec<u64> = elf
        .functions()
        .filter(|function| UNWINDING.contains(&function.name))
        .map(|function| start(elf, function.file_offset, function.size, Reads::NOTHING))
        .collect();
    offsets.sort_unstable();
    offsets.dedup();
    offsets
}

/// Where to probe the start of the function that frees Python's code objects, its address before relocation: offset into
/// the file.
pub(crate) fn code_dealloc(elf: &Elf<'_>, virt: u64) -> Option<u64> {
    Some(start(elf, elf.file_offset(virt)?, 0, Reads::in_place(0)))
}

/// Where to probe the start of a function of `size` bytes (0: unknown): offset into the file.
fn start(elf: &Elf<'_>, file_offset: u64, size: u64, reads: Reads) -> u64 {
    let body = body(elf, file_offset, size);
    let size_known = size != 0 && size == body.len() as u64;
    let site = arch::probe_site(elf.architecture, body, size_known, reads);
    file_offset + site.offset
}

/// Whether a file may throw through functions of its own without symbols: it handles exceptions and
/// names no function related to them.
pub(crate) fn hides_unwinding(elf: &Elf<'_>) -> bool {
    let known = |name: &str| {
        UNWINDING.contains(&name)
            || name == "__cxa_throw"
            || name.starts_with("_Unwind_")
            || name.starts_with("_ZSt")
    };
    elf.has_section(".gcc_except_table") && !elf.names().any(known)
}

/// Most code of a file that is searched for signatures, bytes.
const MOST_SEARCHED: u64 = 256 << 20;

/// Whether the functions of a file that may throw sign their return addresses, or those to which they jump may: then only
/// the thread itself could put back one that a return probe has replaced.
pub(crate) fn signs_returns(elf: &Elf<'_>, probes: &[Probe]) -> bool {
    const PIECE: u64 = 1 << 20;
    let Some(probe) = probes.iter().find(|probe| probe.may_throw()) else {
        return false;
    };
    if !arch::has_signatures() {
        return false;
    }
    let code = elf.code_around(probe.entry_offset);
    if code.is_empty() || code.end - code.start > MOST_SEARCHED {
        return true;
    }
    let mut piece = vec![0; PIECE as usize];
    code.clone().step_by(PIECE as usize).any(|from| {
        let piece = &mut piece[..PIECE.min(code.end - from) as usize];
        elf.copy(from, piece).is_none() || arch::signs_returns(elf.architecture, piece)
    })
}

/// Functions that a library's version does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lacking {
    /// Its common name.
    pub library: &'static str,
    /// Functions in table order, of alternatives the first; then statically defined probes,
    /// including those in a place that cannot be read.
    pub symbols: Vec<&'static str>,
}

/// Functions missing from a file that is named as a device library; `None` if it is not such a
/// file.
pub(crate) fn lacking(elf: &Elf<'_>, path: &Path) -> Option<Lacking> {
    let file = path.file_name()?.to_str()?;
    let library = device_libraries::all().find(|library| library.is_named(file))?;
    let rows: HashSet<&str> = library.rows.iter().map(|row| row.name).collect();
    let present: HashSet<&str> = elf
        .functions()
        .map(|function| function.name)
        .filter(|name| rows.contains(name))
        .collect();
    let has = |name: &str| {
        let alternatives = library.alternatives.iter();
        let mut same = alternatives.filter(|names| names.contains(&name));
        present.contains(name)
            || same.any(|names| {
                // Listed once, for the first name.
                names.first() != Some(&name) || names.iter().any(|name| present.contains(name))
            })
    };
    let symbols = library.rows.iter().map(|row| row.name);
    let usdt = library.usdt.iter().map(|usdt| usdt.name);
    Some(Lacking {
        library: library.name,
        symbols: symbols
            .filter(|name| !has(name))
            .chain(usdt.filter(|name| usdt::lacks(elf, name)))
            .collect(),
    })
}

/// The probe of a function that is known by its address only, offset into the file.
pub(crate) fn probe_at(elf: &Elf<'_>, file_offset: u64, row: Row) -> Probe {
    let body = body(elf, file_offset, 0);
    let site = arch::probe_site(elf.architecture, body, false, reads::of(&row.function));
    Probe {
        symbol: row.name.to_owned(),
        aliases: Vec::new(),
        function: row.function,
        entry_offset: file_offset,
        file_offset: file_offset + site.offset,
        needs_return: row.function.operation.needs_return(),
        ends: Vec::new(),
        site,
        thread_cache: None,
        usdt: None,
    }
}

/// The rows by name. Extra prefixes rank after the known ones.
struct Names<'a> {
    prefixes: Vec<&'a str>,
    family: HashMap<&'static str, Function>,
    own: HashMap<(&'static str, &'static str), Function>,
    operators: HashMap<&'static str, Function>,
    operators_group: usize,
    /// The rows of a library are the group at this distance after the operators.
    libraries: HashMap<&'static str, (usize, Function)>,
}

impl<'a> Names<'a> {
    fn new(extra: &'a [String], operators_group: usize) -> Names<'a> {
        let by_name = |rows: &'static [Row]| rows.iter().map(|row| (row.name, row.function));
        Names {
            prefixes: allocators::prefixes()
                .map(|prefix| prefix as &str)
                .chain(extra.iter().map(String::as_str))
                .collect(),
            family: by_name(FAMILY).chain(by_name(EXTENSIONS)).collect(),
            own: allocators::own()
                .map(|(prefix, row)| ((prefix, row.name), row.function))
                .collect(),
            operators: by_name(OPERATORS).collect(),
            operators_group,
            libraries: device_libraries::all()
                .enumerate()
                .flat_map(|(place, library)| {
                    by_name(library.rows).map(move |(name, function)| {
                        (name, (operators_group + 1 + place, function))
                    })
                })
                .collect(),
        }
    }

    fn find(&self, symbol: &str) -> Option<(usize, Function)> {
        if let Some(&function) = self.operators.get(symbol) {
            return Some((self.operators_group, function));
        }
        if let Some(&found) = self.libraries.get(symbol) {
            return Some(found);
        }
        // The last prefix that fits: an extra one that equals a known one lifts the latter's condition.
        self.prefixes
            .iter()
            .enumerate()
            .rev()
            .find_map(|(group, prefix)| {
                let name = symbol.strip_prefix(prefix)?;
                let function = self
                    .family
                    .get(name)
                    .or_else(|| self.own.get(&(*prefix, name)))?;
                Some((group, *function))
            })
    }
}

/// An address and the names that lead to it.
struct Place<'data> {
    chosen: Candidate<'data>,
    names: Vec<&'data str>,
    /// The largest that any name gives.
    size: u64,
    /// By any of the names.
    reads: Reads,
}

impl Place<'_> {
    fn may_throw(&self) -> bool {
        self.chosen.function.may_throw
    }

    /// Its behaviour, whether or not an exception may leave it.
    fn shape(&self) -> Function {
        Function {
            may_throw: false,
            ..self.chosen.function
        }
    }

    fn probe(self, elf: &Elf<'_>) -> Probe {
        let Candidate {
            symbol, function, ..
        } = self.chosen;
        let body = body(elf, symbol.file_offset, self.size);
        let size_known = self.size == body.len() as u64;
        let cache = match size_known && self.names.contains(&"malloc") {
            true => thread_cache(elf, symbol.virt, body),
            false => None,
        };
        let reads = match cache {
            // As `malloc_session` reads: a walk may begin at the entry.
            Some(_) => Reads::in_place(0).and(Reads::FRAME),
            None => self.reads,
        };
        let site = arch::probe_site(elf.architecture, body, size_known, reads);
        let mut aliases: Vec<String> = self
            .names
            .into_iter()
            .filter(|&name| name != symbol.name)
            .map(str::to_owned)
            .collect();
        aliases.sort();
        aliases.dedup();
        Probe {
            symbol: symbol.name.to_owned(),
            aliases,
            function,
            entry_offset: symbol.file_offset,
            file_offset: symbol.file_offset + site.offset,
            needs_return: function.operation.needs_return(),
            ends: Vec::new(),
            thread_cache: cache.map(|cache| ThreadCache {
                slot: cache.slot - site.offset.cast_signed(),
                ..cache
            }),
            site,
            usdt: None,
        }
    }
}

/// Where glibc's malloc, whose code at `virt` is `body`, has its cache.
fn thread_cache(elf: &Elf<'_>, virt: u64, body: &[u8]) -> Option<ThreadCache> {
    let cache = arch::thread_cache(elf.architecture, body)?;
    let slot = virt.checked_add_signed(cache.slot)?;
    elf.is_thread_offset(slot).then_some(cache)
}

/// One place per address. Names of different shapes can share one (a stub that does nothing, folded
/// by the linker): the name of the lowest rank is used, because the standard fixes the meaning of
/// an unprefixed one.
fn merge(candidates: Vec<Candidate<'_>>) -> BTreeMap<u64, Place<'_>> {
    let mut places: BTreeMap<u64, Place<'_>> = BTreeMap::new();
    for candidate in candidates {
        let symbol = candidate.symbol;
        match places.entry(symbol.file_offset) {
            std::collections::btree_map::Entry::Vacant(entry) => {
                let reads = reads::of(&candidate.function);
                entry.insert(Place {
                    chosen: candidate,
                    names: vec![symbol.name],
                    size: symbol.size,
                    reads,
                });
            }
            std::collections::btree_map::Entry::Occupied(mut entry) => {
                let place = entry.get_mut();
                place.names.push(symbol.name);
                place.size = place.size.max(symbol.size);
                place.reads = place.reads.and(reads::of(&candidate.function));
                // `free` and `cfree` rank alike: the shorter name is the usual one.
                let rank = |of: &Candidate<'_>| (of.group, of.symbol.name.len());
                let may_throw = place.may_throw() || candidate.function.may_throw;
                if rank(&candidate) < rank(&place.chosen) {
                    place.chosen = candidate;
                }
                place.chosen.function.may_throw = may_throw;
            }
        }
    }
    places
}

/// A function that only jumps to another probed one of the same shape needs no
/// probe: its calls are seen there, and a free would be reported twice. A jump
/// through the global offset table may lead to another file's function of that
/// name: as an allocator's, that one is probed as well.
fn drop_forwarders(elf: &Elf<'_>, places: &mut BTreeMap<u64, Place<'_>>) {
    let forwards: BTreeMap<u64, u64> = places
        .iter()
        .filter_map(|(&offset, place)| Some((offset, forward_target(elf, places, place)?)))
        .filter(|(offset, target)| {
            let shape = |at| places.get(at).map(Place::shape);
            offset != target && shape(offset) == shape(target)
        })
        .collect();
    for &offset in forwards.keys() {
        // Chains are followed to their end; a cycle of jumps is left as it is.
        let end = std::iter::successors(Some(offset), |at| forwards.get(at).copied())
            .take(forwards.len() + 1)
            .find(|at| !forwards.contains_key(at));
        let Some(end) = end else { continue };
        let Some(forwarder) = places.remove(&offset) else {
            continue;
        };
        if let Some(place) = places.get_mut(&end) {
            place.chosen.function.may_throw |= forwarder.may_throw();
            place.names.extend(forwarder.names);
        }
    }
}

/// The probed place to which `place` forwards, directly or through a stub of
/// the procedure linkage table.
fn forward_target(
    elf: &Elf<'_>,
    places: &BTreeMap<u64, Place<'_>>,
    place: &Place<'_>,
) -> Option<u64> {
    let mut virt = place.chosen.symbol.virt;
    let mut code = body(elf, place.chosen.symbol.file_offset, place.size);
    for _function_then_stub in 0..2 {
        match arch::forwards(elf.architecture, code, virt)? {
            Forward::To(target) => {
                virt = virt.checked_add_signed(target)?;
                let offset = elf.file_offset(virt)?;
                if places.contains_key(&offset) {
                    return Some(offset);
                }
                code = body(elf, offset, 0);
            }
            Forward::Through(slot) => {
                let name = elf.bound_function(virt.checked_add_signed(slot)?)?;
                let mut named = places
                    .iter()
                    .filter(|(_, place)| place.names.contains(&name));
                return named.next().map(|(&offset, _)| offset);
            }
        }
    }
    None
}

/// The function's code, if its size is known; otherwise enough to decode its beginning.
fn body<'data>(elf: &Elf<'data>, file_offset: u64, size: u64) -> &'data [u8] {
    match size {
        0 | MAX_BODY.. => elf.code(file_offset, arch::BEGINNING),
        size => elf.code(file_offset, size),
    }
}

#[cfg(test)]
mod tests;
