//! memtrace's user side. `ledger`, `recording` and `render` know neither aya
//! nor tokio.

pub mod check;
pub mod event;
pub mod ledger;
pub mod process;
pub mod recording;
pub mod symbolize;
