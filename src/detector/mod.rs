//! Pure: no IO, no clock. Who is silent, since when, and what that is worth (detection.md sections 1 to 3).
//!
//! A [`Detector`] turns arrivals into a score; a [`LinkJudge`] owns the detectors of one link, asks the peer before
//! it believes a silence, and blames itself first. Inputs are stamps and durations, never frames, so that live
//! traffic, a simulation and a recorded trace drive exactly the same code.

use std::fmt;
use std::time::Duration;

use crate::stamp::Stamp;
use gaps::Waiting;

pub mod ask;
pub mod being_heard;
pub mod catalog;
mod chen;
mod credit;
mod gaps;
pub mod huddm;
pub mod judge;
mod normal;
pub mod output;
mod p95;
mod phi;
pub mod promise;
mod ranked;
pub mod rtt;
pub mod shadows;
mod timeout;

pub use chen::ChenParams;
pub use judge::{End, Input, LinkJudge, Said, Tap};
pub use output::{Evidence, Facts, Gate, Output};
pub use p95::P95Params;
pub use phi::PhiParams;
pub use shadows::{Shadows, Shift};
pub use timeout::StepParams;

/// Below this score an endpoint is SUSPECT (H6).
pub const SUSPECT_BELOW: f64 = 0.5;
/// Below this score an endpoint is FAILED (H6).
pub const FAILED_BELOW: f64 = 0.2;
/// From here a FAILED endpoint is ACTIVE again (detection.md section 2).
pub const HEALED_FROM: f64 = 0.8;
/// What one frame is worth (H9).
pub const FRAME_WORTH: f64 = 0.2;
/// Frames that arrive closer together than this count once: a burst of queued frames after a stall is one sign.
pub const FRAME_SPACING: Duration = Duration::from_millis(5);
/// The least score while backpressure is fresh (H11).
pub const SATURATED_FLOOR: f64 = 0.7;
/// A link that does not speak for its node promises this (detection.md section 7). The laws that learn from gaps rest
/// while it is in force: silence that long is meant.
pub const OFF_DUTY: Duration = Duration::from_secs(10);
/// An own stall longer than this re-arms everything.
const LONG_STALL: Duration = Duration::from_millis(100);
/// Arrivals that SUSPECT needs to end.
const FRAMES_TO_TRUST: u64 = 2;
/// Scores are sums of 0.2: comparisons forgive their rounding.
pub(crate) const EPSILON: f64 = 1e-9;

/// Which law judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Kind {
    /// Promise, challenge, two laws (detection.md section 2).
    #[default]
    Promise,
    /// The published law: decay per 1 ms tick past the expected arrival (H7, H8).
    HuddmTick,
    /// The published field fix: decay only after a whole missed interval (H10).
    HuddmMiss,
    /// A fixed time after the last arrival (D4), or a number of intervals (T1, T4).
    Timeout,
    /// 1.8 times the 95th percentile of the last 30 gaps (T3).
    P95,
    /// Phi accrual: how unlikely the silence is by the gaps seen (D6).
    Phi,
    /// Expected arrival plus a margin (NFD-E of Chen, Toueg and Aguilera 2002).
    Chen,
}

/// Parameters of a detector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    /// Which law judges.
    pub kind: Kind,
    /// Least time constant of the decay; default 6 ms, 4 ms in the aggressive profile.
    pub tau_min: Duration,
    /// Longest silence past the deadline that is learned as lateness; longer ones were outages. Default 500 ms.
    pub learn_max: Duration,
    /// Half-life of the learned lateness; default 10 min.
    pub half_life: Duration,
    /// Added to each promise; default 1 ms.
    pub slack: Duration,
    /// Promise assumed before the first one is heard; default 100 ms.
    pub first_promise: Duration,
    /// Silence after the last arrival that is death to `timeout`; default 3 s (T4).
    pub timeout: Duration,
    /// Of `timeout` in steps; by default it takes none.
    pub steps: StepParams,
    /// Of `phi`.
    pub phi: PhiParams,
    /// Of `chen`.
    pub chen: ChenParams,
    /// Of `p95`.
    pub p95: P95Params,
}

impl Default for Params {
    fn default() -> Self {
        Params {
            kind: Kind::Promise,
            tau_min: Duration::from_millis(6),
            learn_max: Duration::from_millis(500),
            half_life: Duration::from_secs(600),
            slack: Duration::from_millis(1),
            first_promise: Duration::from_millis(100),
            timeout: Duration::from_secs(3),
            steps: StepParams::default(),
            phi: PhiParams::default(),
            chen: ChenParams::default(),
            p95: P95Params::default(),
        }
    }
}

