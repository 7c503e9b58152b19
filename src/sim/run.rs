//! Pure: no IO, no clock. One run in virtual time: a peer, both directions of a path, an observer and its judges.
//!
//! The observer is a loop as the worker's: what it reads is read when it is awake, and its judges are asked after the
//! socket was drained. Its own beats are paced by [`Pace`] too, so that being heard is judged as well as hearing.

use std::time::Duration;

use super::bare::Bare;
use super::detectors::Setup;
use super::gaps::Gaps;
use super::path::Path;
use super::rng::{Rng, ms};
use super::scenario::{Fault, Scenario};
use super::seat::{Counts, Seat};
use super::sender::{Beats, Frame, Ours, Peer, lateness};
use crate::detector::Facts;
use crate::link::pace::Pace;
use crate::stamp::Stamp;
use crate::verdict::State;
use crate::worker::STALL;

/// Runs begin here: no stamp is near zero.
pub const START: Stamp = Stamp::from_millis(10_000);
/// A fault that is not found within this is not found. An observer may sleep for 10 s of it.
const PATIENCE: Duration = Duration::from_secs(15);
/// What a worker looks at by itself at least this often: the lateness of that tells it of its stalls.
const TICK: Duration = Duration::from_millis(200);

/// Scores are looked at each so often, in an interval around the fault.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    /// Before the fault.
    pub before: Duration,
    /// After it.
    pub after: Duration,
    /// Step.
    pub every: Duration,
}

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Seed of everything.
    pub seed: u64,
    /// Length without a fault; with one, when it comes at the earliest.
    pub length: Duration,
    /// Ends with the scenario's fault, at the first moment after `length` that is in no disturbance of path or peer.
    pub fault: bool,
    /// Seed of the naps of the observer's loop, for links that share one; None: from `seed`.
    pub own: Option<u64>,
    /// Look at the scores.
    pub watch: Option<Watch>,
}

/// What one judge made of a run.
#[derive(Clone, Debug)]
pub struct Verdicts {
    /// Name of the detector.
    pub detector: &'static str,
    /// It heard the frames that `promise-20` caused.
    pub same_beats: bool,
    /// While nothing was wrong.
    pub counts: Counts,
    /// From the fault to SUSPECT.
    pub suspect: Option<Duration>,
    /// From the fault to FAILED.
    pub failed: Option<Duration>,
    /// Watched scores: ms from the fault, score.
    pub scores: Vec<(f64, f64)>,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Virtual time without a fault.
    pub length: Duration,
    /// Frames that the peer sent in it.
    pub frames: u64,
    /// One per judge.
    pub verdicts: Vec<Verdicts>,
}

/// Runs a scenario.
pub fn run(scenario: &Scenario, setup: &Setup, plan: &Plan) -> Outcome {
    let mut world = World::new(scenario, setup, plan);
    while world.step() {}
    world.outcome(setup)
}

struct World {
    end: Stamp,
    fault: Stamp,
    /// The fault keeps everything from us.
    deaf: bool,
    peer: Peer,
    to_us: Path<Frame>,
    to_peer: Path<Ours>,
    us: Observer,
    frames: u64,
    watch: Option<(Watch, Stamp)>,
    scores: Vec<Vec<(f64, f64)>>,
}

#[derive(Clone, Copy)]
enum Next {
    ToPeer,
    Peer,
    Us,
    Look,
}

impl World {
    fn new(s: &Scenario, setup: &Setup, plan: &Plan) -> World {
        let rng = Rng::new(plan.seed);
        let (theirs, shared) = (rng.fork(1), rng.fork(2));
        let (mut to_us, mut to_peer) =
            (Path::new(s.path, START, rng.fork(3), &shared), Path::new(s.path, START, rng.fork(4), &shared));
        let (mut end, mut fault) = (START + plan.length, Stamp::NEVER);
        if plan.fault {
            fault = Path::<Frame>::blocked(&s.path, START, &shared).delay(end);
            fault = Peer::stalls(s, START, &theirs).delay(fault);
            end = fault + PATIENCE;
            to_peer.cut(fault);
            if s.fault == Fault::BlackHole {
                to_us.cut(fault);
            }
        }
        let ours = rng.fork(5);
        let own = plan.own.map_or_else(|| ours.fork(2), Rng::new);
        let us = Observer::new(s, setup, &ours, own, fault);
        let watch = plan.watch.map(|w| (w, fault - w.before));
        let scores = vec![Vec::new(); us.seats().count() + us.laws.len()];
        let peer = Peer::new(s, setup.beats, START, &theirs);
        World {
            end,
            fault,
            deaf: s.fault == Fault::BlackHole,
            peer,
            to_us,
            to_peer,
            us,
            frames: 0,
            watch,
            scores,
        }
    }

    /// The earliest of what is to come; at one instant the peer reads before it writes, and writes before we read.
    fn next(&mut self) -> (Stamp, Next) {
        let look = self.watch.map_or(Stamp::NEVER, |w| w.1);
        let candidates = [
            (self.to_peer.next(), Next::ToPeer),
            (self.peer.next_due(), Next::Peer),
            (self.us.next_due(self.to_us.next()), Next::Us),
            (look, Next::Look),
        ];
        candidates.into_iter().min_by_key(|c| c.0).unwrap_or((Stamp::NEVER, Next::Look))
    }

