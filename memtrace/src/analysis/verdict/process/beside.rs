//! What grows beside a process whose own memory does not: the machine's, or
//! that of its GPUs.

use super::Finding;
use crate::analysis::{
    account::Window,
    statistics::warm_up,
    surroundings::{Device, Machine},
    verdict::{
        Class, Grade,
        evidence::{bytes, percent, rate, signed},
        shape::{Judged, Shape},
        thresholds::{DEVICE_FLOOR, MACHINE_FLOOR, STALLED},
    },
};

/// The kernel, shared memory that nobody has mapped, or want of memory.
pub(super) fn machine(machine: &Machine) -> Option<Finding> {
    growing(
        machine,
        &machine.shared,
        Class::Shmem,
        "shared memory of the machine",
    )
    .or_else(|| {
        growing(
            machine,
            &machine.kernel,
            Class::Kernel,
            "memory of the kernel and its drivers",
        )
    })
    .or_else(|| pressure(machine))
}

fn growing(machine: &Machine, values: &[f64], class: Class, what: &str) -> Option<Finding> {
    let judged = Judged::of(&machine.times, values, warm_up(values), MACHINE_FLOOR).ok()?;
    let shape = judged.shape();
    (shape == Shape::Steady).then(|| Finding {
        class,
        // Others on the machine may do it.
        grade: Grade::C,
        evidence: vec![
            format!(
                "{what} {} in {:.1} s, {}",
                signed(judged.trend.growth()),
                judged.trend.to - judged.trend.from,
                rate(&judged.trend)
            ),
            "the process's own resident memory does not grow".into(),
        ],
        runner_up: Some(Class::None),
        rate: Some(judged.trend.slope),
    })
}

/// Tasks wait for memory, and pages are swapped out, though this process does not grow.
fn pressure(machine: &Machine) -> Option<Finding> {
    let length = machine.times.last()? - machine.times.first()?;
    let whole = Window {
        from: 0,
        to: machine.times.len(),
    };
    let stalled = whole.change(&machine.stalled) / length.max(f64::MIN_POSITIVE);
    let swapped = whole.change(&machine.swapped_out);
    (stalled >= STALLED && swapped > 0.0).then(|| Finding {
        class: Class::Pressure,
        grade: Grade::C,
        evidence: vec![
            format!(
                "tasks waited for memory in {} of the time",
                percent(stalled)
            ),
            format!("{} were swapped out", bytes(swapped)),
            "the process's own resident memory does not grow".into(),
        ],
        runner_up: Some(Class::None),
        rate: None,
    })
}

/// A GPU's memory: handed out, or only kept.
pub(super) fn device(device: &Device) -> Option<Finding> {
    let skip = warm_up(&device.reserved);
    let judge = |values: &[f64]| Judged::of(&device.times, values, skip, DEVICE_FLOOR).ok();
    let (allocated, reserved) = (judge(&device.allocated)?, judge(&device.reserved)?);
    let figures = |judged: &Judged, what: &str| {
        let trend = &judged.trend;
        let length = trend.to - trend.from;
        let growth = signed(trend.growth());
        format!(
            "GPU {}: {what} {growth} in {length:.1} s, {}",
            device.index,
            rate(trend)
        )
    };
    let (class, rate) = match (allocated.shape(), reserved.shape()) {
        (Shape::Steady, _) => (Class::GpuLeak, allocated.trend.slope),
        (Shape::Flat, Shape::Steady | Shape::Between) => (Class::GpuCache, reserved.trend.slope),
        _ => return None,
    };
    Some(Finding {
        class,
        grade: Grade::B,
        evidence: vec![
            figures(&allocated, "allocated"),
            figures(&reserved, "reserved"),
        ],
        runner_up: Some(if class == Class::GpuLeak {
            Class::GpuCache
        } else {
            Class::GpuLeak
        }),
        rate: Some(rate),
    })
}
