//! Pure: no IO, no clock. A small seeded generator (splitmix64), so that a seed repeats a run.

use std::time::Duration;

/// Seeded random numbers; not for secrets.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The same seed gives the same numbers.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// A generator of its own for the part of a run named `purpose`: what one part draws does not change what another
    /// one sees.
    pub fn fork(&self, purpose: u64) -> Rng {
        Rng(mix(self.0 ^ mix(purpose.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)))
    }

    /// The next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in [a, b).
    pub fn uniform(&mut self, a: f64, b: f64) -> f64 {
        a + (b - a) * self.unit()
    }

    /// Exponential with this mean.
    pub fn exp(&mut self, mean: f64) -> f64 {
        if mean == 0.0 { 0.0 } else { -mean * (1.0 - self.unit()).ln() }
    }

    /// True with this probability. Draws nothing where it is certain.
    pub fn chance(&mut self, p: f64) -> bool {
        p > 0.0 && self.unit() < p
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Milliseconds as the scenarios state them; less than nothing is nothing.
pub fn ms(x: f64) -> Duration {
    Duration::from_nanos((x * 1e6) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_numbers_and_forks_are_apart() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        assert!((0..100).all(|_| a.word() == b.word()));
        let root = Rng::new(7);
        let firsts: std::collections::BTreeSet<u64> = (0..1000).map(|n| root.fork(n).word()).collect();
        assert_eq!(firsts.len(), 1000);
        assert_eq!(root.fork(3).word(), Rng::new(7).fork(3).word());
    }

    #[test]
    fn means_and_bounds_are_what_they_should_be() {
        let mut rng = Rng::new(1);
        let n = 50_000;
        let mean = (0..n).map(|_| rng.exp(40.0)).sum::<f64>() / f64::from(n);
        assert!((39.0..41.0).contains(&mean), "{mean}");
        let hits = (0..n).filter(|_| rng.chance(0.01)).count();
        assert!((400..600).contains(&hits), "{hits}");
        assert!((0..n).map(|_| rng.uniform(5.0, 20.0)).all(|x| (5.0..20.0).contains(&x)));
        assert_eq!((rng.exp(0.0), rng.chance(0.0)), (0.0, false));
        assert_eq!((ms(-3.0), ms(0.25)), (Duration::ZERO, Duration::from_micros(250)));
    }
}
