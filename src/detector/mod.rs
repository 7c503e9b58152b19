//! Pure: no IO, no clock. Who is silent, since when, and what that is worth (detection.md sections 1 to 3).
//!
//! A [`Detector`] turns arrivals into a score; a [`LinkJudge`] owns the detectors of one link, asks the peer before
//! it believes a silence, and blames itself first. Inputs are stamps and durations, never frames, so that live
//! traffic, a simulation and a recorded trace drive exactly the same code.

use std::fmt;
use std::time::Duration;

use crate::stamp::Stamp;

pub mod ask;
pub mod being_heard;
pub mod huddm;
pub mod judge;
pub mod output;
pub mod promise;
pub mod rtt;

pub use judge::LinkJudge;
pub use output::{Evidence, Facts, Gate, Output};

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
        }
    }
}

impl Params {
    /// Builds the detector that `kind` names.
    pub fn build(&self, now: Stamp) -> Box<dyn Detector> {
        match self.kind {
            Kind::Promise => Box::new(promise::Promise::new(self, now)),
            Kind::HuddmTick => Box::new(huddm::Huddm::new(huddm::Decay::Tick, now)),
            Kind::HuddmMiss => Box::new(huddm::Huddm::new(huddm::Decay::Miss, now)),
        }
    }
}

/// One law of judgement over the arrivals of one direction. Stamps may repeat; one that goes backwards counts as the
/// latest stamp seen.
pub trait Detector: fmt::Debug + Send {
    /// A sign of life arrived, with the promise that ends its batch if one was read. May be called twice for one
    /// arrival (bytes first, promise once decoded): it counts once.
    fn heard(&mut self, at: Stamp, promise: Option<Duration>);
    /// The least round trip time measured lately.
    fn set_rtt(&mut self, rtt: Duration);
    /// Until then silence means nothing.
    fn deadline(&self) -> Stamp;
    /// Silence that lasts until then makes SUSPECT.
    fn suspect_at(&self) -> Stamp;
    /// Silence that lasts until then makes FAILED, if no gate holds it.
    fn fail_at(&self) -> Stamp;
    /// Score at `now`, 0 to 1.
    fn score(&self, now: Stamp) -> f64;
    /// The silence up to `now` is explained: waits afresh, learns nothing from it.
    fn forgive(&mut self, now: Stamp);
    /// Our own loop slept from `from` to `to`: the part of it past the deadline does not count as silence.
    fn excuse(&mut self, from: Stamp, to: Stamp);
    /// The silence that ended last was explained by the peer: takes back what it taught.
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
