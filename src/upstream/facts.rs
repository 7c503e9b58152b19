//! Pure: no IO, no clock. What goes into an endpoint and what comes out: the words of [`super::endpoint`].

use std::time::Duration;

use crate::verdict::{Cause, State};

/// Framed, plain, or as the peer can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LinkPolicy {
    /// Framed where the peer speaks it, else plain.
    #[default]
    Auto,
    /// Framed or nothing.
    Required,
    /// Plain.
    Off,
}

/// How connections are made now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Through the peer's sidecar.
    Framed,
    /// Straight to the service.
    Plain,
}

impl Mode {
    /// Name in metrics and `/status`.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Framed => "framed",
            Mode::Plain => "plain",
        }
    }
}

/// Parameters of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EndpointParams {
    /// Framed or plain.
    pub policy: LinkPolicy,
    /// Streams of an endpoint failed by silence are cut after this; None: never.
    pub cut_after: Option<Duration>,
    /// As in [`crate::detector::Params`].
    pub learn_max: Duration,
    /// Seed of the jitter of dials.
    pub seed: u64,
}

impl Default for EndpointParams {
    fn default() -> Self {
        EndpointParams {
            policy: LinkPolicy::Auto,
            cut_after: Some(Duration::from_secs(1)),
            learn_max: Duration::from_millis(500),
            seed: 0x5eed,
        }
    }
}

/// How a link ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLost {
    /// FIN without GOAWAY.
    Fin,
    /// RST without GOAWAY.
    Rst,
    /// The kernel gave up (TCP_USER_TIMEOUT, keepalive).
    TimedOut,
    /// After GOAWAY: planned.
    Goaway,
    /// We ended it.
    Cut,
    /// The peer broke the protocol.
    Protocol,
}

/// How a fresh dial of the link port ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialResult {
    /// WELCOME was read; [`super::endpoint::Endpoint::link_up`] follows.
    Welcomed,
    /// The kernel accepted, nothing came.
    AcceptedNoWelcome,
    /// Refused.
    Refused,
    /// Nothing answered.
    Unanswered,
    /// Accepted, but a foreign greeting, or closed at once.
    NotSidecar,
}

impl DialResult {
    /// Name in `/status`.
    pub const fn name(self) -> &'static str {
        match self {
            DialResult::Welcomed => "welcomed",
            DialResult::AcceptedNoWelcome => "accepted, no welcome",
            DialResult::Refused => "refused",
            DialResult::Unanswered => "unanswered",
            DialResult::NotSidecar => "not a sidecar",
        }
    }
}

/// What the service's own port does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// Accepts.
    Accepts,
    /// Refuses.
    Refused,
    /// Does not answer.
    Unanswered,
}

/// What a connection straight to the service tells of it (passive detection).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlainResult {
    /// Connected. A kernel does that for a process that is stopped, too.
    Accepted,
    /// The service said something.
    Answered,
    /// Nobody listens.
    Refused,
    /// The connect failed, or the service reset it before it had said anything.
    Reset,
    /// The service, which had answered on it before, reset it or ended it over an unanswered question.
    Broken,
    /// The connect was not answered in time.
    Timeout,
    /// What was sent on it is not acknowledged, though it was sent again and again, and nothing else is heard from there; or
    /// the kernel gave it up.
    Silent,
    /// A question waits far longer than questions to this service do, and nobody is answered.
    Late,
}

/// A change of state with its evidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transition {
    /// State before.
    pub from: State,
    /// State after.
    pub to: State,
    /// Why.
    pub cause: Cause,
    /// Score after, 0 to 1.
    pub score: f64,
    /// Link's half.
    pub link_score: f64,
    /// Service's half.
    pub service_score: f64,
    /// Silence past the deadline when doubt or verdict came; zero if none was needed.
    pub silence: Duration,
    /// To FAILED: by proof, not by silence.
    pub by_proof: bool,
    /// To ACTIVE: FAILED by silence was wrong.
    pub mistake: bool,
    /// To ACTIVE: FAILED was right and is over.
    pub outage_healed: bool,
    /// To FAILED: from the last sign of life; None if there never was one.
    pub detection: Option<Duration>,
}

/// What the endpoint wants done or known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EndpointOutput {
    /// The state changed.
    Transition(Transition),
    /// The state did not change, its cause did.
    CauseRefined(Cause),
    /// Open a fresh connection to the link port now; it replaces one that is still unanswered.
    FreshDial,
    /// Connect to the service's own port, plainly, and tell [`super::endpoint::Endpoint::service_port`].
    ProbeServicePort,
    /// Call [`crate::detector::LinkJudge::probe`] for that link: its healing must not wait for idle beats.
    Probe(u64),
    /// That link leads to a dead incarnation: close it and reset its streams.
    CutLink(u64),
    /// Whether that link gets new work: several nodes stand behind the address, and its own is not the best.
    NewWork(u64, bool),
    /// Reset the established streams of this endpoint.
    CutStreams,
    /// New connections go straight to the service.
    ModePlain,
    /// New connections go through the link.
    ModeFramed,
}

impl EndpointOutput {
    /// Means nothing to a generation that only serves what is open: words for people, and connections of its own.
    pub(super) fn is_for_the_living(&self) -> bool {
        !matches!(
            self,
            EndpointOutput::Probe(_)
                | EndpointOutput::NewWork(..)
                | EndpointOutput::CutLink(_)
                | EndpointOutput::CutStreams
        )
    }
}

/// The five facets of health (D10); None where nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facets {
    /// The service's process lives.
    pub alive: Option<bool>,
    /// It takes work.
    pub ready: Option<bool>,
    /// An upstream of its own has no ACTIVE endpoint.
    pub degraded: Option<bool>,
    /// Backpressure is fresh.
    pub saturated: Option<bool>,
    /// It answered lately; false: it is asked and stands still. Whether answers are right is unknown in TCP mode.
    pub business: Option<bool>,
}
