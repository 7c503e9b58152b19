//! Pure: no IO, no clock. Business traffic: when the peer has something to say anyway.

use super::rng::{Rng, ms};
use crate::stamp::Stamp;

/// Kinds of business traffic (detection.md section 1); times in ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Gaps of 5 to 20: the source's own.
    Steady,
    /// Bursts of 5 to 200 frames with a mean gap of 2, then silences of 50 to 3 000.
    Bursts,
    /// Independent of each other, mean gap 40.
    Poisson,
    /// A frame each 5 to 20 s.
    Idle,
}

/// The moments of one run, in order.
#[derive(Clone, Debug)]
pub struct Business {
    traffic: Traffic,
    rng: Rng,
    /// Frames left of the burst.
    left: u32,
    next: Stamp,
}

impl Business {
    /// Traffic from `start` on.
    pub fn new(traffic: Traffic, start: Stamp, rng: Rng) -> Business {
        let mut business = Business { traffic, rng, left: 0, next: start };
        if traffic == Traffic::Bursts {
            business.left = business.burst();
        }
        business.advance();
        business
    }

    /// The next moment.
    pub fn next(&self) -> Stamp {
        self.next
    }

    /// The next moment is over.
    pub fn advance(&mut self) {
        let rng = &mut self.rng;
        let gap = match self.traffic {
            Traffic::Steady => rng.uniform(5.0, 20.0),
            Traffic::Poisson => rng.exp(40.0),
            Traffic::Idle => rng.uniform(5000.0, 20_000.0),
            Traffic::Bursts if self.left > 0 => {
                self.left -= 1;
                rng.exp(2.0)
            }
            Traffic::Bursts => {
                let silence = rng.uniform(50.0, 3000.0) + rng.exp(2.0);
                self.left = self.burst() - 1;
                silence
            }
        };
        self.next = self.next + ms(gap);
    }

    fn burst(&mut self) -> u32 {
        self.rng.uniform(5.0, 201.0) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gaps in ms over that many seconds.
    fn gaps(traffic: Traffic, seconds: u64) -> Vec<f64> {
        let start = Stamp::from_millis(1000);
        let mut business = Business::new(traffic, start, Rng::new(3));
        let (mut before, mut out) = (start, Vec::new());
        while business.next() < Stamp::from_millis(1000 + seconds * 1000) {
            out.push(business.next().millis_since(before));
            before = business.next();
            business.advance();
        }
        out
    }

    fn mean(list: &[f64]) -> f64 {
        list.iter().sum::<f64>() / list.len() as f64
    }

    #[test]
    fn each_kind_has_its_gaps() {
        let steady = gaps(Traffic::Steady, 600);
        assert!(steady.iter().all(|g| (4.99..20.0).contains(g)) && (12.0..13.0).contains(&mean(&steady)));
        let poisson = gaps(Traffic::Poisson, 600);
        assert!((38.0..42.0).contains(&mean(&poisson)) && poisson.iter().any(|g| *g > 200.0));
        let idle = gaps(Traffic::Idle, 3600);
        assert!(idle.iter().all(|g| (5000.0..20_000.0).contains(g)) && idle.len() > 200);
    }

    #[test]
    fn bursts_have_silences_between() {
        let list = gaps(Traffic::Bursts, 3600);
        let silences = list.iter().filter(|g| **g > 50.0).count();
        let bursts = list.len() as f64 / silences as f64;
        assert!((90.0..115.0).contains(&bursts), "{bursts} frames a burst");
        // A silence of 1 525 ms and 102.5 frames of 2 ms on average.
        assert!((1900..2300).contains(&silences), "{silences} an hour");
    }
}
