//! Pure: no IO, no clock. When to look next.

use std::time::Duration;

use crate::stamp::Stamp;
use crate::verdict::Vouch;

/// While something is unanswered, or the service is in trouble.
pub const FAST: Duration = Duration::from_millis(5);
/// While questions were asked lately: a process that is stopped between two of them is seen before the next one.
const LATELY: Duration = Duration::from_millis(20);
/// An answer is of late for this long.
pub const LATELY_WITHIN: Duration = Duration::from_secs(1);
/// While nothing is asked.
pub const SLOW: Duration = Duration::from_millis(100);
/// A trouble or a question of old: it will be seen in time all the same.
const OLD_INTERVAL: Duration = Duration::from_millis(25);
/// Trouble, or a question, is old after this.
const OLD: Duration = Duration::from_secs(30);
/// Connections that one fast look may walk over; with more of them looks become rarer.
const CONNS_PER_LOOK: usize = 500;
/// Looks after a FIN or RST of the service, us: the kernel closes a dead process's listener after its connections, within
/// less than a millisecond or a few.
const FOLLOW_UPS_US: [u64; 6] = [250, 500, 1000, 2000, 3000, 5000];
/// Looks for FINs in a row before they are spaced out: services that close each connection themselves.
const END_CREDIT: f64 = 16.0;
/// Credit that comes back per second.
const END_CREDIT_RATE: f64 = 100.0;
/// Spacing of looks without credit.
const END_SPACING: Duration = Duration::from_millis(10);

/// What the next look depends on.
#[derive(Clone, Copy, Debug)]
pub struct Situation {
    /// Vouch after the last look.
    pub vouch: Vouch,
    /// Connections with something unanswered.
    pub unanswered: usize,
    /// Age of the oldest of them.
    pub oldest: Duration,
    /// Connections in all.
    pub conns: usize,
    /// The owner of the listener is being searched.
    pub searching: bool,
    /// Something was answered within [`LATELY_WITHIN`].
    pub lately: bool,
}

/// Decides when a service is looked at.
#[derive(Clone, Debug)]
pub struct Schedule {
    last: Option<Stamp>,
    due: Stamp,
    follow_ups: Vec<Stamp>,
    trouble_since: Option<Stamp>,
    credit: f64,
}

impl Default for Schedule {
    fn default() -> Self {
        Schedule::new()
    }
}

impl Schedule {
    /// The first look is due at once.
    pub fn new() -> Schedule {
        Schedule {
            last: None,
            due: Stamp::ZERO,
            follow_ups: Vec::new(),
            trouble_since: None,
            credit: END_CREDIT,
        }
    }

    /// When to look: `oldest_since` is the begin of the oldest question, if any; `ended`: a FIN, RST or refusal came that
    /// was not looked at.
    pub fn next_due(&self, oldest_since: Option<Stamp>, ended: bool) -> Stamp {
        let last = self.last.unwrap_or(Stamp::ZERO);
        let mut due = self.follow_ups.iter().copied().fold(self.due, Stamp::min);
        if let Some(since) = oldest_since {
            due = due.min(since.max(last) + FAST);
        }
        if ended {
            let spaced = if self.credit >= 1.0 { last } else { last + END_SPACING };
            due = due.min(spaced);
        }
        due
    }

    /// A look was taken at `now`; `ended`: it answers a FIN, RST or refusal.
    pub fn looked(&mut self, now: Stamp, ended: bool, s: Situation) {
        let passed = self.last.map_or(0.0, |l| now.since(l).as_secs_f64());
        self.credit = (self.credit + passed * END_CREDIT_RATE).min(END_CREDIT);
        self.follow_ups.retain(|f| *f > now);
        if ended {
            if self.credit >= 1.0 {
                self.credit -= 1.0;
                // A walk over many connections is not made six times for each end.
                let few = if s.conns > CONNS_PER_LOOK { FOLLOW_UPS_US.len() - 2 } else { 0 };
                self.follow_ups =
                    FOLLOW_UPS_US[few..].iter().map(|us| now + Duration::from_micros(*us)).collect();
            } else {
                self.credit = 0.0;
            }
        }
        let trouble =
            matches!(s.vouch, Vouch::Busy | Vouch::Stalled | Vouch::Stuck | Vouch::Stopped | Vouch::Gone);
        self.trouble_since = if trouble { self.trouble_since.or(Some(now)) } else { None };
        self.last = Some(now);
        self.due = now + self.interval(now, s);
    }

    /// Something was asked during the look.
    pub fn hasten(&mut self, now: Stamp) {
        self.due = self.due.min(now + FAST);
    }

    fn interval(&self, now: Stamp, s: Situation) -> Duration {
        let recent = self.trouble_since.is_some_and(|t| now.since(t) < OLD);
        let base = match (s.unanswered > 0, self.trouble_since.is_some()) {
            (true, _) if s.oldest < OLD => FAST,
            (_, true) if recent => FAST,
            (true, _) | (_, true) => OLD_INTERVAL,
            (false, false) if s.lately => LATELY,
            (false, false) => SLOW,
        };
        let crowd = u32::try_from(s.conns / CONNS_PER_LOOK).unwrap_or(u32::MAX).max(1);
        let interval = base.saturating_mul(crowd).min(SLOW);
        if s.searching { interval.min(FAST * 2) } else { interval }
    }
}

/// Beats after a service came back from the dead, so that an observer's trust does not wait for the next idle beat
/// (detection.md section 4). They go on while it works: its next answer may be far.
#[derive(Clone, Copy, Debug)]
pub struct Recovery {
    left: u32,
    next: Stamp,
}

