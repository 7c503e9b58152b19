//! What every worker may read of an upstream: state, mode and signs of life, in atomics; reports in a cold mutex.
//! Each endpoint has one owner (a worker) that writes its state; nobody else does.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::balance::{Enforce, View};
use super::facts::{Facets, LinkPolicy, Mode};
use crate::detector;
use crate::stamp::Stamp;
use crate::verdict::{Cause, State, Vouch};

/// Name in configuration and reports.
pub fn enforce_name(e: Enforce) -> &'static str {
    match e {
        Enforce::Off => "off",
        Enforce::Suspect => "suspect",
        Enforce::Failed => "failed",
    }
}

/// Inverse of [`enforce_name`].
pub fn enforce_named(s: &str) -> Option<Enforce> {
    [Enforce::Off, Enforce::Suspect, Enforce::Failed].into_iter().find(|e| enforce_name(*e) == s)
}

/// Parameters of an upstream.
#[derive(Clone, Debug)]
pub struct UpstreamParams {
    /// Name.
    pub name: String,
    /// Name of the far inbound.
    pub remote: String,
    /// Link wanted?
    pub policy: LinkPolicy,
    /// One stream per link.
    pub per_connection: bool,
    /// Cut streams of an endpoint failed by silence after this.
    pub cut_after: Option<Duration>,
    /// Share of the set that silence may take out.
    pub max_failed: f64,
    /// For a new connection.
    pub connect_timeout: Duration,
    /// Parameters of the judges.
    pub detector: detector::Params,
    /// Laws that judge beside it and change nothing, by their names in the configuration.
    pub shadows: Vec<(&'static str, detector::Params)>,
}

/// A named set of endpoints.
pub struct Upstream {
    /// Parameters.
    pub params: UpstreamParams,
    enforce: AtomicU8,
    /// In configuration order.
    pub endpoints: Vec<Arc<Shared>>,
}

impl Upstream {
    /// A new upstream.
    pub fn new(params: UpstreamParams, enforce: Enforce, endpoints: Vec<Arc<Shared>>) -> Upstream {
        Upstream { params, enforce: AtomicU8::new(enforce as u8), endpoints }
    }

    /// What verdicts may do now.
    pub fn enforce(&self) -> Enforce {
        match self.enforce.load(Relaxed) {
            0 => Enforce::Off,
            1 => Enforce::Suspect,
            _ => Enforce::Failed,
        }
    }

    /// Changes it.
    pub fn set_enforce(&self, e: Enforce) {
        self.enforce.store(e as u8, Relaxed);
    }
}

/// The shared face of one endpoint.
pub struct Shared {
    /// Place in the upstream.
    pub index: usize,
    /// The service's own address.
    pub address: SocketAddr,
    /// Its sidecar's link port.
    pub link: SocketAddr,
    /// Relative share.
    pub weight: u32,
    /// The worker that owns the verdict.
    pub owner: usize,
    state: AtomicU8,
    by_proof: AtomicBool,
    draining: AtomicBool,
    /// Slow start, per mille.
    share: AtomicU32,
    /// Score, per mille.
    score: AtomicU32,
    framed: AtomicBool,
    heard: Vec<AtomicU64>,
    mru: AtomicU64,
    used_at: AtomicU64,
    /// Application connections on it.
    pub connections: AtomicUsize,
    report: Mutex<Report>,
}

/// What `/status` says of an endpoint; durations in ms.
#[derive(Clone, Debug)]
pub struct Report {
    /// Incarnation of the peer, if linked.
    pub incarnation: Option<u64>,
    /// Links of all workers.
    pub links: usize,
    /// Node id of the peer, if linked.
    pub node: Option<String>,
    /// State.
    pub state: State,
    /// min(link, service); None where nothing is known.
    pub score: Option<f64>,
    /// Link half.
    pub link_score: Option<f64>,
    /// Service half.
    pub service_score: Option<f64>,
    /// Why.
    pub cause: Cause,
    /// Last vouch.
    pub vouch: Vouch,
    /// The five facets.
    pub facets: Facets,
    /// Since the last sign of life.
    pub silence_ms: Option<f64>,
    /// Promise in force.
    pub promise_ms: Option<f64>,
    /// Round trip.
    pub rtt_ms: Option<f64>,
    /// Learned lateness.
    pub peak_ms: Option<f64>,
    /// Last beat heard.
    pub last_seq: Option<u32>,
    /// FAILED by silence that were wrong.
    pub mistakes: u64,
    /// FAILED that were right and ended.
    pub outages_healed: u64,
    /// Streams on links of the owner.
    pub streams: usize,
    /// Send queue.
    pub queue_ratio: Option<f64>,
    /// The peer is full.
    pub backpressure: bool,
    /// Stamp of the last frame.
    pub last_frame: Option<Stamp>,
    /// Deadline of the next.
    pub expected: Option<Stamp>,
}

impl Default for Report {
    fn default() -> Self {
        Report {
            incarnation: None,
            links: 0,
            node: None,
            state: State::Active,
            score: None,
            link_score: None,
            service_score: None,
            cause: Cause::None,
            vouch: Vouch::Unknown,
            facets: Facets::default(),
            silence_ms: None,
            promise_ms: None,
            rtt_ms: None,
            peak_ms: None,
            last_seq: None,
            mistakes: 0,
            outages_healed: 0,
            streams: 0,
            queue_ratio: None,
            backpressure: false,
            last_frame: None,
            expected: None,
        }
    }
}

impl Shared {
    /// A new endpoint, seen by `workers` workers.
    pub fn new(
        index: usize,
        address: SocketAddr,
        link: SocketAddr,
        weight: u32,
        owner: usize,
        workers: usize,
    ) -> Shared {
        Shared {
            index,
            address,
            link,
            weight,
            owner,
            state: AtomicU8::new(State::Active.code()),
            by_proof: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            share: AtomicU32::new(1000),
            score: AtomicU32::new(1000),
            framed: AtomicBool::new(false),
            heard: (0..workers).map(|_| AtomicU64::new(0)).collect(),
            mru: AtomicU64::new(0),
            used_at: AtomicU64::new(0),
            connections: AtomicUsize::new(0),
            report: Mutex::default(),
        }
    }

