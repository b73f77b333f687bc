//! Parts of functions that the compiler moved away, from call frame information.

use super::image::{Cfi, Image, Slice};
use crate::arch;
use gimli::{BaseAddresses, CfaRule, CieOrFde, UnwindContext, UnwindSection};
use object::ReadRef;
use std::ops::Range;

/// The pieces of code that contain one of `targets` and are not functions: at their beginning, the
/// stack is not empty. Addresses in the file's terms. Empty if the file does not describe them.
pub(crate) fn fragments<'data>(file: impl ReadRef<'data>, targets: &[u64]) -> Vec<Range<u64>> {
    let Ok(Some(image)) = Image::parse(file) else {
        return Vec::new();
    };
    match &image.cfi {
        Cfi::Eh(section) => find(section, &image.bases, targets),
        Cfi::Debug(section) => find(section, &image.bases, targets),
    }
}

fn find<'data, S: UnwindSection<Slice<'data>>>(
    section: &S,
    bases: &BaseAddresses,
    targets: &[u64],
) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    let mut context = UnwindContext::new();
    let mut entries = section.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let Ok(fde) = partial.parse(S::cie_from_offset) else {
            continue;
        };
        let range = fde.initial_address()..fde.end_address();
        if !targets.iter().any(|target| range.contains(target)) {
            continue;
        }
        let at_start = fde.unwind_info_for_address(section, bases, &mut context, range.start);
        let function = at_start.is_ok_and(|row| {
            matches!(
                row.cfa(),
                CfaRule::RegisterAndOffset { register, offset }
                    if *register == arch::SP && *offset == arch::CFA_AT_ENTRY
            )
        });
        if !function {
            found.push(range);
        }
    }
    found
}
