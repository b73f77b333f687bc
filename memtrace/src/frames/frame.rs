//! A frame as it is recorded.

use serde::{Deserialize, Serialize};

use super::{Cause, Unresolved, installed};

/// The kind of code of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FrameKind {
    Native,
    Python,
}

/// One resolved frame. A physical frame with inlined callees becomes several,
/// the innermost first, all but the last marked `inlined`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    pub kind: FrameKind,
    /// Demangled; `None` if no symbol covers the address.
    pub function: Option<String>,
    /// Path of the file as the process sees it, or a pseudo name such as `[vdso]`.
    pub module: Option<String>,
    /// Lower-case hex.
    pub build_id: Option<String>,
    /// Offset into the module's file of the looked-up address; `None` for unknown modules.
    pub file_offset: Option<u64>,
    pub file: Option<String>,
    pub line: Option<u32>,
    pub inlined: bool,
    /// Its file is in a folder into which packages were installed (`pip install --target`).
    #[serde(skip)]
    pub is_packaged: bool,
    /// Why `function` is `None`.
    pub unresolved: Option<Unresolved>,
}

/// What a frame is shown by: a line that the compiler made several copies of is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shown<'a> {
    kind: FrameKind,
    function: Option<&'a str>,
    module: Option<&'a str>,
    source: (Option<&'a str>, Option<u32>),
    /// Without a function.
    file_offset: Option<u64>,
}

impl Frame {
    /// For comparing frames by what is shown of them.
    pub(crate) fn shown(&self) -> Shown<'_> {
        Shown {
            kind: self.kind,
            function: self.function.as_deref(),
            module: self.module.as_deref(),
            source: (self.file.as_deref(), self.line),
            file_offset: self.file_offset.filter(|_| self.function.is_none()),
        }
    }

    /// For an absolute address that belongs to no module.
    pub fn unknown(abs_addr: u64, cause: Cause) -> Frame {
        Frame {
            kind: FrameKind::Native,
            function: None,
            module: None,
            build_id: None,
            file_offset: None,
            file: None,
            line: None,
            inlined: false,
            is_packaged: false,
            unresolved: Some(cause.at(abs_addr)),
        }
    }

    pub fn is_python(&self) -> bool {
        self.kind == FrameKind::Python
    }

    /// Whether its source belongs to the standard library or a package.
    pub(crate) fn is_installed(&self) -> bool {
        self.is_packaged
            || self
                .file
                .as_deref()
                .is_some_and(|file| installed(file).is_some())
    }

    /// The name of its module's file, without folders.
    pub(crate) fn module_name(&self) -> Option<&str> {
        let module = self.module.as_deref()?;
        module.rsplit('/').next()
    }
}
