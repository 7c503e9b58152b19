//! Pure: no IO, no clock. The judge of one link: hearing, being heard, and the gates before FAILED.
//!
//! ```text
//!             broken promise                     silence outlasts the law, gates open
//!   ACTIVE ------------------> SUSPECT -------------------------------------------> FAILED
//!     ^  ^   >= 0.5 and 2 frames  |                                                    |
//!     |  +------------------------+                                                    |
//!     +------------------------------------- >= 0.8 -----------------------------------+
//! ```

use std::time::Duration;

use crate::detector::ask::Ask;
use crate::detector::being_heard::{BeingHeard, VIEW_JITTER};
use crate::detector::output::{Facts, Gate, Output};
use crate::detector::rtt::MinRtt;
use crate::detector::shadows::{Shadows, Shift};
use crate::detector::{Detector, FAILED_BELOW, HEALED_FROM, LONG_STALL, Params, SUSPECT_BELOW};
use crate::stamp::Stamp;
use crate::verdict::State;

mod input;
mod rules;

pub use input::{End, Input, Said, Tap};

/// Unread data, and a challenge that could not be written, hold FAILED back this long (plus two round trips).
const HOLD: Duration = Duration::from_millis(250);
/// Facts are looked up again this often while a gate holds.
const RECHECK: Duration = Duration::from_millis(5);
/// More than this is no noise but an outage.
const NOISE_MAX: Duration = Duration::from_millis(250);
/// A beat that explains a silence comes at most this long after the silence ended.
const EXPLAIN_WITHIN: Duration = Duration::from_millis(100);
/// So many explained stalls within `HABIT_WITHIN` are the habit of a throttled peer, and habits are learned.
const HABIT: usize = 8;
const HABIT_WITHIN: Duration = Duration::from_secs(5);
/// A peer that tells of stalls in beat after beat, and never that it heard us anew, is excused for this long.
const EXCUSED_FOR: Duration = Duration::from_secs(1);

/// A silence that ended.
#[derive(Clone, Copy, Debug)]
struct Ended {
    at: Stamp,
    late: Duration,
    learned: bool,
}

/// FAILED by silence, until it heals.
#[derive(Clone, Copy, Debug, Default)]
struct Failure {
    /// Longest lateness that ended since.
    late: Duration,
    explained: bool,
}

/// The peer tells of stalls of its own and has not heard us anew.
#[derive(Clone, Copy, Debug)]
struct Excuse {
    since: Stamp,
    /// When it told so last.
    told: Stamp,
    /// When it had heard us last, at `since`.
    heard_us: Stamp,
}

impl Excuse {
    /// Stalls that it tells of further apart than this have nothing to do with each other: what it says in between is judged.
    const APART: Duration = Duration::from_millis(500);

    /// The peer tells of a stall at `at`, `known` is the excuse so far.
    fn told(known: Option<Excuse>, at: Stamp, heard_us: Stamp) -> Excuse {
        let known = known.filter(|e| at.since(e.told) <= Excuse::APART);
        Excuse { told: at, ..known.unwrap_or(Excuse { since: at, told: at, heard_us }) }
    }
}

/// The judge of one link. Feed it what is heard and written, call [`LinkJudge::poll`] until it is `None`, sleep until
/// [`LinkJudge::next_due`].
#[derive(Clone, Debug)]
pub struct LinkJudge {
    hearing: Box<dyn Detector>,
    heard: BeingHeard,
    /// They hear what `hearing` hears.
    shadows: Option<Box<Shadows>>,
    learn_max: Duration,
    rtt: MinRtt,
    ask: Ask,
    state: State,
    /// Credits of both halves when they were last in doubt.
    doubted_credits: (u64, u64),
    held: u8,
    pending_hold: Option<Gate>,
    pending_cut: bool,
    unread_until: Option<Stamp>,
    recheck: Stamp,
    ended: Option<Ended>,
    lateness: Option<Duration>,
    failure: Option<Failure>,
    stalls: [Stamp; HABIT],
    stalls_next: usize,
    /// When the peer last told of a stall of its own: what it says of us in that beat is stale.
    stall_told: Stamp,
    excuse: Option<Excuse>,
    mistakes: u64,
    outages_healed: u64,
    /// Lateness of the peer's loop, as it was told last.
    noise: Duration,
    /// When the peer had heard us last, as far as it told.
    heard_us: Stamp,
    tap: input::TapSlot,
}

