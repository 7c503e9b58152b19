//! Pure: no IO, no clock. When to challenge the peer of one link (detection.md section 2, idea 2 and recovery).

use std::time::Duration;

use super::FRAME_SPACING;
use crate::stamp::Stamp;

/// Least time given to an answer.
const ANSWER_MIN: Duration = Duration::from_millis(5);
/// The second challenge of a silence comes after this or two round trips: before FAILED, because a beat and its
/// challenge may both be lost.
const SECOND_AFTER: Duration = Duration::from_millis(4);
/// The third.
const THIRD_AFTER: Duration = Duration::from_millis(10);
/// The fourth, and then doubling.
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Challenges of one round of recovery: 40 ms.
const ROUND: u8 = 8;

/// Time that a question deserves before its missing answer means something.
pub fn patience(rtt: Duration) -> Duration {
    ANSWER_MIN.max(rtt.saturating_mul(2))
}

/// The challenges of one link: one series per silence, one short round per recovery.
#[derive(Clone, Debug)]
pub struct Ask {
    asked: u32,
    requested: Option<Stamp>,
    sent: Option<Stamp>,
    again: Stamp,
    round_left: u8,
    round_next: Stamp,
    /// The latest question was one of a round, not of a silence.
    in_round: bool,
}

impl Ask {
    /// Nothing asked.
    pub fn new() -> Self {
        Ask {
            asked: 0,
            requested: None,
            sent: None,
            again: Stamp::ZERO,
            round_left: 0,
            round_next: Stamp::ZERO,
            in_round: false,
        }
    }

    /// The silence ended, or is explained.
    pub fn reset(&mut self) {
        self.asked = 0;
        self.requested = None;
        self.sent = None;
    }

    /// Starts a round of at most eight challenges, one each 5 ms.
    pub fn start_round(&mut self, at: Stamp) {
        self.round_left = ROUND;
        self.round_next = at;
    }

    /// Ends the round: the link is healthy.
    pub fn end_round(&mut self) {
        self.round_left = 0;
    }

    /// When the next challenge of a silence that started at `since` is due.
    pub fn silence_due(&self, since: Stamp) -> Stamp {
        if self.asked == 0 { since } else { self.again }
    }

    /// When the next challenge of the recovery round is due, not before the last credited arrival has aged enough
    /// for its answer to count.
    pub fn round_due(&self, credited_at: Stamp) -> Stamp {
        if self.round_left == 0 { Stamp::NEVER } else { self.round_next.max(credited_at + FRAME_SPACING) }
    }

    /// A challenge of a silence is handed to the shell.
    pub fn request(&mut self, now: Stamp, rtt: Duration) {
        self.in_round = false;
        self.requested.get_or_insert(now);
        self.again = now + self.pause(rtt);
        self.asked = self.asked.saturating_add(1);
    }

    /// A challenge of the recovery round is handed to the shell.
    pub fn request_in_round(&mut self, now: Stamp) {
        self.in_round = true;
        self.round_left = self.round_left.saturating_sub(1);
        self.round_next = now + FRAME_SPACING;
    }

    /// Whether the latest question was asked without a silence: its answer says nothing of the peer's rhythm.
    pub fn in_round(&self) -> bool {
        self.in_round
    }

    /// The shell wrote a challenge.
    pub fn sent(&mut self, now: Stamp) {
        if self.requested.is_some() {
            self.sent.get_or_insert(now);
        }
    }

    /// Our own loop slept: an answer may have waited.
    pub fn excuse(&mut self, from: Stamp, to: Stamp) {
        for t in [&mut self.sent, &mut self.requested].into_iter().flatten() {
            *t = *t + to.since(from.max(*t));
        }
    }

    /// When an unanswered challenge starts to mean something. One that could not be written does not hold for
    /// ever: a full socket is no alibi longer than `grace`.
    pub fn answered_by(&self, rtt: Duration, grace: Duration) -> Stamp {
        let patience = patience(rtt);
        match (self.sent, self.requested) {
            (Some(sent), _) => sent + patience,
            (None, Some(requested)) => requested + patience + grace,
            (None, None) => Stamp::NEVER,
        }
    }

    fn pause(&self, rtt: Duration) -> Duration {
        match self.asked {
            0 => SECOND_AFTER.max(rtt.saturating_mul(2)),
            1 => THIRD_AFTER.max(rtt.saturating_mul(2)),
            n => BACKOFF_FIRST.saturating_mul(1 << (n - 2).min(4)).min(BACKOFF_MAX),
        }
    }
}

impl Default for Ask {
    fn default() -> Self {
        Ask::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_is_asked_at_once_then_with_backoff() {
        let rtt = Duration::from_micros(500);
        let mut ask = Ask::new();
        let mut at = Stamp::from_millis(1000);
        let mut gaps = Vec::new();
        for _ in 0..8 {
            ask.request(at, rtt);
            let due = ask.silence_due(Stamp::ZERO);
            gaps.push(due.since(at).as_millis());
            at = due;
        }
        assert_eq!(gaps, [4, 10, 100, 200, 400, 800, 1000, 1000]);
        ask.reset();
        assert_eq!(ask.silence_due(at), at);
    }

    #[test]
    fn a_round_is_eight_challenges() {
        let mut ask = Ask::new();
        let mut at = Stamp::from_millis(5);
        ask.start_round(at);
        let mut n = 0;
        while ask.round_due(Stamp::ZERO) != Stamp::NEVER {
            at = ask.round_due(Stamp::ZERO);
            ask.request_in_round(at);
            n += 1;
        }
        assert_eq!(n, 8);
        assert_eq!(at, Stamp::from_millis(40));
    }

    #[test]
    fn an_unsent_challenge_holds_only_for_the_grace() {
        let (rtt, grace) = (Duration::from_millis(1), Duration::from_millis(250));
        let mut ask = Ask::new();
        assert_eq!(ask.answered_by(rtt, grace), Stamp::NEVER);
        ask.request(Stamp::from_millis(100), rtt);
        assert_eq!(ask.answered_by(rtt, grace), Stamp::from_millis(355));
        ask.sent(Stamp::from_millis(110));
        ask.sent(Stamp::from_millis(120));
        assert_eq!(ask.answered_by(rtt, grace), Stamp::from_millis(115));
        ask.excuse(Stamp::from_millis(112), Stamp::from_millis(162));
        assert_eq!(ask.answered_by(rtt, grace), Stamp::from_millis(165));
    }
}
