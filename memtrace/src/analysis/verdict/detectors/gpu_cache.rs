//! The reserve of a device's allocator grows, but the memory allocated from it does not.

use crate::analysis::verdict::{
    class::{Class, Grade},
    rule::{DESCRIPTION, Description, OfProcess, Rule},
    shape::Shape,
    subjects::OnDevice,
};

pub(super) const CLASS: Description = Description {
    name: "gpu-cache",
    meaning: "the GPU allocator reserves more and more memory, but no more of it is in use",
    cache: true,
    ..DESCRIPTION
};

pub(super) const DEVICE: Rule<OfProcess> = Rule {
    class: Class::GpuCache,
    evidence: "only the memory held by the caching allocator rises",
    find: OfProcess::Device(|on: &OnDevice| {
        let (outstanding, held) = on.shapes();
        let only_held = matches!(outstanding, Shape::Flat | Shape::Slowing)
            && matches!(held, Shape::Steady | Shape::Stepped | Shape::Between);
        only_held.then(|| on.finding(Class::GpuCache, Grade::B, Some(on.held.trend.slope), None))
    }),
};
