//! Thresholds that several detectors share; each has its own in its file. The measurements are in
//! `docs/reference/verdict-rules.md`.

/// Growth below this share of the level matters only without an end in sight: allocators and page tables drift by it.
pub(super) const OF_LEVEL: f64 = 0.02;

/// Growth must exceed the ordinary scatter of the blocks this many times.
pub(super) const OF_NOISE: f64 = 4.0;

/// Least growth of a process's resident memory, bytes. The kernel counts resident pages per CPU and
/// adds up at every 64th (`percpu_counter_batch`, lib/percpu_counter.c), so small changes are not seen.
pub(super) const PROCESS_FLOOR: f64 = 256.0 * 1024.0;

/// Least growth of a site, bytes: the ledger is exact, but smaller ones are interned strings and the like.
pub(super) const SITE_FLOOR: f64 = 32.0 * 1024.0;

/// The same for a site whose few bytes hold [`PROCESS_FLOOR`] of free space open.
pub(super) const HOLDER_FLOOR: f64 = 128.0;

/// A component that has this share of a growth explains it.
pub(super) const MAJORITY: f64 = 0.6;

/// A component that has this share of a growth is reported.
pub(crate) const REPORTED: f64 = 0.3;

/// Share of the unexplained growth that must be of one kind (lazily freed, huge pages).
pub(super) const OF_RESIDUAL: f64 = 0.5;

/// Late slope over early slope: below, growth is coming to its end.
pub(super) const SLOWING: f64 = 0.25;

/// Late slope over early slope: above this, growth continues at its rate. By time, and by the work
/// done meanwhile, which is the better measure because it leaves out the load of the machine.
pub(super) const STEADY: f64 = 0.7;
pub(super) const STEADY_BY_WORK: f64 = 0.8;

/// Late slope over early slope: above, growth has only begun, or a load wanders. Leaks have 0.9 to 1.1.
pub(super) const STEEPENING: f64 = 2.5;

/// A leak grows in this many of the last [`LAST_BLOCKS`] blocks.
pub(super) const RISING_BLOCKS: usize = 6;
pub(super) const LAST_BLOCKS: usize = 8;

/// The same for a leak that grows in steps, and never falls.
pub(super) const STEPS: usize = 4;

/// Records lost, of all, above which figures are too uncertain.
pub(super) const LOST: f64 = 0.01;

/// Allocated bytes without a stack, of all, above which no site can be blamed.
pub(super) const WITHOUT_STACK: f64 = 0.005;

/// Least footprint, bytes, for which a state (not a trend) is reported: retained, lazily freed,
/// huge.
pub(super) const STATE_FLOOR: f64 = 8.0 * 1024.0 * 1024.0;

/// Largest share of false discoveries among the sites called growing.
pub(super) const FALSE_DISCOVERIES: f64 = 0.01;

/// Factor for the length of the next recording if the shape is not clear yet.
pub(super) const LONGER: f64 = 4.0;