impl Params {
    /// The defaults of a law.
    pub fn of(kind: Kind) -> Params {
        Params { kind, ..Params::default() }
    }

    /// Builds the detector that `kind` names. It counts `now` as its first arrival.
    pub fn build(&self, now: Stamp) -> Box<dyn Detector> {
        match self.kind {
            Kind::Promise => Box::new(promise::Promise::new(self, now)),
            Kind::HuddmTick => Box::new(huddm::Huddm::new(huddm::Decay::Tick, self, now)),
            Kind::HuddmMiss => Box::new(huddm::Huddm::new(huddm::Decay::Miss, self, now)),
            Kind::Timeout => {
                Box::new(Waiting::new(timeout::Timeout::new(self.timeout, &self.steps), self, now))
            }
            Kind::P95 => Box::new(Waiting::new(p95::P95::new(&self.p95), self, now)),
            Kind::Phi => Box::new(Waiting::new(phi::Phi::new(&self.phi), self, now)),
            Kind::Chen => Box::new(Waiting::new(chen::Chen::new(&self.chen), self, now)),
        }
    }
}

/// One law of judgement over the arrivals of one direction. Stamps may repeat; one that goes backwards counts as the
/// latest stamp seen.
pub trait Detector: fmt::Debug + Send + Fork {
    /// A sign of life arrived, with the promise that ends its batch if one was read. May be called twice for one
    /// arrival (bytes first, promise once decoded): it counts once.
    fn heard(&mut self, at: Stamp, promise: Option<Duration>);
    /// The least round trip time measured lately.
    fn set_rtt(&mut self, rtt: Duration);
    /// Until then silence means nothing.
    fn deadline(&self) -> Stamp;
    /// Silence that lasts until then makes SUSPECT: later than the deadline, not later than [`Detector::fail_at`].
    fn suspect_at(&self) -> Stamp;
    /// Silence that lasts until then makes FAILED, if no gate holds it.
    fn fail_at(&self) -> Stamp;
    /// Score at `now`, 0 to 1.
    fn score(&self, now: Stamp) -> f64;
    /// The silence up to `now` is explained: waits afresh, learns nothing from it.
    fn forgive(&mut self, now: Stamp);
    /// Our own loop slept from `from` to `to`: the part of it past the deadline does not count as silence.
    fn excuse(&mut self, from: Stamp, to: Stamp);
    /// The silence that ended last was explained by the peer: takes back what it taught. Laws that learn from every gap
    /// keep it: that is what was published.
    fn unlearn(&mut self);
    /// Backpressure arrived: the score is at least 0.7 and does not decay before `until`; the frame itself recovers
    /// nothing (H11).
    fn hold(&mut self, at: Stamp, until: Stamp);
    /// Whether only backpressure keeps this detector from FAILED at `now`.
    fn held(&self, now: Stamp) -> bool;
    /// Longest lateness remembered, decayed to `now`; zero for laws that do not learn it.
    fn peak(&self, now: Stamp) -> Duration;
    /// Another link to the same node remembers this lateness: it is paid for already. Nothing for laws that learn none.
    fn inherit(&mut self, _now: Stamp, _peak: Duration) {}
    /// The loops that beat and listen were late by this much lately, as they say themselves. Nothing for laws that do not ask.
    fn set_noise(&mut self, _noise: Duration) {}
    /// The latest arrival answered a question that no silence had raised: it is life, but no sample of the peer's rhythm.
    /// Laws that learn from gaps would expect the next one as soon, doubt, and be asked to ask again.
    fn answered(&mut self) {}
    /// Whether the law asks before it doubts.
    fn challenges(&self) -> bool;
    /// Promise (or expected interval) in force.
    fn promise(&self) -> Duration;
    /// Latest arrival; the start if none.
    fn last(&self) -> Stamp;
    /// Arrivals that counted for recovery so far.
    fn credits(&self) -> u64;
    /// When the last of them came.
    fn credited_at(&self) -> Stamp;
}

/// A copy of a law behind its trait: replay asks what it would say if nothing came any more. Every law that is `Clone` has it.
pub trait Fork {
    /// The copy.
    fn fork(&self) -> Box<dyn Detector>;
}

impl<T: Detector + Clone + 'static> Fork for T {
    fn fork(&self) -> Box<dyn Detector> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn Detector> {
    fn clone(&self) -> Self {
        (**self).fork()
    }
}

#[cfg(test)]
mod laws_tests;
#[cfg(test)]
mod reference_tests;
