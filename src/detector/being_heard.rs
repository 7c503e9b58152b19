//! Pure: no IO, no clock. The other half of a link: does the peer hear us? (detection.md section 2, last paragraph)

use std::time::Duration;

use super::promise::Promise;
use super::{Detector, Params};
use crate::stamp::Stamp;

/// Remembered runs of our own writes; at the active promise of 20 ms a quarter of a second.
const RUNS: usize = 16;
/// Writes closer together than this, with the same promise, are one run.
const RUN_GAP: Duration = Duration::from_millis(5);
/// Jitter of the peer's beats that is not taken for a newer sign of us.
pub(super) const VIEW_JITTER: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, Debug, Default)]
struct Run {
    first: Stamp,
    last: Stamp,
    promise: Duration,
}

#[derive(Clone, Copy, Debug)]
struct View {
    at: Stamp,
    age: Duration,
}

/// Judges from the peer's beats whether our own frames arrive. Between two beats nothing is known and nothing is
/// concluded; once a beat shows a broken promise of ours, the decay runs from the instant it was broken.
#[derive(Clone, Debug)]
pub struct BeingHeard {
    law: Promise,
    slack: Duration,
    rtt: Duration,
    /// Apart: it is hardly ever looked through, and its neighbours are touched at every beat.
    runs: Box<[Run; RUNS]>,
    next: usize,
    /// The latest beat that showed a newer sign of us.
    view: Option<View>,
    /// When a beat told of the miss. That may be long after the promise broke: until then nothing could be asked.
    learned: Stamp,
}

impl BeingHeard {
    /// Nothing written, nothing known.
    pub fn new(params: &Params, now: Stamp) -> Self {
        let mut law = Promise::new(params, now);
        law.disarm();
        BeingHeard {
            law,
            slack: params.slack,
            rtt: params.first_promise,
            runs: Box::new([Run::default(); RUNS]),
            next: 0,
            view: None,
            learned: Stamp::ZERO,
        }
    }

    /// The law of this half: score, instants, lateness.
    pub fn law(&self) -> &Promise {
        &self.law
    }

    /// The law of this half, for excuses.
    pub fn law_mut(&mut self) -> &mut Promise {
        &mut self.law
    }

    /// Whether the latest beat showed that the peer misses us.
    pub fn missed(&self) -> bool {
        self.law.deadline() != Stamp::NEVER
    }

    /// Missing us until then makes FAILED: the law's instant, and not before the peer had the law's least time to answer,
    /// counted from the beat that told. A lost beat of an idle link is told of when its promise has long been broken;
    /// its retransmission may be on its way.
    pub fn fail_at(&self) -> Stamp {
        self.law.fail_at().max(self.learned + self.law.fail_fast())
    }

    /// The least round trip time measured lately.
    pub fn set_rtt(&mut self, rtt: Duration) {
        self.rtt = rtt;
        self.law.set_rtt(rtt);
    }

    /// We wrote a frame at `at` that promises the next one within `promise`.
    pub fn wrote(&mut self, at: Stamp, promise: Duration) {
        let latest = &mut self.runs[(self.next + RUNS - 1) % RUNS];
        if latest.promise == promise && at.since(latest.last) <= RUN_GAP && latest.last != Stamp::ZERO {
            latest.last = latest.last.max(at);
            return;
        }
        self.runs[self.next] = Run { first: at, last: at, promise };
        self.next = (self.next + 1) % RUNS;
    }

    /// The peer's beat, read at `at`, says that it last heard us `age` before. Returns the lateness that ended, if
    /// one did.
    pub fn seen(&mut self, at: Stamp, age: Duration) -> Option<Duration> {
        let heard = at - age;
        // The age grows with the clock while the peer hears nothing; jitter of its beats is no sign of us.
        let newer = self.view.is_none_or(|v| age + VIEW_JITTER < v.age + at.since(v.at));
        if newer {
            self.view = Some(View { at, age });
        }
        let due = self.due(heard);
        if due >= at {
            return self.answered(at);
        }
        if !self.missed() {
            self.learned = at;
            self.law.arm(due);
        } else if newer {
            let ended = self.answered(at);
            self.learned = at;
            self.law.arm(due);
            return ended;
        } else if due < self.law.deadline() {
            self.law.arm(due);
        }
        None
    }

    /// The peer heard us just now: it answered. Returns the lateness that ended, if one did.
    pub fn answered(&mut self, at: Stamp) -> Option<Duration> {
        let late = at.since(self.law.deadline());
        self.law.heard(at, None);
        self.law.disarm();
        (!late.is_zero()).then_some(late)
    }

