//! Names for stack frames.
//!
//! Owns the way from a file and an address in it to functions, source lines and inlined calls. Does
//! not know processes, and opens no path: the caller has opened the very file that was mapped. Nothing
//! here guesses; an address that no symbol covers stays without a function, with the reason.
//!
//! All of it reads files that others wrote, by libraries without limits of their own. It therefore
//! belongs into a process whose memory is limited and that may be killed (`names`).
//!
//! Sources of names, in this order: a separate debug file, found by build id, by `.gnu_debuglink`
//! or fetched ([`debuginfod`]); the file's own debug information with its `.symtab` (or the one
//! packed in `.gnu_debugdata`) and `.dynsym`; those alone. A split file's `.dwo` and `.dwp` are not
//! read: its code has functions and, of its own, lines, but no inlined calls.

pub(crate) mod debug_files;
pub(crate) mod debuginfod;
pub(crate) mod demangle;
mod layout;
mod module;
pub(crate) mod perf_map;
#[cfg(test)]
mod tests;

pub(crate) use module::Detail;

use crate::{
    frames::{Cause, Frame, FrameKind, Unresolved},
    sigbus,
    symbolize::{
        debug_files::{Proof, Wanted},
        demangle::{bounded, demangle},
        layout::Layout,
        module::Module,
    },
};
use blazesym::symbolize::{
    self, CodeInfo, Input, Reason, Sym, Symbolized,
    source::{Elf, Source},
};
use std::{
    fs::File,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// A module known to a [`Symbolizer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ModuleId(u32);

/// Most calls that are shown as inlined at one place.
const MOST_INLINED: usize = 200;

/// Resolves places in modules to frames. Keeps every module's file open and its
/// debug information mapped for as long as it lives; not `Send`, so make it in
/// the thread that uses it.
pub(crate) struct Symbolizer {
    inner: symbolize::Symbolizer,
    modules: Vec<Module>,
}

impl Default for Symbolizer {
    fn default() -> Self {
        let inner = symbolize::Symbolizer::builder()
            // The files are pinned by their descriptors; `Module::is_changed` watches them.
            .enable_auto_reload(false)
            .enable_code_info(true)
            .enable_inlined_fns(true)
            // See `demangle`.
            .enable_demangling(false)
            .build();
        Self {
            inner,
            modules: Vec::new(),
        }
    }
}

impl Symbolizer {
    /// Adds a module. `display_path` is its path as the process sees it, `file` the very inode that
    /// is mapped (it may be deleted or belong to another mount namespace), `build_id` lower-case
    /// hex. A file that is not ELF is accepted; its frames stay unresolved. Returns what its debug
    /// file has to be, too.
    pub(crate) fn add(
        &mut self,
        display_path: &str,
        file: File,
        build_id: Option<String>,
        detail: Detail,
    ) -> (ModuleId, Wanted) {
        let id = ModuleId(self.modules.len() as u32);
        let layout = Layout::read(&file);
        let wanted = Wanted {
            link: layout.debug_link.clone(),
            lacks_debug_info: layout.is_elf() && !layout.has_debug_info,
        };
        self.modules
            .push(Module::new(display_path, file, layout, build_id, detail));
        (id, wanted)
    }

    /// Takes in a debug file of a module, if it is the one that belongs to it.
    pub(crate) fn offer(&mut self, module: ModuleId, file: File, proof: Proof) -> bool {
        let Some(module) = self.modules.get_mut(module.0 as usize) else {
            return false;
        };
        match debug_files::proven(file, proof, module.build_id.as_deref()) {
            Some(debug_file) => {
                module.add(debug_file);
                true
            }
            None => false,
        }
    }

    /// Whether names of the module may be missing because its file claims more than is read.
    pub(crate) fn is_cut(&self, module: ModuleId) -> bool {
        self.modules
            .get(module.0 as usize)
            .is_some_and(|module| module.is_cut)
    }

    /// Frames at `file_offset` (bytes; of a return address, the address minus one), the innermost
    /// inlined call first, the physical function last. Never empty.
    pub(crate) fn frames(&mut self, module: ModuleId, file_offset: u64) -> Vec<Frame> {
        let Some(of) = self.modules.get(module.0 as usize) else {
            return vec![Frame::unknown(file_offset, Cause::NoSuchModule)];
        };
        match of.layout.virt_offset(file_offset) {
            Some(virt_offset) => self.frames_at(module, virt_offset),
            None if of.layout.is_elf() => {
                vec![of.unresolved(Some(file_offset), Cause::OutsideSegments)]
            }
            None => vec![of.unresolved(Some(file_offset), Cause::NotElf)],
        }
    }

    /// Frames at an address as the module's ELF file means it (`p_vaddr`; of a return address, the
    /// address minus one), as [`Self::frames`].
    pub(crate) fn frames_at(&mut self, module: ModuleId, virt_offset: u64) -> Vec<Frame> {
        // Before the names that are known, too: the process may run the new content.
        if let Some(changed) = self
            .modules
            .get(module.0 as usize)
            .filter(|of| of.is_changed())
        {
            let file_offset = changed.layout.file_offset(virt_offset);
            return vec![changed.unresolved(file_offset, Cause::FileChanged)];
        }
        let (frames, gone) = sigbus::guarded(|| self.resolve(module, virt_offset));
        // Also if it changed meanwhile: the names may be wrong.
        if let Some(changed) = self.modules.get(module.0 as usize)
            && (gone || changed.is_changed())
        {
            let file_offset = changed.layout.file_offset(virt_offset);
            return vec![changed.unresolved(file_offset, Cause::FileChanged)];
        }
        frames
    }

    fn resolve(&mut self, id: ModuleId, virt_offset: u64) -> Vec<Frame> {
        let Some(module) = self.modules.get_mut(id.0 as usize) else {
            return vec![Frame::unknown(virt_offset, Cause::NoSuchModule)];
        };
        if !module.layout.is_elf() {
            return vec![module.unresolved(None, Cause::NotElf.at(virt_offset))];
        }
        let Some(file_offset) = module.layout.file_offset(virt_offset) else {
            return vec![module.unresolved(None, Cause::OutsideSegments.at(virt_offset))];
        };
        let file_offset = Some(file_offset);

        // The reason from the first source that could be read: it knows most.
        let mut why = None;
        for index in 0..module.sources.len() {
            let Some(source) = module.sources.get_mut(index).filter(|s| s.is_usable()) else {
                continue;
            };
            match symbolize(&self.inner, source.elf.clone(), virt_offset) {
                Ok(Symbolized::Sym(sym)) => {
                    source.works = true;
                    let listed = listed(&self.inner, &source.elf, virt_offset);
                    match refusal(&sym, listed.as_ref(), virt_offset) {
                        None => {
                            let full = listed.and_then(|listed| full_name(&sym, &listed));
                            return module.frames(file_offset, &sym, full.as_deref());
                        }
                        Some(reason) => why = why.or(Some(reason)),
                    }
                }
                Ok(Symbolized::Unknown(reason)) => {
                    source.works = true;
                    why = why.or(Some(match reason {
                        Reason::MissingSyms => Cause::Stripped,
                        _ => Cause::NoSymbol,
                    }));
                }
                // One bad unit does not affect the others; but debug information that never worked
                // would be parsed in vain for every address.
                Err(error) => {
                    source.broken = !source.works;
                    tracing::debug!(module = module.display_path, %error, "address not resolved");
                }
            }
        }
        if module.layout.is_in_plt(virt_offset) {
            why = Some(Cause::InPlt);
        }
        vec![module.unresolved(file_offset, why.unwrap_or(Cause::SymbolsUnreadable))]
    }
}

/// The reason why a symbol must not be reported, if there is one. blazesym reports a symbol of
/// `.symtab` that has no size (an assembler label) for everything that follows it, up to the next
/// symbol: a guess that gives padding, PLT stubs and stripped static functions a wrong name.
///
/// A function of several ranges (its cold part is elsewhere, the rule at `-O2`) has no size either.
/// `listed` distinguishes it from a label.
fn refusal(sym: &Sym<'_>, listed: Option<&Sym<'_>>, virt_offset: u64) -> Option<Cause> {
    let covers = |size: usize| {
        virt_offset
            .checked_sub(sym.addr)
            .is_some_and(|distance| distance < size as u64)
    };
    match sym.size {
        None if sym.code_info.is_none() || listed.is_none() => Some(Cause::SymbolWithoutSize),
        Some(size) if !covers(size) => Some(Cause::NoSymbol),
        _ if sym.name.is_empty() => Some(Cause::NamelessFunction),
        _ => None,
    }
}

/// Asks blazesym, which panics on some numbers in line tables.
fn symbolize(
    symbolizer: &symbolize::Symbolizer,
    elf: Elf,
    virt_offset: u64,
) -> blazesym::Result<Symbolized<'_>> {
    let source = Source::Elf(elf);
    let found = catch_unwind(AssertUnwindSafe(|| {
        symbolizer.symbolize_single(&source, Input::VirtOffset(virt_offset))
    }));
    found.unwrap_or_else(|_| Err(io::Error::other("blazesym panicked").into()))
}

