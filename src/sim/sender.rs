//! Pure: no IO, no clock. The peer's side of a link: business frames, beats, answers. Its promises are those of
//! [`Pace`], the code that the sidecar itself paces its links with.

use std::collections::VecDeque;
use std::time::Duration;

use super::gaps::Gaps;
use super::rng::{Rng, ms};
use super::scenario::Scenario;
use super::traffic::Business;
use crate::link::pace::{Pace, PaceParams};
use crate::stamp::Stamp;
use crate::worker::noise::Noise;

/// Lateness of a loop that its beats tell of, as the worker's.
pub(super) const STALL: Duration = Duration::from_millis(10);
/// For so long they do.
const TOLD_FOR: Duration = Duration::from_millis(50);

/// When the peer beats.
#[derive(Clone, Copy, Debug)]
pub enum Beats {
    /// So long after its last frame, and it promises nothing: what published detectors listen to.
    Every(Duration),
    /// As the sidecar does.
    Paced(PaceParams),
}

/// What the peer sends: the end of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The next one comes within that.
    pub promise: Option<Duration>,
    /// Business bytes, not only a beat.
    pub data: bool,
    /// Answers the challenge that was sent then.
    pub answers: Option<Stamp>,
    /// The peer's own loop had stalled.
    pub stalled: bool,
    /// How late its loop was lately, by its own word.
    pub late: Duration,
    /// The latest of our beats that it read was sent then; None before the first.
    pub echo: Option<Stamp>,
    /// How long ago it last read anything of us.
    pub heard_age: Duration,
}

/// What we send to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ours {
    /// When.
    pub sent: Stamp,
    /// It asks for an answer.
    pub challenge: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Peer {
    business: Business,
    quiet: Gaps,
    stalls: Gaps,
    rng: Rng,
    late: (f64, f64),
    tells: bool,
    every: Duration,
    pace: Option<Pace>,
    written: Stamp,
    /// When its timer for the next beat goes off.
    beat_at: Stamp,
    /// Challenges that it reads then.
    asked: VecDeque<(Stamp, Stamp)>,
    /// The latest of ours: when read and when sent.
    heard: Option<(Stamp, Stamp)>,
    stalled_at: Option<Stamp>,
    /// When that timer should go off.
    beat_due: Stamp,
    noise: Noise,
}

impl Peer {
    /// A peer that starts at `start`.
    pub fn new(s: &Scenario, beats: Beats, start: Stamp, rng: &Rng) -> Peer {
        let (every, pace) = match beats {
            Beats::Every(every) => (every, None),
            Beats::Paced(params) => (params.idle, Some(Pace::new(params, start))),
        };
        Peer {
            business: Business::new(s.traffic, start, rng.fork(1)),
            quiet: Gaps::new(s.quiet, start, rng.fork(2)),
            stalls: Peer::stalls(s, start, rng),
            rng: rng.fork(4),
            late: s.late,
            tells: s.tells,
            every,
            pace,
            written: start,
            beat_at: start,
            asked: VecDeque::new(),
            heard: None,
            stalled_at: None,
            beat_due: start,
            noise: Noise::default(),
        }
    }

    /// The intervals in which that peer is asleep.
    pub fn stalls(s: &Scenario, start: Stamp, rng: &Rng) -> Gaps {
        Gaps::new(s.stall, start, rng.fork(3))
    }

    /// Something of ours arrived at `at`; it is read when the peer is awake.
    pub fn reads(&mut self, at: Stamp, ours: Ours) {
        let at = self.stalls.delay(at);
        self.heard = Some((at, ours.sent));
        if ours.challenge {
            self.asked.push_back((at, ours.sent));
        }
    }

    /// When it writes next.
    pub fn next_due(&mut self) -> Stamp {
        let asked = self.asked.front().map_or(Stamp::NEVER, |a| a.0);
        let data = self.quiet.delay(self.business.next());
        self.stalls.delay(data.min(self.beat_at).min(asked)).max(self.written)
    }

    /// Writes what is due at `now`, which [`Peer::next_due`] gave.
    pub fn write(&mut self, now: Stamp) -> Frame {
        if now.since(self.beat_at) >= STALL {
            self.stalled_at = Some(now);
        }
        self.noise = self.noise.with(now.since(self.beat_due), now);
        let data = self.quiet.delay(self.business.next()) <= now;
        let answers = if data { None } else { self.answer_due(now) };
        if data {
            self.business.advance();
        } else if answers.is_some() {
            // An answer carries a beat of its own before the one that ends its batch.
            self.promise(now, false);
        }
        let promise = self.promise(now, data);
        self.written = now;
        self.beat_due = self.pace.as_ref().map_or(now + self.every, Pace::beat_due);
        self.beat_at = self.beat_due + lateness(&mut self.rng, self.late);
        Frame {
            promise,
            data,
            answers,
            stalled: self.tells && self.stalled_at.is_some_and(|at| now.since(at) < TOLD_FOR),
            late: if self.tells { self.noise.told(now) } else { Duration::ZERO },
            echo: self.heard.map(|h| h.1),
            heard_age: self.heard.map_or(Duration::ZERO, |h| now.since(h.0)),
        }
    }

