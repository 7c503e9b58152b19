//! Pure: no IO, no clock. What passes on connections straight to a service: who spoke last, and whether the silence since
//! is the service's (link.md rule 1: RST / FIN, TCP_INFO, answer time).
//!
//! The kernel of a stopped process takes connections and acknowledges bytes, so only answers tell that it works. That one is
//! late says little: a question of another kind, a stream that needs none. Judged is therefore the silence of the whole
//! endpoint while a question waits, against what [`Answers`] learned of it, and it is doubt at most.

use std::time::Duration;

use super::facts::PlainResult;
use crate::evidence::answers::{AnswerTimes, Answers, Waiting};
use crate::stamp::Stamp;

/// However fast a service answers as a rule, a shorter silence is none: between it and us lies a network.
pub const SILENCE_MIN: Duration = Duration::from_secs(1);

/// One connection.
#[derive(Clone, Copy, Debug)]
pub struct Talk {
    /// The client spoke last: when the last byte of it was taken.
    asked: Option<Stamp>,
    /// Latest byte of the service, or since when the connection is there.
    heard: Stamp,
    answered: bool,
    /// That its bytes are not acknowledged was told, and nothing came since.
    told: bool,
}

impl Talk {
    /// A connection of this instant.
    pub fn new(now: Stamp) -> Talk {
        Talk { asked: None, heard: now, answered: false, told: false }
    }

    /// The kernel took bytes for the service.
    pub fn said(&mut self, now: Stamp) {
        self.asked = Some(now);
    }

    /// The service said something; gives how long it took, if it was asked.
    pub fn heard(&mut self, now: Stamp) -> Option<Duration> {
        (self.heard, self.answered, self.told) = (now, true, false);
        self.asked.take().map(|asked| now.since(asked))
    }

    /// The service ended it, by RST or by FIN; what that says.
    pub fn ended(&self, rst: bool) -> Option<PlainResult> {
        match (rst, self.answered) {
            (true, false) => Some(PlainResult::Reset),
            (true, true) => Some(PlainResult::Broken),
            (false, true) => self.asked.map(|_| PlainResult::Broken),
            // Who never says anything may end its half first: a service that only takes.
            (false, false) => None,
        }
    }

    /// Whether the service has ever said anything.
    pub fn answered(&self) -> bool {
        self.answered
    }

    /// Since when a question waits.
    pub fn waits(&self) -> Option<Stamp> {
        self.asked
    }

    /// How long nothing came.
    pub fn quiet(&self, now: Stamp) -> Duration {
        now.since(self.heard)
    }

    /// What a look at it while it waits makes of it; `lost`: its bytes are not acknowledged, though they were sent again and
    /// again.
    pub fn look(&mut self, lost: bool) -> Option<Wait> {
        let asked = self.asked?;
        let wait = match (lost, self.told) {
            (false, _) => Wait { asked, lost: Lost::No },
            (true, false) => Wait { asked, lost: Lost::News },
            (true, true) => Wait { asked, lost: Lost::Known },
        };
        self.told |= lost;
        Some(wait)
    }
}

/// Whether bytes are not acknowledged, and whether that is news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    No,
    News,
    Known,
}

/// A question that waits.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    asked: Stamp,
    lost: Lost,
}

/// The judge of an endpoint's plain connections on one worker.
#[derive(Debug, Default)]
pub struct Judge {
    times: AnswerTimes,
    answers: Answers,
    /// Silences count from here: our own loop was late.
    forgiven: Stamp,
    late: bool,
}

impl Judge {
    /// An answer took this long.
    pub fn answered(&self, took: Duration) {
        self.times.add(took);
    }

    /// Our own loop was late: what lay before says nothing.
    pub fn own_stall(&mut self) {
        self.late = true;
    }

