//! memtrace's user side. `ledger`, `recording` and `render` know neither aya
//! nor tokio.

pub mod event;
pub mod ledger;
pub mod recording;
pub mod render;
pub mod symbolize;
