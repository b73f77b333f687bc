//! Comparisons of made-up recordings.

mod comparing;
mod matched;
mod properties;

use std::sync::Arc;

use super::{fixture::*, *};
use crate::{event::Layer, frames::Frame};
