//! Pure: no IO, no clock. How the judge of a link reaches a verdict.

use std::time::Duration;

use super::{Ended, Failure, HOLD, LinkJudge, RECHECK};
use crate::detector::ask::patience;
use crate::detector::output::{Evidence, Facts, Gate, Output};
use crate::detector::promise::reached;
use crate::detector::{Detector, FRAMES_TO_TRUST, HEALED_FROM, SUSPECT_BELOW};
use crate::stamp::Stamp;
use crate::verdict::State;

impl LinkJudge {
    fn rtt_or_zero(&self) -> Duration {
        self.rtt.get().unwrap_or_default()
    }

    pub(super) fn doubt_from(&self) -> Stamp {
        self.hearing.deadline().min(self.heard.law().deadline())
    }

    pub(super) fn silent(&self, now: Stamp) -> bool {
        now > self.doubt_from()
    }

    fn one_way(&self, now: Stamp) -> bool {
        self.heard.missed() && self.heard.law().score(now) < self.hearing.score(now)
    }

    pub(super) fn suspect_at(&self) -> Stamp {
        self.hearing.suspect_at().min(self.heard.law().suspect_at())
    }

    pub(super) fn fail_at(&self) -> Stamp {
        self.hearing.fail_at().min(self.heard.fail_at())
    }

    /// The instant to look at FAILED again: the law's, or later while a gate holds.
    pub(super) fn verdict_at(&self) -> Stamp {
        let mut at = self.fail_at().max(self.recheck);
        if self.asks() {
            at = at.max(self.ask.answered_by(self.rtt_or_zero(), HOLD));
        }
        at
    }

    pub(super) fn challenge_due(&self) -> Stamp {
        let round = self.ask.round_due(self.hearing.credited_at());
        if !self.asks() {
            return round;
        }
        self.silence_due().min(round)
    }

    /// The published laws ask nobody; being heard is always asked for, a beat alone may be stale.
    fn asks(&self) -> bool {
        self.hearing.challenges() || self.heard.missed()
    }

    fn silence_due(&self) -> Stamp {
        let heard = self.heard.law().deadline();
        let from = if self.hearing.challenges() { heard.min(self.hearing.deadline()) } else { heard };
        self.ask.silence_due(from).max(from)
    }

    pub(super) fn request_challenge(&mut self, now: Stamp) {
        if self.asks() && now >= self.silence_due() {
            self.ask.request(now, self.rtt_or_zero());
        } else {
            self.ask.request_in_round(now);
        }
    }

    pub(super) fn arrived(&mut self, at: Stamp, promise: Option<Duration>) {
        let late = at.since(self.hearing.deadline());
        let before = (!late.is_zero()).then(|| self.hearing.peak(at));
        self.hearing.heard(at, promise);
        if let Some(shadows) = &mut self.shadows {
            shadows.heard(at, promise);
        }
        if let Some(peak) = before {
            let learned = self.hearing.peak(at) > peak;
            self.silence_ended(at, late, learned);
        }
        self.check_invariants();
    }

    pub(super) fn silence_ended(&mut self, at: Stamp, late: Duration, learned: bool) {
        self.lateness = Some(late);
        match &mut self.ended {
            Some(ended) if ended.at == at => {
                ended.late = ended.late.max(late);
                ended.learned |= learned;
            }
            _ => self.ended = Some(Ended { at, late, learned }),
        }
        if let Some(failure) = &mut self.failure {
            failure.late = failure.late.max(late);
        }
        if !self.silent(at) {
            self.held = 0;
            self.unread_until = None;
            self.recheck = Stamp::ZERO;
            self.ask.reset();
        }
        if self.state != State::Active {
            self.ask.start_round(at);
        }
    }

    pub(super) fn hold_once(&mut self, gate: Gate) -> Option<Gate> {
        let bit = 1 << gate as u8;
        let first = self.held & bit == 0;
        self.held |= bit;
        first.then_some(gate)
    }

    /// Marks the halves that are falling, so that what they heard before does not count as trust regained.
    fn mark_doubt(&mut self, now: Stamp) {
        if now > self.hearing.deadline() && self.hearing.score(now) < SUSPECT_BELOW {
            self.doubted_credits.0 = self.hearing.credits() + FRAMES_TO_TRUST;
        }
        if now > self.heard.law().deadline() && self.heard.law().score(now) < SUSPECT_BELOW {
            self.doubted_credits.1 = self.heard.law().credits() + FRAMES_TO_TRUST;
        }
    }

