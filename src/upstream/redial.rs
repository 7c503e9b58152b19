//! Pure: no IO, no clock. When to open a fresh connection: at once, after 100 ms, each 200 ms for 30 s, then each
//! second, with jitter (detection.md section 3). A peer that welcomes links and ends them is dialled at once a few times;
//! then the old series goes on.

use std::time::Duration;

use crate::stamp::Stamp;

const FIRST: Duration = Duration::from_millis(100);
const SOON: Duration = Duration::from_millis(200);
const SOON_FOR: Duration = Duration::from_secs(30);
const LATE: Duration = Duration::from_secs(1);
/// A peer that answered without being a sidecar is asked again after this.
const NEGATIVE: Duration = Duration::from_secs(30);
/// Between dials that race with the end of a dying process: its FIN comes a moment before its port closes.
const RACE: Duration = Duration::from_millis(1);
const RACES: u32 = 5;
/// A link that lived for so long after its dial was one.
const SETTLED: Duration = Duration::from_secs(2);
/// Series that may begin at once before one has brought such a link.
const EAGER: u32 = 3;
/// Jitter: up to this share is taken off each pause.
const JITTER: f64 = 0.2;

/// A series of dials.
#[derive(Clone, Debug)]
pub struct Redial {
    seed: u64,
    since: Stamp,
    dials: u32,
    races: u32,
    /// Latest dial, and series begun since a link had settled.
    latest: Stamp,
    eager: u32,
    next: Stamp,
}

impl Redial {
    /// Nothing due.
    pub fn new(seed: u64) -> Self {
        Redial {
            seed,
            since: Stamp::ZERO,
            dials: 0,
            races: 0,
            latest: Stamp::ZERO,
            eager: 0,
            next: Stamp::NEVER,
        }
    }

    /// Starts a series at `now`, unless one runs.
    pub fn start(&mut self, now: Stamp) {
        if self.next != Stamp::NEVER {
            return;
        }
        if now.since(self.latest) >= SETTLED {
            self.eager = 0;
        }
        if self.eager < EAGER {
            self.eager += 1;
            (self.since, self.dials, self.races, self.next) = (now, 0, 0, now);
        } else {
            // `dials` is of the series that goes on.
            let pause = self.pause(now);
            self.next = (self.latest + pause).max(now);
        }
    }

    /// Starts a series at `now`, even if one runs.
    pub fn restart(&mut self, now: Stamp) {
        self.next = Stamp::NEVER;
        self.start(now);
    }

    /// Ends the series.
    pub fn stop(&mut self) {
        self.next = Stamp::NEVER;
    }

    /// The peer is no sidecar: ask again in half a minute.
    pub fn remember_negative(&mut self, now: Stamp) {
        self.next = now + self.jittered(NEGATIVE);
    }

    /// The answer raced with the peer's end: ask again in a millisecond, a few times.
    pub fn race(&mut self, now: Stamp) {
        if self.races < RACES {
            self.races += 1;
            self.next = self.next.min(now + RACE);
        }
    }

    /// When the next dial is due; NEVER if no series runs.
    pub fn due(&self) -> Stamp {
        self.next
    }

    /// A dial is handed to the shell.
    pub fn dialled(&mut self, now: Stamp) {
        let pause = self.pause(now);
        self.dials = self.dials.saturating_add(1);
        self.latest = now;
        self.next = now + pause;
    }

    fn pause(&mut self, now: Stamp) -> Duration {
        self.jittered(match self.dials {
            0 => FIRST,
            _ if now.since(self.since) < SOON_FOR => SOON,
            _ => LATE,
        })
    }

    fn jittered(&mut self, pause: Duration) -> Duration {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let share = (self.seed >> 40) as f64 / (1u64 << 24) as f64;
        pause.mul_f64(1.0 - JITTER * share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(seed: u64, n: usize) -> Vec<u64> {
        let mut at = Stamp::from_millis(1000);
        let mut dial = Redial::new(seed);
        dial.start(at);
        assert_eq!(dial.due(), at);
        (0..n)
            .map(|_| {
                dial.dialled(at);
                let gap = dial.due().since(at).as_millis() as u64;
                at = dial.due();
                gap
            })
            .collect()
    }

    #[test]
    fn at_once_then_100_then_200_then_each_second() {
        let g = gaps(7, 250);
        assert!((80..=100).contains(&g[0]));
        assert!(g[1..100].iter().all(|g| (160..=200).contains(g)), "{g:?}");
        assert!(g[220..].iter().all(|g| (800..=1000).contains(g)), "{g:?}");
        assert_ne!(gaps(1, 20), gaps(2, 20), "jitter follows the seed");
    }

    #[test]
    fn a_peer_that_welcomes_and_leaves_is_not_dialled_without_end() {
        let (mut dial, begin) = (Redial::new(9), Stamp::from_millis(5000));
        let (mut now, mut dials) = (begin, Vec::new());
        // Each dial brings a link that is lost a millisecond later.
        while now.since(begin) < Duration::from_secs(60) {
            dial.restart(now);
            now = dial.due().max(now);
            dials.push(now);
            dial.dialled(now);
            dial.stop();
            now = now + Duration::from_millis(1);
        }
        let within = |ms: u64| dials.iter().filter(|d| d.since(begin).as_millis() < u128::from(ms)).count();
        assert!((3..=4).contains(&within(50)), "{}", within(50));
        assert!(within(1000) <= 10 && within(30_000) <= 190, "{} {}", within(1000), within(30_000));
        assert!(dials.len() <= within(30_000) + 45, "each second after half a minute: {}", dials.len());
        // A link that stays for a while makes up for it.
        now = now + SETTLED;
        dial.restart(now);
        assert_eq!(dial.due(), now);
    }

    #[test]
    fn races_are_few() {
        let mut dial = Redial::new(1);
        let mut at = Stamp::from_millis(1000);
        dial.start(at);
        for i in 0..10 {
            dial.dialled(at);
            dial.race(at);
            let gap = dial.due().since(at);
            assert_eq!(gap == RACE, i < RACES, "{i}: {gap:?}");
            at = dial.due();
        }
    }

    #[test]
    fn a_negative_answer_lasts_half_a_minute() {
        let mut dial = Redial::new(3);
        dial.start(Stamp::ZERO);
        dial.dialled(Stamp::ZERO);
        dial.remember_negative(Stamp::ZERO);
        assert!((24..=30).contains(&dial.due().since(Stamp::ZERO).as_secs()));
        dial.stop();
        assert_eq!(dial.due(), Stamp::NEVER);
    }
}
