//! Pure: no IO, no clock. CRC-32 (reflected 0x04c11db7), four bytes a step.

const TABLES: [[u32; 256]; 4] = tables();

const fn tables() -> [[u32; 256]; 4] {
    let mut t = [[0; 256]; 4];
    let mut i = 0;
    while i < 256 {
        let mut c = i as u32;
        let mut bit = 0;
        while bit < 8 {
            c = if c & 1 == 1 { c >> 1 ^ 0xedb8_8320 } else { c >> 1 };
            bit += 1;
        }
        t[0][i] = c;
        i += 1;
    }
    let mut k = 1;
    while k < 4 {
        let mut i = 0;
        while i < 256 {
            let before = t[k - 1][i];
            t[k][i] = before >> 8 ^ t[0][(before & 0xff) as usize];
            i += 1;
        }
        k += 1;
    }
    t
}

/// The checksum of `bytes`.
pub(super) fn crc(bytes: &[u8]) -> u32 {
    let mut c = u32::MAX;
    let (words, tail) = bytes.as_chunks::<4>();
    for word in words {
        let x = c ^ u32::from_le_bytes(*word);
        c = TABLES[3][(x & 0xff) as usize]
            ^ TABLES[2][(x >> 8 & 0xff) as usize]
            ^ TABLES[1][(x >> 16 & 0xff) as usize]
            ^ TABLES[0][(x >> 24) as usize];
    }
    for byte in tail {
        c = c >> 8 ^ TABLES[0][((c ^ u32::from(*byte)) & 0xff) as usize];
    }
    !c
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_standard() {
        assert_eq!(crc(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc(b""), 0);
    }

    #[test]
    fn every_single_bit_matters() {
        let good = crc(&[0x5a; 37]);
        for bit in 0..37 * 8 {
            let mut bytes = [0x5a; 37];
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(crc(&bytes), good, "bit {bit}");
        }
    }
}
