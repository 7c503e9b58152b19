//! Pure: no IO, no clock. The service behind the peer's sidecar: it works or its process is stopped, and what its beats
//! say of it comes from the shipped fusion of evidence.

use std::time::Duration;

use super::gaps::{Gaps, Spec};
use super::rng::Rng;
use crate::evidence::fuse::{Fusion, Observation, Patience, ProcessOpinion};
use crate::stamp::Stamp;
use crate::verdict::Vouch;

/// The process is looked at on this grid, ns (detection.md section 4: each 5 ms while something is wrong or waits).
const LOOK_NS: u64 = 5_000_000;
/// The defaults of `[service]`.
const PATIENCE: Patience = Patience { stall: Duration::from_secs(1), busy: Duration::from_secs(2) };

/// What a batch says of the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The vouch of its beat.
    pub vouch: Vouch,
    /// Its beat says that an announced pause runs.
    pub frozen: bool,
    /// A maintenance frame is in it: a pause of that length begins.
    pub notice: Option<Duration>,
}

/// What comes next of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Notice,
    SeenStopped,
    SeenRunning,
}

/// See the module.
#[derive(Debug)]
pub struct Service {
    pauses: Gaps,
    notice: bool,
    fusion: Fusion,
    /// The pause that runs or comes next; None: there are none.
    pause: Option<(Stamp, Stamp)>,
    next: Step,
    frozen_until: Stamp,
}

impl Service {
    /// A service that stands still as the spec says. `notice`: somebody told its sidecar at the begin of each pause how
    /// long it takes.
    pub fn new(pauses: Option<Spec>, notice: bool, start: Stamp, rng: Rng) -> Service {
        let mut pauses = Gaps::new(pauses, start, rng);
        let pause = pauses.next(start);
        Service {
            pauses,
            notice,
            fusion: Fusion::new(PATIENCE),
            pause,
            next: Service::first(notice),
            frozen_until: Stamp::ZERO,
        }
    }

    fn first(notice: bool) -> Step {
        if notice { Step::Notice } else { Step::SeenStopped }
    }

    /// `t`, or the end of the pause that it lies in.
    pub fn delay(&mut self, t: Stamp) -> Stamp {
        self.pauses.delay(t)
    }

    /// When its sidecar has news of it: that is told at once.
    pub fn next_due(&self) -> Stamp {
        let Some((from, to)) = self.pause else { return Stamp::NEVER };
        match self.next {
            Step::Notice => from,
            Step::SeenStopped => seen(from),
            Step::SeenRunning => seen(to),
        }
    }

    /// What a batch that leaves at `now` says. `data`: the service had something to say.
    pub fn look(&mut self, now: Stamp, data: bool) -> Said {
        let mut notice = None;
        while let Some((from, to)) = self.pause.filter(|_| self.next_due() <= now) {
            self.next = match self.next {
                Step::Notice => {
                    notice = Some(to.since(from));
                    self.frozen_until = now + to.since(from);
                    Step::SeenStopped
                }
                Step::SeenStopped => Step::SeenRunning,
                Step::SeenRunning => {
                    self.pause = self.pauses.next(to);
                    Service::first(self.notice)
                }
            };
        }
        if self.pause.is_none() {
            return Said::default();
        }
        let stopped = self.next == Step::SeenRunning;
        let process = Some(ProcessOpinion { known: true, stopped, ..ProcessOpinion::default() });
        let vouch =
            self.fusion.observe(&Observation { now, progress: data, process, ..Observation::default() });
        Said { vouch, frozen: now < self.frozen_until, notice }
    }
}

/// The first look at or after `t`.
fn seen(t: Stamp) -> Stamp {
    Stamp::from_nanos(t.as_nanos().next_multiple_of(LOOK_NS))
}

#[cfg(test)]
mod tests {
    use super::super::gaps::Every;
    use super::*;

    const START: Stamp = Stamp::from_millis(10_000);

    /// Pauses of 500 ms after each 1 001 ms.
    fn service(notice: bool) -> Service {
        let spec = Some(Spec { every: Every::Fixed(1001.0), min: 500.0, max: 500.0 });
        Service::new(spec, notice, START, Rng::new(1))
    }

    fn at(ms: u64) -> Stamp {
        START + Duration::from_millis(ms)
    }

    #[test]
    fn a_pause_is_announced_seen_and_seen_to_be_over() {
        let mut s = service(true);
        assert_eq!((s.next_due(), s.delay(at(1200))), (at(1001), at(1501)));
        assert_eq!(s.look(at(1000), true), Said { vouch: Vouch::Working, ..Said::default() });
        let told = s.look(at(1001), false);
        assert_eq!((told.frozen, told.notice), (true, Some(Duration::from_millis(500))));
        assert_ne!(told.vouch, Vouch::Stopped, "not looked at yet");
        assert_eq!(s.next_due(), at(1005));
        let told = s.look(at(1005), false);
        assert_eq!(told, Said { vouch: Vouch::Stopped, frozen: true, notice: None });
        assert_eq!(s.next_due(), at(1505));
        let told = s.look(at(1505), false);
        assert_eq!(told, Said { vouch: Vouch::Running, frozen: false, notice: None });
        assert_eq!(s.next_due(), at(1501 + 1001));
    }

    #[test]
    fn without_notice_the_first_news_is_the_stopped_process() {
        let mut s = service(false);
        assert_eq!(s.next_due(), at(1005));
        assert_eq!(s.look(at(1005), false), Said { vouch: Vouch::Stopped, ..Said::default() });
    }

    #[test]
    fn a_service_that_never_stands_still_is_not_spoken_of() {
        let mut s = Service::new(None, true, START, Rng::new(1));
        assert_eq!((s.next_due(), s.look(at(5), true)), (Stamp::NEVER, Said::default()));
    }
}
