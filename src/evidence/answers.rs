//! Pure: no IO, no clock. Evidence E6: how long answers usually take, and when one is late (detection.md section 4).
//!
//! Judged is a *silence*: the time in which the service said nothing to anybody although a question waits. It is late
//! beyond a limit that is learned from the answers, and from silences that ended in an answer. Two kinds of waiting are
//! no sign of anything: a question that was overtaken (it was late already when others were answered), and one whose
//! bytes still arrive (an upload).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use crate::stamp::Stamp;

/// Buckets of answer times: four per doubling, from 16 us to 18 minutes.
pub const BUCKETS: usize = 104;
/// Doublings of a microsecond below the first bucket.
const FIRST_OCTAVE: u32 = 4;
/// Doublings of a microsecond that the last bucket begins in.
const LAST_OCTAVE: u32 = 29;
/// Fewer remembered answers than this say nothing.
const ENOUGH: f64 = 100.0;
/// A silence is never late before this: a busy machine wakes a service up late by p99 4-12 ms.
const LATE_MIN: Duration = Duration::from_millis(25);
/// A silence is late beyond this many usual answer times. Less than 5, so that a look each 5 ms is still in time.
const USUAL_FACTOR: u32 = 4;
/// Or beyond this many of the slowest hundredth.
const TAIL_FACTOR: u32 = 2;
/// An answer given this long ago counts half.
const HALF_LIFE: Duration = Duration::from_secs(600);
/// Forgetting is done this often.
const FORGET_EVERY: Duration = Duration::from_secs(1);
/// Late silences that are remembered, each for [`HALF_LIFE`].
const LATE_KEPT: usize = 16;
/// So many late silences are a habit. The longest may be an outage: the next one counts, by half more.
const HABIT: usize = 3;
/// A longer silence was an outage and is not learned, unless it was about one question alone: a slow report.
const LEARN_MAX: Duration = Duration::from_millis(500);
/// Late answers amid others that one look may add to the habit.
const LATE_PER_LOOK: usize = 3;

/// The bucket of an answer time.
pub fn bucket(took: Duration) -> usize {
    let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).clamp(1 << FIRST_OCTAVE, (1 << 30) - 1);
    let octave = us.ilog2().clamp(FIRST_OCTAVE, LAST_OCTAVE);
    let quarter = (us >> (octave - 2)) & 3;
    ((octave - FIRST_OCTAVE) * 4) as usize + quarter as usize
}

/// The middle of a bucket; at most an eighth off.
fn middle(bucket: usize) -> Duration {
    let octave = FIRST_OCTAVE as usize + bucket / 4;
    let step = 1u64 << (octave - 2);
    let from = (1u64 << octave) + (bucket % 4) as u64 * step;
    Duration::from_micros(from + step / 2)
}

/// Counts of answer times. The proxy adds, one watch takes.
#[derive(Debug)]
pub struct AnswerTimes([AtomicU32; BUCKETS]);

impl Default for AnswerTimes {
    fn default() -> Self {
        AnswerTimes([const { AtomicU32::new(0) }; BUCKETS])
    }
}

impl AnswerTimes {
    /// An answer took this long.
    pub fn add(&self, took: Duration) {
        self.0[bucket(took)].fetch_add(1, Relaxed);
    }

    /// Takes what was counted since the last call.
    fn take(&self, i: usize) -> u32 {
        let cell = &self.0[i];
        if cell.load(Relaxed) == 0 { 0 } else { cell.swap(0, Relaxed) }
    }
}

/// What is seen at one look.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// The instant.
    pub now: Stamp,
    /// The look was late, by our own fault: what lay before says nothing.
    pub late: bool,
    /// When bytes of the service were read last, on any connection.
    pub last_answer: Stamp,
    /// Of the questions that were not overtaken ([`Answers::fresh_from`]): when the last byte of the oldest was taken.
    pub fresh: Option<Stamp>,
    /// How many such questions there are.
    pub fresh_count: usize,
    /// Something else explains the silence (stopped, gone, busy, unread): it is not learned.
    pub explained: bool,
}

/// What is known of a service's answers.
#[derive(Clone, Debug)]
pub struct Answers {
    weights: [f64; BUCKETS],
    total: f64,
    forgot: Stamp,
    /// Limit from the answers alone; `None`: too few.
    base: Option<Duration>,
    late: VecDeque<(Stamp, Duration)>,
    last_answer: Stamp,
    /// Silences count from here: a look was late.
    forgiven: Stamp,
    waiting_from: Option<Stamp>,
    /// The same with what is forgiven: answers are late by it, whoever is to blame.
    silent_from: Option<Stamp>,
    /// End and length of the last late silence, with those before that it goes on from: what was asked before took long
    /// because of it.
    outage: (Stamp, Duration),
    /// Of those answers so many count: the silence is one event, however many waited for its end.
    spare: u32,
    explained: bool,
    /// More than one question waited in this silence.
    many: bool,
    slow: bool,
}

impl Default for Answers {
    fn default() -> Self {
        Answers::new()
    }
}

impl Answers {
    /// Nothing known.
    pub fn new() -> Answers {
        Answers {
            weights: [0.0; BUCKETS],
            total: 0.0,
            forgot: Stamp::ZERO,
            base: None,
            late: VecDeque::new(),
            last_answer: Stamp::ZERO,
            forgiven: Stamp::ZERO,
            waiting_from: None,
            silent_from: None,
            outage: (Stamp::ZERO, Duration::ZERO),
            spare: 0,
            explained: false,
            many: false,
            slow: false,
        }
    }

    /// Questions that were asked before this were overtaken.
    pub fn fresh_from(&self) -> Stamp {
        self.last_answer - self.threshold()
    }