    fn answer_due(&mut self, now: Stamp) -> Option<Stamp> {
        let (at, sent) = *self.asked.front()?;
        if at > now {
            return None;
        }
        self.asked.pop_front();
        Some(sent)
    }

    fn promise(&mut self, now: Stamp, data: bool) -> Option<Duration> {
        let pace = self.pace.as_mut()?;
        if data {
            pace.bytes(now, false);
        }
        let promise = pace.next_promise(now, true);
        pace.wrote(now, promise, data);
        Some(promise)
    }
}

/// How late a timer goes off.
pub(super) fn lateness(rng: &mut Rng, (mean, most): (f64, f64)) -> Duration {
    ms(rng.exp(mean).min(most))
}

#[cfg(test)]
mod tests {
    use super::super::gaps::{Every, Spec};
    use super::super::scenario::{self, by_name};
    use super::*;

    const START: Stamp = Stamp::from_millis(10_000);

    fn paced(active: u64) -> Beats {
        Beats::Paced(PaceParams { active: Duration::from_millis(active), idle: Duration::from_millis(100) })
    }

    fn frames(s: &Scenario, beats: Beats, seconds: u64) -> Vec<(Stamp, Frame)> {
        let mut peer = Peer::new(s, beats, START, &Rng::new(5));
        let mut out = Vec::new();
        while peer.next_due() < START + Duration::from_secs(seconds) {
            let at = peer.next_due();
            out.push((at, peer.write(at)));
        }
        out
    }

    #[test]
    fn every_promise_is_kept_by_an_undisturbed_peer() {
        for name in ["steady", "bursts", "poisson", "idle-loss"] {
            let list = frames(by_name(name).unwrap(), paced(20), 120);
            assert!(list.len() > 1000, "{name}");
            for pair in list.windows(2) {
                let promise = pair[0].1.promise.unwrap();
                let gap = pair[1].0.since(pair[0].0);
                assert!(gap <= promise + Duration::from_millis(2), "{name}: {gap:?} after {promise:?}");
            }
        }
    }

    #[test]
    fn quiet_traffic_relaxes_the_promise_step_by_step() {
        let list = frames(by_name("bursts").unwrap(), paced(20), 60);
        let promises: std::collections::BTreeSet<u128> =
            list.iter().map(|f| f.1.promise.unwrap().as_millis()).collect();
        assert_eq!(promises.into_iter().collect::<Vec<_>>(), [20, 40, 80, 100]);
    }

    #[test]
    fn beats_alone_come_each_hundred_milliseconds() {
        let list = frames(by_name("idle-loss").unwrap(), Beats::Every(Duration::from_millis(100)), 60);
        assert!((580..=620).contains(&list.len()), "{}", list.len());
        assert!(list.iter().all(|f| f.1.promise.is_none()));
    }

    #[test]
    fn a_sleeping_peer_writes_at_the_end_and_tells_so() {
        let stall = Some(Spec { every: Every::Fixed(1000.0), min: 300.0, max: 300.0 });
        let s = Scenario { stall, tells: true, ..scenario::ALL[0] };
        let list = frames(&s, paced(20), 10);
        let inside = |t: Stamp| (t.since(START).as_millis() % 1300) >= 1000;
        assert!(list.iter().all(|f| !inside(f.0)));
        let told: Vec<u128> =
            list.iter().filter(|f| f.1.stalled).map(|f| f.0.since(START).as_millis() % 1300).collect();
        assert!(told.len() > 7 && told.iter().all(|t| *t < 50), "{told:?}");
        assert!(
            list.iter()
                .filter(|f| f.0.since(START).as_millis() % 1300 == 0)
                .all(|f| f.1.stalled || f.0 == START)
        );
    }

    #[test]
    fn a_challenge_is_answered_when_the_peer_is_awake() {
        let stall = Some(Spec { every: Every::Fixed(1000.0), min: 300.0, max: 300.0 });
        let s = Scenario { stall, ..*by_name("idle-loss").unwrap() };
        let mut peer = Peer::new(&s, paced(20), START, &Rng::new(5));
        let asked = START + Duration::from_millis(1100);
        let mut at = START;
        while at < asked {
            at = peer.next_due();
            peer.write(at);
        }
        peer.reads(asked, Ours { sent: asked, challenge: true });
        let mut answers = Vec::new();
        while at < START + Duration::from_millis(1500) {
            at = peer.next_due();
            let frame = peer.write(at);
            answers.extend(frame.answers.map(|sent| (at, sent, frame.echo)));
        }
        let end = START + Duration::from_millis(1300);
        assert_eq!(answers, [(end, asked, Some(asked))]);
    }
}
