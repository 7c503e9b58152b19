//! Pure: no IO, no clock. The oldest law (D4, T1): silence for a fixed time after the last arrival is death.

use std::time::Duration;

use super::gaps::{Rule, Waits};

/// The rule of `timeout`. It learns nothing; SUSPECT and FAILED come together.
#[derive(Clone, Debug)]
pub(super) struct Timeout(pub(super) Duration);

impl Rule for Timeout {
    fn learn(&mut self, _gap: Duration, _promise: Duration) {}

    fn unlearn(&mut self) {}

    fn waits(&self, promise: Duration) -> Waits {
        Waits::timeout(self.0, promise)
    }
}

#[cfg(test)]
mod tests {
    use crate::detector::{Detector, Kind, Params};
    use crate::stamp::Stamp;
    use std::time::Duration;

    fn ms(x: u64) -> Stamp {
        Stamp::from_millis(x)
    }

    fn law(timeout: u64) -> Box<dyn Detector> {
        let params = Params { timeout: Duration::from_millis(timeout), ..Params::of(Kind::Timeout) };
        params.build(ms(1000))
    }

    #[test]
    fn three_seconds_after_the_last_arrival_and_not_earlier() {
        let mut law = law(3000);
        for t in [1016, 1032, 1400] {
            law.heard(ms(t), Some(Duration::from_millis(20)));
        }
        assert_eq!(law.deadline(), ms(1420), "the promise says when the next frame is due");
        assert_eq!((law.suspect_at(), law.fail_at()), (ms(4400), ms(4400)));
        assert_eq!(law.score(ms(1420)), 1.0);
        assert!(law.score(ms(4399)) > 0.5 && law.score(ms(4400)) <= 0.2 + 1e-9);
    }

    #[test]
    fn a_timeout_below_the_promise_still_doubts_before_it_judges() {
        let mut law = law(27);
        law.heard(ms(1100), Some(Duration::from_millis(100)));
        assert_eq!(law.fail_at(), ms(1127));
        assert!(law.deadline() < law.suspect_at());
    }
}