/// So many beats, at this pace.
const RECOVERY: (u32, Duration) = (8, Duration::from_millis(5));

impl Default for Recovery {
    fn default() -> Self {
        Recovery { left: 0, next: Stamp::NEVER }
    }
}

impl Recovery {
    /// The vouch changed at `now`, and was told.
    pub fn changed(&mut self, now: Stamp, before: Vouch, after: Vouch) {
        let dead = |v| matches!(v, Vouch::Stopped | Vouch::Gone);
        let well = matches!(after, Vouch::Working | Vouch::Running | Vouch::Idle | Vouch::Unknown);
        if !well {
            *self = Recovery::default();
        } else if dead(before) {
            *self = Recovery { left: RECOVERY.0, next: now + RECOVERY.1 };
        }
    }

    /// When the next beat is due.
    pub fn due(&self) -> Stamp {
        self.next
    }

    /// True if a beat is due at `now`; it counts as sent.
    pub fn beat(&mut self, now: Stamp) -> bool {
        if now < self.next {
            return false;
        }
        self.left = self.left.saturating_sub(1);
        self.next = if self.left > 0 { now + RECOVERY.1 } else { Stamp::NEVER };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Situation = Situation {
        vouch: Vouch::Idle,
        unanswered: 0,
        oldest: Duration::ZERO,
        conns: 1,
        searching: false,
        lately: false,
    };

    fn ms(n: u64) -> Stamp {
        Stamp::from_millis(n)
    }

    #[test]
    fn idle_is_slow_and_questions_or_trouble_are_fast() {
        let table = [
            (IDLE, 100),
            (Situation { unanswered: 1, ..IDLE }, 5),
            (Situation { unanswered: 1, oldest: Duration::from_secs(31), ..IDLE }, 25),
            (Situation { vouch: Vouch::Gone, ..IDLE }, 5),
            (Situation { vouch: Vouch::Stopped, ..IDLE }, 5),
            (Situation { unanswered: 900, conns: 1000, ..IDLE }, 10),
            (Situation { unanswered: 900, conns: 1_000_000, ..IDLE }, 100),
            (Situation { searching: true, ..IDLE }, 10),
        ];
        for (s, interval) in table {
            let mut x = Schedule::new();
            assert_eq!(x.next_due(None, false), Stamp::ZERO);
            x.looked(ms(1000), false, s);
            assert_eq!(x.next_due(None, false), ms(1000 + interval), "{s:?}");
        }
    }

    #[test]
    fn a_question_asked_while_asleep_is_looked_at_after_five_ms() {
        let mut x = Schedule::new();
        x.looked(ms(1000), false, IDLE);
        assert_eq!(x.next_due(Some(ms(1030)), false), ms(1035));
        assert_eq!(x.next_due(Some(ms(900)), false), ms(1005));
    }

    #[test]
    fn a_fin_is_looked_at_again_soon_and_then_no_more() {
        let mut x = Schedule::new();
        x.looked(ms(1000), false, IDLE);
        assert!(x.next_due(None, true) <= ms(1000));
        x.looked(ms(1020), true, IDLE);
        for us in FOLLOW_UPS_US {
            let at = ms(1020) + Duration::from_micros(us);
            assert_eq!(x.next_due(None, false), at);
            x.looked(at, false, IDLE);
        }
        assert_eq!(x.next_due(None, false), ms(1125));
    }

    #[test]
    fn a_service_that_answers_lately_is_looked_at_each_20_ms() {
        let mut x = Schedule::new();
        x.looked(ms(1000), false, Situation { lately: true, ..IDLE });
        assert_eq!(x.next_due(None, false), ms(1020));
        x.looked(ms(1020), false, Situation { unanswered: 1, lately: true, ..IDLE });
        assert_eq!(x.next_due(None, false), ms(1025));
    }

    #[test]
    fn a_service_that_closes_each_connection_does_not_cost_a_look_each() {
        let mut x = Schedule::new();
        let mut looks = 0;
        for us in 0..1_000_000u64 {
            let now = Stamp::from_nanos(1_000_000_000 + us * 1000);
            if x.next_due(None, true) <= now {
                x.looked(now, true, IDLE);
                looks += 1;
            }
        }
        assert!((90..600).contains(&looks), "{looks}");
    }

    #[test]
    fn old_trouble_is_looked_at_less_often() {
        let mut x = Schedule::new();
        let gone = Situation { vouch: Vouch::Gone, ..IDLE };
        x.looked(ms(1000), false, gone);
        x.looked(ms(40_000), false, gone);
        assert_eq!(x.next_due(None, false), ms(40_025));
        x.looked(ms(41_000), false, IDLE);
        x.looked(ms(42_000), false, gone);
        assert_eq!(x.next_due(None, false), ms(42_005));
    }

    #[test]
    fn beats_of_recovery_go_on_when_the_service_works_and_end_when_it_falls_again() {
        let at = Stamp::from_millis;
        let mut r = Recovery::default();
        r.changed(at(1000), Vouch::Working, Vouch::Stopped);
        assert_eq!(r.due(), Stamp::NEVER);
        r.changed(at(2000), Vouch::Stopped, Vouch::Running);
        assert!(!r.beat(at(2004)) && r.beat(at(2005)));
        r.changed(at(2006), Vouch::Running, Vouch::Working);
        let beats = (2006..3000).filter(|ms| r.beat(at(*ms))).count();
        assert_eq!(beats, 7, "eight in all");
        r.changed(at(4000), Vouch::Gone, Vouch::Running);
        r.changed(at(4003), Vouch::Running, Vouch::Stalled);
        assert_eq!(r.due(), Stamp::NEVER);
    }
}
