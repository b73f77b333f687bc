//! Made-up recordings for tests, with the memory of their sites over time.

use std::sync::Arc;

use super::*;
use crate::{
    event::Layer,
    frames::{Frame, FrameKind, Wrappers},
    recording::SitePoint,
};

const POINTS: usize = 60;

/// A recording of a second for each point.
pub(crate) fn run(name: &str, sites: Vec<Site>) -> Run {
    Run {
        name: name.into(),
        seconds: (1..=POINTS).map(|second| second as f64).collect(),
        sites,
        memory: Memory::default(),
        facts: Vec::new(),
        losses: Vec::new(),
    }
}

/// A site that grows by this many bytes in a block a second.
pub(crate) fn growing(frames: Vec<Frame>, bytes_per_second: u64) -> Site {
    let point = |second: u64| SitePoint {
        live_bytes: second * bytes_per_second,
        alloc_count: second,
    };
    let points: Vec<_> = (1..=POINTS as u64).map(point).enumerate().collect();
    Site {
        layer: Layer::Heap,
        is_space: false,
        stack: Arc::new(Stack::new(
            frames.into_iter().map(Arc::new),
            &Wrappers::default(),
        )),
        live_bytes: points.last().map_or(0, |(_, point)| point.live_bytes),
        points,
    }
}

/// A site that holds the same all the time.
pub(crate) fn steady(frames: Vec<Frame>, bytes: u64) -> Site {
    let mut site = growing(frames, 0);
    site.live_bytes = bytes;
    for (_, point) in &mut site.points {
        point.live_bytes = bytes;
    }
    site
}

/// A function at an offset of a module's build.
pub(crate) fn native(function: Option<&str>, module: &str, build_id: &str, offset: u64) -> Frame {
    Frame {
        kind: FrameKind::Native,
        function: function.map(Into::into),
        module: Some(module.into()),
        build_id: Some(build_id.into()),
        file_offset: Some(offset),
        file: None,
        line: None,
        inlined: false,
        is_packaged: false,
        unresolved: function.is_none().then(|| "no symbols".into()),
    }
}

pub(crate) fn python(function: &str, file: &str, line: u32) -> Frame {
    Frame {
        kind: FrameKind::Python,
        function: Some(function.into()),
        module: None,
        build_id: None,
        file_offset: None,
        file: Some(file.into()),
        line: Some(line),
        inlined: false,
        is_packaged: false,
        unresolved: None,
    }
}

/// `f` of a library called by `main`, all of one build.
pub(crate) fn in_library(function: &str, build_id: &str, offset: u64) -> Vec<Frame> {
    vec![
        native(Some(function), "/lib/libx.so.1", build_id, offset),
        native(Some("main"), "/bin/program", "m", 0x10),
    ]
}

pub(crate) fn compared(baseline: Vec<Site>, new: Vec<Site>) -> Comparison {
    let runs = [run("a", baseline)];
    compare(&runs, &run("b", new), &Options::default()).unwrap()
}
