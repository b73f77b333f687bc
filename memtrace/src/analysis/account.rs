//! Where a process's growth went: tables whose rows add up to it. Growth no row accounts for
//! is *unattributed*, never left out.

use std::borrow::Cow;

use super::{
    series::{DeviceSeries, Figure, ProcessSeries},
    window::Window,
};
use crate::{
    event::Device,
    frames::{allocators::GLIBC, mappings::Use},
    ledger::SiteKey,
};

/// Why a process's total on a device may be less than its requests.
pub(crate) const OLDER_TOTAL: &str = "NVML was read earlier, or managed memory is in host memory";

/// Kind of memory that a table is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Anonymous, swapped out or not.
    Anonymous,
    Shared,
    File,
    /// Of a device, not resident: the known allocations, or the process total that `nvidia-smi`
    /// reports.
    Device(Device),
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Kind::Anonymous => "anonymous",
            Kind::Shared => "shared",
            Kind::File => "file",
            Kind::Device(_) => "device",
        }
    }
}

/// The caching allocator of a process, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cache(pub &'static str);

/// Subject of a table row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Term {
    LiveHeap,
    /// Headers and rounding of live blocks, by the allocator of this name.
    Overhead(&'static str),
    LivePython,
    LiveMappings,
    /// Chunks of the heap of a language's runtime.
    RuntimeHeap,
    Stacks,
    /// Requested from a device's driver, which maps it as shared memory.
    PageLocked,
    Libraries,
    /// Of a device: in blocks of its caching allocator, and other requests.
    Outstanding(Cache),
    /// Of a device: reserved by the caching allocator, but in no block.
    Kept(Cache),
    /// The same, if the allocator did not always report it.
    KeptAsKnown(Cache),
    /// Free in the allocator, below live blocks of this site, so it cannot be given back.
    Holes(SiteKey),
    /// Given back to the allocator and not to the kernel, or never handed out.
    Retained,
    Unattributed,
    /// Of a device: not requested since the recording began.
    NotRequested,
}

impl Term {
    pub(crate) fn name(self) -> Cow<'static, str> {
        let name = match self {
            Term::LiveHeap => "live heap",
            Term::Overhead(_) => "headers and rounding",
            Term::LivePython => "live Python arenas",
            Term::LiveMappings => "live mappings of the program",
            Term::RuntimeHeap => "heap of the language's runtime",
            Term::Stacks => "thread stacks",
            Term::PageLocked => "page-locked memory",
            Term::Libraries => "libraries loaded",
            Term::Outstanding(_) => "outstanding",
            Term::Kept(Cache(of)) | Term::KeptAsKnown(Cache(of)) => {
                return format!("kept by {of}'s allocator").into();
            }
            Term::Holes(_) => "held open by surviving blocks",
            Term::Retained => "retained by the allocator",
            Term::Unattributed | Term::NotRequested => "unattributed",
        };
        name.into()
    }

    /// The basis of a row's figure, which is `bytes`.
    pub(crate) fn basis(self, bytes: f64) -> Cow<'static, str> {
        let basis = match self {
            Term::LiveHeap => "exact: requested sizes",
            Term::Overhead(of) => {
                return format!("estimated: {of}'s rounding of the live blocks").into();
            }
            Term::LivePython => "upper bound: whole arenas, touched or not",
            Term::LiveMappings | Term::RuntimeHeap => {
                "upper bound: lengths, up to the growth of resident memory"
            }
            Term::Stacks => "as read now and then; unread: at most 128 KiB for each stack",
            Term::PageLocked => "upper bound: requests, up to the growth of resident memory",
            Term::Libraries => "upper bound: lengths, up to the growth of resident memory",
            Term::Outstanding(Cache(of)) => {
                let blocks = format!("exact: {of}'s blocks after rounding");
                return (blocks + ", and others' requests").into();
            }
            Term::Kept(_) => "exact: memory that it reserves but keeps in no block",
            Term::KeptAsKnown(_) => {
                "estimated: the allocator did not report its total at every point"
            }
            Term::Holes(_) => {
                "estimated: the site's share of the resident holes between live blocks"
            }
            Term::Retained => {
                "upper bound: memory that the allocator has mapped beyond the live heap"
            }
            Term::NotRequested if bytes < 0.0 => OLDER_TOTAL,
            Term::NotRequested => {
                "not requested since the recording began: context, modules, libraries, older memory"
            }
            Term::Unattributed if bytes < 0.0 => {
                "memory from before was reused, or what the rows above bound is not all touched"
            }
            Term::Unattributed => {
                "not explained: first touch of older memory, or memory outside any allocator"
            }
        };
        basis.into()
    }
}

