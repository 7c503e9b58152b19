//! Pure: no IO, no clock. A judge of its own on the recorded inputs of one link.
//!
//! It is told what the recorded judge was told, and asked when it wants to be: at its own deadlines, to the nanosecond. What
//! the recorded judge asked, and when it was polled, is left out. Where this judge asks the peer at a time for which the
//! peer kept its recorded promise, the answer comes after one round trip; in a silence none comes.

use std::collections::VecDeque;
use std::time::Duration;

use crate::detector::{Facts, Input, LinkJudge, Output, Params, Said};
use crate::stamp::Stamp;
use crate::verdict::State;

/// Outputs at one instant; more is a defect of a judge and no reason to hang.
const OUTPUTS_MAX: usize = 64;
/// Lateness of a frame by timers and scheduling that breaks no promise.
const GRACE: Duration = Duration::from_millis(1);
/// Inputs between two arrivals that are kept for a better moment.
const PENDING_MAX: usize = 4096;
/// A judge that wants to be asked at once, for ever, is asked this often.
const STEP: Duration = Duration::from_millis(1);
/// A round trip is taken for this before one was measured.
const RTT: Duration = Duration::from_millis(1);

/// See the module.
#[derive(Clone, Debug)]
pub struct Player {
    judge: LinkJudge,
    now: Stamp,
    /// Latest recorded arrival, and what was promised last.
    heard: Stamp,
    promise: Duration,
    /// Inputs since that arrival. Whether the peer kept its promise meanwhile is known at the next one.
    pending: Vec<Input>,
    /// Answers under way.
    answers: VecDeque<Stamp>,
}

impl Player {
    /// Beside a link whose records begin at `at`.
    pub fn new(params: &Params, at: Stamp) -> Player {
        Player {
            judge: LinkJudge::new(params, at),
            now: at,
            heard: at,
            promise: params.first_promise,
            pending: Vec::new(),
            answers: VecDeque::new(),
        }
    }

    /// State of its judge.
    pub fn state(&self) -> State {
        self.judge.state()
    }

    /// Its score at `at`, the moment of the last input.
    pub fn score(&self, at: Stamp) -> f64 {
        self.judge.score(at)
    }

    /// If nothing came any more after `at`: its score at each `step` until `length` later, as ms from `at` and score. The
    /// player itself is as before.
    pub fn decay(&self, at: Stamp, length: Duration, step: Duration) -> Vec<(f64, f64)> {
        let mut copy = self.clone();
        copy.flush(false, &mut |_, _| {});
        copy.answers.clear();
        let (mut points, end) = (Vec::new(), at + length);
        let mut now = at;
        while now <= end {
            copy.pass(now, false, &mut |_, _| {});
            points.push((now.millis_since(at), copy.judge.score(now)));
            now = now + step;
        }
        points
    }

    /// The next recorded input; what the judge says up to the arrival before it goes to `say`.
    pub fn take(&mut self, input: &Input, say: &mut dyn FnMut(Stamp, Said)) {
        match *input {
            Input::Polled { .. }
            | Input::ChallengeSent { .. }
            | Input::Probe { .. }
            | Input::Maintenance { .. }
            | Input::Ended { .. } => {}
            Input::Heard { at } => {
                let kept = at <= self.heard + self.promise + GRACE;
                self.flush(kept, say);
                self.pass(at, kept, say);
                self.heard = self.heard.max(at);
                self.judge.take(input);
            }
            _ => {
                self.pending.push(*input);
                if self.pending.len() >= PENDING_MAX {
                    self.flush(false, say);
                }
            }
        }
    }

    /// There are no more inputs; the peer's silence from here on proves nothing.
    pub fn finish(&mut self, at: Stamp, say: &mut dyn FnMut(Stamp, Said)) {
        self.flush(false, say);
        self.pass(at, false, say);
    }

    fn flush(&mut self, kept: bool, say: &mut dyn FnMut(Stamp, Said)) {
        let mut pending = std::mem::take(&mut self.pending);
        for input in &pending {
            match *input {
                Input::OwnStall { from, to } => {
                    self.pass(from, kept, say);
                    self.judge.own_stall(from, to);
                    self.now = self.now.max(to);
                }
                _ => {
                    self.pass(input.at(), kept, say);
                    self.judge.take(input);
                }
            }
            if let Input::Promised { promise, .. } | Input::Backpressure { promise, .. } = *input {
                self.promise = promise;
            }
        }
        pending.clear();
        self.pending = pending;
    }

    /// Lets time pass to `to` without arrivals. `kept`: the peer was alive all the while, by its own promise.
    fn pass(&mut self, to: Stamp, kept: bool, say: &mut dyn FnMut(Stamp, Said)) {
        if to <= self.now {
            return;
        }
        // What arrived at this instant is all told: a judge in doubt is asked at once, as on a live link.
        if self.judge.state() != State::Active {
            self.poll(kept, say);
        }
        loop {
            let answer = self.answers.front().copied().unwrap_or(Stamp::NEVER);
            let next = self.judge.next_due().0.min(answer).max(self.now);
            if next >= to {
                break;
            }
            self.now = next;
            if answer <= next {
                self.answers.pop_front();
                self.judge.heard(next);
                self.judge.challenge_answered(next);
            }
            self.poll(kept, say);
            if self.judge.next_due().0 <= next && self.answers.front().is_none_or(|a| *a <= next) {
                break;
            }
        }
        self.now = to;
    }

    fn poll(&mut self, kept: bool, say: &mut dyn FnMut(Stamp, Said)) {
        for _ in 0..OUTPUTS_MAX {
            let Some(output) = self.judge.poll(self.now, &mut Facts::default) else { return };
            if matches!(output, Output::Challenge) {
                self.judge.challenge_sent(self.now);
                if kept {
                    self.answers.push_back(self.now + self.judge.rtt().unwrap_or(RTT));
                }
            }
            say(self.now, Said::from(&output));
        }
    }

    /// If nothing came any more after `at`: when SUSPECT and when FAILED, within `limit`. The player itself is as before.
    pub fn cut(&self, at: Stamp, limit: Duration) -> Silence {
        let mut copy = self.clone();
        copy.flush(false, &mut |_, _| {});
        copy.pass(at, false, &mut |_, _| {});
        copy.answers.clear();
        let begin = copy.state();
        let mut silence = Silence {
            suspect: (begin != State::Active).then_some(at),
            failed: (begin == State::Failed).then_some(at),
        };
        let end = at + limit;
        while silence.failed.is_none() && copy.now < end {
            let due = copy.judge.next_due().0;
            let to = if due > copy.now { due } else { copy.now + STEP }.min(end) + Duration::from_nanos(1);
            copy.pass(to, false, &mut |when, said| match said {
                Said::Suspect => silence.suspect = silence.suspect.or(Some(when)),
                Said::Failed | Said::LinkOnly => silence.failed = silence.failed.or(Some(when)),
                Said::Challenge | Said::Active { .. } | Said::Held(_) => {}
            });
        }
        silence
    }
}

/// What a silence brings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Silence {
    /// When it was doubted.
    pub suspect: Option<Stamp>,
    /// When it was FAILED.
    pub failed: Option<Stamp>,
}
