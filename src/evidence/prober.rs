//! Pure: no IO, no clock. Evidence E5: when to probe a service, and what the results mean (detection.md section 4).
//!
//! A probe is asked only while the service is quiet: traffic proves more than a probe, costs nothing, and is what the
//! service is for. What a probe said lasts until the service makes progress again.

use std::time::Duration;

use super::fuse::ProbeOpinion;
use crate::stamp::Stamp;

/// `[probe]` of the configuration, as far as time and counting go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanParams {
    /// Nothing was asked and nothing was answered for this long.
    pub idle: Duration,
    /// From the begin of a probe to the begin of the next.
    pub interval: Duration,
    /// Successes in a row that prove life.
    pub healthy: u32,
    /// Failures in a row that make it doubted.
    pub unhealthy: u32,
}

/// What the proxy and the hooks know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// When something was asked or answered last.
    pub last_sign: Stamp,
    /// When the service said something last.
    pub last_progress: Stamp,
    /// End of an announced pause: until then a silent service is no news.
    pub paused_until: Stamp,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing before this instant; look again then.
    Wait(Stamp),
    /// Probe, and tell [`Plan::done`]. One at a time.
    Ask,
}

/// The probe of one service.
#[derive(Clone, Debug)]
pub struct Plan {
    params: PlanParams,
    next: Stamp,
    begun: Option<Stamp>,
    good: u32,
    bad: u32,
    opinion: ProbeOpinion,
    said_at: Stamp,
}

impl Plan {
    /// The first probe is due after `idle`.
    pub fn new(params: PlanParams, now: Stamp) -> Plan {
        Plan {
            params,
            next: now + params.idle,
            begun: None,
            good: 0,
            bad: 0,
            opinion: ProbeOpinion::Unknown,
            said_at: now,
        }
    }

    /// What to do at `now`. After [`Step::Ask`] a probe is under way until [`Plan::done`].
    pub fn poll(&mut self, now: Stamp, seen: Activity) -> Step {
        self.outdated(seen);
        if let Some(begun) = self.begun {
            return Step::Wait(begun + self.params.interval);
        }
        let due = self.next.max(seen.last_sign + self.params.idle).max(seen.paused_until);
        if now < due {
            return Step::Wait(due);
        }
        self.begun = Some(now);
        self.next = now + self.params.interval;
        Step::Ask
    }

    /// The probe ended. True: it counts. Traffic since its begin says more than a probe, and in an announced pause only a
    /// success says anything.
    pub fn done(&mut self, now: Stamp, seen: Activity, ok: bool) -> bool {
        let Some(begun) = self.begun.take() else { return false };
        self.next = self.next.max(now);
        self.outdated(seen);
        if seen.last_progress > begun || (!ok && seen.paused_until > begun) {
            return false;
        }
        (self.good, self.bad) =
            if ok { (self.good.saturating_add(1), 0) } else { (0, self.bad.saturating_add(1)) };
        if self.good >= self.params.healthy {
            self.opinion = ProbeOpinion::Alive;
        } else if self.bad >= self.params.unhealthy {
            self.opinion = ProbeOpinion::Failing;
        }
        self.said_at = now;
        true
    }

    /// What the probes of this quiet time come to.
    pub fn opinion(&self) -> ProbeOpinion {
        self.opinion
    }

    /// Successes and failures in a row; one of them is 0.
    pub fn streak(&self) -> (u32, u32) {
        (self.good, self.bad)
    }

