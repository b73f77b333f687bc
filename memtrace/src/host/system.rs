//! The machine's memory at one moment. Text in, figures out; nothing here needs a privilege.

use super::{Source, level::Level};
use crate::{process::memory::bytes_of, recording::SystemSample};

/// Reads the machine's figures now. Figures that the kernel does not provide are `None`.
pub(crate) fn sample(source: &Source) -> SystemSample {
    let read = |path: &str| source.text(path).unwrap_or_default();
    let meminfo = read("proc/meminfo");
    let vmstat = read("proc/vmstat");
    let pressure = read("proc/pressure/memory");
    let sockstat = read("proc/net/sockstat");
    let page = crate::process::page_size();
    let pages = |count: Option<u64>| count.and_then(|count| count.checked_mul(page));
    let memory = |key: &str| bytes_of(&meminfo, key);
    let mut sample = SystemSample {
        mem_total: memory("MemTotal"),
        mem_free: memory("MemFree"),
        mem_available: memory("MemAvailable"),
        buffers: memory("Buffers"),
        cached: memory("Cached"),
        shmem: memory("Shmem"),
        anon_pages: memory("AnonPages"),
        mapped: memory("Mapped"),
        slab: memory("Slab"),
        s_unreclaim: memory("SUnreclaim"),
        kernel_stack: memory("KernelStack"),
        page_tables: memory("PageTables"),
        vmalloc_used: memory("VmallocUsed"),
        percpu: memory("Percpu"),
        unevictable: memory("Unevictable"),
        hugetlb: memory("Hugetlb"),
        swap_total: memory("SwapTotal"),
        swap_free: memory("SwapFree"),
        used: None,
        sockets: pages(socket_pages(&sockstat)),
        swapped_in: pages(counter(&vmstat, "pswpin")),
        swapped_out: pages(counter(&vmstat, "pswpout")),
        oom_kills: counter(&vmstat, "oom_kill"),
        psi_some_avg10: pressure_of(&pressure, "some", "avg10").and_then(hundredths),
        psi_some_total_us: pressure_of(&pressure, "some", "total").and_then(|n| n.parse().ok()),
        psi_full_avg10: pressure_of(&pressure, "full", "avg10").and_then(hundredths),
        psi_full_total_us: pressure_of(&pressure, "full", "total").and_then(|n| n.parse().ok()),
    };
    sample.used = used(&sample);
    sample
}

/// How full the machine's memory is, swap included, and how much of the swap is free.
pub(crate) fn level(source: &Source) -> Option<(Level, u64)> {
    let meminfo = source.text("proc/meminfo")?;
    let memory = |key: &str| bytes_of(&meminfo, key);
    let swap = memory("SwapTotal").unwrap_or(0);
    let swap_free = memory("SwapFree").unwrap_or(0);
    let limit = memory("MemTotal")? + swap;
    let level = Level {
        used: limit.saturating_sub(memory("MemAvailable")? + swap_free),
        limit,
    };
    Some((level, swap_free))
}

fn used(sample: &SystemSample) -> Option<u64> {
    // tmpfs and shared memory are in `cached`, but cannot be dropped.
    let cache = sample
        .buffers?
        .checked_add(sample.cached?)?
        .checked_sub(sample.shmem?)?;
    let reclaimable = sample.slab?.checked_sub(sample.s_unreclaim?)?;
    let free = sample
        .mem_free?
        .checked_add(cache)?
        .checked_add(reclaimable)?;
    sample.mem_total?.checked_sub(free)
}

/// Value of a line `key N`.
pub(super) fn counter(text: &str, key: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?
        .trim()
        .parse()
        .ok()
}

/// `TCP: inuse 5 orphan 0 tw 0 alloc 7 mem 2`: `mem` is in pages.
fn socket_pages(sockstat: &str) -> Option<u64> {
    let mut sum = None;
    for line in sockstat.lines() {
        let mut words = line.split_whitespace().skip_while(|word| *word != "mem");
        if let Some(pages) = words.nth(1).and_then(|pages| pages.parse::<u64>().ok()) {
            sum = Some(sum.unwrap_or(0) + pages);
        }
    }
    sum
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=0` (Documentation/accounting/psi.rst).
fn pressure_of<'a>(text: &'a str, line: &str, key: &str) -> Option<&'a str> {
    text.lines()
        .find(|found| found.starts_with(line))?
        .split_whitespace()
        .find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

/// The kernel prints two decimals.
fn hundredths(percent: &str) -> Option<u64> {
    let (whole, decimals) = percent.split_once('.')?;
    let decimals: u64 = (decimals.len() == 2).then_some(decimals)?.parse().ok()?;
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(100)?
        .checked_add(decimals)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fixture::tree;

    #[test]
    fn figures_are_those_that_the_kernel_prints() {
        let (_dir, source) = tree(&[
            (
                "proc/meminfo",
                "MemTotal: 1000 kB\nMemFree: 300 kB\nMemAvailable: 600 kB\nBuffers: 10 kB\n\
                 Cached: 200 kB\nSwapCached: 9 kB\nShmem: 50 kB\nSlab: 40 kB\nSUnreclaim: 15 kB\n",
            ),
            (
                "proc/vmstat",
                "pswpin 3\npswpout 4\npswpout_x 9\noom_kill 2\n",
            ),
            (
                "proc/pressure/memory",
                "some avg10=1.25 avg60=0.00 avg300=0.06 total=796514629\n\
                 full avg10=0.03 avg60=0.00 avg300=0.03 total=720650651\n",
            ),
            (
                "proc/net/sockstat",
                "sockets: used 8\nTCP: inuse 2 orphan 0 tw 0 alloc 3 mem 5\nUDP: inuse 0 mem 1\n",
            ),
        ]);
        let sample = sample(&source);
        let page = crate::process::page_size();
        let kib = |n: u64| Some(n * 1024);
        assert_eq!(sample.mem_available, kib(600));
        let full = Level {
            used: 400 << 10,
            limit: 1000 << 10,
        };
        assert_eq!(level(&source), Some((full, 0)));
        assert_eq!(sample.used, kib(1000 - 300 - (10 + 200 - 50) - (40 - 15)));
        assert_eq!((sample.cached, sample.swap_total), (kib(200), None));
        assert_eq!(sample.swapped_in, Some(3 * page));
        assert_eq!(sample.swapped_out, Some(4 * page));
        assert_eq!(sample.oom_kills, Some(2));
        assert_eq!(sample.sockets, Some(6 * page));
        assert_eq!(sample.psi_some_avg10, Some(125));
        assert_eq!(sample.psi_full_avg10, Some(3));
        assert_eq!(sample.psi_full_total_us, Some(720_650_651));
    }

    #[test]
    fn a_kernel_without_figures_yields_none() {
        let (_dir, source) = tree(&[("proc/pressure/memory", "some avg10=x\nfull\n")]);
        assert_eq!(sample(&source), SystemSample::default());
    }

    #[test]
    fn this_machine_has_figures() {
        let sample = sample(&Source::host());
        let (used, total) = (sample.used.unwrap(), sample.mem_total.unwrap());
        assert!(0 < used && used < total);
        assert!(sample.swapped_out.is_some() && sample.anon_pages.unwrap() > 0);
    }
}
