//! Pure: no IO, no clock. One judge of one run: the shipped [`LinkJudge`], what it said, and how often it was wrong.

use std::time::Duration;

use super::bare::Bare;
use super::detectors::Contestant;
use super::sender::{Frame, Ours};
use super::service::Said;
use crate::detector::{Facts, Kind, LinkJudge, Output};
use crate::link::beats::millis8;
use crate::link::receive::RTT_MAX;
use crate::stamp::Stamp;
use crate::upstream::service::ServiceSide;
use crate::verdict::State;

/// A judge says at most this much at one instant; more is a defect.
const OUTPUTS_MAX: usize = 64;

/// What was said while nothing was wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Verdicts FAILED.
    pub failed: u64,
    /// Verdicts SUSPECT.
    pub suspect: u64,
    /// FAILED because the peer seemed not to hear us.
    pub failed_unheard: u64,
    /// SUSPECT because the peer seemed not to hear us.
    pub suspect_unheard: u64,
    /// FAILED because the peer vouched so for its service.
    pub failed_service: u64,
    /// FAILED that healed as an outage: longer than what is learned, or explained by the peer.
    pub outages: u64,
    /// Silences beyond the law's limit, counted whatever the state was: the count of simulations without states.
    pub silences: u64,
    /// Questions sent.
    pub challenges: u64,
}

