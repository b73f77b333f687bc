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

/// Unpacks the result of [`pack`]; `None` if it ends within an integer or one exceeds 64 bits.
pub(super) fn unpack(bytes: &[u8]) -> Option<Vec<u64>> {
    let mut values = Vec::new();
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
        assert_eq!(unpack(&pack(values.clone())), Some(values));
        assert_eq!(unpack(&[]), Some(vec![]));
    }

    #[test]
    fn a_cut_or_overlong_integer_is_refused() {
        assert_eq!(unpack(&[0x80]), None);
        assert_eq!(unpack(&[0xff; 11]), None);
    }
}