/// The growth of one kind of memory, bytes, and its rows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Account {
    pub kind: Kind,
    pub growth: f64,
    /// They add up to `growth`.
    pub rows: Vec<(Term, f64)>,
}

impl Account {
    /// The bytes of a row; 0 if the table has no such row.
    pub(crate) fn of(&self, term: Term) -> f64 {
        let mut rows = self.rows.iter();
        rows.find(|row| row.0 == term).map_or(0.0, |row| row.1)
    }

    /// Free in the allocator, whatever keeps it there.
    pub(crate) fn retained(&self) -> f64 {
        let rows = self.rows.iter();
        rows.filter(|(term, _)| matches!(term, Term::Holes(_) | Term::Retained))
            .map(|(_, bytes)| bytes)
            .sum()
    }
}

/// Upper bound of the stack that a thread touches, bytes, where it was not read: 8 MiB are mapped, few threads use
/// more than this.
const STACK_TOUCHED: f64 = 128.0 * 1024.0;

/// The share of the mappings made in `window` for `what` that became resident, 0 to 1; `None` if
/// their length did not grow or resident memory is not known.
pub(crate) fn touched(series: &ProcessSeries, window: Window, what: Use) -> Option<f64> {
    let term = match what {
        Use::Program => Term::LiveMappings,
        Use::Stack => Term::Stacks,
        Use::Runtime => Term::RuntimeHeap,
        Use::Allocator | Use::Driver | Use::Library => return None,
    };
    let length = window.change(&series.mapped(what));
    let accounts = accounts(series, window);
    let mut kinds = accounts.iter();
    // Nothing is known without the series of anonymous memory.
    kinds.find(|account| account.kind == Kind::Anonymous)?;
    let resident: f64 = accounts.iter().map(|account| account.of(term)).sum();
    (length > 0.0).then(|| (resident / length).clamp(0.0, 1.0))
}

/// The tables of a process over `window`; empty if its memory could not be read.
pub(crate) fn accounts(series: &ProcessSeries, window: Window) -> Vec<Account> {
    let change = |figure| series.figure(figure).map(|values| window.change(values));
    let mut accounts = Vec::new();
    if let Some(anonymous) = change(Figure::Anon) {
        let growth = anonymous + change(Figure::Swap).unwrap_or(0.0);
        accounts.push(anonymous_account(series, window, growth));
    }
    // The part of mappings that is not anonymous may be shared or file memory.
    let anonymous: f64 = accounts.iter().map(|of| of.of(Term::LiveMappings)).sum();
    let mut mappings = window.change(&series.mapped(Use::Program)) - anonymous;
    let libraries = window.change(&series.mapped(Use::Library));
    let page_locked = series.pinned().map_or(0.0, |of| window.change(of));
    for (kind, figure, of_kind, bytes) in [
        (Kind::Shared, Figure::Shmem, Term::PageLocked, page_locked),
        (Kind::File, Figure::File, Term::Libraries, libraries),
    ] {
        let Some(growth) = change(figure) else {
            continue;
        };
        let mut rest = Rest(growth);
        let explained = rest.explain(bytes);
        let own = rest.explain(mappings);
        mappings -= own;
        let rows = vec![
            (Term::LiveMappings, own),
            (of_kind, explained),
            (Term::Unattributed, rest.0),
        ];
        accounts.push(Account { kind, growth, rows });
    }
    let cache = Cache(series.caching_allocator().name);
    accounts.extend(
        series
            .devices
            .iter()
            .map(|device| device_account(device, cache, window)),
    );
    accounts
}

/// Growth that no row has yet.
struct Rest(f64);

