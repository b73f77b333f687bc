//! Lists of integers as LEB128: seven bits a byte, least significant first,
//! the top bit set on all bytes but an integer's last.

/// Packs `values`.
pub(super) fn pack(values: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for mut value in values {
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
    }
    bytes
}

/// Unpacks the result of [`pack`]; `None` if it ends within an integer, one exceeds 64 bits, or there are more than
/// `most`.
pub(super) fn unpack(bytes: &[u8], most: usize) -> Option<Vec<u64>> {
    let count = bytes.iter().filter(|byte| **byte & 0x80 == 0).count();
    if count > most {
        return None;
    }
    let mut values = Vec::with_capacity(count);
    let mut value = 0u64;
    let mut shift = 0u32;
    for byte in bytes {
        let bits = u64::from(byte & 0x7f);
        if shift > 63 || (bits << shift) >> shift != bits {
            return None;
        }
        value |= bits << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            values.push(value);
            (value, shift) = (0, 0);
        }
    }
    (shift == 0).then_some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpack_inverts_pack() {
        let values = vec![0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX];
        assert_eq!(unpack(&pack(values.clone()), 7), Some(values));
        assert_eq!(unpack(&[], 0), Some(vec![]));
    }

    #[test]
    fn a_cut_or_overlong_integer_is_refused() {
        assert_eq!(unpack(&[0x80], 1), None);
        assert_eq!(unpack(&[0xff; 11], 11), None);
    }

    #[test]
    fn more_integers_than_allowed_are_refused() {
        assert_eq!(unpack(&[1, 2, 3], 3), Some(vec![1, 2, 3]));
        assert_eq!(unpack(&[1, 2, 3], 2), None);
    }
}
