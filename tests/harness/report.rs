//! The JSON report, with checks.

use crate::{
    kernel::preempts_programs_of_system_calls,
    truth::{Counts, Site, Truth},
};
use memtrace_common::{
    loss::{Effect, Reason},
    unwind::End,
};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Debug, Deserialize)]
pub struct Report {
    pub totals: Vec<Total>,
    pub sites: Vec<ReportedSite>,
    pub losses: BTreeMap<String, u64>,
    pub processes: Vec<Process>,
    #[serde(default)]
    pub devices: Vec<Device>,
    #[serde(default)]
    pub device_failures: Vec<DeviceFailure>,
    #[serde(default)]
    pub libraries: Vec<Library>,
    /// Records that the kernel side tried to emit.
    pub emitted: u64,
    pub received: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Total {
    pub tgid: u32,
    pub layer: String,
    pub live_bytes: u64,
    pub live_count: u64,
    pub inherited_bytes: u64,
    pub alloc_bytes: u64,
    pub alloc_count: u64,
    pub free_count: u64,
}

/// A process's memory on a device.
#[derive(Clone, Debug, Deserialize)]
pub struct Device {
    pub tgid: u32,
    pub index: Option<u8>,
    #[serde(flatten)]
    pub figures: DeviceFigures,
    pub process_total: Option<u64>,
    pub unattributed: Option<i64>,
    pub requested: Option<u64>,
    pub streams: Vec<Stream>,
}

/// Blocks of PyTorch's caching allocator on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Stream {
    pub stream: u64,
    pub allocated: u64,
    pub requested: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct DeviceFigures {
    pub allocated: Option<u64>,
    pub reserved: Option<u64>,
    pub peak_allocated: Option<u64>,
    pub peak_reserved: Option<u64>,
    pub largest_free: Option<u64>,
    pub runtime: u64,
    pub driver: u64,
    pub pinned: u64,
    pub known: u64,
}

/// Allocations that failed on a device.
#[derive(Clone, Debug, Deserialize)]
pub struct DeviceFailure {
    pub layer: String,
    pub device: Option<u8>,
    pub error: u32,
    pub out_of_memory: bool,
    /// The failure above it, or that it was a retry.
    pub part_of: Option<String>,
    pub count: u64,
    pub size: u64,
    pub held: DeviceFigures,
    stack: usize,
    #[serde(skip)]
    pub frames: Vec<Frame>,
}

impl DeviceFailure {
    /// The target's name for where it was.
    pub fn name(&self) -> Option<&str> {
        name_in(&self.frames)
    }
}

/// A device library, and its missing functions.
#[derive(Clone, Debug, Deserialize)]
pub struct Library {
    pub file: String,
    pub library: String,
    pub lacking: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub struct ReportedSite {
    pub tgid: u32,
    pub layer: String,
    pub device: Option<u8>,
    #[serde(flatten)]
    pub counts: Counts,
    stack: Option<usize>,
    /// Leaf first.
    #[serde(default)]
    pub frames: Vec<Frame>,
    /// Name of the thread.
    pub thread: Option<String>,
    /// Freed blocks: number `i` lived [2^i, 2^(i+1)) ns.
    pub lifetimes: Option<Vec<u64>>,
    #[serde(default)]
    end: String,
}

/// The stacks of a report, which its sites refer to.
#[derive(Deserialize)]
struct Listed {
    stacks: Vec<ListedStack>,
    frames: Vec<Frame>,
}

#[derive(Deserialize)]
struct ListedStack {
    frames: Vec<usize>,
    thread: Option<String>,
    end: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Frame {
    pub kind: String,
    pub function: Option<String>,
    pub module: Option<String>,
    /// Of the byte that was looked up.
    pub file_offset: Option<u64>,
    pub file: Option<String>,
    pub line: Option<u32>,
    pub inlined: bool,
}

#[derive(Debug, Deserialize)]
pub struct Process {
    pub tgid: u32,
    pub ppid: u32,
    pub comm: String,
    pub cmdline: Vec<String>,
    pub exit_status: Option<u32>,
    /// Processes that the kernel killed for lack of memory about when this one was killed.
    pub oom_kills: u64,
    pub origin: String,
    /// Of a group: how many ended processes it is.
    pub folded: Option<u64>,
}

/// The `name` of a function `site_name`, however it is decorated.
fn site_name(function: &str) -> Option<&str> {
    let start = function
        .match_indices("site_")
        .map(|(at, _)| at)
        .find(|&at| !function[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))?;
    let name = &function[start + "site_".len()..];
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
    Some(&name[..end.unwrap_or(name.len())])
}

impl ReportedSite {
    /// How the walk of its stack ended; `None`: no stack.
    #[track_caller]
    pub fn end(&self) -> Option<End> {
        if self.end == "no_stack" {
            return None;
        }
        let end = End::ALL.into_iter().find(|end| end.name() == self.end);
        Some(end.unwrap_or_else(|| panic!("a stack ends by `{}`", self.end)))
    }