    /// State as last published.
    pub fn state(&self) -> State {
        State::from_code(self.state.load(Relaxed))
    }

    /// True if FAILED came by proof.
    pub fn by_proof(&self) -> bool {
        self.by_proof.load(Relaxed)
    }

    /// True if the peer is going away.
    pub fn draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    /// How new connections are made.
    pub fn mode(&self) -> Mode {
        if self.framed.load(Relaxed) { Mode::Framed } else { Mode::Plain }
    }

    /// The endpoint as the balancer sees it.
    pub fn view(&self) -> View {
        View {
            state: self.state(),
            by_proof: self.by_proof(),
            draining: self.draining(),
            weight: self.weight,
            share: f64::from(self.share.load(Relaxed)) / 1000.0,
            score: f64::from(self.score.load(Relaxed)) / 1000.0,
        }
    }

    /// Owner only.
    pub fn publish(&self, v: &View, mode: Mode) {
        self.share.store((v.share * 1000.0) as u32, Relaxed);
        self.score.store((v.score * 1000.0) as u32, Relaxed);
        self.by_proof.store(v.by_proof, Relaxed);
        self.draining.store(v.draining, Relaxed);
        self.framed.store(mode == Mode::Framed, Relaxed);
        self.state.store(v.state.code(), Relaxed);
    }

    /// Worker `w` heard the node.
    pub fn heard(&self, w: usize, now: Stamp) {
        if let Some(h) = self.heard.get(w) {
            h.store(now.as_nanos(), Relaxed);
        }
    }

    /// Latest arrival on workers other than `w`.
    pub fn heard_elsewhere(&self, w: usize) -> Stamp {
        let others = self.heard.iter().enumerate().filter(|(i, _)| *i != w);
        Stamp::from_nanos(others.map(|(_, h)| h.load(Relaxed)).max().unwrap_or(0))
    }

    /// Latest arrival anywhere.
    pub fn heard_anywhere(&self) -> Stamp {
        self.heard_elsewhere(usize::MAX)
    }

    /// Link `id` carries business now: it holds the short promise.
    pub fn used(&self, id: u64, now: Stamp) {
        self.used_at.store(now.as_nanos(), Relaxed);
        if self.mru.load(Relaxed) != id {
            self.mru.store(id, Relaxed);
        }
    }

    /// True if link `id` holds the node's short promise.
    pub fn on_duty(&self, id: u64) -> bool {
        let mru = self.mru.load(Relaxed);
        mru == id || mru == 0
    }

    /// True if link `id`, and no other, holds it.
    pub fn alone_on_duty(&self, id: u64) -> bool {
        self.mru.load(Relaxed) == id
    }

    /// The link that held it is gone.
    pub fn hand_over(&self, from: u64, to: u64) {
        let _ = self.mru.compare_exchange(from, to, Relaxed, Relaxed);
    }

    /// Last report.
    pub fn report(&self) -> Report {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Owner only.
    pub fn set_report(&self, r: Report) {
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = r;
    }
}
