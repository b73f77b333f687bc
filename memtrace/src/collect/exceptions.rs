//! C++ exceptions of traced processes: they must pass the return probes of the functions that may
//! throw, or those functions are left out.

use memtrace_common::loss::Reason;

use super::{collector::Collector, location::ModuleIndex};
use crate::{bpf::TracerError, probes::Probe, process::memory};

impl Collector {
    /// Those of a file's probes that do not disturb the exceptions of process `tgid`.
    pub(super) fn harmless(&mut self, tgid: u32, index: ModuleIndex) -> Vec<Probe> {
        let module = self.naming.modules.get(index);
        let mut probes = module.probes.clone();
        if !probes.iter().any(Probe::may_throw) {
            return probes;
        }
        let path = module.file.path.clone();
        let obstacle = if module.signs_returns {
            Some("its functions sign their return addresses".to_owned())
        } else if module.hides_unwinding {
            Some("its C++ runtime has no symbols".to_owned())
        } else if !self.can_pause(tgid) {
            Some("memtrace does not hold the process (`--no-stop`, another tracer, or its helper is gone)".to_owned())
        } else {
            let passes = self.let_exceptions_pass(tgid);
            passes.err().map(|error| error.to_string())
        };
        let Some(obstacle) = obstacle else {
            return probes;
        };
        // One that has ended meanwhile needs no probes.
        if memory::identity(tgid).is_ok() && self.control.warned.insert(path.clone()) {
            tracing::warn!(
                "operator new of `{}` is not recorded, because its probe could not let a C++ exception pass: {obstacle}",
                path.display()
            );
            self.accounts.lost(Reason::OperatorNewLeftOut);
        }
        probes.retain(|probe| !probe.may_throw());
        probes
    }

    /// Probes the start of unwinding in every file that is known to define it.
    fn let_exceptions_pass(&mut self, tgid: u32) -> Result<(), TracerError> {
        let unwinders = self.naming.modules.unwinders();
        let Some(process) = self.processes.get_mut(tgid) else {
            return Ok(());
        };
        let done = process.unwinders.unwrap_or(0);
        for &index in unwinders.iter().skip(done) {
            let module = self.naming.modules.get(index);
            let links =
                self.control
                    .kernel
                    .attach_unwinding(tgid, &module.file.file, &module.unwinding)?;
            process.unwinding_links.extend(links);
        }
        process.unwinders = Some(unwinders.len());
        Ok(())
    }

    /// A file was found in which unwinding begins. To be called before it can be executed.
    pub(super) fn found_unwinder(&mut self) {
        let concerned = self.processes.which(|process| process.unwinders.is_some());
        for tgid in concerned {
            if let Err(error) = self.let_exceptions_pass(tgid)
                && memory::identity(tgid).is_ok()
            {
                tracing::warn!(
                    "a C++ exception through operator new may end process {tgid}: {error}"
                );
                self.accounts.lost(Reason::AttachFailed);
            }
        }
    }
}
