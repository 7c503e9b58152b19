//! Pure: no IO, no clock. What `GET /status` and `sidebeat status --json` say. Fields may be added, never renamed.

use serde::{Deserialize, Serialize};

use crate::verdict::{Cause, State, Vouch};

/// The whole answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Node id.
    pub node: String,
    /// Version of the program.
    #[serde(default)]
    pub version: String,
    /// Random per start, 16 hexadecimal digits (a JSON number would lose bits).
    pub incarnation: String,
    /// Since the start, seconds.
    pub uptime_s: f64,
    /// Whether this sidecar is on its way out.
    pub draining: bool,
    /// What the local services reach through us.
    pub upstreams: Vec<Upstream>,
    /// What others reach through us.
    #[serde(default)]
    pub inbounds: Vec<Inbound>,
}

impl Status {
    /// Whether any endpoint is FAILED: exit code 3 of `sidebeat status`.
    pub fn any_failed(&self) -> bool {
        self.upstreams.iter().flat_map(|u| &u.endpoints).any(|e| e.state == State::Failed)
    }
}

/// A named set of endpoints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Upstream {
    /// Configured name.
    pub name: String,
    /// What verdicts may do now: `off`, `suspect`, `failed`.
    pub enforce: String,
    /// Where the local service connects.
    #[serde(default)]
    pub listen: Option<String>,
    /// Application connections open now.
    #[serde(default)]
    pub connections: Option<u64>,
    /// In the order of the configuration.
    pub endpoints: Vec<Endpoint>,
}

/// How an endpoint is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkKind {
    /// Over a link.
    Framed,
    /// Without a sidecar at the far end.
    Plain,
    /// Neither now.
    #[default]
    Down,
}

impl LinkKind {
    /// Name as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            LinkKind::Framed => "framed",
            LinkKind::Plain => "plain",
            LinkKind::Down => "down",
        }
    }
}

/// One face of health (row D10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Facet {
    /// It is so.
    Yes,
    /// It is not so.
    No,
    /// No evidence.
    #[default]
    Unknown,
}

/// The five faces of health (row D10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facets {
    /// Its process lives.
    pub alive: Facet,
    /// It takes work.
    pub ready: Facet,
    /// A dependency of it is in trouble.
    pub degraded: Facet,
    /// It is full.
    pub saturated: Facet,
    /// Work gets done.
    pub business: Facet,
}

/// Something that happened, and how long ago.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ago {
    /// What: words, or a length in ms.
    pub what: String,
    /// How long ago, ms.
    pub ms_ago: f64,
}

/// One endpoint. What is not known is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Address of the service.
    pub address: String,
    /// Node id from WELCOME.
    pub node: Option<String>,
    /// Incarnation of that node, 16 hexadecimal digits.
    #[serde(default)]
    pub incarnation: Option<String>,
    /// The verdict.
    pub state: State,
    /// min(link, service), 0-1.
    pub score: Option<f64>,
    /// min(hearing, being heard), 0-1.
    pub link_score: Option<f64>,
    /// From its vouches, 0-1.
    pub service_score: Option<f64>,
    /// Why it is in that state.
    pub cause: Cause,
    /// What its sidecar says of the service.
    pub vouch: Vouch,
    /// The five faces of health.
    pub facets: Facets,
    /// How it is reached.
    pub link: LinkKind,
    /// Since anything was heard, ms.
    pub silence_ms: Option<f64>,
    /// The promise now in force, ms.
    pub promise_ms: Option<f64>,
    /// Least round trip of the last 10 s, ms.
    pub rtt_ms: Option<f64>,
    /// Learned lateness, ms.
    pub peak_ms: Option<f64>,
    /// Lateness of its loop that the peer told, in force, ms.
    #[serde(default)]
    pub noise_ms: Option<f64>,
    /// Highest beat sequence heard.
    pub last_seq: Option<u32>,
    /// FAILED by silence that life disproved.
    pub mistakes: u64,
    /// Outages that ended.
    #[serde(default)]
    pub outages_healed: u64,
    /// Streams open to it.
    #[serde(default)]
    pub streams: Option<u64>,
    /// Links up to it.
    #[serde(default)]
    pub links: Option<u64>,
    /// Our send queue towards it, share of its cap, 0-1.
    #[serde(default)]
    pub queue_ratio: Option<f64>,
    /// Whether it says that it is full.
    #[serde(default)]
    pub backpressure: Option<bool>,
    /// In this state for, ms.
    #[serde(default)]
    pub since_ms: Option<f64>,
    /// Share of new work, as configured.
    #[serde(default)]
    pub weight: Option<u32>,
    /// Until the next beat must be here, ms; negative where it is late.
    #[serde(default)]
    pub deadline_ms: Option<f64>,
    /// The last thing that spoke for or against it.
    #[serde(default)]
    pub last_evidence: Option<Ago>,
    /// The last time the loop that judges it was late itself, and by how much.
    #[serde(default)]
    pub own_stall: Option<Ago>,
    /// Nodes behind this address that links lead to; more than one behind a virtual IP.
    #[serde(default)]
    pub nodes: Option<u64>,
}

impl Endpoint {
    /// An endpoint of which nothing is known yet.
    pub fn unknown(address: impl Into<String>) -> Endpoint {
        Endpoint {
            address: address.into(),
            node: None,
            incarnation: None,
            state: State::Active,
            score: None,
            link_score: None,
            service_score: None,
            cause: Cause::None,
            vouch: Vouch::Unknown,
            facets: Facets::default(),
            link: LinkKind::Down,
            silence_ms: None,
            promise_ms: None,
            rtt_ms: None,
            peak_ms: None,
            noise_ms: None,
            last_seq: None,
            mistakes: 0,
            outages_healed: 0,
            streams: None,
            links: None,
            queue_ratio: None,
            backpressure: None,
            since_ms: None,
            weight: None,
            deadline_ms: None,
            last_evidence: None,
            own_stall: None,
            nodes: None,
        }
    }
}

/// One local service that others reach through us.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Inbound {
    /// Configured name.
    pub name: String,
    /// Address of the service.
    #[serde(default)]
    pub service: Option<String>,
    /// Where links are accepted.
    #[serde(default)]
    pub link_listen: Option<String>,
    /// What we say of it.
    pub vouch: Vouch,
    /// The evidence behind the vouch: one JSON object, as a string.
    pub explain: String,
    /// What each evidence says now, in words; empty until the first look.
    #[serde(default)]
    pub evidence: Vec<String>,
    /// Connections to it open now.
    pub connections: u64,
    /// Links accepted and up now.
    pub links: u64,
}
