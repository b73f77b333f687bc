//! The end of tracing: probes and tracers go, then the recording is completed.

use super::{
    accounts::Accounts,
    census::{Censuses, Grown},
    collector::Collector,
    control::Control,
    output::Output,
    running::{Running, searchable},
    sink::{Message, Sink},
};
use crate::{
    bpf,
    ledger::{Ledger, ProcessId},
    recording::{self, Census},
};

/// The remains of a collector that no longer traces anything.
pub(super) struct Released {
    /// State at the end of tracing.
    pub(super) ledger: Ledger,
    /// Processes that still ran then.
    pub(super) running: Vec<Running>,
    pub(super) sink: Box<dyn Sink>,
    /// Results of searches for holders before the end, a line each.
    pub(super) early: Vec<String>,
    /// The processes whose objects were counted, and the types that grow.
    pub(super) types: Vec<(ProcessId, Census, Vec<Grown>)>,
}

impl Collector {
    /// Continues every process without probes and without a tracer.
    pub(super) fn release(mut self) -> Released {
        let early = self.end_early();
        let types = self.censuses.take().map_or_else(Vec::new, Censuses::end);
        self.continue_all();
        // If the store has stopped, its result has the reason.
        let _ = self.hand_over_stacks();
        let Self {
            control:
                Control {
                    kernel,
                    pauser,
                    removal,
                    ..
                },
            accounts: Accounts { ledger, .. },
            output: Output { sink, .. },
            mut processes,
            ..
        } = self;
        let mut links = removal.end();
        let mut unwinding = Vec::new();
        for (_, process) in processes.iter_mut() {
            links.append(&mut process.links);
            unwinding.append(&mut process.unwinding_links);
        }
        bpf::detach_all(links);
        bpf::detach_all(unwinding);
        drop(kernel);
        // Until the last probe is gone an exception may have to pass it.
        drop(pauser);
        let running = searchable(&processes, |_| true);
        Released {
            running,
            ledger,
            sink,
            early,
            types,
        }
    }
}

impl Released {
    /// Waits for the recording to be written. It ended at `time_ns`, CLOCK_MONOTONIC. When it `is_over`, nothing waits
    /// for the names of functions any more.
    ///
    /// # Errors
    /// It could not be written.
    pub(super) fn finish(
        mut self,
        time_ns: u64,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(), recording::Error> {
        for (process, census, grown) in std::mem::take(&mut self.types) {
            let types = grown.into_iter().map(|of| of.of).collect();
            // If the store has stopped, its result has the reason.
            let _ = self.sink.send(Message::Types(process, census, types));
        }
        self.sink.finish(time_ns, is_over)
    }
}