    fn step(&mut self) -> bool {
        let (now, next) = self.next();
        if now >= self.end || self.is_over(now) {
            return false;
        }
        match next {
            Next::ToPeer => {
                if let Some(ours) = self.to_peer.pop(now) {
                    self.peer.reads(now, ours);
                }
            }
            Next::Peer => {
                let frame = self.peer.write(now);
                self.frames += u64::from(now < self.fault);
                self.to_us.send(now, frame);
            }
            Next::Us => self.us.wake(now, &mut self.to_us, &mut self.to_peer),
            Next::Look => self.look(now),
        }
        true
    }

    /// Whether nothing can change any more: nothing is on its way to us or will be, and the one that asks has found the
    /// fault.
    fn is_over(&self, now: Stamp) -> bool {
        self.deaf
            && now > self.fault
            && self.watch.is_none()
            && self.to_us.next() == Stamp::NEVER
            && self.us.asker.as_ref().is_none_or(|a| a.state() == State::Failed)
    }

    fn look(&mut self, now: Stamp) {
        let Some((watch, at)) = &mut self.watch else { return };
        self.us.listeners.iter_mut().for_each(|l| l.catch_up(now));
        let seats = self.us.seats().map(|seat| seat.score(now));
        let found = seats.chain(self.us.laws.iter().map(|law| law.score(now)));
        for (score, scores) in found.zip(&mut self.scores) {
            scores.push((now.millis_since(self.fault), score));
        }
        *at = *at + watch.every;
        if now > self.fault + watch.after {
            self.watch = None;
        }
    }

    fn outcome(mut self, setup: &Setup) -> Outcome {
        let end = self.end;
        self.us.listeners.iter_mut().for_each(|l| l.catch_up(end));
        let asker_same = setup.asker.is_some_and(|a| a.1);
        let asks = self.us.asker.is_some();
        let seats = self.us.seats().enumerate().map(|(i, seat)| {
            let same_beats = if asks && i == 0 { asker_same } else { setup.same_beats };
            (seat.who.name, same_beats, seat.counts, seat.detected())
        });
        let deaf = self.deaf && self.fault != Stamp::NEVER;
        let laws = self.us.laws.iter().map(|law| {
            let counts = Counts {
                suspect: law.silences.suspect,
                failed: law.silences.failed,
                silences: law.silences.failed,
                ..Counts::default()
            };
            let detected = if deaf { law.detected(end) } else { (None, None) };
            (law.who.name, setup.same_beats, counts, detected)
        });
        let said = seats.chain(laws).zip(self.scores);
        let verdicts = said.map(|((detector, same_beats, counts, (suspect, failed)), scores)| Verdicts {
            detector,
            same_beats,
            counts,
            suspect,
            failed,
            scores,
        });
        let length = end.min(self.fault).since(START);
        Outcome { length, frames: self.frames, verdicts: verdicts.collect() }
    }
}

/// Our side: one loop, and those that judge in it.
struct Observer {
    own: Gaps,
    rng: Rng,
    late: (f64, f64),
    pace: Option<Pace>,
    /// When the timer for the next beat is due, and when it goes off.
    beat_due: Stamp,
    beat_at: Stamp,
    ticked: Stamp,
    /// Other links of that loop have timers of their own: it knows of each nap when it began.
    crowd: bool,
    asker: Option<Seat>,
    listeners: Vec<Seat>,
    /// Those that judge without states.
    laws: Vec<Bare>,
}

impl Observer {
    fn new(s: &Scenario, setup: &Setup, rng: &Rng, own: Rng, fault: Stamp) -> Observer {
        let mut draws = rng.fork(1);
        // What the handshake took: there and back, with the jitter of both ways.
        let rtt = ms(2.0 * s.path.delay + draws.exp(s.path.jitter) + draws.exp(s.path.jitter));
        let pace = match setup.beats {
            Beats::Paced(params) if setup.asker.is_some() => Some(Pace::new(params, START)),
            _ => None,
        };
        Observer {
            own: Gaps::new(s.own, START, own),
            rng: draws,
            late: s.late,
            beat_due: if pace.is_some() { START } else { Stamp::NEVER },
            beat_at: if pace.is_some() { START } else { Stamp::NEVER },
            pace,
            ticked: START,
            crowd: s.links > 1,
            asker: setup.asker.map(|(who, _)| Seat::new(who, START, rtt, fault)),
            listeners: setup.listeners.iter().map(|who| Seat::new(*who, START, rtt, fault)).collect(),
            laws: setup.laws.iter().map(|who| Bare::new(*who, START, true, fault)).collect(),
        }
    }

    fn seats(&self) -> impl Iterator<Item = &Seat> {
        self.asker.iter().chain(&self.listeners)
    }

    fn seats_mut(&mut self) -> impl Iterator<Item = &mut Seat> {
        self.asker.iter_mut().chain(&mut self.listeners)
    }

