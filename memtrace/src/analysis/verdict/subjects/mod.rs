//! What the rules look at: processes, their growth, devices, failures and sites, with the questions that each answers.

mod device;
mod growth;
mod out_of_memory;
mod process;
mod site;

pub(super) use device::OnDevice;
pub(super) use growth::{Growing, Part, grade_of};
pub(super) use out_of_memory::{Found, OutOfMemory};
pub(super) use process::{COUNT_FLOOR, Judging, NOT_ITS_OWN, counted, steady};
pub(super) use site::{Grown, JudgedSite, LIVE, SiteFinding};
