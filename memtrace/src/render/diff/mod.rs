//! Comparisons as text, JSON and flame graphs.

mod flame;
mod json;
#[cfg(test)]
mod tests;
mod text;

pub use flame::{View, flamegraph};
pub use json::json;
pub use text::text;
