use super::*;

const RUNS: ProcessOpinion =
    ProcessOpinion { known: true, stopped: false, gone: false, cpu_advancing: false, blocked: false };
const LISTENS: ListenerView = ListenerView { listening: true, queue: 0, backlog: 128 };

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Drives a fusion in 5 ms steps.
struct Rig {
    fusion: Fusion,
    now: u64,
    base: Observation<'static>,
    unread_since: Vec<u64>,
}

impl Rig {
    fn new() -> Rig {
        let patience = Patience { stall: ms(1000), busy: ms(3000) };
        let base = Observation { process: Some(RUNS), listener: Some(LISTENS), ..Observation::default() };
        Rig { fusion: Fusion::new(patience), now: 1000, base, unread_since: Vec::new() }
    }

    fn observe(&mut self, change: impl FnOnce(&mut Observation<'_>)) -> Vouch {
        let unread: Vec<Unread> = (0..)
            .zip(&self.unread_since)
            .map(|(key, at)| Unread { key, bytes: 9, since: Stamp::from_millis(*at) })
            .collect();
        let oldest = self.unread_since.iter().min().map_or(Duration::ZERO, |at| ms(self.now - at));
        let mut o = Observation {
            now: Stamp::from_millis(self.now),
            unread: &unread,
            unanswered: unread.len().max(self.base.unanswered),
            oldest_unanswered: oldest.max(self.base.oldest_unanswered),
            ..self.base
        };
        change(&mut o);
        let v = self.fusion.observe(&o);
        self.now += 5;
        v
    }

    fn step(&mut self) -> Vouch {
        self.observe(|_| {})
    }

    fn progress(&mut self) -> Vouch {
        self.observe(|o| o.progress = true)
    }

    /// Steps until the vouch differs; returns it and the ms that took.
    fn until_not(&mut self, same: Vouch, most_ms: u64) -> (Vouch, u64) {
        let begin = self.now;
        while self.now < begin + most_ms {
            let v = self.step();
            if v != same {
                return (v, self.now - 5 - begin);
            }
        }
        (same, most_ms)
    }
}

#[test]
fn nothing_seen_is_unknown_and_nothing_asked_is_idle() {
    let mut r = Rig::new();
    r.base.process = None;
    r.base.listener = None;
    assert_eq!(r.step(), Vouch::Unknown);
    r.base.process = Some(RUNS);
    assert_eq!(r.step(), Vouch::Idle);
}

#[test]
fn progress_is_working_and_fades_to_idle() {
    let mut r = Rig::new();
    assert_eq!(r.progress(), Vouch::Working);
    let (v, after) = r.until_not(Vouch::Working, 500);
    assert_eq!(v, Vouch::Idle);
    assert!((95..=105).contains(&after), "{after}");
}

#[test]
fn a_slow_handler_that_read_its_request_is_held_not_blamed() {
    let mut r = Rig::new();
    r.base.unanswered = 1;
    r.base.oldest_unanswered = ms(5000);
    r.progress();
    for _ in 0..2000 {
        let v = r.step();
        assert!(matches!(v, Vouch::Working | Vouch::Unknown), "{v:?}");
    }
}

#[test]
fn unread_without_progress_stalls_and_progress_elsewhere_excuses_it() {
    let mut r = Rig::new();
    r.progress();
    r.unread_since = vec![r.now];
    for _ in 0..100 {
        assert_eq!(r.progress(), Vouch::Working, "others are served");
    }
    let (v, after) = r.until_not(Vouch::Working, 500);
    assert_eq!((v, after), (Vouch::Stalled, 10));
    assert_eq!(r.progress(), Vouch::Working);
}

#[test]
fn one_unread_connection_never_becomes_stuck() {
    let mut r = Rig::new();
    r.progress();
    r.unread_since = vec![r.now];
    r.until_not(Vouch::Working, 500);
    assert_eq!(r.until_not(Vouch::Stalled, 60_000).0, Vouch::Stalled);
}

#[test]
fn two_unread_connections_are_stuck_after_the_patience() {
    let mut r = Rig::new();
    r.progress();
    r.unread_since = vec![r.now, r.now];
    r.until_not(Vouch::Working, 500);
    let (v, after) = r.until_not(Vouch::Stalled, 5000);
    assert_eq!(v, Vouch::Stuck);
    assert!((990..=1010).contains(&after), "{after}");
    assert_eq!(r.progress(), Vouch::Working);
}

#[test]
fn a_growing_accept_queue_makes_one_connection_enough() {
    let mut r = Rig::new();
    r.progress();
    r.unread_since = vec![r.now];
    r.until_not(Vouch::Working, 500);
    r.base.listener = Some(ListenerView { queue: 2, ..LISTENS });
    assert_eq!(r.until_not(Vouch::Stalled, 5000).0, Vouch::Stuck);
    r.base.listener = Some(ListenerView { queue: 1, ..LISTENS });
    assert_eq!(r.step(), Vouch::Working, "it accepts again");
}

#[test]
fn a_full_accept_queue_counts_as_growing() {
    let mut r = Rig::new();
    r.base.listener = Some(ListenerView { queue: 5, backlog: 4, ..LISTENS });
    r.progress();
    r.unread_since = vec![r.now];
    assert_eq!(r.until_not(Vouch::Working, 5000).0, Vouch::Stalled);
    assert_eq!(r.until_not(Vouch::Stalled, 5000).0, Vouch::Stuck);
}

#[test]
fn burning_cpu_is_busy_for_a_while_then_stalled() {
    let mut r = Rig::new();
    r.progress();
    r.base.process = Some(ProcessOpinion { cpu_advancing: true, ..RUNS });
    r.unread_since = vec![r.now, r.now];
    assert_eq!(r.until_not(Vouch::Working, 500), (Vouch::Busy, 15));
    let (v, after) = r.until_not(Vouch::Busy, 10_000);
    assert_eq!(v, Vouch::Stalled);
    assert!((2990..=3010).contains(&after), "{after}");
    assert_eq!(r.until_not(Vouch::Stalled, 10_000).0, Vouch::Stuck, "then patience begins");
}

#[test]
fn a_long_computation_is_busy_though_all_is_read() {
    let mut r = Rig::new();
    r.progress();
    r.base.process = Some(ProcessOpinion { cpu_advancing: true, ..RUNS });
    r.base.unanswered = 1;
    r.base.oldest_unanswered = ms(400);
    let (v, after) = r.until_not(Vouch::Working, 500);
    assert_eq!(v, Vouch::Busy);
    assert!((45..=60).contains(&after), "{after}");
}

#[test]
fn cpu_without_a_question_is_idle() {
    let mut r = Rig::new();
    r.base.process = Some(ProcessOpinion { cpu_advancing: true, ..RUNS });
    for _ in 0..100 {
        assert_eq!(r.step(), Vouch::Idle);
    }
}

#[test]
fn the_read_delay_is_learned_and_outages_are_not() {
    let mut r = Rig::new();
    assert_eq!(r.fusion.stall_limit(), ms(10));
    const READS: [Duration; 2] = [Duration::from_millis(40), Duration::from_secs(60)];
    r.observe(|o| (o.progress, o.finished_reads) = (true, &READS[..1]));
    assert_eq!(r.fusion.stall_limit(), ms(120));
    r.unread_since = vec![r.now];
    let (v, after) = r.until_not(Vouch::Working, 90);
    assert_eq!((v, after), (Vouch::Working, 90), "within the learned delay");
    r.observe(|o| (o.progress, o.finished_reads) = (true, &READS[1..]));
    assert!(r.fusion.stall_limit() <= ms(120));
    for _ in 0..500 {
        r.observe(|o| (o.progress, o.finished_reads) = (true, &[Duration::ZERO]));
    }
    assert_eq!(r.fusion.stall_limit(), ms(10), "and forgotten");
}

#[test]
fn stopped_is_said_at_once_and_running_until_work_is_seen() {
    let mut r = Rig::new();
    r.progress();
    r.unread_since = vec![r.now];
    let stopped = ProcessOpinion { stopped: true, ..RUNS };
    assert_eq!(r.observe(|o| o.process = Some(stopped)), Vouch::Stopped);
    r.now += 60_000;
    assert_eq!(r.observe(|o| o.process = Some(stopped)), Vouch::Stopped);
    assert_eq!(r.step(), Vouch::Running, "the old unread bytes get a new limit");
    r.unread_since.clear();
    assert_eq!(r.until_not(Vouch::Running, 1000).0, Vouch::Running);
    assert_eq!(r.progress(), Vouch::Working);
}

#[test]
fn runs_again_but_does_not_read_is_stalled() {
    let mut r = Rig::new();
    r.unread_since = vec![r.now];
    r.observe(|o| o.process = Some(ProcessOpinion { stopped: true, ..RUNS }));
    assert_eq!(r.until_not(Vouch::Stopped, 100).0, Vouch::Running);
    assert_eq!(r.until_not(Vouch::Running, 100).0, Vouch::Stalled);
}

#[test]
fn progress_of_a_stopped_process_means_the_wrong_process_was_watched() {
    let mut r = Rig::new();
    r.base.process = Some(ProcessOpinion { stopped: true, ..RUNS });
    assert_eq!(r.step(), Vouch::Stopped);
    for _ in 0..5 {
        assert_eq!(r.progress(), Vouch::Working);
    }
    assert_eq!(r.step(), Vouch::Stopped, "without progress it is believed");
}

#[test]
fn gone_by_each_kind_of_proof() {
    let not = ListenerView { listening: false, queue: 0, backlog: 0 };
    let exited = ProcessOpinion { gone: true, ..ProcessOpinion::default() };
    let table: [(Option<ListenerView>, Option<ProcessOpinion>, bool, bool); 7] = [
        (Some(not), None, false, true),
        (Some(not), Some(RUNS), false, true),
        (None, None, true, true),
        (None, Some(exited), false, true),
        (Some(LISTENS), Some(exited), false, false),
        (Some(LISTENS), Some(RUNS), true, false),
        (None, None, false, false),
    ];
    for (listener, process, refused, gone) in table {
        let mut r = Rig::new();
        let v = r.observe(|o| (o.listener, o.process, o.refused) = (listener, process, refused));
        assert_eq!(v == Vouch::Gone, gone, "{listener:?} {process:?} {refused}");
    }
}

#[test]
fn listens_again_is_running() {
    let mut r = Rig::new();
    let not = ListenerView { listening: false, queue: 0, backlog: 0 };
    assert_eq!(r.observe(|o| o.listener = Some(not)), Vouch::Gone);
    assert_eq!(r.step(), Vouch::Running);
}

#[test]
fn our_own_pause_is_not_the_services_stall() {
    let mut r = Rig::new();
    r.progress();
    r.now += 2000;
    r.unread_since = vec![r.now - 1];
    let v = r.observe(|o| o.late = ms(2000));
    assert_eq!(v, Vouch::Working);
    r.unread_since = vec![r.now, r.now];
    r.until_not(Vouch::Working, 500);
    r.now += 5000;
    r.unread_since = vec![r.now - 20, r.now - 20];
    assert_eq!(r.observe(|o| o.late = ms(5000)), Vouch::Stalled, "patience does not run while we sleep");
}

#[test]
fn a_client_that_gives_up_ends_the_stall() {
    let mut r = Rig::new();
    r.progress();
    r.unread_since = vec![r.now, r.now];
    r.until_not(Vouch::Working, 500);
    r.unread_since.clear();
    assert_eq!(r.step(), Vouch::Working);
    assert_eq!(r.until_not(Vouch::Working, 500).0, Vouch::Idle);
}

#[test]
fn late_answers_are_a_stall_whatever_is_read_or_accepted_and_never_more() {
    let mut r = Rig::new();
    r.progress();
    (r.base.unanswered, r.base.slow) = (3, true);
    for i in 0..2000 {
        let queue = 4 - i % 4;
        let v = r.observe(|o| {
            o.progress = i % 2 == 0;
            o.listener = Some(ListenerView { queue, ..LISTENS });
        });
        assert_eq!(v, Vouch::Stalled, "{i}");
    }
    r.base.slow = false;
    assert_eq!(r.progress(), Vouch::Working);
}

#[test]
fn late_answers_need_no_view_of_process_or_socket() {
    let mut r = Rig::new();
    r.progress();
    (r.base.process, r.base.listener, r.base.slow, r.base.unanswered) = (None, None, true, 1);
    assert_eq!(r.step(), Vouch::Stalled);
}

#[test]
fn a_busy_service_that_stops_answering_is_stalled_first_and_busy_only_if_it_goes_on_burning() {
    let mut r = Rig::new();
    r.progress();
    (r.base.unanswered, r.base.oldest_unanswered, r.base.slow) = (1, ms(400), true);
    r.base.process = Some(ProcessOpinion { cpu_advancing: true, ..RUNS });
    r.step();
    let (v, after) = r.until_not(Vouch::Stalled, 1000);
    assert_eq!(v, Vouch::Busy);
    assert!((190..=205).contains(&after), "{after}");
    assert_eq!(r.until_not(Vouch::Busy, 10_000).0, Vouch::Stalled, "patience ends");
    assert_eq!(r.until_not(Vouch::Stalled, 10_000).0, Vouch::Stalled, "one sign alone never fails it");
}

#[test]
fn a_failing_probe_is_doubt_at_most_and_ends_with_work() {
    let mut r = Rig::new();
    r.progress();
    r.until_not(Vouch::Working, 500);
    r.base.probe = ProbeOpinion::Failing;
    assert_eq!(r.until_not(Vouch::Stalled, 60_000).0, Vouch::Stalled);
    assert_eq!(r.progress(), Vouch::Working);
    let stopped = ProcessOpinion { stopped: true, ..RUNS };
    assert_eq!(r.observe(|o| o.process = Some(stopped)), Vouch::Stopped, "proof is proof");
}

#[test]
fn a_probe_that_answers_is_life_while_nothing_is_asked_and_excuses_nothing() {
    let mut r = Rig::new();
    r.base.probe = ProbeOpinion::Alive;
    assert_eq!(r.step(), Vouch::Running);
    (r.base.process, r.base.listener) = (None, None);
    assert_eq!(r.step(), Vouch::Running, "nothing else need be seen");
    assert_eq!(r.progress(), Vouch::Working);
    r.unread_since = vec![r.now];
    assert_eq!(r.until_not(Vouch::Working, 500).0, Vouch::Stalled);
    r.unread_since.clear();
    (r.base.slow, r.base.unanswered) = (true, 1);
    assert_eq!(r.step(), Vouch::Stalled, "a health page of its own thread says nothing of the workers");
    let not = ListenerView { listening: false, queue: 0, backlog: 0 };
    assert_eq!(r.observe(|o| o.listener = Some(not)), Vouch::Gone);
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    /// One look: progress, unread connections, listener, process, slow, probe.
    type Look = (bool, usize, u8, u8, bool, u8);

    fn look() -> impl Strategy<Value = Look> {
        (any::<bool>(), 0usize..4, 0u8..4, 0u8..5, any::<bool>(), 0u8..3)
    }

    fn apply(o: &mut Observation<'_>, l: Look) {
        o.progress = l.0;
        o.listener = match l.2 {
            0 => None,
            1 => Some(ListenerView { listening: false, queue: 0, backlog: 0 }),
            n => Some(ListenerView { queue: u32::from(n), ..LISTENS }),
        };
        o.process = match l.3 {
            0 => None,
            1 => Some(ProcessOpinion { stopped: true, ..RUNS }),
            2 => Some(ProcessOpinion { gone: true, ..ProcessOpinion::default() }),
            3 => Some(ProcessOpinion { cpu_advancing: true, ..RUNS }),
            _ => Some(RUNS),
        };
        o.slow = l.4;
        o.probe = [ProbeOpinion::Unknown, ProbeOpinion::Alive, ProbeOpinion::Failing][usize::from(l.5)];
    }

    proptest! {
        /// What is FAILED needs proof, or two signs of a stall; late answers and probes alone never do it.
        #[test]
        fn nothing_fails_without_its_reason(looks in prop::collection::vec(look(), 1..400)) {
            let mut r = Rig::new();
            for l in looks {
                let unread = r.unread_since.len();
                if l.1 > unread { r.unread_since.push(r.now) } else if l.1 == 0 { r.unread_since.clear() }
                let mut seen = Observation::default();
                let v = r.observe(|o| { apply(o, l); (seen.listener, seen.process) = (o.listener, o.process); });
                let process = seen.process.unwrap_or_default();
                match v {
                    Vouch::Gone => prop_assert!(seen.listener.map_or(process.gone, |x| !x.listening)),
                    Vouch::Stopped => prop_assert!(process.stopped),
                    Vouch::Stuck => prop_assert!(!r.unread_since.is_empty()),
                    Vouch::Working => prop_assert!(!l.4),
                    _ => {}
                }
            }
        }

        /// Late answers and probes, with nothing unread and no CPU burning: never worse than doubted.
        #[test]
        fn slow_and_probe_alone_never_fail(looks in prop::collection::vec((any::<bool>(), any::<bool>(), 0u8..3), 1..600)) {
            let mut r = Rig::new();
            for (progress, slow, probe) in looks {
                let v = r.observe(|o| apply(o, (progress, 0, 2, 4, slow, probe)));
                prop_assert!(!matches!(v, Vouch::Stuck | Vouch::Stopped | Vouch::Gone | Vouch::Busy), "{v:?}");
            }
        }
    }
}
