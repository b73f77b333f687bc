//! The verdict on a process's memory on a device (GPU).

use super::{
    class::Class,
    context::Context,
    detectors::rules,
    finding::Finding,
    rule::OfProcess,
    subjects::{JudgedSite, OnDevice},
};
use crate::analysis::series::DeviceSeries;

/// The first rule that finds something of a device.
pub(super) fn judge(
    context: &Context,
    device: &DeviceSeries,
    sites: &[JudgedSite],
) -> Option<Finding> {
    let on_device = || sites.iter().filter(|site| site.is_on(device.index));
    let leaking = on_device().filter(|site| site.verdict.class == Class::GpuLeak);
    let found = OnDevice {
        context,
        device,
        outstanding: OnDevice::course(context, device, &device.outstanding)?,
        held: OnDevice::course(context, device, &device.held)?,
        seen: on_device().map(|site| site.growth).sum(),
        leaking: leaking.map(|site| site.growth).sum(),
    };
    rules().find_map(|rule| match rule.find {
        OfProcess::Device(find) => find(&found),
        _ => None,
    })
}
