use super::*;

use proptest::prelude::*;

fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A service looked at each 5 ms, as the watch does while something is unanswered.
struct Rig {
    times: AnswerTimes,
    answers: Answers,
    now: Stamp,
    last_answer: Stamp,
    /// When the last byte of each open question was taken.
    open: Vec<Stamp>,
}

impl Rig {
    fn new() -> Rig {
        let start = Stamp::from_millis(1_000_000);
        Rig {
            times: AnswerTimes::default(),
            answers: Answers::new(),
            now: start,
            last_answer: start,
            open: vec![],
        }
    }

    /// A quick service answers nobody any more, and 80 wait, asked 10 ms apart.
    fn with_backlog() -> Rig {
        let mut r = Rig::new();
        r.talk(vec![us(300); 1000], ms(5));
        for _ in 0..80 {
            r.ask();
            r.pass(ms(10));
        }
        r
    }

    fn ask(&mut self) -> Stamp {
        self.open.push(self.now);
        self.now
    }

    fn answer(&mut self, asked: Stamp) {
        let at = self.open.iter().position(|o| *o == asked).expect("asked");
        self.open.swap_remove(at);
        self.times.add(self.now.since(asked));
        self.last_answer = self.now;
    }

    fn look(&mut self) -> bool {
        self.look_so(false, false)
    }

    fn look_so(&mut self, late: bool, explained: bool) -> bool {
        let from = self.answers.fresh_from();
        let fresh: Vec<_> = self.open.iter().copied().filter(|o| *o >= from).collect();
        let (fresh_count, fresh) = (fresh.len(), fresh.into_iter().min());
        let w = Waiting { now: self.now, late, last_answer: self.last_answer, fresh, fresh_count, explained };
        self.answers.observe(&self.times, w)
    }

    /// Time passes, with a look each 5 ms; how many of them said slow.
    fn pass(&mut self, d: Duration) -> u32 {
        let (end, mut slow) = (self.now + d, 0);
        while self.now + ms(5) <= end {
            self.now = self.now + ms(5);
            slow += u32::from(self.look());
        }
        self.now = end;
        slow
    }

    /// One question after the other, each answered after so long, and a pause between.
    fn talk(&mut self, took: impl IntoIterator<Item = Duration>, pause: Duration) -> u32 {
        let mut slow = 0;
        for d in took {
            let asked = self.ask();
            slow += self.pass(d);
            self.answer(asked);
            slow += u32::from(self.look());
            slow += self.pass(pause);
        }
        slow
    }

    /// ms from a question that is never answered to the first look that says slow.
    fn dead_lock(&mut self, most: Duration) -> Option<u128> {
        let asked = self.ask();
        while self.now.since(asked) < most {
            self.now = self.now + ms(5);
            if self.look() {
                return Some(self.now.since(asked).as_millis());
            }
        }
        None
    }
}

#[test]
fn buckets_cover_everything_in_order_and_an_eighth_apart() {
    let mut before = 0;
    for n in (0..40_000u64).chain((40_000..4_000_000_000).step_by(1_234_567)) {
        let b = bucket(us(n));
        assert!(b >= before && b < BUCKETS, "{n}");
        before = b;
        if (16..1 << 30).contains(&n) {
            let off = middle(b).as_micros().abs_diff(u128::from(n)) as f64;
            assert!(off <= n as f64 / 7.9 + 1.0, "{n}: {:?}", middle(b));
        }
    }
    assert_eq!((bucket(Duration::ZERO), bucket(Duration::MAX)), (0, BUCKETS - 1));
}

#[test]
fn nothing_is_said_before_enough_answers() {
    let mut r = Rig::new();
    assert_eq!(r.talk(vec![us(500); 99], ms(20)), 0);
    assert_eq!((r.answers.limit(), r.answers.usual()), (None, None));
    assert_eq!(r.dead_lock(ms(5000)), None);
}

