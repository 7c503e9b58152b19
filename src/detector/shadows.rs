//! Pure: no IO, no clock. Laws that judge beside the one that counts: the same arrivals, the same excuses, no power
//! (H14).
//!
//! A shadow asks nobody and has no gates: it says what its law alone would have said. Its verdicts change at
//! [`Shadows::poll`], like those of the judge, so that what a socket still held is heard before silence is believed.

use std::time::Duration;

use super::promise::reached;
use super::{Detector, FRAMES_TO_TRUST, HEALED_FROM, LONG_STALL, Params, SUSPECT_BELOW};
use crate::stamp::Stamp;
use crate::verdict::State;

/// A shadow changed its mind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shift {
    /// Name of the shadow.
    pub detector: &'static str,
    /// What it said before.
    pub from: State,
    /// What it says now.
    pub to: State,
    /// Since when by its law: the end of its patience, or the arrival that healed.
    pub at: Stamp,
}

#[derive(Clone, Debug)]
struct Shadow {
    name: &'static str,
    law: Box<dyn Detector>,
    state: State,
    /// Credits that SUSPECT needs to end.
    trusted_from: u64,
    /// The last silence taught the law something.
    taught: bool,
}

/// Several laws over the arrivals of one link.
#[derive(Clone, Debug)]
pub struct Shadows {
    all: Box<[Shadow]>,
    /// What changed since the last poll; at most a fall to FAILED and a return for each shadow.
    shifts: Vec<Shift>,
}

impl Shadows {
    /// Shadows of a link that has just been heard.
    pub fn new(laws: &[(&'static str, Params)], now: Stamp) -> Shadows {
        let one = |(name, params): &(&'static str, Params)| Shadow {
            name,
            law: params.build(now),
            state: State::Active,
            trusted_from: 0,
            taught: false,
        };
        Shadows { all: laws.iter().map(one).collect(), shifts: Vec::new() }
    }

    /// As [`Detector::heard`], for all of them.
    pub fn heard(&mut self, at: Stamp, promise: Option<Duration>) {
        for shadow in &mut self.all {
            shadow.heard(at, promise);
            if shadow.healed(at) {
                self.shifts.push(shadow.shift(State::Active, at));
            }
        }
    }

    /// As [`Detector::hold`]: backpressure arrived at `at` and holds until `until`.
    pub fn hold(&mut self, at: Stamp, until: Stamp) {
        self.all.iter_mut().for_each(|s| s.law.hold(at, until));
    }

    /// As [`Detector::set_rtt`].
    pub fn set_rtt(&mut self, rtt: Duration) {
        self.all.iter_mut().for_each(|s| s.law.set_rtt(rtt));
    }

    /// As [`Detector::inherit`].
    pub fn inherit(&mut self, now: Stamp, peak: Duration) {
        self.all.iter_mut().for_each(|s| s.law.inherit(now, peak));
    }

    /// As [`Detector::set_noise`].
    pub fn set_noise(&mut self, noise: Duration) {
        self.all.iter_mut().for_each(|s| s.law.set_noise(noise));
    }

    /// As [`Detector::answered`].
    pub fn answered(&mut self) {
        self.all.iter_mut().for_each(|s| s.law.answered());
    }

    /// Our own loop slept from `from` to `to`, as [`super::LinkJudge::own_stall`].
    pub fn own_stall(&mut self, from: Stamp, to: Stamp) {
        if to <= from {
            return;
        }
        for shadow in &mut self.all {
            if to.since(from) > LONG_STALL {
                shadow.law.forgive(to);
            } else {
                shadow.law.excuse(from, to);
            }
        }
    }

    /// The peer explained the silence that ended last.
    pub fn unlearn(&mut self) {
        for shadow in self.all.iter_mut().filter(|s| s.taught) {
            shadow.law.unlearn();
            shadow.taught = false;
        }
    }

    /// Judges at `now`, with the same `now` as [`super::LinkJudge::poll`], and gives what changed since the last call.
    pub fn poll(&mut self, now: Stamp) -> impl Iterator<Item = Shift> {
        self.judge(now);
        self.shifts.drain(..)
    }

    /// Judges at `now`; what changed is kept for [`Shadows::take`].
    pub(super) fn judge(&mut self, now: Stamp) {
        for shadow in &mut self.all {
            while shadow.state != State::Failed && now >= shadow.due() {
                self.shifts.push(shadow.fall());
            }
        }
    }

    /// The oldest change that was not told yet.
    pub(super) fn take(&mut self) -> Option<Shift> {
        (!self.shifts.is_empty()).then(|| self.shifts.remove(0))
    }

    /// When [`Shadows::poll`] has something to say next: later than the last polled instant after a poll.
    pub fn next_due(&self) -> Stamp {
        if !self.shifts.is_empty() {
            return Stamp::ZERO;
        }
        self.all.iter().map(Shadow::due).min().unwrap_or(Stamp::NEVER)
    }
}

impl Shadow {
    fn due(&self) -> Stamp {
        match self.state {
            State::Active => self.law.suspect_at(),
            State::Suspect => self.law.fail_at(),
            State::Failed => Stamp::NEVER,
        }
    }

    fn fall(&mut self) -> Shift {
        self.trusted_from = self.law.credits() + FRAMES_TO_TRUST;
        let to = if self.state == State::Active { State::Suspect } else { State::Failed };
        self.shift(to, self.due())
    }

    fn shift(&mut self, to: State, at: Stamp) -> Shift {
        let from = std::mem::replace(&mut self.state, to);
        Shift { detector: self.name, from, to, at }
    }

    fn heard(&mut self, at: Stamp, promise: Option<Duration>) {
        if at <= self.law.deadline() {
            return self.law.heard(at, promise);
        }
        // A silence that ends here: what was heard before it is no trust regained.
        if self.state == State::Suspect && self.law.score(at) < SUSPECT_BELOW {
            self.trusted_from = self.law.credits() + FRAMES_TO_TRUST;
        }
        let peak = self.law.peak(at);
        self.law.heard(at, promise);
        self.taught = self.law.peak(at) > peak;
    }

    fn healed(&self, at: Stamp) -> bool {
        match self.state {
            State::Active => false,
            State::Suspect => {
                reached(self.law.score(at), SUSPECT_BELOW) && self.law.credits() >= self.trusted_from
            }
            State::Failed => reached(self.law.score(at), HEALED_FROM),
        }
    }
}
