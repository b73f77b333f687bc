//! Comparisons as text, JSON and flame graphs.

mod flame;
mod json;
#[cfg(test)]
pub(super) mod tests;
mod text;

pub(crate) use flame::{View, flamegraph};
pub(crate) use json::json;
pub(super) use json::site as site_json;
pub(super) use text::{signed, sureness};
pub(crate) use text::{summary, text, values as fact_values};
