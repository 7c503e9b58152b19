//! Pure: no IO, no clock. The peer's side of a link: business frames, beats, answers. Its promises are those of
//! [`Pace`], the code that the sidecar itself paces its links with.

use std::collections::VecDeque;
use std::time::Duration;

use super::gaps::Gaps;
use super::rng::{Rng, ms};
use super::scenario::Scenario;
use super::service::{Said, Service};
use super::traffic::Business;
use crate::link::beats::STALL_TOLD_FOR;
use crate::link::pace::{Pace, PaceParams};
use crate::stamp::Stamp;
use crate::worker::STALL;
use crate::worker::noise::Noise;

/// When the peer beats.
#[derive(Clone, Copy, Debug)]
pub enum Beats {
    /// So long after its last frame, and it promises nothing: what published detectors listen to.
    Every(Duration),
    /// As the sidecar does.
    Paced(PaceParams),
    /// As the reference simulation's peer.
    Relaxing(Relaxing),
}

/// Beats of the reference simulation's peer. A beat that fell due before business in its sleep is sent as well at the end of
/// it; the sidecar's business takes its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relaxing {
    /// The first of these promises with business, the next one with each beat in a row, the last one from then on.
    pub promises: &'static [Duration],
    /// A beat leaves at that many hundredths of the promise.
    pub percent: u32,
}

/// [`Beats`] at work.
#[derive(Debug)]
enum Schedule {
    Every(Duration),
    Paced(Pace),
    Relaxing(Relaxing, usize),
}

impl Schedule {
    fn new(beats: Beats, start: Stamp) -> Schedule {
        match beats {
            Beats::Every(every) => Schedule::Every(every),
            Beats::Paced(params) => Schedule::Paced(Pace::new(params, start)),
            Beats::Relaxing(relaxing) => Schedule::Relaxing(relaxing, 0),
        }
    }

    /// A frame leaves at `now`: what it promises.
    fn promise(&mut self, now: Stamp, data: bool) -> Option<Duration> {
        match self {
            Schedule::Every(_) => None,
            Schedule::Paced(pace) => {
                if data {
                    pace.bytes(now, false);
                }
                let promise = pace.next_promise(now, true);
                pace.wrote(now, promise, data);
                Some(promise)
            }
            Schedule::Relaxing(Relaxing { promises, .. }, step) => {
                *step = if data { 0 } else { (*step + 1).min(promises.len().saturating_sub(1)) };
                promises.get(*step).copied()
            }
        }
    }

    /// When the next beat is due if nothing else leaves after `written`.
    fn beat_due(&self, written: Stamp) -> Stamp {
        match self {
            Schedule::Every(every) => written + *every,
            Schedule::Paced(pace) => pace.beat_due(),
            Schedule::Relaxing(Relaxing { promises, percent }, step) => {
                promises.get(*step).map_or(Stamp::NEVER, |promise| written + *promise * *percent / 100)
            }
        }
    }

    /// Whether a beat that is due before business is never dropped for it.
    fn in_turn(&self) -> bool {
        matches!(self, Schedule::Relaxing(..))
    }
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
    /// What it says of the service behind it.
    pub said: Said,
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
    service: Service,
    stalls: Gaps,
    rng: Rng,
    late: (f64, f64),
    tells: bool,
    schedule: Schedule,
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
        Peer {
            business: Business::new(s.traffic, start, rng.fork(1)),
            service: Service::new(s.quiet, s.notice, start, rng.fork(2)),
            stalls: Peer::stalls(s, start, rng),
            rng: rng.fork(4),
            late: s.late,
            tells: s.tells,
            schedule: Schedule::new(beats, start),
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
        let data = self.service.delay(self.business.next());
        let next = if self.beat_first(data) { self.beat_at } else { data.min(self.beat_at) };
        let due = next.min(asked).min(self.service.next_due());
        self.stalls.delay(due).max(self.written)
    }

    /// Writes what is due at `now`, which [`Peer::next_due`] gave.
    pub fn write(&mut self, now: Stamp) -> Frame {
        if now.since(self.beat_at) >= STALL {
            self.stalled_at = Some(now);
        }
        self.noise = self.noise.with(now.since(self.beat_due), now);
        let due = self.service.delay(self.business.next());
        let data = due <= now && !self.beat_first(due);
        let answers = if data { None } else { self.answer_due(now) };
        if data {
            self.business.advance();
        } else if answers.is_some() {
            // An answer carries a beat of its own before the one that ends its batch.
            self.schedule.promise(now, false);
        }
        let promise = self.schedule.promise(now, data);
        self.written = now;
        self.beat_due = self.schedule.beat_due(now);
        self.beat_at = self.beat_due + lateness(&mut self.rng, self.late);
        Frame {
            promise,
            data,
            answers,
            stalled: self.tells && self.stalled_at.is_some_and(|at| now.since(at) < STALL_TOLD_FOR),
            late: if self.tells { self.noise.told(now) } else { Duration::ZERO },
            echo: self.heard.map(|h| h.1),
            heard_age: self.heard.map_or(Duration::ZERO, |h| now.since(h.0)),
            said: self.service.look(now, data),
        }
    }

    fn beat_first(&self, data: Stamp) -> bool {
        self.schedule.in_turn() && data > self.beat_due
    }

    fn answer_due(&mut self, now: Stamp) -> Option<Stamp> {
        let (at, sent) = *self.asked.front()?;
        if at > now {
            return None;
        }
        self.asked.pop_front();
        Some(sent)
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

    #[test]
    fn the_reference_s_peer_relaxes_at_once() {
        static PROMISES: [Duration; 3] =
            [Duration::from_millis(20), Duration::from_millis(40), Duration::from_millis(100)];
        let beats = Beats::Relaxing(Relaxing { promises: &PROMISES, percent: 80 });
        let s = Scenario { late: (0.0, 0.0), ..*by_name("idle-loss").unwrap() };
        let list = frames(&s, beats, 60);
        let begin = list.iter().position(|f| f.1.data).unwrap();
        let after: Vec<_> = list[begin..begin + 5]
            .windows(2)
            .map(|w| (w[0].1.promise.unwrap().as_millis(), w[1].0.since(w[0].0).as_millis()))
            .collect();
        assert_eq!(after, [(20, 16), (40, 32), (100, 80), (100, 80)]);
    }
}