    pub(super) fn poll_active(&mut self, now: Stamp) -> Option<Output> {
        if now < self.suspect_at() {
            return None;
        }
        self.state = State::Suspect;
        self.mark_doubt(now);
        Some(Output::Suspect(self.evidence(now)))
    }

    pub(super) fn poll_suspect(&mut self, now: Stamp, facts: &mut dyn FnMut() -> Facts) -> Option<Output> {
        self.mark_doubt(now);
        if now < self.fail_at() || now < self.recheck {
            return None;
        }
        if self.asks() && now < self.ask.answered_by(self.rtt_or_zero(), HOLD) {
            return self.hold_once(Gate::Challenge).map(Output::Held);
        }
        let facts = facts();
        let until = *self.unread_until.get_or_insert(if facts.unread {
            now + HOLD + self.rtt_or_zero().saturating_mul(2)
        } else {
            now
        });
        if facts.unread && now < until {
            self.recheck = (now + RECHECK).min(until);
            return self.hold_once(Gate::Unread).map(Output::Held);
        }
        // That others are heard says nothing of whether we are.
        let deaf = now >= self.hearing.fail_at();
        let lives = if deaf { facts.others_heard } else { facts.others_hear };
        if lives > self.doubt_from() {
            self.pending_cut = true;
            return match self.hold_once(Gate::OtherLink) {
                Some(gate) => Some(Output::Held(gate)),
                None => Some(self.link_only(now)),
            };
        }
        if self.others_may_answer(now, facts.others_asked) {
            self.recheck = now + RECHECK;
            return self.hold_once(Gate::OwnStall).map(Output::Held);
        }
        Some(Output::Failed(self.fail(now)))
    }

    /// A loop of ours does not run, or ran again this moment: what its links to the node hear is not known. What keeps it
    /// from running, a processor taken away, may keep the peer too where it is on the same machine.
    fn others_may_answer(&self, now: Stamp, asked: Stamp) -> bool {
        now < self.fail_at() + HOLD && asked != Stamp::ZERO && now < asked + patience(self.rtt_or_zero())
    }

    pub(super) fn link_only(&mut self, now: Stamp) -> Output {
        self.pending_cut = false;
        Output::LinkOnly(self.fail(now))
    }

    fn fail(&mut self, now: Stamp) -> Evidence {
        self.state = State::Failed;
        self.failure = Some(Failure::default());
        self.evidence(now)
    }

    pub(super) fn recovered(&self, now: Stamp) -> bool {
        if self.state == State::Active || self.silent(now) {
            return false;
        }
        let score = self.hearing.score(now).min(self.heard.law().score(now));
        match self.state {
            State::Suspect => {
                reached(score, SUSPECT_BELOW)
                    && self.hearing.credits() >= self.doubted_credits.0
                    && self.heard.law().credits() >= self.doubted_credits.1
            }
            State::Failed => reached(score, HEALED_FROM),
            State::Active => false,
        }
    }

    pub(super) fn heal(&mut self, now: Stamp) -> Output {
        self.state = State::Active;
        self.ask.end_round();
        let mut evidence = self.evidence(now);
        if let Some(ended) = self.ended {
            evidence.silence = ended.late;
            evidence.learned = ended.learned.then_some(ended.late);
        }
        if let Some(failure) = self.failure.take() {
            evidence.silence = failure.late;
            evidence.mistake = !failure.explained && failure.late <= self.learn_max;
            evidence.outage = !evidence.mistake;
            self.mistakes += u64::from(evidence.mistake);
            self.outages_healed += u64::from(evidence.outage);
        }
        self.check_invariants();
        Output::Active(evidence)
    }

    fn evidence(&self, now: Stamp) -> Evidence {
        Evidence {
            silence: self.silence(now),
            since_last: now.since(self.hearing.last()),
            promise: self.hearing.promise(),
            rtt: self.rtt.get(),
            peak: self.hearing.peak(now).max(self.heard.law().peak(now)),
            score: self.score(now),
            one_way: self.one_way(now),
            learned: None,
            mistake: false,
            outage: false,
        }
    }

    pub(super) fn check_invariants(&self) {
        debug_assert!(
            self.failure.is_none() || self.state == State::Failed,
            "failure outside FAILED: {self:?}"
        );
        debug_assert!(!self.pending_cut || self.state == State::Suspect, "cut outside SUSPECT: {self:?}");
        debug_assert!(self.suspect_at() <= self.fail_at(), "FAILED before SUSPECT: {self:?}");
    }
}
