//! Facts about the machine: kernel, memory management, CPUs, virtualisation.

use super::{Fact, Facts, Redactor, Source, gpu, isa};
use crate::process::memory::bytes_of;

/// Options of the kernel's command line that bear on memory, scheduling or instruction sets. Others
/// (names of disks, addresses, passwords of installers) are not recorded.
const KERNEL_OPTIONS: &[&str] = &[
    "amd_iommu",
    "cgroup_disable",
    "cgroup_enable",
    "cgroup_no_v1",
    "clearcpuid",
    "default_hugepagesz",
    "hugepages",
    "hugepagesz",
    "hugetlb_free_vmemmap",
    "init_on_alloc",
    "init_on_free",
    "intel_iommu",
    "iommu",
    "isolcpus",
    "maxcpus",
    "mem",
    "memmap",
    "mitigations",
    "movablecore",
    "nohz_full",
    "norandmaps",
    "nosmt",
    "noxsave",
    "nr_cpus",
    "numa",
    "numa_balancing",
    "page_owner",
    "page_poison",
    "pci",
    "possible_cpus",
    "psi",
    "slab_nomerge",
    "slub_debug",
    "swapaccount",
    "systemd.unified_cgroup_hierarchy",
    "thp_anon",
    "thp_shmem",
    "transparent_hugepage",
    "transparent_hugepage_shmem",
    "vmalloc",
    "vsyscall",
    "zswap.compressor",
    "zswap.enabled",
];

/// Below `/proc/sys`, by field.
const SYSCTLS: &[(&str, &str)] = &[
    ("vm.overcommit_memory", "vm/overcommit_memory"),
    ("vm.overcommit_ratio", "vm/overcommit_ratio"),
    ("vm.overcommit_kbytes", "vm/overcommit_kbytes"),
    ("vm.max_map_count", "vm/max_map_count"),
    ("vm.swappiness", "vm/swappiness"),
    ("vm.vfs_cache_pressure", "vm/vfs_cache_pressure"),
    ("vm.min_free_kbytes", "vm/min_free_kbytes"),
    ("vm.watermark_scale_factor", "vm/watermark_scale_factor"),
    ("vm.zone_reclaim_mode", "vm/zone_reclaim_mode"),
    ("vm.compaction_proactiveness", "vm/compaction_proactiveness"),
    ("vm.dirty_ratio", "vm/dirty_ratio"),
    ("vm.dirty_background_ratio", "vm/dirty_background_ratio"),
    ("vm.oom_kill_allocating_task", "vm/oom_kill_allocating_task"),
    ("vm.panic_on_oom", "vm/panic_on_oom"),
    ("vm.nr_hugepages", "vm/nr_hugepages"),
    ("vm.nr_overcommit_hugepages", "vm/nr_overcommit_hugepages"),
    ("kernel.numa_balancing", "kernel/numa_balancing"),
    ("kernel.randomize_va_space", "kernel/randomize_va_space"),
    ("kernel.pid_max", "kernel/pid_max"),
    ("kernel.threads_max", "kernel/threads-max"),
    ("kernel.shmmax", "kernel/shmmax"),
    ("kernel.shmall", "kernel/shmall"),
    ("kernel.shmmni", "kernel/shmmni"),
    ("fs.file_max", "fs/file-max"),
    ("fs.nr_open", "fs/nr_open"),
    ("fs.inotify.max_user_watches", "fs/inotify/max_user_watches"),
];

const THP: &str = "sys/kernel/mm/transparent_hugepage";

/// Below `/sys`, by field; of a choice, the chosen word.
const SYSFS: &[(&str, &str)] = &[
    ("thp.enabled", "kernel/mm/transparent_hugepage/enabled"),
    ("thp.defrag", "kernel/mm/transparent_hugepage/defrag"),
    (
        "thp.shmem_enabled",
        "kernel/mm/transparent_hugepage/shmem_enabled",
    ),
    (
        "thp.use_zero_page",
        "kernel/mm/transparent_hugepage/use_zero_page",
    ),
    (
        "thp.shrink_underused",
        "kernel/mm/transparent_hugepage/shrink_underused",
    ),
    (
        "thp.khugepaged.defrag",
        "kernel/mm/transparent_hugepage/khugepaged/defrag",
    ),
    (
        "thp.khugepaged.max_ptes_none",
        "kernel/mm/transparent_hugepage/khugepaged/max_ptes_none",
    ),
    (
        "thp.khugepaged.pages_to_scan",
        "kernel/mm/transparent_hugepage/khugepaged/pages_to_scan",
    ),
    (
        "thp.khugepaged.scan_sleep_millisecs",
        "kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs",
    ),
    ("ksm.run", "kernel/mm/ksm/run"),
    ("lru_gen.enabled", "kernel/mm/lru_gen/enabled"),
    ("numa.demotion", "kernel/mm/numa/demotion_enabled"),
    ("numa.nodes", "devices/system/node/online"),
    ("zswap.enabled", "module/zswap/parameters/enabled"),
    ("cpu.online", "devices/system/cpu/online"),
    ("cpu.isolated", "devices/system/cpu/isolated"),
    ("cpu.smt", "devices/system/cpu/smt/control"),
    ("machine.vendor", "class/dmi/id/sys_vendor"),
    ("machine.product", "class/dmi/id/product_name"),
    ("kernel.module.zfs", "module/zfs/version"),
];

