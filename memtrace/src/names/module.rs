//! A file with symbols, and how much of it is read.

use std::{fs::File, sync::mpsc::Receiver};

use super::line::{Named, Place};
use crate::{
    frames::{Cause, Frame, FrameKind},
    process_root::Root,
    symbolize::{Detail, debug_files::Proof},
};

pub(super) struct Module {
    /// As its process sees it.
    pub(super) path: String,
    pub(super) file: File,
    pub(super) build_id: Option<String>,
    /// `None`: it is not read any more.
    pub(super) detail: Option<Detail>,
    pub(super) search: Search,
}

/// The search for a debug file.
pub(super) enum Search {
    /// In the process's root, too. So many of those that were found are not to be tried.
    Open {
        root: Option<Root>,
        without: usize,
    },
    Fetching(Receiver<Option<File>>),
    Over(Option<(File, Proof)>),
}

impl Module {
    /// A place in a module that is not read.
    pub(super) fn given_up(&self, place: Place) -> Named {
        let (file_offset, why) = match place {
            Place::FileOffset(offset) => (Some(offset), Cause::NamesBudget.into()),
            Place::VirtOffset(offset) => (None, Cause::NamesBudget.at(offset)),
        };
        let frame = Frame {
            kind: FrameKind::Native,
            function: None,
            module: Some(self.path.clone()),
            build_id: self.build_id.clone(),
            file_offset,
            file: None,
            line: None,
            inlined: false,
            is_packaged: false,
            unresolved: Some(why),
        };
        Named {
            frames: vec![frame],
            is_cut: true,
        }
    }

    /// Less of it is read from now on.
    pub(super) fn reduce(&mut self) {
        self.detail = match self.detail {
            Some(Detail::Full) => Some(Detail::Symbols),
            Some(Detail::Symbols) | None => None,
        };
    }
}
