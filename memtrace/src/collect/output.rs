//! Where the recording goes, and what may be in it.

use super::sink::Sink;
use crate::host::Redactor;
use std::sync::Arc;

/// See the module.
pub(super) struct Output {
    pub(super) sink: Box<dyn Sink>,
    pub(super) redactor: Arc<Redactor>,
}