    /// What the peer missed is explained (its own stall, or ours).
    pub fn forgive(&mut self) {
        self.law.disarm();
    }

    /// When the peer, having last heard us at `heard`, should have heard us again and have told us.
    fn due(&self, heard: Stamp) -> Stamp {
        // The usual case: it heard the latest that we wrote.
        if self.runs[(self.next + RUNS - 1) % RUNS].last <= heard {
            return Stamp::NEVER;
        }
        let mut promised: Option<Run> = None;
        let mut oldest: Option<Run> = None;
        let mut unheard = Stamp::NEVER;
        for run in self.runs.iter().filter(|r| r.last != Stamp::ZERO) {
            if oldest.is_none_or(|o| run.first < o.first) {
                oldest = Some(*run);
            }
            if run.first <= heard && promised.is_none_or(|p| run.first > p.first) {
                promised = Some(*run);
            }
            if run.last > heard {
                unheard = unheard.min(run.first.max(heard));
            }
        }
        let Some(run) = promised.or(oldest) else { return Stamp::NEVER };
        if unheard == Stamp::NEVER {
            return Stamp::NEVER;
        }
        (heard + run.promise).max(unheard) + self.slack + self.rtt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_millis(100);

    fn ms(x: u64) -> Stamp {
        Stamp::from_millis(x)
    }

    fn dur(x: u64) -> Duration {
        Duration::from_millis(x)
    }

    /// We have written each 80 ms, promising 100 ms, from 1000 to `until`.
    fn writer(until: u64) -> BeingHeard {
        let mut half = BeingHeard::new(&Params::default(), ms(1000));
        half.set_rtt(dur(1));
        let mut t = 1000;
        while t <= until {
            half.wrote(ms(t), IDLE);
            t += 80;
        }
        half
    }

    #[test]
    fn a_fresh_view_says_nothing_bad() {
        let mut half = writer(2000);
        for age in [0, 1, 50, 80, 101] {
            assert_eq!(half.seen(ms(2000 + age), dur(age)), None, "{age}");
            assert!(!half.missed(), "age {age}");
            assert!(half.law().score(ms(90_000)) > 0.99);
        }
    }

    #[test]
    fn a_broken_promise_of_ours_decays_from_the_instant_it_broke() {
        let mut half = writer(3000);
        half.seen(ms(1850), dur(10));
        half.seen(ms(2000), dur(160));
        assert!(half.missed());
        assert_eq!(half.law().deadline(), ms(1840 + 100 + 2));
        half.seen(ms(2080), dur(240));
        assert_eq!(half.law().deadline(), ms(1942), "later beats do not move it");
        assert!(half.law().score(ms(2080)) < 0.2);
        let late = half.seen(ms(2150), dur(5));
        assert_eq!(late, Some(dur(208)));
        assert!(!half.missed());
    }

    #[test]
    fn what_we_did_not_write_cannot_be_missed() {
        let mut half = writer(1000);
        half.seen(ms(5000), dur(4000));
        assert!(!half.missed());
        half.wrote(ms(5001), IDLE);
        half.seen(ms(5002), dur(4002));
        assert!(!half.missed(), "written a millisecond ago");
        half.seen(ms(5020), dur(4020));
        assert!(half.missed());
        assert_eq!(half.law().deadline(), ms(5003));
    }

    #[test]
    fn nothing_written_nothing_missed() {
        let mut half = BeingHeard::new(&Params::default(), ms(0));
        half.seen(ms(9000), dur(8000));
        assert!(!half.missed());
    }

    #[test]
    fn dense_writes_are_one_run() {
        let mut half = BeingHeard::new(&Params::default(), ms(0));
        half.set_rtt(dur(1));
        for t in 1..2000 {
            half.wrote(ms(t), dur(20));
        }
        half.seen(ms(1999), dur(15));
        assert!(!half.missed());
        half.seen(ms(1999), dur(400));
        assert!(half.missed());
    }

    #[test]
    fn dense_beats_keep_up_with_the_clock() {
        let mut half = BeingHeard::new(&Params::default(), ms(1000));
        half.set_rtt(Duration::from_micros(200));
        for t in 1000..4000 {
            if t % 16 == 0 {
                half.wrote(ms(t), dur(20));
            }
            half.seen(ms(t), dur(t % 16));
            assert!(!half.missed(), "at {t}");
        }
    }

    #[test]
    fn a_delayed_beat_does_not_hide_a_cut() {
        let mut half = writer(2400);
        half.seen(ms(2000), dur(5));
        half.seen(ms(2400), dur(200));
        half.seen(ms(2401), dur(406));
        assert!(half.missed());
        assert_eq!(half.law().deadline(), ms(1995 + 100 + 2));
    }
}
