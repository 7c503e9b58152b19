//! Pure: no IO, no clock. The sender's half of the promise (detection.md, idea 1): what to promise and when to beat.

use std::time::Duration;

use crate::stamp::Stamp;

/// Bytes in either direction keep a link active for this long.
const ACTIVE_FOR: Duration = Duration::from_millis(100);
/// In TCP mode a client that spoke last is owed an answer: active for this long.
const CLIENT_SPOKE: Duration = Duration::from_secs(1);
/// What links without duty promise. Detectors know it.
pub const OFF_DUTY: Duration = crate::detector::OFF_DUTY;
/// Idle beats leave on this grid, so that many links share a wake-up.
const GRID_NS: u64 = 10_000_000;
/// Shorter pauses between idle beats do not wait for the grid.
const GRID_LEAST: Duration = Duration::from_nanos(2 * GRID_NS);

/// Bounds of the promise of one link direction.
#[derive(Clone, Copy, Debug)]
pub struct PaceParams {
    /// Promise while active.
    pub active: Duration,
    /// Promise while idle.
    pub idle: Duration,
}

/// The promise schedule of one direction of one link.
#[derive(Debug)]
pub struct Pace {
    params: PaceParams,
    last_bytes: Option<Stamp>,
    born: Stamp,
    client_spoke: Option<Stamp>,
    written: Stamp,
    promise: Duration,
    saved_mark: Stamp,
}

impl Pace {
    /// A link whose first beat is due now.
    pub fn new(params: PaceParams, now: Stamp) -> Pace {
        Pace {
            params,
            last_bytes: None,
            born: now,
            client_spoke: None,
            written: now,
            promise: Duration::ZERO,
            saved_mark: now,
        }
    }

    /// The idle promise may be stretched by the one who sends many (detection.md section 7).
    pub fn set_idle(&mut self, idle: Duration) {
        self.params.idle = idle.max(self.params.active);
    }

    /// Bytes passed. `from_client`: towards the service.
    pub fn bytes(&mut self, now: Stamp, from_client: bool) {
        self.last_bytes = Some(now);
        self.client_spoke = from_client.then_some(now);
    }

    /// No stream is left: nobody is owed an answer.
    pub fn no_streams(&mut self) {
        self.client_spoke = None;
    }

    /// When bytes last passed, or since when the link is there.
    pub fn used(&self) -> Stamp {
        self.last_bytes.unwrap_or(self.born)
    }

    /// True while the link is active.
    pub fn is_active(&self, now: Stamp) -> bool {
        let within = |t: Option<Stamp>, d| t.is_some_and(|t| now.since(t) < d);
        within(self.last_bytes, ACTIVE_FOR) || within(self.client_spoke, CLIENT_SPOKE)
    }

    /// The promise that the next frame carries.
    pub fn next_promise(&self, now: Stamp, on_duty: bool) -> Duration {
        if self.is_active(now) {
            return self.params.active;
        }
        if !on_duty {
            return OFF_DUTY;
        }
        let relaxed = if self.promise < self.params.active { self.params.idle } else { self.promise * 2 };
        relaxed.min(self.params.idle)
    }

    /// A frame with this promise was written at `now`. `with_data`: it ended a batch. Gives the idle beats that
    /// business traffic made unnecessary since the last call.
    pub fn wrote(&mut self, now: Stamp, promise: Duration, with_data: bool) -> u64 {
        self.written = now;
        self.promise = promise;
        let every = self.params.idle * 4 / 5;
        if !with_data {
            self.saved_mark = now;
            return 0;
        }
        if now.since(self.saved_mark) < every {
            return 0;
        }
        self.saved_mark = now;
        1
    }

    /// When a beat must be written if nothing else is: at 0.8 of the promise, idle ones on the grid. When the link
    /// became active since, the shorter promise is due earlier only by the next frame: the old promise holds.
    pub fn beat_due(&self) -> Stamp {
        let pause = self.promise * 4 / 5;
        let due = self.written + pause;
        // Rounding a short pause down to the grid could leave nothing of it.
        if self.promise < self.params.idle || pause < GRID_LEAST {
            return due;
        }
        let ns = due.as_nanos();
        Stamp::from_nanos(ns - ns % GRID_NS)
    }

    /// The promise that is in force.
    pub fn promise(&self) -> Duration {
        self.promise
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn pace() -> Pace {
        Pace::new(PaceParams { active: ms(20), idle: ms(100) }, Stamp::from_millis(0))
    }

    #[test]
    fn relaxes_over_40_and_80_to_idle() {
        let mut p = pace();
        let t = Stamp::from_millis(1000);
        p.bytes(t, false);
        assert_eq!(p.next_promise(t, true), ms(20));
        p.wrote(t, ms(20), true);
        assert_eq!(p.beat_due(), t + ms(16));
        let quiet = t + ms(150);
        for want in [40, 80, 100, 100] {
            let got = p.next_promise(quiet, true);
            assert_eq!(got, ms(want));
            p.wrote(quiet, got, false);
        }
    }

    #[test]
    fn a_client_that_spoke_last_keeps_the_link_active() {
        let mut p = pace();
        let t = Stamp::from_millis(5);
        p.bytes(t, true);
        assert!(p.is_active(t + ms(900)));
        p.bytes(t + ms(901), false);
        assert!(!p.is_active(t + ms(1002)));
        p.bytes(t, true);
        p.no_streams();
        assert!(!p.is_active(t + ms(200)));
    }

    #[test]
    fn off_duty_promises_ten_seconds_unless_active() {
        let mut p = pace();
        let t = Stamp::from_millis(1);
        assert_eq!(p.next_promise(t, false), OFF_DUTY);
        p.bytes(t, false);
        assert_eq!(p.next_promise(t, false), ms(20));
    }

    #[test]
    fn idle_beats_leave_on_the_grid_and_before_0_8_of_the_promise() {
        let mut p = pace();
        p.wrote(Stamp::from_millis(1007), ms(100), false);
        assert_eq!(p.beat_due(), Stamp::from_millis(1080));
    }

    #[test]
    fn short_idle_promises_do_not_beat_without_pause() {
        for idle in 1..=40 {
            let params = PaceParams { active: ms(idle), idle: ms(idle) };
            let (mut p, begin) = (Pace::new(params, Stamp::from_millis(0)), Stamp::from_millis(3));
            p.wrote(begin, ms(idle), false);
            let mut beats = 0;
            while p.beat_due().since(begin) < Duration::from_secs(1) {
                assert!(p.beat_due() > p.written, "{idle} ms");
                p.wrote(p.beat_due(), ms(idle), false);
                beats += 1;
            }
            let usual = 1000 * 5 / (4 * idle);
            assert!((usual - 1..=usual * 2 + 1).contains(&beats), "{idle} ms: {beats} beats a second");
        }
    }

    #[test]
    fn traffic_saves_idle_beats() {
        let mut p = pace();
        let mut saved = 0;
        for i in 0..100 {
            saved += p.wrote(Stamp::from_millis(i * 10), ms(20), true);
        }
        assert!((11..=13).contains(&saved), "{saved}");
    }
}