#[test]
fn a_dead_lock_is_seen_within_50_ms_or_five_usual_answer_times() {
    for usual in [200, 500, 2000, 10_000, 40_000, 200_000] {
        let mut r = Rig::new();
        // A fifth of jitter.
        let took = (0..300u64).map(|i| us(usual + usual * (i * 7 % 20) / 100));
        assert_eq!(r.talk(took, ms(10)), 0, "{usual} us");
        let allowed = 50.max(5 * usual / 1000);
        let seen = r.dead_lock(ms(10_000)).expect("seen");
        assert!(seen <= u128::from(allowed), "{usual} us: seen after {seen} ms, {allowed} allowed");
        assert!(seen >= 25, "{usual} us: {seen} ms is no time");
    }
}

#[test]
fn long_polling_is_its_usual_way() {
    let mut r = Rig::new();
    let took = (0..200u64).map(|i| ms(50 + i * 7919 % 30_000));
    assert_eq!(r.talk(took, ms(5)), 0);
}

#[test]
fn long_polls_amid_quick_answers_are_overtaken_and_then_known() {
    let mut r = Rig::new();
    let mut suspected = 0;
    // A poll of 30 s is always open; each 300 ms a quick question overtakes it.
    for _ in 0..20 {
        let poll = r.ask();
        r.now = r.now + us(10);
        let slow: Vec<u32> = (0..100).map(|_| r.talk([ms(1)], ms(299))).collect();
        suspected += u32::from(slow[0] > 0);
        assert_eq!(slow[1..].iter().sum::<u32>(), 0, "it was overtaken");
        r.answer(poll);
        r.look();
    }
    assert!(suspected <= 2, "{suspected}");
}

#[test]
fn a_burst_that_ends_while_polls_are_open_is_no_dead_lock() {
    let mut r = Rig::new();
    let polls: Vec<_> = (0..5)
        .map(|_| {
            r.now = r.now + ms(1);
            r.ask()
        })
        .collect();
    assert_eq!(r.talk(vec![ms(1); 500], ms(1)), 0);
    assert_eq!(r.pass(ms(20_000)), 0, "nobody else asks: the polls wait as they did before");
    assert_eq!(r.open.len(), polls.len());
}

#[test]
fn pushes_at_random_times_are_learned() {
    // One-way messages, "answered" by whatever is pushed next: exponential gaps.
    let mut r = Rig::new();
    let mut x = 0x2545_f491_4f6c_dd1d_u64;
    let mut gap = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        let u = (x >> 11) as f64 / (1u64 << 53) as f64;
        Duration::from_secs_f64(-(1.0 - u).ln())
    };
    let mut looks = 0;
    for _ in 0..3000 {
        looks += u32::from(r.talk([gap()], ms(5)) > 0);
    }
    assert!(looks <= 6, "{looks} of 3000 were suspected");
}

#[test]
fn a_rare_slow_report_is_a_suspect_a_few_times_and_then_known() {
    let mut r = Rig::new();
    let mut suspected = Vec::new();
    for i in 0..30 {
        assert_eq!(r.talk(vec![ms(2); 200], ms(5)), 0);
        if r.talk([ms(400)], ms(5)) > 0 {
            suspected.push(i);
        }
    }
    assert_eq!(suspected, [0, 1, 2], "three make a habit");
}

#[test]
fn one_outage_is_not_learned_whatever_waited_for_its_end() {
    let mut r = Rig::new();
    r.talk(vec![ms(2); 500], ms(5));
    let open: Vec<_> = (0..40)
        .map(|_| {
            r.now = r.now + us(100);
            r.ask()
        })
        .collect();
    assert!(r.pass(ms(5000)) > 900);
    for asked in open {
        r.answer(asked);
        r.pass(ms(5));
    }
    assert!(r.answers.late.len() <= 1, "{:?}", r.answers.late);
    assert!(!r.look());
    r.talk(vec![ms(2); 2000], ms(5));
    let seen = r.dead_lock(ms(20_000)).expect("seen again");
    assert!(seen <= 50, "{seen}");
}

/// A dead-lock ended, one of those who had waited was answered, and then a busy machine kept the service from running for a
/// moment: the second that all the others had waited was taken for its way, and the next dead-lock was found after two.
#[test]
fn the_rest_of_a_backlog_is_not_learned_after_a_second_silence() {
    let mut r = Rig::with_backlog();
    r.answer(r.open[0]);
    assert!(r.pass(ms(40)) > 0, "they wait still, and nobody is answered");
    for asked in r.open.clone() {
        r.answer(asked);
    }
    r.pass(ms(5));
    assert_eq!(r.answers.limit(), Some(ms(25)));
    assert!(r.dead_lock(ms(5000)) <= Some(30));
}

