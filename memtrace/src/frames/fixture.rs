//! Frames for tests.

use super::{Cause, Frame, FrameKind};

pub(crate) fn native(function: &str, module: &str) -> Frame {
    Frame {
        function: Some(function.into()),
        unresolved: None,
        ..stripped(module)
    }
}

/// Without a function.
pub(crate) fn stripped(module: &str) -> Frame {
    Frame {
        module: Some(module.into()),
        ..Frame::unknown(0x10, Cause::Stripped)
    }
}

pub(crate) fn python(function: &str, file: &str, line: u32) -> Frame {
    Frame {
        kind: FrameKind::Python,
        function: Some(function.into()),
        file: Some(file.into()),
        line: Some(line),
        unresolved: None,
        ..Frame::unknown(0, Cause::NotMapped)
    }
}