impl LinkJudge {
    /// Judge of a link that has just been heard (its WELCOME or HELLO).
    pub fn new(params: &Params, now: Stamp) -> Self {
        LinkJudge::with_shadows(params, &[], now)
    }

    /// The same with laws that judge beside it and change nothing: see [`LinkJudge::take_shift`].
    pub fn with_shadows(params: &Params, shadows: &[(&'static str, Params)], now: Stamp) -> Self {
        LinkJudge {
            hearing: params.build(now),
            heard: BeingHeard::new(params, now),
            shadows: (!shadows.is_empty()).then(|| Box::new(Shadows::new(shadows, now))),
            learn_max: params.learn_max,
            rtt: MinRtt::new(),
            ask: Ask::new(),
            state: State::Active,
            doubted_credits: (0, 0),
            held: 0,
            pending_hold: None,
            pending_cut: false,
            unread_until: None,
            recheck: Stamp::ZERO,
            ended: None,
            lateness: None,
            failure: None,
            stalls: [Stamp::ZERO; HABIT],
            stalls_next: 0,
            stall_told: Stamp::ZERO,
            excuse: None,
            mistakes: 0,
            outages_healed: 0,
            noise: Duration::ZERO,
            heard_us: Stamp::ZERO,
            tap: input::TapSlot::default(),
        }
    }

    // === inputs ===

    /// Any byte of this link was read.
    pub fn heard(&mut self, at: Stamp) {
        self.tap.note(Input::Heard { at });
        self.arrived(at, None);
    }

    /// A beat, an answer or a maintenance frame was read, with its promise.
    pub fn promised(&mut self, at: Stamp, promise: Duration) {
        self.tap.note(Input::Promised { at, promise });
        self.arrived(at, Some(promise));
    }

    /// The peer's beat says that it last heard us `heard_age` before it sent this beat.
    pub fn peer_view(&mut self, at: Stamp, heard_age: Duration) {
        self.tap.note(Input::PeerView { at, age: heard_age });
        self.heard_us = self.heard_us.max(at - heard_age);
        if self.excuse.is_some_and(|e| self.heard_us > e.heard_us + VIEW_JITTER) {
            self.excuse = None;
        }
        if at == self.stall_told {
            return;
        }
        if let Some(late) = self.heard.seen(at, heard_age) {
            self.silence_ended(at, late, false);
        }
        self.check_invariants();
    }

    /// We wrote a frame with that promise: the peer should hear us again within it.
    pub fn we_promised(&mut self, at: Stamp, promise: Duration) {
        self.tap.note(Input::Wrote { at, promise });
        self.heard.wrote(at, promise);
    }

    /// A round trip was measured at `at`: challenge to answer, or the echo in a beat.
    pub fn rtt_sample_at(&mut self, at: Stamp, rtt: Duration) {
        self.tap.note(Input::Rtt { at, rtt });
        let least = self.rtt.sample(at, rtt);
        self.hearing.set_rtt(least);
        self.heard.set_rtt(least);
        if let Some(shadows) = &mut self.shadows {
            shadows.set_rtt(least);
        }
    }

    /// As [`LinkJudge::rtt_sample_at`], measured at the latest arrival.
    pub fn rtt_sample(&mut self, rtt: Duration) {
        self.rtt_sample_at(self.hearing.last(), rtt);
    }

    /// A challenge of ours was written to the socket.
    pub fn challenge_sent(&mut self, now: Stamp) {
        self.tap.note(Input::ChallengeSent { at: now });
        self.ask.sent(now);
    }

    /// The answer to our challenge was read: both directions live.
    pub fn challenge_answered(&mut self, at: Stamp) {
        self.tap.note(Input::Answered { at });
        self.arrived(at, None);
        if self.ask.in_round() {
            self.hearing.answered();
            if let Some(shadows) = &mut self.shadows {
                shadows.answered();
            }
        }
        if let Some(late) = self.heard.answered(at) {
            self.silence_ended(at, late, false);
        }
    }

    /// A backpressure frame was read; `active` is false in the last one.
    pub fn backpressure(&mut self, at: Stamp, active: bool, promise: Duration) {
        self.tap.note(Input::Backpressure { at, active, promise });
        if active {
            self.arrived(at, None);
            self.hearing.hold(at, at + promise);
            if let Some(shadows) = &mut self.shadows {
                shadows.hold(at, at + promise);
            }
        } else {
            self.arrived(at, Some(promise));
        }
    }

    /// The peer's beat says that its own loop had stalled: explains the silence that just ended, here and there.
    pub fn peer_stalled(&mut self, at: Stamp) {
        self.tap.note(Input::PeerStalled { at });
        let excuse = *self.excuse.insert(Excuse::told(self.excuse, at, self.heard_us));
        if at.since(excuse.since) <= EXCUSED_FOR {
            self.heard.forgive();
            self.stall_told = at;
        }
        let Some(ended) = self.ended.filter(|e| at.since(e.at) <= EXPLAIN_WITHIN) else { return };
        if let Some(failure) = &mut self.failure {
            failure.explained = true;
        }
        let oldest = self.stalls[self.stalls_next];
        self.stalls[self.stalls_next] = at;
        self.stalls_next = (self.stalls_next + 1) % HABIT;
        let habit = oldest != Stamp::ZERO && at.since(oldest) <= HABIT_WITHIN;
        if habit {
            return;
        }
        if ended.learned {
            self.hearing.unlearn();
            self.ended = Some(Ended { learned: false, ..ended });
        }
        if let Some(shadows) = &mut self.shadows {
            shadows.unlearn();
        }
    }

    /// Another link to the same node has learned this lateness.
    pub fn inherit(&mut self, now: Stamp, peak: Duration) {
        self.tap.note(Input::Inherited { at: now, peak });
        self.hearing.inherit(now, peak);
        if let Some(shadows) = &mut self.shadows {
            shadows.inherit(now, peak);
        }
    }

    /// The peer's loop was late by this much lately, by its own measure: FAILED waits for it. A peer that lies delays
    /// its own verdict by a quarter of a second at most. Our own lateness is not asked here: it is known when it
    /// happens, and excused then.
    pub fn set_noise(&mut self, now: Stamp, noise: Duration) {
        let noise = noise.min(NOISE_MAX);
        if noise == self.noise {
            return;
        }
        self.tap.note(Input::Noise { at: now, noise });
        self.noise = noise;
        self.hearing.set_noise(noise);
        self.heard.law_mut().set_noise(noise);
        if let Some(shadows) = &mut self.shadows {
            shadows.set_noise(noise);
        }
    }

    /// Our own loop slept from `from` to `to`: silence inside it is ours. Call it before feeding what was read after
    /// the wake-up.
    pub fn own_stall(&mut self, from: Stamp, to: Stamp) {
        self.tap.note(Input::OwnStall { from, to });
        if to <= from {
            return;
        }
        if self.state != State::Failed && self.fail_at() <= to && self.silent(to) {
            self.pending_hold = self.hold_once(Gate::OwnStall);
        }
        self.ask.excuse(from, to);
        if let Some(shadows) = &mut self.shadows {
            shadows.own_stall(from, to);
        }
        if self.state == State::Failed {
            // Our own sleep proves no life: only what is heard does.
        } else if to.since(from) > LONG_STALL {
            self.hearing.forgive(to);
            self.heard.forgive();
            self.ask.reset();
        } else {
            self.hearing.excuse(from, to);
            self.heard.law_mut().excuse(from, to);
        }
        self.check_invariants();
    }

    /// Asks the peer each 5 ms, at most 8 times: for a fresh link to an endpoint that is not ACTIVE, whose healing
    /// must not wait for idle beats.
    pub fn probe(&mut self, now: Stamp) {
        self.tap.note(Input::Probe { at: now });
        self.ask.start_round(now);
    }

    // === time ===

    /// When [`LinkJudge::poll`] has something to do next, and why. Later than the last polled instant once `poll`
    /// returned `None`.
    pub fn next_due(&self) -> (Stamp, &'static str) {
        if self.pending_hold.is_some() || self.pending_cut {
            return (Stamp::ZERO, "output");
        }
        let mut due = (self.challenge_due(), "challenge");
        let judged = match self.state {
            State::Active => (self.suspect_at(), "suspect"),
            State::Suspect => (self.verdict_at(), "failed"),
            State::Failed => (Stamp::NEVER, "idle"),
        };
        if judged.0 < due.0 {
            due = judged;
        }
        match &self.shadows {
            Some(shadows) if shadows.next_due() < due.0 => (shadows.next_due(), "shadow"),
            _ => due,
        }
    }

    /// Judges at `now`, the time taken before the last empty poll of the socket. Call until `None`. `facts` is asked
    /// only when FAILED is about to be declared.
    pub fn poll(&mut self, now: Stamp, facts: &mut dyn FnMut() -> Facts) -> Option<Output> {
        let mut asked = None;
        let output = self.judge(now, &mut || *asked.insert(facts()));
        let said = output.as_ref().map(Said::from);
        self.tap.note(Input::Polled { at: now, facts: asked, said });
        output
    }

    fn judge(&mut self, now: Stamp, facts: &mut dyn FnMut() -> Facts) -> Option<Output> {
        if let Some(shadows) = &mut self.shadows {
            shadows.judge(now);
        }
        if let Some(gate) = self.pending_hold.take() {
            return Some(Output::Held(gate));
        }
        if self.pending_cut {
            return Some(self.link_only(now));
        }
        if self.recovered(now) {
            return Some(self.heal(now));
        }
        if self.state != State::Failed
            && self.hearing.held(now)
            && let Some(gate) = self.hold_once(Gate::Backpressure)
        {
            return Some(Output::Held(gate));
        }
        if now >= self.challenge_due() {
            self.request_challenge(now);
            return Some(Output::Challenge);
        }
        let output = match self.state {
            State::Active => self.poll_active(now),
            State::Suspect => self.poll_suspect(now, facts),
            State::Failed => None,
        };
        self.check_invariants();
        output
    }

    /// What a shadow has changed its mind about. Call it after [`LinkJudge::poll`], until `None`: what is not taken
    /// keeps [`LinkJudge::next_due`] in the past.
    pub fn take_shift(&mut self) -> Option<Shift> {
        self.shadows.as_mut()?.take()
    }

    // === reading ===

    /// Score at `now`: the lower of both halves, within the band of the state.
    pub fn score(&self, now: Stamp) -> f64 {
        let score = self.hearing.score(now).min(self.heard.law().score(now));
        match self.state {
            State::Active => score.max(SUSPECT_BELOW),
            State::Suspect => score.max(FAILED_BELOW),
            State::Failed => score.min(HEALED_FROM),
        }
    }

    /// State of the link.
    pub fn state(&self) -> State {
        self.state
    }

    /// Silence past the deadline at `now`.
    pub fn silence(&self, now: Stamp) -> Duration {
        now.since(self.doubt_from())
    }

    /// When the peer had heard us last, by its own beats; ZERO if it has not said.
    pub fn heard_us(&self) -> Stamp {
        self.heard_us
    }

    /// Promise of the peer in force.
    pub fn promise(&self) -> Duration {
        self.hearing.promise()
    }

    /// Least round trip time of the last 10 s.
    pub fn rtt(&self) -> Option<Duration> {
        self.rtt.get()
    }

    /// Lateness remembered, of the direction that we hear.
    pub fn peak(&self, now: Stamp) -> Duration {
        self.hearing.peak(now)
    }

    /// Lateness of the peer's loop in force, as it told last: FAILED waits for it.
    pub fn noise(&self) -> Duration {
        self.noise
    }

    /// Until then silence means nothing.
    pub fn deadline(&self) -> Stamp {
        self.hearing.deadline()
    }

    /// Latest arrival.
    pub fn last_heard(&self) -> Stamp {
        self.hearing.last()
    }

    /// FAILED by silence that healed within `learn_max`, unexplained.
    pub fn mistakes(&self) -> u64 {
        self.mistakes
    }

    /// FAILED by silence that was right and is over.
    pub fn outages_healed(&self) -> u64 {
        self.outages_healed
    }

    /// The lateness that ended last, once, for the histogram.
    pub fn take_lateness(&mut self) -> Option<Duration> {
        self.lateness.take()
    }
}

#[cfg(test)]
mod kinds_tests;
#[cfg(test)]
mod tests;
