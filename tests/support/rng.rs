//! Seeded random bytes and a checksum: the same seed gives the same bytes, so only sums need to be compared.

/// xorshift64*: small, fast and good enough to be incompressible.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `n`, which is not 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.word() % n as u64) as usize
    }

    pub(crate) fn fill(&mut self, buf: &mut [u8]) {
        for chunk in buf.chunks_mut(8) {
            chunk.copy_from_slice(&self.word().to_le_bytes()[..chunk.len()]);
        }
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut buf = vec![0; len];
        self.fill(&mut buf);
        buf
    }
}

/// A running 64-bit checksum that depends on the order of the bytes and not on how they were cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    state: u64,
    tail: [u8; 8],
    pub(crate) len: u64,
}

impl Sum {
    pub(crate) fn add(&mut self, mut bytes: &[u8]) {
        let held = (self.len % 8) as usize;
        self.len += bytes.len() as u64;
        if held > 0 {
            let take = bytes.len().min(8 - held);
            self.tail[held..held + take].copy_from_slice(&bytes[..take]);
            bytes = &bytes[take..];
            if held + take < 8 {
                return;
            }
            self.mix(self.tail);
        }
        let words = bytes.chunks_exact(8);
        let rest = words.remainder();
        for word in words {
            self.mix(word.try_into().expect("eight bytes"));
        }
        self.tail = [0; 8];
        self.tail[..rest.len()].copy_from_slice(rest);
    }

    fn mix(&mut self, word: [u8; 8]) {
        let x = self.state.rotate_left(23) ^ u64::from_le_bytes(word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.state = (x ^ (x >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
}
