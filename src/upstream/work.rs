//! What beats say of the work of the service behind an endpoint, and the facets that follow from it (row D10). Links of any
//! worker tell it, the owner reads it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::facts::Facets;
use crate::stamp::Stamp;
use crate::verdict::{State, Vouch};
use crate::wire::Beat;

/// An answer given this long ago shows that the service does what it is for.
const LATELY: Duration = Duration::from_secs(5);

/// In atomics; nothing is known at first.
#[derive(Debug, Default)]
pub struct WorkSeen {
    /// CLOCK_MONOTONIC ns; 0: never.
    answered: AtomicU64,
    in_flight: AtomicBool,
    degraded: AtomicBool,
}

impl WorkSeen {
    /// A beat came; `answered`: it counts more answers than the one before on its link.
    pub fn beat(&self, now: Stamp, beat: &Beat, answered: bool) {
        if answered {
            self.answered.store(now.as_nanos(), Relaxed);
        }
        // They change seldom: other workers' caches keep the line.
        let set = |cell: &AtomicBool, value: bool| {
            if cell.load(Relaxed) != value {
                cell.store(value, Relaxed);
            }
        };
        set(&self.in_flight, beat.in_flight > 0);
        set(&self.degraded, beat.flags.degraded);
    }

    /// As of the last beat.
    pub fn read(&self) -> Work {
        Work {
            answered: Stamp::from_nanos(self.answered.load(Relaxed)),
            in_flight: self.in_flight.load(Relaxed),
            degraded: self.degraded.load(Relaxed),
        }
    }
}

/// What is known of a service's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// When its count of answers last rose; zero: never.
    pub answered: Stamp,
    /// Something is asked and not answered.
    pub in_flight: bool,
    /// An upstream of its own has no ACTIVE endpoint.
    pub degraded: bool,
}

impl Work {
    /// Adds to the facets of an endpoint with at least one link what its beats say. Without a link nothing is known.
    pub fn complete(&self, facets: Facets, state: State, vouch: Vouch, now: Stamp) -> Facets {
        Facets {
            degraded: facets.degraded.map(|starved| starved || self.degraded),
            business: facets.degraded.and_then(|_| self.business(state, vouch, now)),
            ..facets
        }
    }

    /// Yes: it answered lately. No: it is asked and stands still. What nobody asks is not known, nor what a silent peer does.
    fn business(&self, state: State, vouch: Vouch, now: Stamp) -> Option<bool> {
        match vouch {
            Vouch::Busy | Vouch::Stalled | Vouch::Stuck | Vouch::Stopped | Vouch::Gone => {
                self.in_flight.then_some(false)
            }
            Vouch::Unknown | Vouch::Working | Vouch::Idle | Vouch::Running => {
                let lately = self.answered != Stamp::ZERO && now.since(self.answered) <= LATELY;
                (lately && state != State::Failed).then_some(true)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::BeatFlags;

    fn at(s: u64) -> Stamp {
        Stamp::from_millis(s * 1000)
    }

    const LINKED: Facets =
        Facets { alive: None, ready: None, degraded: Some(false), saturated: Some(false), business: None };

    fn business(work: Work, state: State, vouch: Vouch, s: u64) -> Option<bool> {
        work.complete(LINKED, state, vouch, at(s)).business
    }

    #[test]
    fn answers_show_that_business_goes_on() {
        let work = Work { answered: at(100), ..Work::default() };
        for vouch in [Vouch::Working, Vouch::Idle, Vouch::Unknown, Vouch::Running] {
            assert_eq!(business(work, State::Active, vouch, 105), Some(true), "{vouch:?}");
            assert_eq!(business(work, State::Active, vouch, 106), None, "{vouch:?}: too long ago to say");
            assert_eq!(
                business(work, State::Failed, vouch, 101),
                None,
                "{vouch:?}: it is not heard any more"
            );
            assert_eq!(
                business(Work::default(), State::Active, vouch, 1),
                None,
                "{vouch:?}: it never answered"
            );
        }
    }

    #[test]
    fn work_that_stands_still_is_no_business() {
        let work = Work { answered: at(100), in_flight: true, degraded: false };
        for vouch in [Vouch::Busy, Vouch::Stalled, Vouch::Stuck, Vouch::Stopped, Vouch::Gone] {
            assert_eq!(business(work, State::Active, vouch, 100), Some(false), "{vouch:?}");
            let unasked = Work { in_flight: false, ..work };
            assert_eq!(business(unasked, State::Active, vouch, 100), None, "{vouch:?}: nobody asks");
        }
        assert_eq!(
            business(work, State::Active, Vouch::Working, 100),
            Some(true),
            "work in flight is normal"
        );
    }

    #[test]
    fn without_a_link_nothing_is_known() {
        let work = Work { answered: at(100), in_flight: true, degraded: true };
        let none = work.complete(Facets::default(), State::Active, Vouch::Stalled, at(100));
        assert_eq!(none, Facets::default());
    }

    #[test]
    fn degraded_outlasts_the_excuse() {
        let work = Work { degraded: true, ..Work::default() };
        assert_eq!(work.complete(LINKED, State::Active, Vouch::Idle, at(1)).degraded, Some(true));
        let starved = Facets { degraded: Some(true), ..LINKED };
        assert_eq!(Work::default().complete(starved, State::Active, Vouch::Idle, at(1)).degraded, Some(true));
    }

    #[test]
    fn the_last_beat_counts() {
        let seen = WorkSeen::default();
        assert_eq!(seen.read(), Work::default());
        let flags = BeatFlags { degraded: true, ..BeatFlags::default() };
        seen.beat(at(3), &Beat { in_flight: 2, flags, ..Beat::default() }, true);
        assert_eq!(seen.read(), Work { answered: at(3), in_flight: true, degraded: true });
        seen.beat(at(4), &Beat::default(), false);
        assert_eq!(seen.read(), Work { answered: at(3), in_flight: false, degraded: false });
    }
}