    /// Takes a look. True: a question waits longer than this service ever makes one wait, and nobody is answered.
    pub fn observe(&mut self, times: &AnswerTimes, w: Waiting) -> bool {
        self.forget(w.now);
        if w.late {
            self.forgiven = w.now;
        }
        let answered = w.last_answer > self.last_answer;
        if answered {
            self.end_silence(w.now, w.last_answer);
            self.last_answer = w.last_answer;
        }
        self.take(times, w.now);
        self.silent_from = w.fresh.map(|asked| asked.max(self.last_answer));
        let from = self.silent_from.map(|from| from.max(self.forgiven));
        let goes_on = from.is_some() && !answered;
        self.explained = w.explained || (self.explained && goes_on);
        self.many = w.fresh_count > 1 || (self.many && goes_on);
        self.waiting_from = from;
        self.slow = matches!((from, self.limit()), (Some(from), Some(limit)) if w.now.since(from) > limit);
        self.slow
    }

    /// The verdict of the last look.
    pub fn slow(&self) -> bool {
        self.slow
    }

    /// Answers remembered, by weight.
    pub fn samples(&self) -> f64 {
        self.total
    }

    /// The usual answer time (median); `None` until enough answers came.
    pub fn usual(&self) -> Option<Duration> {
        (self.total >= ENOUGH).then(|| self.quantile(0.5))
    }

    /// A silence beyond this is late; `None` until enough answers came.
    pub fn limit(&self) -> Option<Duration> {
        let habit = if self.late.len() < HABIT { Duration::ZERO } else { self.second_longest() * 3 / 2 };
        self.base.map(|base| base.max(habit))
    }

    fn threshold(&self) -> Duration {
        self.base.unwrap_or(LATE_MIN)
    }

    fn second_longest(&self) -> Duration {
        let mut top = [Duration::ZERO; 2];
        for (_, length) in &self.late {
            if *length > top[0] {
                top = [*length, top[0]];
            } else if *length > top[1] {
                top[1] = *length;
            }
        }
        top[1]
    }

    fn quantile(&self, share: f64) -> Duration {
        let mut left = self.total * share;
        let found = self.weights.iter().position(|w| {
            left -= w;
            left <= 0.0
        });
        middle(found.unwrap_or(BUCKETS - 1))
    }

    /// A silence ended with an answer at `at`: it is learned, so that a wrong suspicion is paid for once.
    fn end_silence(&mut self, now: Stamp, at: Stamp) {
        let (Some(silent), Some(from)) = (self.silent_from.take(), self.waiting_from.take()) else { return };
        if at.since(silent) > self.threshold() {
            self.outage_ended(now, silent, at);
        }
        let length = at.since(from);
        if length > self.threshold() && !self.explained && (length <= LEARN_MAX || !self.many) {
            self.learn_late(now, length);
        }
    }

    fn outage_ended(&mut self, now: Stamp, from: Stamp, to: Stamp) {
        let (ended, before) = self.outage;
        // What waited through the outage before, and was not served yet, waits through this one too.
        let goes_on = ended != Stamp::ZERO && from.since(ended) < before;
        let length = if goes_on { before + now.since(ended) } else { to.since(from) };
        (self.outage, self.spare) = ((now, length), 1);
    }

    fn learn_late(&mut self, now: Stamp, length: Duration) {
        if self.late.len() == LATE_KEPT {
            self.late.pop_front();
        }
        self.late.push_back((now, length));
    }

    /// Adds the new answers. One that took long while others were answered belongs to a kind that takes long.
    fn take(&mut self, times: &AnswerTimes, now: Stamp) {
        let threshold = self.threshold();
        let (mut seen, mut late) = (0, 0);
        for i in (0..BUCKETS).rev() {
            let mut n = times.take(i);
            if n == 0 {
                continue;
            }
            if middle(i) > threshold {
                if self.by_outage(now, middle(i)) {
                    n = n.min(self.spare);
                    self.spare -= n;
                } else if middle(i) > threshold * 2 {
                    for _ in 0..(n as usize).min(LATE_PER_LOOK - late) {
                        self.learn_late(now, middle(i));
                        late += 1;
                    }
                }
            }
            seen += n;
            self.weights[i] += f64::from(n);
        }
        if seen > 0 {
            self.total += f64::from(seen);
            self.rebase();
        }
    }

    /// An answer that was asked for before the last late silence ended, and spent most of its time in it.
    fn by_outage(&self, now: Stamp, took: Duration) -> bool {
        let (ended, length) = self.outage;
        ended != Stamp::ZERO && took * 9 / 8 >= now.since(ended) && length * 2 >= took
    }

    fn forget(&mut self, now: Stamp) {
        if self.forgot == Stamp::ZERO {
            self.forgot = now;
        }
        let passed = now.since(self.forgot);
        if passed < FORGET_EVERY {
            return;
        }
        self.forgot = now;
        let kept = 0.5f64.powf(passed.as_secs_f64() / HALF_LIFE.as_secs_f64());
        self.weights.iter_mut().for_each(|w| *w *= kept);
        self.total = self.weights.iter().sum();
        self.late.retain(|(at, _)| now.since(*at) < HALF_LIFE);
        self.rebase();
    }

    fn rebase(&mut self) {
        self.base = (self.total >= ENOUGH).then(|| {
            let usual = self.quantile(0.5) * USUAL_FACTOR;
            LATE_MIN.max(usual).max(self.quantile(0.99) * TAIL_FACTOR)
        });
    }
}

#[cfg(test)]
#[path = "answers_tests.rs"]
mod tests;