/// The symbol of the symbol table that covers an address.
fn listed<'a>(
    symbolizer: &'a symbolize::Symbolizer,
    elf: &Elf,
    virt_offset: u64,
) -> Option<Sym<'a>> {
    let mut elf = elf.clone();
    elf.debug_syms = false;
    let Ok(Symbolized::Sym(sym)) = symbolize(symbolizer, elf, virt_offset) else {
        return None;
    };
    refusal(&sym, None, virt_offset).is_none().then_some(sym)
}

/// The symbol table's name of a function, if it is more complete than the debug information's: with
/// line tables only (`debug = "line-tables-only"`, `-gmlt`), that is `push`, and the symbol table
/// has `Vec<T>::push`.
fn full_name(sym: &Sym<'_>, listed: &Sym<'_>) -> Option<String> {
    let (short, full) = (demangle(&sym.name), demangle(&listed.name));
    let base = short.split(['<', '(']).next().unwrap_or(&short);
    let is_fuller = full.contains(&format!("::{base}"));
    (is_fuller && !short.contains(&*full)).then(|| full.into_owned())
}

impl Module {
    fn frame(&self, file_offset: Option<u64>, name: &str, code: Option<&CodeInfo<'_>>) -> Frame {
        let named = !name.is_empty();
        Frame {
            kind: FrameKind::Native,
            function: named.then(|| bounded(name).into_owned()),
            module: Some(self.display_path.clone()),
            build_id: self.build_id.clone(),
            file_offset,
            file: code.map(|code| bounded(&code.to_path().to_string_lossy()).into_owned()),
            // Line 0 is DWARF's "no line of the source".
            line: code.and_then(|code| code.line).filter(|line| *line != 0),
            inlined: false,
            is_packaged: false,
            unresolved: (!named).then(|| Cause::NamelessFunction.into()),
        }
    }

    fn unresolved(&self, file_offset: Option<u64>, why: impl Into<Unresolved>) -> Frame {
        Frame {
            unresolved: Some(why.into()),
            ..self.frame(file_offset, "", None)
        }
    }

    /// blazesym lists inlined calls from the outermost to the innermost.
    fn frames(
        &self,
        file_offset: Option<u64>,
        sym: &Sym<'_>,
        full_name: Option<&str>,
    ) -> Vec<Frame> {
        let inlined = sym
            .inlined
            .iter()
            .rev()
            .take(MOST_INLINED)
            .map(|call| Frame {
                inlined: true,
                is_packaged: false,
                ..self.frame(file_offset, &demangle(&call.name), call.code_info.as_ref())
            });
        let physical = self.frame(
            file_offset,
            full_name.unwrap_or(&demangle(&sym.name)),
            sym.code_info.as_deref(),
        );
        inlined.chain([physical]).collect()
    }
}