impl std::ops::Add for Counts {
    type Output = Counts;
    fn add(self, other: Counts) -> Counts {
        Counts {
            failed: self.failed + other.failed,
            suspect: self.suspect + other.suspect,
            failed_unheard: self.failed_unheard + other.failed_unheard,
            suspect_unheard: self.suspect_unheard + other.suspect_unheard,
            failed_service: self.failed_service + other.failed_service,
            outages: self.outages + other.outages,
            silences: self.silences + other.silences,
            challenges: self.challenges + other.challenges,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Seat {
    /// Who judges.
    pub who: Contestant,
    /// What was said before the fault.
    pub counts: Counts,
    judge: LinkJudge,
    /// The bare law, to count silences by; not for those that ask, whose arrivals depend on their verdicts.
    law: Option<Bare>,
    /// The other half of an endpoint's health. Only for those that ask: they alone read what beats say.
    service: ServiceSide,
    /// What the beats said last, and when.
    vouched: Option<(Stamp, Said)>,
    /// Counting ends at the fault.
    fault: Stamp,
    polled: Stamp,
    suspected: Option<Stamp>,
    failed: Option<Stamp>,
    /// When the open question was sent; ZERO: none.
    asked: Stamp,
    /// When the loop last noticed that it had slept.
    stalled: Stamp,
}

impl Seat {
    /// A judge that has just heard the peer. `rtt`: what the handshake took.
    pub fn new(who: Contestant, start: Stamp, rtt: Duration, fault: Stamp) -> Seat {
        let mut judge = LinkJudge::new(&who.params, start);
        judge.rtt_sample_at(start, rtt);
        let law = (who.params.kind != Kind::Promise).then(|| Bare::new(who, start, false, fault));
        Seat {
            who,
            counts: Counts::default(),
            judge,
            law,
            service: ServiceSide::new(),
            vouched: None,
            fault,
            polled: start,
            suspected: None,
            failed: None,
            asked: Stamp::ZERO,
            stalled: Stamp::ZERO,
        }
    }

    /// State by now.
    pub fn state(&self) -> State {
        self.judge.state()
    }

    /// Score at `now`.
    pub fn score(&self, now: Stamp) -> f64 {
        self.judge.score(now)
    }

    /// When it has something to do next.
    pub fn next_due(&self) -> Stamp {
        self.judge.next_due().0
    }

    /// When the question that is still open was sent.
    pub fn asked(&self) -> Stamp {
        self.asked
    }

    /// Does what is due before `until`, each at its time. For those whose questions nobody hears.
    pub fn catch_up(&mut self, until: Stamp) {
        while self.next_due() < until {
            let at = self.next_due().max(self.polled);
            self.poll(at, Facts::default());
        }
    }

    /// The observer's own loop slept from `from` to `to`, and may have noticed. Nothing is judged before `to`.
    pub fn slept(&mut self, from: Stamp, to: Stamp, noticed: bool) {
        self.polled = to;
        if !noticed {
            return;
        }
        self.stalled = to;
        self.judge.own_stall(from, to);
        if let Some(law) = &mut self.law {
            law.slept(from, to);
        }
    }

    /// A frame was read: as the link does it, in the same order.
    pub fn hear(&mut self, now: Stamp, frame: &Frame) {
        if let Some(law) = &mut self.law {
            law.hear(now, frame);
            self.counts.silences = law.silences.failed;
        }
        self.judge.heard(now);
        if let Some(sent) = frame.answers
            && sent == self.asked
        {
            self.rtt_sample(sent, now.since(sent));
            self.judge.challenge_answered(now);
            self.asked = Stamp::ZERO;
        }
        // Who asks nobody measures nothing and is heard by nobody.
        let echo = frame.echo.filter(|_| self.law.is_none());
        if let Some(sent) = echo {
            self.rtt_sample(sent, now.since(sent).saturating_sub(frame.heard_age));
        }
        if frame.stalled {
            self.judge.peer_stalled(now);
        }
        if echo.is_some() {
            self.judge.peer_view(now, frame.heard_age);
        }
        // Whole ms, as a beat tells it; who asks nobody reads no beats.
        if self.law.is_none() {
            self.judge.set_noise(now, Duration::from_millis(u64::from(millis8(frame.late))));
        }
        if let Some(promise) = frame.promise {
            self.judge.promised(now, promise);
        }
        if self.law.is_none() {
            self.hear_of_service(now, frame.said);
        }
    }

    /// A round trip that began at `from`. One that we slept in says how long we slept.
    fn rtt_sample(&mut self, from: Stamp, d: Duration) {
        if self.stalled <= from {
            self.judge.rtt_sample(d.min(RTT_MAX));
        }
    }

    /// What a batch says of the service, as an outbound link tells it to the endpoint's owner: news, and everything while
    /// the service is not ACTIVE.
    fn hear_of_service(&mut self, now: Stamp, said: Said) {
        let was = self.service.state();
        self.service.settle(now);
        if let Some(pause) = said.notice {
            self.service.maintenance(now, pause);
        }
        let before = self.vouched.replace((now, said));
        let news = before.is_none_or(|(_, b)| (b.vouch, b.frozen) != (said.vouch, said.frozen));
        if let Some((at, b)) = before.filter(|_| news) {
            self.service.vouch(at, b.vouch, b.frozen, false);
        }
        if news || self.service.state() != State::Active {
            self.service.vouch(now, said.vouch, said.frozen, false);
        }
        let is = self.service.state();
        let counted = u64::from(is != was && now < self.fault);
        self.counts.suspect += counted * u64::from(is == State::Suspect);
        self.counts.failed += counted * u64::from(is == State::Failed);
        self.counts.failed_service += counted * u64::from(is == State::Failed);
    }

    /// After an arrival: a judge in doubt may see life at once. For those whose questions nobody hears.
    pub fn settle(&mut self, now: Stamp) {
        if self.state() != State::Active {
            self.poll(now, Facts::default());
        }
    }

    /// A frame of ours left with that promise.
    pub fn wrote(&mut self, now: Stamp, promise: Duration) {
        self.judge.we_promised(now, promise);
    }

    /// Judges at `now` until there is nothing to say. Gives the questions to send.
    pub fn poll(&mut self, now: Stamp, facts: Facts) -> Option<Ours> {
        self.polled = now;
        let mut question = None;
        for _ in 0..OUTPUTS_MAX {
            let Some(output) = self.judge.poll(now, &mut || facts) else { return question };
            let counted = u64::from(now < self.fault);
            match output {
                Output::Challenge => {
                    self.counts.challenges += counted;
                    self.judge_asks(now);
                    question = Some(Ours { sent: now, challenge: true });
                }
                Output::Suspect(evidence) => {
                    self.counts.suspect += counted;
                    self.counts.suspect_unheard += u64::from(evidence.one_way) * counted;
                    self.suspected = Some(now);
                }
                Output::Failed(evidence) | Output::LinkOnly(evidence) => {
                    self.counts.failed += counted;
                    self.counts.failed_unheard += u64::from(evidence.one_way) * counted;
                    self.failed = Some(now);
                }
                Output::Active(evidence) => {
                    self.counts.outages += u64::from(evidence.outage) * counted;
                    (self.suspected, self.failed) = (None, None);
                }
                Output::Held(_) => {}
            }
        }
        debug_assert!(false, "a judge that never rests: {self:?}");
        question
    }

    fn judge_asks(&mut self, now: Stamp) {
        if self.who.params.kind == Kind::Promise {
            self.judge.challenge_sent(now);
            self.asked = now;
        }
    }

    /// From the fault to SUSPECT and to FAILED, if that is the state that stayed. A judge that was there already took no
    /// time.
    pub fn detected(&self) -> (Option<Duration>, Option<Duration>) {
        let after = |t: Stamp| t.since(self.fault);
        let failed = self.failed.filter(|_| self.state() == State::Failed).map(after);
        (self.suspected.map(after).or(failed), failed)
    }
}