/// On a busy machine the watch was late too: all of a dead-lock but its end was forgiven, and its backlog taken for the way of
/// the service.
#[test]
fn a_backlog_is_not_learned_where_the_watch_was_late_too() {
    let mut r = Rig::with_backlog();
    r.look_so(true, false);
    r.pass(ms(15));
    for asked in r.open.clone() {
        r.answer(asked);
    }
    r.pass(ms(5));
    assert_eq!(r.answers.limit(), Some(ms(25)));
}

#[test]
fn dead_locks_that_come_back_are_seen_each_time() {
    let mut r = Rig::new();
    for turn in 0..30 {
        assert_eq!(r.talk(vec![ms(2); 200], ms(3)), 0, "{turn}");
        let begin = r.now;
        let seen = r.dead_lock(ms(2000)).expect("seen");
        assert!(seen <= 50, "{turn}: {seen}");
        for _ in 0..20 {
            r.ask();
            r.pass(ms(100));
        }
        assert!(r.now.since(begin) > ms(2000));
        for asked in r.open.clone() {
            r.answer(asked);
        }
        assert!(!r.look());
    }
}

#[test]
fn a_slow_report_of_seconds_is_learned_where_it_holds_up_nobody() {
    let mut r = Rig::new();
    for i in 0..10 {
        assert_eq!(r.talk(vec![ms(2); 200], ms(5)), 0);
        assert_eq!(r.talk([ms(3000)], ms(5)) > 0, i < 3, "{i}");
    }
}

#[test]
fn our_own_lateness_is_no_silence_of_the_service() {
    let mut r = Rig::new();
    r.talk(vec![ms(1); 200], ms(5));
    r.ask();
    r.now = r.now + ms(3000);
    assert!(!r.look_so(true, false));
    assert!(!r.look());
    assert!(r.pass(ms(40)) > 0, "from then on it counts");
}

#[test]
fn what_is_explained_is_not_learned() {
    let mut r = Rig::new();
    r.talk(vec![ms(1); 200], ms(5));
    for _ in 0..5 {
        let asked = r.ask();
        r.pass(ms(20));
        r.look_so(false, true);
        r.pass(ms(800));
        r.answer(asked);
        r.look();
    }
    assert!(r.answers.late.is_empty());
}

#[test]
fn an_idle_service_is_forgotten_in_time_and_says_nothing() {
    let mut r = Rig::new();
    r.talk(vec![ms(1); 400], ms(1));
    r.now = r.now + Duration::from_secs(3600);
    r.look();
    assert!(r.answers.limit().is_none(), "{}", r.answers.samples());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Spread at most two to one, at any scale: never a suspect, and a dead-lock is seen in time.
    #[test]
    fn steady_services_are_never_suspected_and_always_caught(
        scale in 50u64..300_000,
        shares in prop::collection::vec(0u64..100, 150..300),
        pause in 0u64..30,
    ) {
        let mut r = Rig::new();
        let slowest = shares.iter().map(|s| scale + scale * s / 100).max().unwrap_or(scale);
        let took: Vec<_> = shares.iter().map(|s| us(scale + scale * s / 100)).collect();
        prop_assert_eq!(r.talk(took, ms(pause)), 0);
        let seen = r.dead_lock(ms(60_000)).expect("seen");
        prop_assert!(seen <= 50.max(u128::from(5 * slowest / 1000) + 5), "{} ms, slowest {} us", seen, slowest);
    }

    /// Any mixture: what is suspected was longer than all but the longest of the silences remembered.
    #[test]
    fn habits_are_believed(took in prop::collection::vec(1u64..1_000, 200..400)) {
        let mut r = Rig::new();
        for t in &took {
            let longest_known = r.answers.second_longest();
            let habit = r.answers.late.len() >= HABIT;
            let slow = r.talk([ms(*t)], ms(5));
            prop_assert!(slow == 0 || !habit || ms(*t) > longest_known);
        }
    }
}
