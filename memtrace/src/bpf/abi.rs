//! Whether the embedded kernel side was built from the sources of this build's
//! shared types: otherwise the two sides misread each other's records.

use memtrace_common::ABI;
use object::{Object, ObjectSection, ObjectSymbol};

use super::TracerError;

/// The variable of the kernel side that names its sources.
const SYMBOL: &str = "ABI";

/// Compares the object's sources with this build's.
pub(super) fn check(object: &[u8]) -> Result<(), TracerError> {
    let built_from = built_from(object).ok_or(TracerError::Missing("its `ABI` variable"))?;
    if built_from != ABI {
        return Err(TracerError::Abi { built_from });
    }
    Ok(())
}

fn built_from(object: &[u8]) -> Option<u64> {
    let file = object::File::parse(object).ok()?;
    let symbol = file.symbol_by_name(SYMBOL)?;
    let section = file.section_by_index(symbol.section_index()?).ok()?;
    let at = usize::try_from(symbol.address()).ok()?;
    let bytes = section.data().ok()?.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::{
        super::object::{LEGACY, USUAL},
        *,
    };

    #[test]
    fn the_kernel_side_is_of_these_sources() {
        for object in [USUAL, LEGACY] {
            assert_eq!(
                built_from(object.bytes),
                Some(ABI),
                "an object in memtrace/bpf/ is out of date: run `cargo xtask build-ebpf`"
            );
        }
    }

    #[test]
    fn a_kernel_side_of_other_sources_is_refused() {
        let mut object = USUAL.bytes.to_vec();
        let file = object::File::parse(USUAL.bytes).unwrap();
        let symbol = file.symbol_by_name(SYMBOL).unwrap();
        let section = file
            .section_by_index(symbol.section_index().unwrap())
            .unwrap();
        let (start, _) = section.file_range().unwrap();
        object[(start + symbol.address()) as usize] ^= 1;
        assert!(matches!(check(&object), Err(TracerError::Abi { .. })));
        assert!(matches!(check(b"no object"), Err(TracerError::Missing(_))));
    }
}