    /// When something is to do, `arrival` or a timer, whether the loop is awake or not.
    fn wanted(&self, arrival: Stamp) -> Stamp {
        let asker = self.asker.as_ref().map_or(Stamp::NEVER, Seat::next_due);
        arrival.min(asker).min(self.beat_at).max(self.ticked)
    }

    fn next_due(&mut self, arrival: Stamp) -> Stamp {
        let wanted = self.wanted(arrival);
        self.own.delay(wanted)
    }

    fn wake(&mut self, now: Stamp, to_us: &mut Path<Frame>, to_peer: &mut Path<Ours>) {
        let wanted = self.wanted(to_us.next());
        let gap = self.own.at(wanted);
        match gap {
            Some((from, _)) => self.slept(from, now),
            None => self.listeners.iter_mut().for_each(|l| l.catch_up(now)),
        }
        // A timer that goes off late is a stall of the loop like any other.
        if gap.is_none() && now.since(self.beat_due) >= STALL {
            let due = self.beat_due;
            self.seats_mut().for_each(|seat| seat.slept(due, now, true));
        }
        self.ticked = now;
        let mut data = false;
        while let Some(frame) = to_us.pop(now) {
            data |= frame.data;
            for seat in &mut self.listeners {
                seat.hear(now, &frame);
                seat.settle(now);
            }
            self.laws.iter_mut().for_each(|law| law.hear(now, &frame));
            if let Some(seat) = &mut self.asker {
                seat.hear(now, &frame);
            }
        }
        if data && let Some(pace) = &mut self.pace {
            pace.bytes(now, false);
        }
        self.judge(now, to_us, to_peer);
    }

    fn judge(&mut self, now: Stamp, to_us: &Path<Frame>, to_peer: &mut Path<Ours>) {
        let question = self.asker.as_mut().and_then(|seat| {
            if seat.next_due() > now && seat.state() == State::Active {
                return None;
            }
            let unread = to_us.waiting(seat.asked(), now);
            seat.poll(now, Facts { unread, ..Facts::default() })
        });
        // One thread: whatever wakes it, what is due is done.
        if question.is_some() || now >= self.beat_due {
            self.write(now, question.is_some(), to_peer);
        }
    }

    fn write(&mut self, now: Stamp, challenge: bool, to_peer: &mut Path<Ours>) {
        let (Some(pace), Some(seat)) = (&mut self.pace, &mut self.asker) else { return };
        let promise = pace.next_promise(now, true);
        pace.wrote(now, promise, false);
        seat.wrote(now, promise);
        self.beat_due = pace.beat_due();
        self.beat_at = self.beat_due + lateness(&mut self.rng, self.late);
        to_peer.send(now, Ours { sent: now, challenge });
    }

    /// The loop slept from `from` to `now`. It knows that by the timer of its that was due first in that time.
    fn slept(&mut self, from: Stamp, now: Stamp) {
        for seat in &mut self.listeners {
            seat.catch_up(from);
        }
        let timers = self.seats().map(Seat::next_due).chain([self.beat_due, self.ticked + TICK]).min();
        let first = if self.crowd { from } else { timers.unwrap_or(Stamp::NEVER) };
        let due = first.max(from);
        let noticed = now.since(due) >= STALL;
        for seat in self.seats_mut() {
            seat.slept(due, now, noticed);
        }
        if noticed {
            self.laws.iter_mut().for_each(|law| law.slept(due, now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::detectors::{Rhythm, setups};
    use super::super::scenario::by_name;
    use super::*;

    fn counts(s: &Scenario) -> Counts {
        let setup = setups(&["promise-20"], Rhythm::Sidecar).remove(0);
        let length = Duration::from_secs(600);
        run(s, &setup, &Plan { seed: 5, length, fault: false, own: None, watch: None }).verdicts[0].counts
    }

    /// The same pauses of the service, told and not told: the shipped freeze makes the difference.
    #[test]
    fn a_maintenance_notice_keeps_a_stopped_service_from_failed() {
        let told = *by_name("gc-notice").unwrap();
        let untold = counts(&Scenario { notice: false, ..told });
        assert!(untold.failed_service > 8, "{untold:?}");
        let told = counts(&told);
        assert_eq!((told.failed, told.suspect), (0, 0), "{told:?}");
    }

    #[test]
    fn links_of_one_loop_see_the_same_naps() {
        let s = Scenario { own: by_name("observer-pauses").unwrap().own, ..*by_name("steady").unwrap() };
        let setup = setups(&["timeout-27ms"], Rhythm::Reference).remove(0);
        let naps = |seed, own| {
            let plan = Plan { seed, length: Duration::from_secs(60), fault: false, own, watch: None };
            let mut own = World::new(&s, &setup, &plan).us.own;
            let next = |at: &mut Stamp, _| {
                let nap = own.next(*at)?;
                *at = nap.1;
                Some(nap)
            };
            (0..20).scan(START, next).collect::<Vec<_>>()
        };
        assert_eq!(naps(1, Some(7)), naps(2, Some(7)));
        assert_ne!(naps(1, None), naps(2, None));
    }
}