    /// Takes a look at all that waits. `answered`: the latest byte of the service, on any connection of any worker.
    pub fn look(&mut self, now: Stamp, waits: &[Wait], answered: Stamp) -> Option<PlainResult> {
        let late = std::mem::take(&mut self.late);
        if late {
            self.forgiven = now;
        }
        // Another connection that is answered since shows that path and host are well.
        let lost = |w: &&Wait| w.lost == Lost::News && w.asked >= answered;
        let silent = waits.iter().any(|w| lost(&w));
        let fresh_from = self.answers.fresh_from();
        let taken = waits.iter().filter(|w| w.lost == Lost::No).map(|w| w.asked);
        let fresh: Vec<Stamp> = taken.filter(|asked| *asked >= fresh_from).collect();
        let oldest = fresh.iter().copied().min();
        let slow = self.answers.observe(
            &self.times,
            Waiting {
                now,
                late,
                last_answer: answered,
                fresh: oldest,
                fresh_count: fresh.len(),
                explained: silent,
            },
        );
        if silent {
            return Some(PlainResult::Silent);
        }
        let since = oldest?.max(answered).max(self.forgiven);
        (slow && now.since(since) >= SILENCE_MIN).then_some(PlainResult::Late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(x: u64) -> Stamp {
        Stamp::from_millis(x)
    }

    /// A judge that has seen `n` answers of `took` ms each, one each 10 ms from 1000 on, and when the last one came.
    fn taught(n: u64, took: u64) -> (Judge, Stamp) {
        let mut judge = Judge::default();
        let mut answered = Stamp::ZERO;
        for i in 0..n {
            judge.answered(Duration::from_millis(took));
            answered = ms(1000 + 10 * i);
            assert_eq!(judge.look(answered, &[], answered), None);
        }
        (judge, answered)
    }

    fn waiting(asked: Stamp) -> Talk {
        let mut talk = Talk::new(ms(0));
        talk.heard(ms(1));
        talk.said(asked);
        talk
    }

    /// Looks each 250 ms; the first verdict and when, in ms from `asked`.
    fn first(
        judge: &mut Judge,
        talks: &mut [Talk],
        asked: Stamp,
        answered: Stamp,
        lost: bool,
    ) -> Option<(u64, PlainResult)> {
        (1..40).map(|i| i * 250).find_map(|after| {
            let waits: Vec<Wait> = talks.iter_mut().filter_map(|t| t.look(lost)).collect();
            let told = judge.look(asked + Duration::from_millis(after), &waits, answered);
            told.map(|t| (after, t))
        })
    }

    #[test]
    fn a_silence_far_beyond_the_usual_is_late_and_not_before_a_second() {
        let (mut judge, answered) = taught(200, 2);
        let asked = answered + Duration::from_millis(5);
        let got = first(&mut judge, &mut [waiting(asked)], asked, answered, false);
        assert_eq!(got, Some((1000, PlainResult::Late)));
    }

    #[test]
    fn who_answers_slowly_is_late_much_later() {
        let (mut judge, answered) = taught(200, 1000);
        let asked = answered + Duration::from_millis(5);
        let (after, what) =
            first(&mut judge, &mut [waiting(asked)], asked, answered, false).expect("late in the end");
        assert!((3000..6000).contains(&after) && what == PlainResult::Late, "{after} ms");
    }

    #[test]
    fn nothing_is_late_where_little_is_known() {
        for n in [0, 20] {
            let (mut judge, answered) = taught(n, 2);
            let asked = ms(5000);
            assert_eq!(first(&mut judge, &mut [waiting(asked)], asked, answered, false), None, "{n} answers");
        }
    }

    /// A stream that needs no answer, a question that waits for something to happen.
    #[test]
    fn who_answers_others_is_not_late() {
        let (mut judge, _) = taught(200, 2);
        let mut talk = waiting(ms(3500));
        for i in 0..100 {
            let now = ms(4000 + 250 * i);
            judge.answered(Duration::from_millis(2));
            let waits = [talk.look(false).unwrap()];
            assert_eq!(judge.look(now, &waits, now - Duration::from_millis(20)), None);
        }
    }

    #[test]
    fn our_own_stall_is_not_their_silence() {
        let (mut judge, answered) = taught(200, 2);
        let asked = answered + Duration::from_millis(5);
        let waits = [waiting(asked).look(false).unwrap()];
        judge.own_stall();
        let woken = asked + Duration::from_secs(60);
        assert_eq!(judge.look(woken, &waits, answered), None);
        assert_eq!(judge.look(woken + Duration::from_millis(900), &waits, answered), None);
        let late = judge.look(woken + Duration::from_millis(1000), &waits, answered);
        assert_eq!(late, Some(PlainResult::Late));
    }

    #[test]
    fn what_is_not_acknowledged_is_told_once_and_is_not_late_as_well() {
        let (mut judge, answered) = taught(200, 2);
        let asked = answered + Duration::from_millis(5);
        let mut talk = waiting(asked);
        let mut told = Vec::new();
        for i in 1..40 {
            let waits = [talk.look(i > 2).unwrap()];
            told.extend(judge.look(asked + Duration::from_millis(250 * i), &waits, answered));
        }
        assert_eq!(told, [PlainResult::Silent]);
    }

    #[test]
    fn bytes_that_are_lost_on_one_connection_say_nothing_while_another_is_answered() {
        let (mut judge, answered) = taught(200, 2);
        let asked = answered + Duration::from_millis(5);
        let waits = [waiting(asked).look(true).unwrap()];
        let other = asked + Duration::from_millis(300);
        assert_eq!(judge.look(asked + Duration::from_millis(500), &waits, other), None);
    }

    #[test]
    fn what_an_end_says() {
        let mut talk = Talk::new(ms(0));
        talk.said(ms(1));
        assert_eq!((talk.ended(true), talk.ended(false)), (Some(PlainResult::Reset), None), "who only takes");
        assert_eq!(talk.heard(ms(4)), Some(Duration::from_millis(3)));
        assert_eq!(
            (talk.ended(true), talk.ended(false)),
            (Some(PlainResult::Broken), None),
            "an end like any"
        );
        assert_eq!(
            (talk.heard(ms(9)), talk.waits(), talk.quiet(ms(10))),
            (None, None, Duration::from_millis(1))
        );
        talk.said(ms(11));
        assert_eq!(talk.ended(false), Some(PlainResult::Broken), "an answer is owed");
    }
}
