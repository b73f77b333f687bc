//! Live device memory that keeps growing.

use crate::analysis::{
    series::Place,
    verdict::{
        advice::Advice,
        class::Class,
        rule::{DESCRIPTION, Description, OfProcess, OfSite, Rule},
        subjects::OnDevice,
    },
};

pub(super) const CLASS: Description = Description {
    name: "gpu-leak",
    meaning: "GPU memory that is never freed",
    next: &[Advice::LookAtDeviceSites],
    next_of_site: Some(|_, _, _| Advice::FindKeeper),
    is_leak: true,
    ..DESCRIPTION
};

pub(super) const DEVICE: Rule<OfProcess> = Rule {
    class: Class::GpuLeak,
    evidence: "live memory there rises steadily (the device's table, docs/gpu.md), or less clearly with 60 % of the growth at leaking sites",
    find: OfProcess::Device(|on: &OnDevice| {
        let rate = on.outstanding.trend.slope;
        let grade = on.leaks()?;
        Some(on.finding(Class::GpuLeak, grade, Some(rate), None))
    }),
};

pub(super) const SITE: Rule<OfSite> = Rule {
    class: Class::GpuLeak,
    evidence: "keeps growing like a leak, in device memory (not taken by an allocator)",
    find: OfSite::Growing(|grown| {
        let grade = grown.leaks()?;
        matches!(grown.place(), Place::Device(_)).then(|| grown.leak(grade))
    }),
};