impl Rest {
    /// Adds memory known as address space only, up to the growth that is still unexplained.
    fn explain(&mut self, bytes: f64) -> f64 {
        let explained = bytes.clamp(self.0.min(0.0), self.0.max(0.0));
        self.0 -= explained;
        explained
    }
}

fn device_account(device: &DeviceSeries, cache: Cache, window: Window) -> Account {
    let held = window.change(&device.held);
    let outstanding = window.change(&device.outstanding);
    let growth = device
        .total
        .as_ref()
        .map_or(held, |total| window.change(total));
    let kept = match device.is_held_known(window) {
        true => Term::Kept(cache),
        false => Term::KeptAsKnown(cache),
    };
    Account {
        kind: Kind::Device(device.index),
        growth,
        rows: vec![
            (Term::Outstanding(cache), outstanding),
            (kept, held - outstanding),
            (Term::NotRequested, growth - held),
        ],
    }
}

/// Growth of the resident memory of stacks; `None` if it was not read, or anonymous memory did not grow.
fn stacks_measured(series: &ProcessSeries, window: Window) -> Option<f64> {
    let share = series.share(Figure::Stacks, Figure::Anon, window)?;
    let anonymous = window.change(series.figure(Figure::Anon)?);
    Some(share.clamp(0.0, 1.0) * anonymous)
}

fn anonymous_account(series: &ProcessSeries, window: Window, growth: f64) -> Account {
    let heap = window.change(&series.heap);
    let python = window.change(&series.python);
    let overhead = window.change(&series.overhead);
    let mut rest = Rest(growth - heap - overhead - python);
    let measured = stacks_measured(series, window).map(|bytes| rest.explain(bytes));
    let mappings = rest.explain(window.change(&series.mapped(Use::Program)));
    let runtime = rest.explain(window.change(&series.mapped(Use::Runtime)));
    let stacks = measured.unwrap_or_else(|| {
        let most = window.change(&series.stacks()).max(0.0) * STACK_TOUCHED;
        rest.explain(window.change(&series.mapped(Use::Stack)).min(most))
    });
    // An allocator's space beyond its live blocks: grown by now, or free since the heap shrank.
    let spare =
        |at: fn(&[f64]) -> f64| (at(&series.mapped(Use::Allocator)) - at(&series.heap)).max(0.0);
    let end = spare(|values| values.last().copied().unwrap_or(0.0));
    let grown = window.change(&series.mapped(Use::Allocator)) - heap;
    // If its live blocks are not known, neither is what it has beyond them.
    let retained = match series.has_heap {
        true => rest.explain(end.max(grown).max(0.0)),
        false => 0.0,
    };
    let allocator = series.heap_allocator.unwrap_or(&GLIBC).name;
    let mut rows = vec![
        (Term::LiveHeap, heap),
        (Term::Overhead(allocator), overhead),
        (Term::LivePython, python),
        (Term::LiveMappings, mappings),
        (Term::RuntimeHeap, runtime),
        (Term::Stacks, stacks),
    ];
    // Never more than was seen between blocks: the rest lies above the last block.
    let holes = retained.clamp(0.0, series.holes);
    let mut retained = Rest(retained);
    for (site, share) in holders(series) {
        rows.push((Term::Holes(site), retained.explain(share * holes)));
    }
    rows.push((Term::Retained, retained.0));
    rows.push((Term::Unattributed, rest.0));
    Account {
        kind: Kind::Anonymous,
        growth,
        rows,
    }
}

/// Least share of the memory held open that makes a row.
const HOLDER: f64 = 0.1;

/// The sites that hold the most open, and their shares of all that was seen to be.
pub(crate) fn holders(series: &ProcessSeries) -> Vec<(SiteKey, f64)> {
    let all = series.holes.max(f64::MIN_POSITIVE);
    let sites = series.sites.iter();
    let mut holders: Vec<(SiteKey, f64)> = sites
        .map(|site| (site.key, site.holes / all))
        .filter(|(_, share)| *share >= HOLDER)
        .collect();
    holders.sort_by(|a, b| b.1.total_cmp(&a.1));
    holders
}
