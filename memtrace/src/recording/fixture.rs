//! Holders of blocks, made up for the tests.

use super::{Holders, Path, Step, StepKind, Way, WayKind};
use crate::{
    event::{Layer, StackId},
    ledger::{ProcessId, SiteKey},
};

/// A site of the heap of process 1.
pub(crate) fn heap_site(stack: u32) -> SiteKey {
    SiteKey {
        process: ProcessId(1),
        layer: Layer::Heap,
        stack: StackId(stack),
        by_allocator: false,
        device: None,
    }
}

pub(crate) fn step(kind: StepKind, name: &str, type_name: &str) -> Step {
    Step {
        kind,
        name: name.into(),
        type_name: (!type_name.is_empty()).then(|| type_name.into()),
        length: None,
        limit: None,
        growth_per_s: None,
        repeated: 1,
        buffer: None,
    }
}

/// Tensors in a list, whose own memory belongs to the site `buffer`.
pub(crate) fn history(buffer: Option<SiteKey>) -> Path {
    let list = Step {
        length: Some(1648),
        growth_per_s: Some(26.8),
        buffer,
        ..step(StepKind::Object, ".history", "list")
    };
    Path {
        steps: vec![
            step(StepKind::Module, "__main__", ""),
            step(StepKind::Object, ".service", "Service"),
            list,
            step(StepKind::Object, "[i]", "Tensor"),
            step(StepKind::Block, "", "c10::TensorImpl"),
            step(StepKind::Block, "", "c10::StorageImpl"),
            step(StepKind::Block, "", ""),
        ],
        container: Some(2),
        container_number: Some(7),
        expression: Some("__main__.service.history".into()),
    }
}

/// Nodes of a tree in a variable of a library.
pub(crate) fn tree() -> Path {
    let nodes = Step {
        repeated: 12_345,
        ..step(StepKind::Block, "", "std::map node")
    };
    Path {
        steps: vec![
            step(StepKind::Global, "libfoo.so: g_cache + 0x10", ""),
            nodes,
            step(StepKind::Block, "", ""),
        ],
        container: None,
        container_number: None,
        expression: None,
    }
}

/// This many blocks each way, of this many that were sampled.
pub(crate) fn holders(site: SiteKey, sampled: u32, ways: Vec<(u32, WayKind)>) -> Holders {
    let ways = ways.into_iter();
    Holders {
        site,
        sampled,
        seen: None,
        unknown: None,
        ways: ways.map(|(blocks, held)| Way { blocks, held }).collect(),
    }
}
