//! What grows beside a process's own memory: that of its GPUs; and where nothing of its own
//! does, what is page-locked, and the machine's.

use super::Finding;
use crate::analysis::{
    account::Window,
    machine::Machine,
    series::{DeviceSeries, ProcessSeries},
    statistics::warm_up,
    verdict::{
        Class, Grade,
        evidence::{bytes, grown, percent, rate},
        shape::{Judged, Shape},
        site::{Context, JudgedSite},
        thresholds::{
            DEVICE_FLOOR, MACHINE_FLOOR, MAJORITY, OF_MACHINE, PROCESS_FLOOR, REPORTED, STALLED,
        },
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
    let floor = MACHINE_FLOOR.max(OF_MACHINE * machine.total);
    let judged = Judged::of(&machine.times, values, warm_up(values), floor).ok()?;
    let own = "the process's own resident memory does not grow";
    // Others on the machine may do it.
    steady(&judged, class, what, own, Class::None)
}

/// What rises steadily, though the process's resident memory says otherwise in the words `own`.
fn steady(
    judged: &Judged,
    class: Class,
    what: &str,
    own: &str,
    runner_up: Class,
) -> Option<Finding> {
    let trend = &judged.trend;
    (judged.shape() == Shape::Steady).then(|| Finding {
        class,
        grade: Grade::C,
        evidence: vec![
            format!("{what} {}, {}", grown(trend), rate(trend)),
            own.into(),
        ],
        runner_up: Some(runner_up),
        rate: Some(trend.slope),
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

/// A GPU's memory: outstanding, or only kept by PyTorch's allocator.
pub(super) fn device(
    context: &Context,
    device: &DeviceSeries,
    sites: &[JudgedSite],
) -> Option<Finding> {
    let series = context.series;
    let window = device.window();
    let judge = |values: &[f64]| Judged::of(&series.times, values, window.from, DEVICE_FLOOR).ok();
    let (outstanding, held) = (judge(&device.outstanding)?, judge(&device.held)?);
    let figures = |judged: &Judged, what: &str| {
        let trend = &judged.trend;
        format!("{}: {what} {}, {}", gpu(device), grown(trend), rate(trend))
    };
    let on_device = || sites.iter().filter(|site| site.is_on(device.index));
    let seen: f64 = on_device().map(|site| site.growth).sum();
    let leaking = on_device().filter(|site| site.verdict.class == Class::GpuLeak);
    let leaking: f64 = leaking.map(|site| site.growth).sum();
    let shape = outstanding.shape();
    // Its sites are judged from where the process's start ends, and may have grown more since then
    // than its own course shows since its own: a longer recording tells.
    let growth = outstanding.trend.growth();
    let unblamed =
        shape == Shape::Steady && seen >= MAJORITY * growth && leaking < REPORTED * growth;
    let (class, grade, rate) = match (shape, held.shape()) {
        (Shape::Steady, _) if unblamed => (Class::Undetermined, Grade::D, None),
        (Shape::Steady, _) => (Class::GpuLeak, Grade::B, Some(outstanding.trend.slope)),
        (Shape::Between, _) => (Class::Undetermined, Grade::D, None),
        (Shape::Flat | Shape::Slowing, Shape::Steady | Shape::Between) => {
            (Class::GpuCache, Grade::B, Some(held.trend.slope))
        }
        (Shape::Slowing, _) | (_, Shape::Slowing) => (Class::Cache, Grade::C, None),
        (Shape::Flat, Shape::Flat) => return not_asked_for(series, device, &judge),
    };
    let mut evidence = vec![
        figures(&outstanding, "allocated"),
        figures(&held, "with what PyTorch's allocator keeps"),
    ];
    if unblamed {
        evidence.push(format!(
            "its sites grow by {} from {:.0} s on, but {} of that at sites that pass the tests of a leak",
            bytes(seen),
            series.times.get(context.window.from).unwrap_or(&0.0),
            bytes(leaking)
        ));
    }
    let at_end = device.totals.last().copied().unwrap_or_default();
    if let Some(largest) = at_end.torch.and_then(|torch| torch.largest_free) {
        let kept = at_end.known() - at_end.outstanding();
        evidence.push(format!(
            "at the end {} in no block, of which the largest free one has {}",
            bytes(kept as f64),
            bytes(largest as f64)
        ));
    }
    Some(Finding {
        class,
        grade,
        evidence,
        runner_up: Some(match class {
            Class::GpuLeak => Class::GpuCache,
            _ => Class::GpuLeak,
        }),
        rate,
    })
}

fn gpu(device: &DeviceSeries) -> String {
    let index = device.index.map_or("?".into(), |index| index.to_string());
    format!("GPU {index}")
}

/// What the process has of a device in all grows, what was asked for does not.
fn not_asked_for(
    series: &ProcessSeries,
    device: &DeviceSeries,
    judge: &impl Fn(&[f64]) -> Option<Judged>,
) -> Option<Finding> {
    // What was asked for on a device that is not known may be of this one.
    let flat = |other: &DeviceSeries| {
        let judged = judge(&other.held);
        judged.is_some_and(|judged| judged.shape() == Shape::Flat)
    };
    let mut unknown = series.devices.iter().filter(|other| other.index.is_none());
    if !unknown.all(flat) {
        return None;
    }
    let total = judge(device.total.as_deref()?)?;
    let finding = steady(
        &total,
        Class::Undetermined,
        &format!("{}: what the process has in all, by NVML,", gpu(device)),
        "what it asked for does not grow: context, modules, libraries that ask by other ways, first use of \
         managed memory, or what the driver's pool keeps",
        Class::GpuLeak,
    )?;
    Some(Finding {
        grade: Grade::D,
        ..finding
    })
}

/// Page-locked memory that the process's resident memory does not show.
pub(super) fn pinned(context: &Context) -> Option<Finding> {
    let Context { series, window, .. } = context;
    let values = series.pinned()?;
    let judged = Judged::of(&series.times, values, window.from, PROCESS_FLOOR).ok()?;
    let own = "resident memory does not show it";
    steady(
        &judged,
        Class::Pinned,
        "page-locked host memory",
        own,
        Class::Shmem,
    )
}