    fn outdated(&mut self, seen: Activity) {
        if seen.last_progress > self.said_at {
            (self.good, self.bad, self.opinion) = (0, 0, ProbeOpinion::Unknown);
            self.said_at = seen.last_progress;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    const PARAMS: PlanParams = PlanParams {
        idle: Duration::from_millis(1000),
        interval: Duration::from_millis(500),
        healthy: 2,
        unhealthy: 3,
    };

    fn at(ms: u64) -> Stamp {
        Stamp::from_millis(ms)
    }

    fn quiet_since(ms: u64) -> Activity {
        Activity { last_sign: at(ms), last_progress: at(ms), paused_until: Stamp::ZERO }
    }

    /// Probes with these results, each at its time; the opinion after each.
    fn run(plan: &mut Plan, from: u64, seen: Activity, results: &[bool]) -> Vec<ProbeOpinion> {
        let mut now = at(from);
        let mut said = Vec::new();
        for ok in results {
            while let Step::Wait(until) = plan.poll(now, seen) {
                assert!(until > now);
                now = until;
            }
            now = now + Duration::from_millis(3);
            assert!(plan.done(now, seen, *ok));
            said.push(plan.opinion());
        }
        said
    }

    #[test]
    fn successes_and_failures_must_come_in_a_row() {
        use ProbeOpinion::{Alive as A, Failing as F, Unknown as U};
        let table: [(&[bool], &[ProbeOpinion]); 5] = [
            (&[true, true, true], &[U, A, A]),
            (&[false, false, false, false], &[U, U, F, F]),
            (&[true, false, true, true], &[U, U, U, A]),
            (&[true, true, false, false, true, false, false, false], &[U, A, A, A, A, A, A, F]),
            (&[false, false, false, true, true], &[U, U, F, F, A]),
        ];
        for (results, wanted) in table {
            let mut plan = Plan::new(PARAMS, at(0));
            assert_eq!(run(&mut plan, 0, quiet_since(0), results), wanted, "{results:?}");
        }
    }

    #[test]
    fn only_when_nothing_was_asked_for_that_long_and_one_at_a_time() {
        let mut plan = Plan::new(PARAMS, at(0));
        assert_eq!(plan.poll(at(10), quiet_since(0)), Step::Wait(at(1000)));
        let asked = Activity { last_sign: at(900), ..quiet_since(100) };
        assert_eq!(plan.poll(at(1000), asked), Step::Wait(at(1900)));
        assert_eq!(plan.poll(at(1900), asked), Step::Ask);
        assert_eq!(plan.poll(at(1901), asked), Step::Wait(at(2400)));
        assert!(plan.done(at(1905), asked, true));
        assert_eq!(plan.poll(at(1905), asked), Step::Wait(at(2400)), "the interval counts from the begin");
        assert!(!plan.done(at(1906), asked, true), "there is none under way");
    }

    #[test]
    fn a_question_that_hangs_does_not_keep_probes_away() {
        let mut plan = Plan::new(PARAMS, at(0));
        let hangs = Activity { last_sign: at(5000), ..quiet_since(4000) };
        assert_eq!(plan.poll(at(6000), hangs), Step::Ask);
    }

    #[test]
    fn progress_outdates_what_was_said_and_what_is_under_way() {
        let mut plan = Plan::new(PARAMS, at(0));
        run(&mut plan, 0, quiet_since(0), &[false, false, false]);
        assert_eq!(plan.opinion(), ProbeOpinion::Failing);
        let asked = Activity { last_sign: at(9000), ..quiet_since(0) };
        plan.poll(at(9000), asked);
        assert_eq!(plan.opinion(), ProbeOpinion::Failing, "a question alone proves nothing");
        plan.poll(at(9001), quiet_since(9001));
        assert_eq!((plan.opinion(), plan.streak()), (ProbeOpinion::Unknown, (0, 0)));
        assert_eq!(plan.poll(at(10_001), quiet_since(9001)), Step::Ask);
        assert!(!plan.done(at(10_100), quiet_since(10_050), false), "traffic came meanwhile");
        assert_eq!(plan.streak(), (0, 0));
    }

    #[test]
    fn an_announced_pause_is_waited_out() {
        let mut plan = Plan::new(PARAMS, at(0));
        let paused = Activity { paused_until: at(7000), ..quiet_since(0) };
        assert_eq!(plan.poll(at(2000), paused), Step::Wait(at(7000)));
        assert_eq!(plan.poll(at(7000), paused), Step::Ask);
        plan.done(at(7001), paused, true);
        assert_eq!(plan.poll(at(7500), paused), Step::Ask);
        let again = Activity { paused_until: at(9000), ..paused };
        assert!(!plan.done(at(7600), again, false), "the pause began while the probe was under way");
    }

    proptest! {
        /// Whatever happens: never two at once, never within `idle` of a sign, never twice within `interval`, and in a
        /// long silence again and again.
        #[test]
        fn probes_keep_their_distance(events in prop::collection::vec((0u64..2000, 0u8..4), 1..200)) {
            let mut plan = Plan::new(PARAMS, at(0));
            let (mut now, mut seen, mut running, mut last) = (0, quiet_since(0), false, None::<u64>);
            for (gap, what) in events {
                now += gap;
                match what {
                    0 => seen = quiet_since(now),
                    1 => seen.last_sign = at(now),
                    2 if running => { plan.done(at(now), seen, gap % 2 == 0); running = false; }
                    _ => {}
                }
                if plan.poll(at(now), seen) == Step::Ask {
                    prop_assert!(!running);
                    prop_assert!(at(now) >= seen.last_sign + PARAMS.idle);
                    prop_assert!(last.is_none_or(|l| now - l >= 500));
                    (running, last) = (true, Some(now));
                } else if !running {
                    prop_assert!(at(now) < seen.last_sign + PARAMS.idle || last.is_some_and(|l| now < l + 500) || now < 1000);
                }
            }
        }
    }
}
