//! The rates at which both sides allocate: growth may only be compared if they did the same work.

/// If allocations per unit differ by more than this share of the larger, the programs did different
/// work. Growth that differs by less may then only reflect the extra work.
pub(super) const SAME_WORKLOAD: f64 = 0.2;

/// Allocation rates of both sides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Workload {
    /// Allocations per unit.
    pub baseline: f64,
    pub new: f64,
}

impl Workload {
    /// By more than a fifth of the larger.
    pub(crate) fn differs(&self) -> bool {
        (self.new - self.baseline).abs() > SAME_WORKLOAD * self.baseline.max(self.new)
    }
}
