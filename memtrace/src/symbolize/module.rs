//! One ELF file: which files can name its code.

use blazesym::symbolize::source::Elf;
use serde::{Deserialize, Serialize};
use std::{fs::File, io, os::unix::fs::MetadataExt, rc::Rc};

use super::{debug_files::DebugFile, layout::Layout};
use crate::process_root::fd_path;

/// The part of a module's symbols that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Detail {
    Full,
    /// No debug information: it takes by far the most memory.
    Symbols,
}

/// An open file. blazesym opens it by its descriptor and keeps the parsed data under that name, so
/// it stays open as long as the symbolizer lives.
pub(super) struct Pinned {
    file: File,
    version: Option<Version>,
}

/// Changes when the content of an inode does.
type Version = (u64, i64, i64);

/// A source of symbols.
pub(super) struct SymbolSource {
    pub(super) elf: Elf,
    /// `None`: the module's own file.
    separate: Option<Rc<Pinned>>,
    /// It could be parsed at least once.
    pub(super) works: bool,
    /// It could not be parsed, and is not used again.
    pub(super) broken: bool,
}

pub(super) struct Module {
    pub(super) display_path: String,
    /// Lower-case hex.
    pub(super) build_id: Option<String>,
    pub(super) layout: Layout,
    /// In order of use.
    pub(super) sources: Vec<SymbolSource>,
    /// A file of it claims more than is read.
    pub(super) is_cut: bool,
    detail: Detail,
    own: Pinned,
}

impl Module {
    pub(super) fn new(
        display_path: &str,
        file: File,
        layout: Layout,
        build_id: Option<String>,
        detail: Detail,
    ) -> Self {
        // The inode itself: works for deleted files, for other mount namespaces and after the
        // process ended.
        let elf = Elf::new(fd_path(&file));
        let bounded = layout.bounded(&file, false);
        let mut sources = Vec::new();
        // Links are followed by the caller, not by blazesym, which would open any target.
        if detail == Detail::Full && bounded.debug_info && !layout.leads_elsewhere {
            sources.push(SymbolSource::new(elf.clone(), None));
        }
        if bounded.symbols {
            // Used when its debug information is broken.
            sources.push(SymbolSource::new(symbols_of(elf), None));
        }
        Self {
            display_path: display_path.to_owned(),
            build_id,
            sources,
            is_cut: bounded.is_cut,
            detail,
            own: Pinned::new(file),
            layout,
        }
    }

    /// Adds a debug file, which is used first: it contains `.symtab` too.
    pub(super) fn add(&mut self, debug_file: DebugFile) {
        let DebugFile {
            file,
            layout,
            trusted,
        } = debug_file;
        let bounded = layout.bounded(&file, trusted);
        self.is_cut |= bounded.is_cut;
        let elf = Elf::new(fd_path(&file));
        let pinned = Rc::new(Pinned::new(file));
        if bounded.symbols {
            self.sources.insert(
                0,
                SymbolSource::new(symbols_of(elf.clone()), Some(Rc::clone(&pinned))),
            );
        }
        let may_be_read = trusted || !layout.leads_elsewhere;
        if self.detail == Detail::Full && bounded.debug_info && may_be_read {
            self.sources.insert(0, SymbolSource::new(elf, Some(pinned)));
        }
    }

    /// Whether the inode was written to since the module was added: its bytes may no longer be the
    /// process's code, and a shorter file would end blazesym's mapping of it with SIGBUS.
    pub(super) fn is_changed(&self) -> bool {
        self.own.is_changed()
    }
}

fn symbols_of(mut elf: Elf) -> Elf {
    elf.debug_syms = false;
    elf
}

impl SymbolSource {
    fn new(elf: Elf, separate: Option<Rc<Pinned>>) -> Self {
        Self {
            elf,
            separate,
            works: false,
            broken: false,
        }
    }

    /// As [`Module::is_changed`].
    pub(super) fn is_usable(&self) -> bool {
        !self.broken && !self.separate.as_ref().is_some_and(|file| file.is_changed())
    }
}

impl Pinned {
    fn new(file: File) -> Self {
        Self {
            version: version(&file).ok(),
            file,
        }
    }

    fn is_changed(&self) -> bool {
        version(&self.file).ok() != self.version
    }
}

fn version(file: &File) -> io::Result<Version> {
    let metadata = file.metadata()?;
    Ok((metadata.size(), metadata.mtime(), metadata.mtime_nsec()))
}
