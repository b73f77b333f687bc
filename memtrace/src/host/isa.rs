//! The instruction set of a CPU: its features, and the level that they reach.

/// Feature flags of the first CPU in a `/proc/cpuinfo`, sorted.
pub(super) fn flags(cpuinfo: &str) -> Option<Vec<String>> {
    let line = cpuinfo.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        matches!(name.trim_end(), "flags" | "Features").then_some(value)
    })?;
    let mut flags: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
    flags.sort();
    Some(flags)
}

/// Levels, and what each needs that those before it do not.
type Levels = [(&'static str, &'static [&'static str])];

/// Highest level with all its features present: of the x86-64 psABI ("micro-architecture levels"), by the kernel's names
/// (arch/x86/include/asm/cpufeatures.h), or a version of the Arm architecture, by what it demands of every processor
/// (Documentation/arch/arm64/elf_hwcaps.rst).
pub(super) fn level(flags: &[String]) -> &'static str {
    const ARM: &Levels = &[
        ("armv8.1-a", &["asimdrdm", "atomics", "crc32"]),
        ("armv8.2-a", &["dcpop"]),
        ("armv8.3-a", &["fcma", "jscvt", "lrcpc"]),
        ("armv8.4-a", &["asimddp", "dit", "flagm", "ilrcpc", "uscat"]),
        ("armv8.5-a", &["dcpodp", "flagm2", "frint", "sb"]),
    ];
    const X86: &Levels = &[
        (
            "x86-64-v2",
            &[
                "cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3",
            ],
        ),
        (
            "x86-64-v3",
            &[
                "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave",
            ],
        ),
        (
            "x86-64-v4",
            &["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"],
        ),
    ];
    let has = |name: &&str| flags.iter().any(|flag| flag == name);
    let (mut reached, levels) = match has(&"asimd") {
        true => ("armv8-a", ARM),
        false => ("x86-64", X86),
    };
    for &(level, needed) in levels {
        if !needed.iter().all(has) {
            break;
        }
        reached = level;
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_needs_all_below_it() {
        let of = |flags: &str| {
            let flags: Vec<_> = flags.split(' ').map(str::to_owned).collect();
            level(&flags)
        };
        assert_eq!(of("avx avx2"), "x86-64");
        let v2 = "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3";
        let v3 = "avx avx2 bmi1 bmi2 f16c fma abm movbe xsave";
        assert_eq!(of(&format!("{v2} {v3}")), "x86-64-v3");
        let v4 = "avx512f avx512bw avx512cd avx512dq avx512vl";
        assert_eq!(of(&format!("{v2} {v3} {v4}")), "x86-64-v4");
        assert_eq!(of(&format!("{v2} {v4}")), "x86-64-v2");
    }

    #[test]
    fn versions_of_the_arm_architecture_are_levels() {
        // Cortex-A72, Neoverse N1.
        for (features, version) in [
            (
                "fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid",
                "armv8-a",
            ),
            (
                "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm \
                 lrcpc dcpop asimddp",
                "armv8.2-a",
            ),
        ] {
            let flags = flags(&format!("processor\t: 0\nFeatures\t: {features}\n")).unwrap();
            assert_eq!(level(&flags), version);
        }
    }
}
