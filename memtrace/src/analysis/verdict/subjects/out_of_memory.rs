//! An allocation of device memory that failed, as the rules see it.

use crate::{
    analysis::verdict::{
        advice::Advice,
        class::{Class, Grade},
        evidence::Evidence,
        finding::Finding,
    },
    frames::caching::{self, CachingAllocator},
    ledger::{CacheTotals, Failure, FailureKey},
    recording::{Fact, capacity_of},
};

/// Out of memory on a device, at one place of a process.
pub(in super::super) struct OutOfMemory<'a> {
    pub(in super::super) key: &'a FailureKey,
    pub(in super::super) failure: &'a Failure,
    /// Capacity of the device, bytes, if recorded.
    pub(in super::super) capacity: Option<f64>,
    /// The part of it that the process leaves to others, bytes.
    pub(in super::super) left: Option<f64>,
    pub(in super::super) allocator: &'static CachingAllocator,
    pub(in super::super) evidence: Vec<Evidence>,
}

/// The finding of a rule, and the advice.
pub(in super::super) struct Found {
    pub(in super::super) finding: Finding,
    pub(in super::super) next: Vec<Advice>,
}

impl<'a> OutOfMemory<'a> {
    /// `total`: the process total on the device, bytes, if NVML reported it.
    pub(in super::super) fn new(
        key: &'a FailureKey,
        failure: &'a Failure,
        facts: &[Fact],
        total: Option<f64>,
    ) -> Self {
        let known = key.device.map(capacity_of);
        let mut of_process = facts.iter().filter(|of| of.process == Some(key.process));
        let capacity = known.and_then(|field| of_process.find(|of| of.field == field));
        let capacity = capacity.and_then(|fact| fact.value.parse().ok());
        let held = (failure.held.known() as f64).max(total.unwrap_or(0.0));
        OutOfMemory {
            key,
            failure,
            capacity,
            left: capacity.map(|bytes: f64| (bytes - held).max(0.0)),
            allocator: caching::of_process(|layer| layer == key.layer),
            evidence: vec![],
        }
    }

    pub(in super::super) fn requested(&self) -> f64 {
        self.failure.size as f64
    }

    pub(in super::super) fn cache(&self) -> Option<CacheTotals> {
        self.failure.held.cache
    }

    /// Memory that the caching allocator reserves without a block, bytes; `None`: there is no such
    /// allocator, or it is not known.
    pub(in super::super) fn unused(&self) -> Option<f64> {
        let cache = self.cache()?;
        Some(cache.reserved?.saturating_sub(cache.allocated) as f64)
    }

    /// With the evidence that all have, and `more`.
    pub(in super::super) fn found(
        &self,
        grade: Grade,
        more: Evidence,
        next: Vec<Advice>,
    ) -> Option<Found> {
        let mut evidence = self.evidence.clone();
        // After the requester, and before the rest.
        evidence.insert(evidence.len().min(1), more);
        let finding = Finding {
            class: Class::GpuOutOfMemory,
            grade,
            evidence,
            runner_up: None,
            rate: None,
        };
        Some(Found { finding, next })
    }
}
