//! Text, JSON and pictures of recordings.

pub mod units;
