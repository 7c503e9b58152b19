//! Pure: no IO, no clock. One direction of a TCP connection: delay, jitter, loss and what TCP makes of it.
//!
//! A lost segment is a hole: whatever is sent behind it arrives but cannot be read. It is filled by the first of: a
//! retransmission after the time-out (at least 200 ms), or the fast one that a later segment provokes, a quarter more
//! than a round trip after it was sent (its acknowledgement comes back first).

use std::collections::VecDeque;
use std::time::Duration;

use super::gaps::{Gaps, Spec};
use super::rng::{Rng, ms};
use crate::stamp::Stamp;

/// The least retransmission time-out, ms.
const RTO: f64 = 200.0;

/// What a path does; times in ms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathSpec {
    /// One-way delay.
    pub delay: f64,
    /// Mean of the exponential jitter on top.
    pub jitter: f64,
    /// Share of segments lost.
    pub loss: f64,
    /// Nothing arrives in these intervals; all of it at their end.
    pub blocked: Option<Spec>,
    /// All is lost that is sent in these.
    pub bursts: Option<Spec>,
}

impl PathSpec {
    /// Mean round trip time.
    pub fn rtt(&self) -> Duration {
        ms(2.0 * (self.delay + self.jitter))
    }
}

#[derive(Debug)]
struct Segment<T> {
    frame: T,
    /// When the copy of it that arrives leaves; later than its sending for a hole.
    left: Stamp,
    travel: Duration,
    hole: bool,
    /// When that copy arrives.
    at: Stamp,
}

/// One direction, in order.
#[derive(Debug)]
pub struct Path<T> {
    spec: PathSpec,
    rng: Rng,
    blocked: Gaps,
    bursts: Gaps,
    queue: VecDeque<Segment<T>>,
    holes: usize,
    /// What is read is read in order.
    read: Stamp,
    /// Nothing that leaves later arrives.
    cut: Stamp,
}

impl<T> Path<T> {
    /// A path of a connection that starts at `start`. `shared` gives both directions the same disturbances.
    pub fn new(spec: PathSpec, start: Stamp, rng: Rng, shared: &Rng) -> Path<T> {
        Path {
            spec,
            rng,
            blocked: Path::<T>::blocked(&spec, start, shared),
            bursts: Gaps::new(spec.bursts, start, shared.fork(2)),
            queue: VecDeque::new(),
            holes: 0,
            read: start,
            cut: Stamp::NEVER,
        }
    }

    /// The intervals in which that path is blocked.
    pub fn blocked(spec: &PathSpec, start: Stamp, shared: &Rng) -> Gaps {
        Gaps::new(spec.blocked, start, shared.fork(1))
    }

    /// Black hole: what leaves after `at` is gone. What waited for the end of a disturbance that ends then still passes.
    pub fn cut(&mut self, at: Stamp) {
        self.cut = at;
    }

    /// Sends a frame at `now`; calls go forward in time.
    pub fn send(&mut self, now: Stamp, frame: T) {
        if now > self.cut {
            return;
        }
        let travel = ms(self.spec.delay + self.rng.exp(self.spec.jitter));
        let lost = self.rng.chance(self.spec.loss);
        let left = match (self.bursts.at(now).is_some(), lost) {
            (true, _) => self.after_burst(now),
            (false, true) => now + self.spec.rtt() * 2 + ms(RTO),
            (false, false) => now,
        };
        let hole = left > now;
        if hole {
            self.holes += 1;
        } else if self.holes > 0 {
            self.provoke(now);
        }
        let at = self.blocked.delay(left + travel);
        self.queue.push_back(Segment { frame, left, travel, hole, at });
    }

    /// Time-outs double until one falls outside of the burst.
    fn after_burst(&mut self, now: Stamp) -> Stamp {
        let mut wait = RTO;
        let mut at = now + ms(wait);
        while self.bursts.at(at).is_some() {
            wait *= 2.0;
            at = at + ms(wait);
        }
        at
    }

    /// What was sent at `now` tells the peer of the holes before it.
    fn provoke(&mut self, now: Stamp) {
        let again = now + self.spec.rtt().mul_f64(1.25);
        for s in self.queue.iter_mut().filter(|s| s.hole && s.left > again) {
            s.left = again;
            s.at = self.blocked.delay(again + s.travel);
        }
    }

    /// When the next frame can be read; NEVER if none is on its way.
    pub fn next(&self) -> Stamp {
        match self.queue.front() {
            Some(s) if s.left <= self.cut => s.at.max(self.read),
            _ => Stamp::NEVER,
        }
    }

    /// The next frame that can be read at `now`.
    pub fn pop(&mut self, now: Stamp) -> Option<T> {
        let at = self.next();
        if at > now {
            return None;
        }
        let segment = self.queue.pop_front()?;
        self.read = at;
        self.holes -= usize::from(segment.hole);
        Some(segment.frame)
    }

