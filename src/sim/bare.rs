//! Pure: no IO, no clock. A law by itself: no states, no gates, no recovery, no questions. What simulations without a
//! program count, and what the design's table says of the published detectors.

use std::time::Duration;

use super::detectors::Contestant;
use super::sender::Frame;
use crate::detector::{Detector, LONG_STALL};
use crate::stamp::Stamp;

/// Arrivals at one instant are so far apart for a law that counts each of them.
const APART: Duration = Duration::from_nanos(1);

/// What it would have said before the fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Silences {
    /// Silences that lasted beyond SUSPECT.
    pub suspect: u64,
    /// Silences that lasted beyond FAILED.
    pub failed: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Bare {
    /// Whose law it is.
    pub who: Contestant,
    /// Counted before the fault.
    pub silences: Silences,
    law: Box<dyn Detector>,
    /// Frames that are read at one instant are arrivals of their own, as where each is handed over by itself. The sidecar
    /// takes what one read gives for one arrival.
    each_frame: bool,
    fault: Stamp,
}

impl Bare {
    /// A law that has just heard the peer. Counting ends at `fault`.
    pub fn new(who: Contestant, start: Stamp, each_frame: bool, fault: Stamp) -> Bare {
        Bare { law: who.params.build(start), who, silences: Silences::default(), each_frame, fault }
    }

    /// A frame was read.
    pub fn hear(&mut self, now: Stamp, frame: &Frame) {
        if now < self.fault {
            self.silences.suspect += u64::from(now > self.law.suspect_at());
            self.silences.failed += u64::from(now > self.law.fail_at());
        }
        let at = if self.each_frame { now.max(self.law.last() + APART) } else { now };
        self.law.heard(at, frame.promise);
    }

    /// The observer's own loop slept, and noticed.
    pub fn slept(&mut self, from: Stamp, to: Stamp) {
        if to.since(from) > LONG_STALL {
            self.law.forgive(to);
        } else {
            self.law.excuse(from, to);
        }
    }

    /// Score at `now`.
    pub fn score(&self, now: Stamp) -> f64 {
        self.law.score(now)
    }

    /// From the fault to SUSPECT and to FAILED, where nothing is heard any more and each comes before `end`. A law that was
    /// there already took no time.
    pub fn detected(&self, end: Stamp) -> (Option<Duration>, Option<Duration>) {
        let after = |at: Stamp| (at <= end).then(|| at.since(self.fault));
        (after(self.law.suspect_at()), after(self.law.fail_at()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::detectors::by_name;
    use super::super::service::Said;
    use super::*;

    const START: Stamp = Stamp::from_millis(1000);
    const FAULT: Stamp = Stamp::from_millis(9000);

    fn at(ms: u64) -> Stamp {
        Stamp::from_millis(ms)
    }

    fn frame() -> Frame {
        Frame {
            promise: None,
            data: true,
            answers: None,
            stalled: false,
            late: Duration::ZERO,
            echo: None,
            heard_age: Duration::ZERO,
            said: Said::default(),
        }
    }

    fn heard(name: &str, each_frame: bool, times: &[u64]) -> Bare {
        let mut bare = Bare::new(by_name(name).unwrap(), START, each_frame, FAULT);
        times.iter().for_each(|t| bare.hear(at(*t), &frame()));
        bare
    }

    #[test]
    fn each_silence_counts_until_the_fault_and_the_last_one_is_the_detection() {
        let bare = heard("timeout-27ms", true, &[1020, 1047, 1075, 1200, 8990, 9001]);
        assert_eq!(bare.silences, Silences { suspect: 3, failed: 3 });
        let ms = |t| Some(Duration::from_millis(t));
        assert_eq!(bare.detected(at(9500)), (ms(28), ms(28)));
        assert_eq!(bare.detected(at(9027)), (None, None), "not within the patience");
        let before = heard("timeout-27ms", true, &[1020]);
        assert_eq!(before.detected(at(9500)), (ms(0), ms(0)), "it had failed before");
    }

    /// Ten frames that a blocked path gives at once shrink the published average; read at once by the sidecar they do not.
    #[test]
    fn frames_read_at_one_instant_count_each_only_where_wanted() {
        let mut times: Vec<u64> = (1..100).map(|n| 1000 + n * 20).collect();
        times.extend([3000; 10]);
        let next = |each| heard("huddm-tick", each, &times).detected(at(99_000)).1;
        let fails = |each| heard("huddm-tick", each, &times).law.fail_at();
        assert!(fails(true) < fails(false), "{:?} {:?}", fails(true), fails(false));
        assert_eq!(next(true), Some(Duration::ZERO));
    }
}
