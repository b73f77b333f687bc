//! AArch64: instructions, and the names of registers. What only its own machine needs is in `native`.

mod instructions;
#[cfg(target_arch = "aarch64")]
pub(super) mod native;

pub(super) use instructions::{
    addresses_taken, forwards, jumps, probe_site, returns, signs_returns, words_loaded,
};

/// Number of general registers, which `struct pt_regs` begins with (arch/arm64/include/asm/ptrace.h); `sp` follows.
const GENERAL: u8 = 31;

/// See [`super::operand`]: `x0`, `[sp]`, `[x29, -56]`.
pub(super) fn operand(text: &str) -> Option<(u8, Option<i64>)> {
    let Some(place) = text.strip_prefix('[') else {
        return Some((register(text)?, None));
    };
    let place = place.strip_suffix(']')?;
    let (name, offset) = place.split_once(", ").unwrap_or((place, "0"));
    Some((register(name)?, Some(offset.parse().ok()?)))
}

fn register(name: &str) -> Option<u8> {
    if name == "sp" {
        return Some(GENERAL);
    }
    let number: u8 = name.strip_prefix('x')?.parse().ok()?;
    // `x07` and `x+7` are not names.
    (number < GENERAL && name == format!("x{number}")).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_have_the_kernels_places() {
        for (name, place) in [
            ("x0", Some(0)),
            ("x29", Some(29)),
            ("x30", Some(30)),
            ("sp", Some(31)),
            ("x31", None),
            ("x07", None),
            ("w0", None),
            ("xzr", None),
            ("", None),
        ] {
            assert_eq!(register(name), place, "{name}");
        }
    }
}
