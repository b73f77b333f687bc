//! The ancestry of an address space: blocks that it inherited refer to sites of its ancestors,
//! whose places can be reused once no process holds such blocks.

use std::sync::{Arc, Weak};

/// The owners of the blocks that an address space may hold.
#[derive(Debug, Default)]
pub(super) struct Lineage {
    /// Stands for the process itself.
    own: Arc<()>,
    parent: Option<Arc<Lineage>>,
}

/// A process whose blocks another may hold.
#[derive(Debug, Default)]
pub(super) struct Ancestor(Weak<()>);

impl Ancestor {
    pub(super) fn has_descendants(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl Lineage {
    /// For a child, forked just now.
    pub(super) fn forked(self: &Arc<Self>) -> Arc<Lineage> {
        Arc::new(Lineage {
            own: Arc::default(),
            parent: Some(Arc::clone(self)),
        })
    }

    /// For the same process after its exec: it holds no blocks of its ancestors any more, but its
    /// children may hold blocks that it had.
    pub(super) fn executed(&self) -> Arc<Lineage> {
        Arc::new(Lineage {
            own: Arc::clone(&self.own),
            parent: None,
        })
    }

    pub(super) fn process(&self) -> Ancestor {
        Ancestor(Arc::downgrade(&self.own))
    }
}

impl Drop for Lineage {
    /// Not recursive: a program that continues in its child again and again has a long lineage.
    fn drop(&mut self) {
        let mut next = self.parent.take();
        while let Some(mut last) = next.and_then(Arc::into_inner) {
            next = last.parent.take();
        }
    }
}