    /// Whether its stack goes, or claims to go, to the outermost frame.
    #[track_caller]
    pub fn is_complete(&self) -> bool {
        self.end() == Some(End::Complete)
    }

    /// Its frames without inlined functions, leaf first.
    pub fn physical(&self) -> Vec<&Frame> {
        self.frames.iter().filter(|frame| !frame.inlined).collect()
    }

    /// The target's name for it; `None`: none of the target's own sites.
    pub fn name(&self) -> Option<&str> {
        name_in(&self.frames)
    }
}

/// The target's name for the site of a stack.
fn name_in(frames: &[Frame]) -> Option<&str> {
    let functions = frames.iter();
    functions
        .filter_map(|frame| frame.function.as_deref())
        .find_map(site_name)
}

impl Report {
    /// Reads a report, and puts each stack where it is referred to.
    ///
    /// # Errors
    /// When the text is not a report.
    pub fn parse(json: &str) -> Result<Report, serde_json::Error> {
        let listed: Listed = serde_json::from_str(json)?;
        let mut report: Report = serde_json::from_str(json)?;
        let frames = |stack: &ListedStack| {
            let places = stack.frames.iter();
            places.map(|&place| listed.frames[place].clone()).collect()
        };
        for site in &mut report.sites {
            let stack = &listed.stacks[site.stack.expect("each site has a stack")];
            site.frames = frames(stack);
            site.thread.clone_from(&stack.thread);
            site.end.clone_from(&stack.end);
        }
        for failure in &mut report.device_failures {
            failure.frames = frames(&listed.stacks[failure.stack]);
        }
        Ok(report)
    }

    pub fn loss(&self, reason: Reason) -> u64 {
        let known = self.losses.get(reason.name());
        *known.unwrap_or_else(|| panic!("`{}` is not reported", reason.name()))
    }

    /// Records that the ring buffer had no room for.
    pub fn dropped(&self) -> u64 {
        use Reason::*;
        [
            RingFullAlloc,
            RingFullFree,
            RingFullLifecycle,
            RingFullStack,
        ]
        .map(|reason| self.loss(reason))
        .iter()
        .sum()
    }

    /// Every record is accounted for.
    #[track_caller]
    pub fn expect_balance(&self) {
        assert!(self.emitted > 0, "nothing was emitted");
        assert_eq!(
            self.emitted,
            self.received + self.dropped(),
            "emitted ≠ received ({}) + dropped; {:?}",
            self.received,
            self.losses
        );
    }

    /// Something was recorded, and every process was followed from its first instruction on.
    #[track_caller]
    pub fn expect_followed(&self) {
        assert!(self.received > 0, "nothing was recorded");
        let untraced = |reason: &Reason| reason.effect() == Effect::Untraced;
        let lost = Reason::ALL.into_iter().filter(untraced);
        let lost = lost.map(|reason| (reason.name(), self.loss(reason)));
        let lost: Vec<_> = lost.filter(|(_, count)| *count > 0).collect();
        assert!(lost.is_empty(), "{lost:?}");
    }

