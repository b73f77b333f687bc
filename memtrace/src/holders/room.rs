//! Whether there is enough memory left for a search: it must not be what uses up the memory of the host or of a container.

use super::{error::Error, memory, native::Blocks, pools::Sizes};
use crate::host;

/// Of the memory that is left, a search may take this share.
const SHARE: f64 = 0.8;

/// Bytes for each block, and for each piece of a pool with an object: holder, cost, a place in the queue; the object, its
/// number.
const OF_BLOCK: u64 = 12;
const OF_OBJECT: u64 = 24;

/// # Errors
/// The search needs more than is left, or more than `most` bytes.
pub(super) fn check(
    blocks: &Blocks,
    sizes: Option<&Sizes>,
    most: Option<u64>,
) -> Result<(), Error> {
    let objects = sizes.map_or(0, Sizes::number_of_pieces);
    let need = need(blocks.len() as u64, objects);
    if let Some(most) = most.filter(|most| need > *most) {
        return Err(Error::MoreThanAllowed { need, most });
    }
    match host::room() {
        Some(left) if need as f64 > SHARE * left as f64 => Err(Error::NoRoom { need, left }),
        _ => Ok(()),
    }
}

fn need(blocks: u64, objects: u64) -> u64 {
    memory::MOST_CACHED + blocks * OF_BLOCK + objects * OF_OBJECT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_million_blocks_and_five_million_objects_fit_into_half_a_gigabyte() {
        assert!(need(20_000_000, 0) < 300 << 20);
        assert!(need(0, 5_000_000) < 150 << 20);
    }
}
