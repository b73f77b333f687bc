//! Graphics processors, from their drivers' files.

use super::{Facts, Source};

pub(super) fn facts(source: &Source, facts: &mut Facts) {
    if let Some(version) = source.text("proc/driver/nvidia/version") {
        let (driver, open) = nvidia_driver(&version);
        facts.add(
            "gpu.driver",
            driver.map(|version| format!("nvidia {version}")),
        );
        facts.add(
            "gpu.driver.kind",
            Some(if open { "open" } else { "proprietary" }),
        );
    }
    // Named by bus address, which is in order.
    for (index, name) in (0..).zip(source.names("proc/driver/nvidia/gpus")) {
        let path = format!("proc/driver/nvidia/gpus/{name}/information");
        let text = source.text(&path).unwrap_or_default();
        for (key, field) in [("Model", "model"), ("GPU Firmware", "firmware")] {
            let value = text
                .lines()
                .find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix(':'));
            facts.add(&format!("gpu.{index}.{field}"), value);
        }
    }
    facts.add("gpu.amdgpu", source.text("sys/module/amdgpu/version"));
}

/// `NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  …`; the open one has `Open Kernel
/// Module`.
fn nvidia_driver(text: &str) -> (Option<&str>, bool) {
    let line = text.lines().next().unwrap_or_default();
    let version = line
        .split_whitespace()
        .find(|word| word.contains('.') && word.split('.').all(|part| part.parse::<u32>().is_ok()));
    (version, line.contains("Open Kernel Module"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{Redactor, fixture::tree};

    #[test]
    fn the_driver_and_its_kind_are_recorded() {
        let (_dir, source) = tree(&[
            (
                "proc/driver/nvidia/version",
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build\n\
                 GCC version:  gcc version 12.2.0\n",
            ),
            (
                "proc/driver/nvidia/gpus/0000:01:00.0/information",
                "Model: \t\t NVIDIA H100\nIRQ:   \t\t 1\nGPU UUID: \t GPU-1\nGPU Firmware: \t 550.54.15\n",
            ),
        ]);
        let redactor = Redactor::default();
        let mut list = Facts::new(None, &redactor);
        facts(&source, &mut list);
        assert_eq!(list.value("gpu.driver"), Some("nvidia 550.54.15"));
        assert_eq!(list.value("gpu.driver.kind"), Some("open"));
        assert_eq!(list.value("gpu.0.model"), Some("NVIDIA H100"));
        assert_eq!(list.value("gpu.0.firmware"), Some("550.54.15"));
        assert_eq!(nvidia_driver("NVRM version: x").0, None);
    }
}