/// All facts about the machine that may be read; those that explain most come first.
pub(crate) fn facts(source: &Source, redactor: &Redactor) -> Vec<Fact> {
    let mut facts = Facts::new(None, redactor);
    cpus(source, &mut facts);
    kernel(source, &mut facts);
    for (field, path) in SYSFS {
        let text = source.text(&format!("sys/{path}"));
        facts.add(field, text.as_deref().map(chosen));
    }
    for name in source.names(THP) {
        // From Linux 6.8 on, sizes below 2 MiB: `hugepages-64kB`.
        if let Some(size) = name.strip_prefix("hugepages-") {
            let text = source.text(&format!("{THP}/{name}/enabled"));
            facts.add(&format!("thp.{size}.enabled"), text.as_deref().map(chosen));
        }
    }
    gpu::facts(source, &mut facts);
    for (field, path) in SYSCTLS {
        facts.add(field, source.text(&format!("proc/sys/{path}")));
    }
    memory(source, &mut facts);
    facts.add("machine.hypervisor", hypervisor(source));
    facts.into_vec()
}

fn kernel(source: &Source, facts: &mut Facts) {
    facts.add("kernel.release", source.text("proc/sys/kernel/osrelease"));
    facts.add("kernel.version", source.text("proc/sys/kernel/version"));
    facts.add("kernel.architecture", Some(std::env::consts::ARCH));
    facts.add("kernel.tainted", source.text("proc/sys/kernel/tainted"));
    let line = source.text("proc/cmdline").unwrap_or_default();
    for option in line.split_whitespace() {
        let (name, value) = option.split_once('=').unwrap_or((option, "set"));
        if KERNEL_OPTIONS.contains(&name) {
            let value = facts.redactor.value(name, value);
            facts.add(&format!("kernel.option.{name}"), Some(value));
        }
    }
}

fn cpus(source: &Source, facts: &mut Facts) {
    let text = source.text("proc/cpuinfo").unwrap_or_default();
    let value = |key: &str| {
        text.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim_end() == key).then(|| value.trim())
        })
    };
    facts.add("cpu.model", value("model name"));
    facts.add(
        "cpu.vendor",
        value("vendor_id").or(value("CPU implementer")),
    );
    // Of x86, and of Arm.
    let numbers = [
        ["cpu family", "model", "stepping"],
        ["CPU part", "CPU variant", "CPU revision"],
    ];
    let signature = numbers.iter().find_map(|keys| {
        let [family, model, stepping] = keys.map(value);
        Some(format!("{}/{}/{}", family?, model?, stepping?))
    });
    facts.add("cpu.signature", signature);
    facts.add("cpu.microcode", value("microcode"));
    let count = text
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    facts.add("cpu.count", (count > 0).then_some(count));
    facts.add("cpu.isa_level", source.flags().map(isa::level));
    facts.add("cpu.flags", source.flags().map(|flags| flags.join(" ")));
    for index in source.names("sys/devices/system/cpu/cpu0/cache") {
        let read = |file: &str| {
            let path = format!("sys/devices/system/cpu/cpu0/cache/{index}/{file}");
            Some(source.text(&path)?.trim().to_owned())
        };
        if let (Some(level), Some(kind)) = (read("level"), read("type")) {
            let kind = match kind.as_str() {
                "Data" => "d",
                "Instruction" => "i",
                _ => "",
            };
            facts.add(&format!("cpu.cache.l{level}{kind}"), read("size"));
        }
    }
}

fn memory(source: &Source, facts: &mut Facts) {
    let meminfo = source.text("proc/meminfo").unwrap_or_default();
    facts.add("memory.total", bytes_of(&meminfo, "MemTotal"));
    facts.add("memory.swap_total", bytes_of(&meminfo, "SwapTotal"));
    facts.add("memory.hugepage_size", bytes_of(&meminfo, "Hugepagesize"));
    facts.add("memory.page_size", Some(crate::process::page_size()));
    let swaps = source.text("proc/swaps").unwrap_or_default();
    let mut kinds: Vec<_> = swaps
        .lines()
        .skip(1)
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (device, kind) = (words.next()?, words.next()?);
            Some(if device.contains("zram") {
                "zram"
            } else {
                kind
            })
        })
        .collect();
    kinds.sort_unstable();
    facts.add("swap.devices", Some(kinds.join(" ")));
}