    /// Whether a segment that cannot be read yet arrived after `since`: it waits behind a hole.
    pub fn waiting(&self, since: Stamp, now: Stamp) -> bool {
        let arrived = |s: &Segment<T>| s.left <= self.cut && s.at <= now && s.at > since;
        self.holes > 0 && self.queue.iter().any(arrived)
    }
}

#[cfg(test)]
mod tests {
    use super::super::gaps::Every;
    use super::*;

    const CLEAN: PathSpec = PathSpec { delay: 1.0, jitter: 0.0, loss: 0.0, blocked: None, bursts: None };

    fn at(ms: f64) -> Stamp {
        Stamp::from_nanos((ms * 1e6) as u64)
    }

    fn path(spec: PathSpec) -> Path<u32> {
        Path::new(spec, at(1000.0), Rng::new(1), &Rng::new(2))
    }

    fn drain(p: &mut Path<u32>) -> Vec<(u32, Stamp)> {
        let mut out = Vec::new();
        while p.next() != Stamp::NEVER {
            let now = p.next();
            while let Some(frame) = p.pop(now) {
                out.push((frame, now));
            }
        }
        out
    }

    #[test]
    fn a_clean_path_delays() {
        let mut p = path(CLEAN);
        p.send(at(1000.0), 1);
        p.send(at(1000.5), 2);
        assert_eq!(p.pop(at(1000.9)), None);
        assert_eq!(drain(&mut p), [(1, at(1001.0)), (2, at(1001.5))]);
    }

    #[test]
    fn a_hole_waits_for_the_time_out_or_for_what_is_sent_behind_it() {
        let bursts = Some(Spec { every: Every::Fixed(100.0), min: 10.0, max: 10.0 });
        let mut p = path(PathSpec { bursts, ..CLEAN });
        p.send(at(1105.0), 1);
        assert_eq!(p.next(), at(1105.0 + 200.0 + 1.0));
        p.send(at(1109.0), 2);
        assert_eq!(p.next(), at(1306.0), "lost as well: provokes nothing");
        p.send(at(1150.0), 3);
        assert_eq!(p.next(), at(1150.0 + 2.5 + 1.0));
        assert!(!p.waiting(at(1105.0), at(1150.5)));
        assert!(p.waiting(at(1105.0), at(1152.0)), "3 waits behind the holes");
        let got = drain(&mut p);
        assert_eq!(got, [(1, at(1153.5)), (2, at(1153.5)), (3, at(1153.5))]);
        assert!(!p.waiting(at(0.0), at(9000.0)));
    }

    #[test]
    fn time_outs_double_within_a_burst() {
        let bursts = Some(Spec { every: Every::Fixed(100.0), min: 250.0, max: 250.0 });
        let mut p = path(PathSpec { bursts, ..CLEAN });
        p.send(at(1101.0), 1);
        // 1301 is in the burst, 1701 in none: [1100, 1350), [1450, 1700).
        assert_eq!(p.next(), at(1702.0));
    }

    #[test]
    fn random_loss_loses_that_share() {
        let mut p = path(PathSpec { loss: 0.05, ..CLEAN });
        let n = 10_000u32;
        for i in 0..n {
            p.send(at(1000.0 + f64::from(i) * 10.0), i);
        }
        let late = (0..n).zip(drain(&mut p)).filter(|(i, (frame, when))| {
            assert_eq!(i, frame, "in order");
            when.millis_since(at(1000.0 + f64::from(*i) * 10.0)) > 5.0
        });
        let share = late.count() as f64 / f64::from(n);
        assert!((0.04..0.07).contains(&share), "{share}");
    }

    #[test]
    fn a_blocked_path_gives_everything_at_its_end() {
        let blocked = Some(Spec { every: Every::Fixed(100.0), min: 50.0, max: 50.0 });
        let mut p = path(PathSpec { blocked, ..CLEAN });
        for (i, t) in [1098.0, 1099.5, 1120.0, 1149.5].into_iter().enumerate() {
            p.send(at(t), i as u32);
        }
        let got: Vec<Stamp> = drain(&mut p).into_iter().map(|g| g.1).collect();
        assert_eq!(got, [at(1099.0), at(1150.0), at(1150.0), at(1150.5)]);
    }

    #[test]
    fn a_black_hole_swallows_what_leaves_after_it_and_what_had_to_be_sent_again() {
        let bursts = Some(Spec { every: Every::Fixed(100.0), min: 10.0, max: 10.0 });
        let mut p = path(PathSpec { bursts, ..CLEAN });
        p.cut(at(1200.0));
        p.send(at(1050.0), 1);
        p.send(at(1105.0), 2);
        p.send(at(1200.0), 3);
        p.send(at(1200.1), 4);
        // 3 waits behind the hole of 2, which nothing fills any more.
        assert_eq!(drain(&mut p), [(1, at(1051.0))]);
        let mut clean = path(CLEAN);
        clean.cut(at(1200.0));
        clean.send(at(1200.0), 1);
        clean.send(at(1200.1), 2);
        assert_eq!(drain(&mut clean), [(1, at(1201.0))]);
    }
}