    /// Nothing was lost, and at least the releases of memory allocated before tracing are reported
    /// as such. (At least: glibc empties an ending thread's cache by releasing blocks that were
    /// released before.)
    #[track_caller]
    pub fn expect_no_losses(&self, unknown_frees: u64) {
        self.expect_no_losses_but(&[], unknown_frees);
    }

    /// As [`Report::expect_no_losses`], but for these. A kernel that preempts programs of system calls may skip some at
    /// any time, also those of untraced processes.
    #[track_caller]
    pub fn expect_no_losses_but(&self, known: &[Reason], unknown_frees: u64) {
        let skipped = preempts_programs_of_system_calls().then_some(Reason::ProgramSkipped);
        let lost: Vec<_> = Reason::ALL
            .into_iter()
            .filter(|reason| reason.effect() != Effect::Filtered && self.loss(*reason) > 0)
            .filter(|reason| !known.contains(reason) && Some(*reason) != skipped)
            .map(|reason| (reason.name(), self.loss(reason)))
            .collect();
        assert!(lost.is_empty(), "{lost:?}");
        let unknown = self.loss(Reason::UnknownFree);
        assert!(
            unknown >= unknown_frees,
            "unknown frees: {unknown}, expected {unknown_frees}"
        );
        self.expect_balance();
    }

    /// The target's own sites in one layer.
    pub fn sites(&self, layer: &str) -> BTreeMap<Site, Counts> {
        let mut sites = BTreeMap::<Site, Counts>::new();
        // A parent's site does not belong to a child that inherited blocks from it.
        let own = |site: &&ReportedSite| site.layer == layer && site.counts != Counts::default();
        for site in self.sites.iter().filter(own) {
            if let Some(name) = site.name() {
                let key = (site.tgid, name.to_owned());
                sites.entry(key).or_default().add(site.counts);
            }
        }
        sites
    }

    /// Totals of a layer of a process; zero where it has none.
    pub fn total(&self, tgid: u32, layer: &str) -> Total {
        let mut rows = self.totals.iter();
        let row = rows.find(|row| row.tgid == tgid && row.layer == layer);
        row.cloned().unwrap_or(Total {
            tgid,
            layer: layer.to_owned(),
            live_bytes: 0,
            live_count: 0,
            inherited_bytes: 0,
            alloc_bytes: 0,
            alloc_count: 0,
            free_count: 0,
        })
    }

    /// The heap layer equals the truth: exactly the sites of every process, and the memory that
    /// children inherited.
    #[track_caller]
    pub fn expect_exact(&self, truth: &Truth) {
        let reported = self.sites("heap");
        let keys = truth.sites.keys().chain(reported.keys());
        let mut wrong: Vec<_> = keys
            .filter(|key| truth.sites.get(key) != reported.get(key))
            .map(|key| {
                let [truth, reported] = [&truth.sites, &reported].map(|sites| sites.get(key));
                format!("{key:?}\n  truth    {truth:?}\n  reported {reported:?}")
            })
            .collect();
        wrong.sort();
        wrong.dedup();
        assert!(
            wrong.is_empty(),
            "{}\nlosses: {:?}",
            wrong.join("\n"),
            self.losses
        );

        for &(less, more, bytes) in &truth.inheritances {
            let [less, more] = [less, more].map(|tgid| self.total(tgid, "heap").inherited_bytes);
            assert_eq!(
                more.checked_sub(less),
                Some(bytes),
                "inherited: {more} and {less}"
            );
        }
        // A process's total is at least the sum of its own sites.
        for (tgid, _) in truth.sites.keys() {
            let sites = truth.sites.iter().filter(|((of, _), _)| of == tgid);
            let live: u64 = sites.map(|(_, counts)| counts.live_bytes).sum();
            assert!(
                self.total(*tgid, "heap").live_bytes >= live,
                "total of {tgid}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_are_recognised_in_c_cpp_and_rust_names() {
        for function in [
            "site_vec",
            "site_vec(void*, unsigned long)",
            "rust_jemalloc::site_vec",
            "site_vec.constprop.0",
        ] {
            assert_eq!(site_name(function), Some("vec"), "{function}");
        }
        assert_eq!(site_name("website_vec"), None);
        assert_eq!(site_name("main"), None);
    }
}