fn hypervisor(source: &Source) -> Option<String> {
    let reported = source.text("sys/hypervisor/type");
    let release = source.text("proc/sys/kernel/osrelease").unwrap_or_default();
    if release.to_ascii_lowercase().contains("microsoft") {
        return Some("WSL".into());
    }
    // The vendor of the machine identifies it.
    reported.or_else(|| {
        let flags = source.flags()?;
        let virtual_machine = flags.iter().any(|flag| flag == "hypervisor");
        Some(if virtual_machine { "yes" } else { "no" }.into())
    })
}

/// The word in brackets of a file such as `always [madvise] never`, or the whole text.
fn chosen(text: &str) -> &str {
    text.split_once('[')
        .and_then(|(_, rest)| Some(rest.split_once(']')?.0))
        .unwrap_or_else(|| text.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fixture::tree;

    fn value<'a>(facts: &'a [Fact], field: &str) -> Option<&'a str> {
        let fact = facts.iter().find(|fact| fact.field == field)?;
        assert_eq!(fact.process, None);
        Some(&fact.value)
    }

    #[test]
    fn the_texts_of_a_kernel_become_facts() {
        let (_dir, source) = tree(&[
            ("proc/sys/kernel/osrelease", "6.1.0-13-amd64\n"),
            (
                "proc/cmdline",
                "root=UUID=1 transparent_hugepage=never nosmt rd.password=hunter2 quiet\n",
            ),
            (
                "proc/cpuinfo",
                "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\n\
                 model name\t: AMD EPYC\nstepping\t: 1\nmicrocode\t: 0xa0011ce\n\
                 flags\t\t: sse4_2 pni ssse3 sse4_1 popcnt cx16 lahf_lm avx hypervisor\n\n\
                 processor\t: 1\nflags\t\t: x\n",
            ),
            (
                "sys/kernel/mm/transparent_hugepage/enabled",
                "always [madvise] never\n",
            ),
            (
                "sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled",
                "always inherit madvise [never]\n",
            ),
            ("sys/devices/system/cpu/cpu0/cache/index0/level", "1\n"),
            ("sys/devices/system/cpu/cpu0/cache/index0/type", "Data\n"),
            ("sys/devices/system/cpu/cpu0/cache/index0/size", "32K\n"),
            ("proc/sys/vm/swappiness", "60\n"),
            ("proc/meminfo", "MemTotal: 2 kB\n"),
            (
                "proc/swaps",
                "Filename Type Size Used Priority\n/dev/zram0 partition 1 0 100\n/swap file 1 0 -2\n",
            ),
        ]);
        let facts = facts(&source, &Redactor::default());
        for (field, expected) in [
            ("kernel.release", "6.1.0-13-amd64"),
            ("kernel.option.transparent_hugepage", "never"),
            ("kernel.option.nosmt", "set"),
            ("cpu.model", "AMD EPYC"),
            ("cpu.signature", "25/1/1"),
            ("cpu.count", "2"),
            ("cpu.isa_level", "x86-64-v2"),
            ("cpu.cache.l1d", "32K"),
            ("thp.enabled", "madvise"),
            ("thp.64kB.enabled", "never"),
            ("vm.swappiness", "60"),
            ("memory.total", "2048"),
            ("swap.devices", "file zram"),
            ("machine.hypervisor", "yes"),
        ] {
            assert_eq!(value(&facts, field), Some(expected), "{field}");
        }
        let text = format!("{facts:?}");
        assert!(
            !text.contains("hunter2") && !text.contains("UUID"),
            "{text}"
        );
    }

    #[test]
    fn this_machine_has_facts_and_each_once() {
        let facts = facts(&Source::host(), &Redactor::default());
        assert!(value(&facts, "kernel.release").is_some());
        assert!(value(&facts, "memory.total").is_some());
        let mut fields: Vec<_> = facts.iter().map(|fact| &fact.field).collect();
        let all = fields.len();
        fields.sort();
        fields.dedup();
        assert_eq!(fields.len(), all);
    }

    #[test]
    fn the_choice_is_in_brackets() {
        assert_eq!(chosen("always [madvise] never\n"), "madvise");
        assert_eq!(chosen("0\n"), "0");
        assert_eq!(chosen("[broken"), "[broken");
    }
}
