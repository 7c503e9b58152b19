//! What every worker may read of an upstream: state, mode and signs of life, in atomics; reports in a cold mutex.
//! Each endpoint has one owner (a worker) that writes its state; nobody else does.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::asking::Questions;
use super::balance::{Enforce, View};
use super::facts::{Facets, LinkPolicy, Mode};
use super::isolation::{Silence, self_isolated};
use super::starved::Lack;
use super::work::WorkSeen;
use crate::detector;
use crate::link::duty::Duty;
use crate::stamp::{Stamp, faded, nanos};
use crate::verdict::{Cause, State, Vouch};

/// No silence: no stamp is that late.
const NOT_SILENT: u64 = u64::MAX;
/// No link: nothing is known of silence. No endpoint is silent since the machine's start.
const UNWATCHED: u64 = 0;

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

    /// A connection of the service had no endpoint to go to.
    pub fn turned_away(&self, now: Stamp) {
        self.endpoints.iter().for_each(|e| e.questions.unanswered(now));
    }

    /// That none of its endpoints is ACTIVE, if so.
    fn lack(&self, now: Stamp) -> Option<Lack> {
        let all = || self.endpoints.iter();
        if self.endpoints.is_empty() || all().any(|e| e.state() == State::Active) {
            return None;
        }
        let failed = all().all(|e| e.state() == State::Failed);
        // A state that was published this instant may be seen before its time.
        let known = |at: Stamp| if at == Stamp::ZERO { now } else { at };
        Some(Lack {
            failed,
            since: all().map(|e| known(e.unwell_since(failed))).max().unwrap_or(now),
            waits: all().any(|e| e.questions.waiting()),
            let_down: all().map(|e| e.questions.let_down()).max().unwrap_or(Stamp::ZERO),
        })
    }
}

/// All upstreams of this process, and what they say together of the process itself.
#[derive(Default)]
pub struct Upstreams {
    all: Vec<Upstream>,
    /// Latest byte of a link that another machine dialled, CLOCK_MONOTONIC ns.
    inbound_heard: AtomicU64,
}

/// The latest byte of many connections, on all workers, is noted this exactly.
const NOTED_EACH: Duration = Duration::from_millis(1);

impl Upstreams {
    /// Those of the configuration.
    pub fn new(all: Vec<Upstream>) -> Arc<Upstreams> {
        Arc::new(Upstreams { all, inbound_heard: AtomicU64::new(0) })
    }

    /// Whether the service beside us lacks something it may need: an upstream without any ACTIVE endpoint.
    pub fn degraded(&self, now: Stamp) -> bool {
        self.all.iter().any(|u| u.lack(now).is_some())
    }

    /// Whether that is why it is slow, if it is (see [`super::starved`]).
    pub fn starved(&self, now: Stamp) -> bool {
        self.all.iter().filter_map(|u| u.lack(now)).any(|lack| lack.excuses(now))
    }

    /// A byte of another machine's link was read.
    pub fn heard_inbound(&self, now: Stamp) {
        let noted = Stamp::from_nanos(self.inbound_heard.load(Relaxed));
        if now.since(noted) >= NOTED_EACH {
            self.inbound_heard.store(now.as_nanos(), Relaxed);
        }
    }

    /// Whether so much is silent that we are the ones cut off (see [`super::isolation`]).
    pub fn self_isolated(&self) -> bool {
        let watched = || self.all.iter().flat_map(|u| &u.endpoints);
        let silences: Vec<Silence> = watched().filter_map(|e| e.silence()).collect();
        let heard = watched().map(|e| e.heard_anywhere()).max().unwrap_or(Stamp::ZERO);
        self_isolated(&silences, heard.max(Stamp::from_nanos(self.inbound_heard.load(Relaxed))))
    }
}

impl std::ops::Deref for Upstreams {
    type Target = [Upstream];

    fn deref(&self) -> &[Upstream] {
        &self.all
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
    /// Since when it is not ACTIVE, and since when FAILED, ns; 0: it is not.
    unwell: [AtomicU64; 2],
    by_proof: AtomicBool,
    draining: AtomicBool,
    /// Slow start, per mille.
    share: AtomicU32,
    /// Score, per mille.
    score: AtomicU32,
    framed: AtomicBool,
    /// Since when all its links are silent past their deadlines, ns; `NOT_SILENT`, or `UNWATCHED` without a link.
    silent: AtomicU64,
    heard: Vec<AtomicU64>,
    /// When each worker asked last on its links, since another one's was doubted, ns.
    asked: Vec<AtomicU64>,
    /// Which of its links hold the node's short promise.
    pub duty: Duty,
    /// Application connections on it.
    pub connections: AtomicUsize,
    /// What our own service waits for there.
    pub questions: Questions,
    /// What beats say of the work of its service.
    pub work: WorkSeen,
    /// The latest byte that came on a connection without a link, ns.
    answered: AtomicU64,
    /// The longest lateness that a link which has ended had learned, ns, and when it was asked, ns.
    peak: [AtomicU64; 2],
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
    /// Lateness of its loop, as the peer tells.
    pub noise_ms: Option<f64>,
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
    /// Until the deadline, ms; negative where it is over.
    pub deadline_ms: Option<f64>,
    /// The last thing that spoke for or against it, and how long ago, ms.
    pub last_evidence: Option<(String, f64)>,
    /// The last lateness of the loop that judges it, and how long ago, ms.
    pub own_stall: Option<(f64, f64)>,
    /// In its state for, ms.
    pub since_ms: f64,
    /// Nodes that its links lead to.
    pub nodes: usize,
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
            noise_ms: None,
            last_seq: None,
            mistakes: 0,
            outages_healed: 0,
            streams: 0,
            queue_ratio: None,
            backpressure: false,
            last_frame: None,
            expected: None,
            deadline_ms: None,
            last_evidence: None,
            own_stall: None,
            since_ms: 0.0,
            nodes: 0,
        }
    }
}

impl Shared {
    /// A new endpoint, seen by `workers` workers; `duty` of its links hold the short promise.
    pub fn new(
        index: usize,
        address: SocketAddr,
        link: SocketAddr,
        weight: u32,
        owner: usize,
        workers: usize,
        duty: usize,
    ) -> Shared {
        Shared {
            index,
            address,
            link,
            weight,
            owner,
            state: AtomicU8::new(State::Active.code()),
            unwell: [const { AtomicU64::new(0) }; 2],
            by_proof: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            share: AtomicU32::new(1000),
            score: AtomicU32::new(1000),
            framed: AtomicBool::new(false),
            silent: AtomicU64::new(UNWATCHED),
            heard: (0..workers).map(|_| AtomicU64::new(0)).collect(),
            asked: (0..workers).map(|_| AtomicU64::new(0)).collect(),
            duty: Duty::new(duty),
            connections: AtomicUsize::new(0),
            questions: Questions::default(),
            work: WorkSeen::default(),
            answered: AtomicU64::new(0),
            peak: [const { AtomicU64::new(0) }; 2],
            report: Mutex::default(),
        }
    }

    /// A link that had learned this lateness ended: what is learned is the node's. Two that end at the same instant may
    /// mix their numbers: harmless.
    pub fn keep_peak(&self, now: Stamp, peak: Duration, half_life: Duration) {
        if peak > self.peak(now, half_life) {
            self.peak[0].store(nanos(peak), Relaxed);
            self.peak[1].store(now.as_nanos(), Relaxed);
        }
    }

    /// What was kept, faded to `now`.
    pub fn peak(&self, now: Stamp, half_life: Duration) -> Duration {
        let [late, at] = [0, 1].map(|i| self.peak[i].load(Relaxed));
        faded(Duration::from_nanos(late), Stamp::from_nanos(at), now, half_life)
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

    /// Since when it is silent, for the question whether the fault is ours; None: no link watches it.
    fn silence(&self) -> Option<Silence> {
        let since = match self.silent.load(Relaxed) {
            UNWATCHED => return None,
            NOT_SILENT => None,
            at => Some(Stamp::from_nanos(at)),
        };
        Some(Silence { address: self.address.ip(), since })
    }

    /// Owner only: since when its links are silent, if they are; `watched`: it has, or had, links.
    pub fn publish_silence(&self, watched: bool, since: Option<Stamp>) {
        let silent = if watched { since.map_or(NOT_SILENT, Stamp::as_nanos) } else { UNWATCHED };
        self.silent.store(silent, Relaxed);
    }

    /// Since when it is FAILED, or else since when it is not ACTIVE; zero: it is.
    fn unwell_since(&self, failed: bool) -> Stamp {
        Stamp::from_nanos(self.unwell[usize::from(failed)].load(Relaxed))
    }

    /// Owner only.
    pub fn publish(&self, now: Stamp, v: &View, mode: Mode) {
        for (cell, is_so) in self.unwell.iter().zip([v.state != State::Active, v.state == State::Failed]) {
            match (is_so, cell.load(Relaxed)) {
                (true, 0) => cell.store(now.as_nanos(), Relaxed),
                (false, 1..) => cell.store(0, Relaxed),
                (true, 1..) | (false, 0) => {}
            }
        }
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

    /// Worker `w` asked the node on its links, all that it has.
    pub fn asked(&self, w: usize, now: Stamp) {
        if let Some(a) = self.asked.get(w) {
            a.store(now.as_nanos(), Relaxed);
        }
    }

    /// When the last of the workers that ever heard the node, other than `w`, asked it after `doubted`; NEVER if one has not
    /// yet, ZERO without any.
    pub fn asked_elsewhere(&self, w: usize, doubted: Stamp) -> Stamp {
        let stamp = |cell: &AtomicU64| Stamp::from_nanos(cell.load(Relaxed));
        let all = self.heard.iter().zip(&self.asked).enumerate();
        let others = all.filter(|(i, (heard, _))| *i != w && stamp(heard) != Stamp::ZERO);
        let asked =
            others.map(|(_, (_, asked))| stamp(asked)).map(|a| if a < doubted { Stamp::NEVER } else { a });
        asked.max().unwrap_or(Stamp::ZERO)
    }

    /// Latest arrival anywhere.
    pub fn heard_anywhere(&self) -> Stamp {
        self.heard_elsewhere(usize::MAX)
    }

    /// The service itself said something, on a connection without a link. No sign of its sidecar: that is [`Shared::heard`].
    pub fn note_answer(&self, now: Stamp) {
        if now.since(self.answered()) >= NOTED_EACH {
            self.answered.store(now.as_nanos(), Relaxed);
        }
    }

    /// When it last did, to any worker.
    pub fn answered(&self) -> Stamp {
        Stamp::from_nanos(self.answered.load(Relaxed))
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

#[cfg(test)]
mod tests {
    use super::super::asking::Asking;
    use super::*;

    fn upstream(addresses: &[&str]) -> Upstream {
        let params = UpstreamParams {
            name: "x".into(),
            remote: "x".into(),
            policy: LinkPolicy::Auto,
            per_connection: false,
            cut_after: None,
            max_failed: 0.5,
            connect_timeout: Duration::from_secs(1),
            detector: detector::Params::default(),
            shadows: Vec::new(),
        };
        let endpoint = |(i, a): (usize, &&str)| {
            let address: SocketAddr = a.parse().unwrap();
            Arc::new(Shared::new(i, address, address, 1, 0, 1, 1))
        };
        Upstream::new(params, Enforce::Failed, addresses.iter().enumerate().map(endpoint).collect())
    }

    fn at(s: u64) -> Stamp {
        Stamp::from_millis(s * 1000)
    }

    fn state(e: &Shared, s: u64, state: State) {
        let v = View { state, ..e.view() };
        e.publish(at(s), &v, Mode::Framed);
    }

    #[test]
    fn starved_is_an_upstream_without_an_active_endpoint() {
        let ups = Upstreams::new(vec![upstream(&["10.0.0.1:1", "10.0.0.2:1"]), upstream(&[])]);
        let [a, b] = &ups[0].endpoints[..] else { panic!("two endpoints") };
        let seen = |s| (ups.degraded(at(s)), ups.starved(at(s)));
        assert_eq!(seen(99), (false, false), "nothing is known, and an empty set starves nobody");
        state(a, 100, State::Failed);
        assert_eq!(seen(100), (false, false));
        state(b, 200, State::Suspect);
        assert_eq!(seen(203), (true, true));
        assert_eq!(seen(204), (true, false), "a doubt excuses for a moment");
        state(b, 300, State::Failed);
        state(b, 305, State::Failed);
        assert_eq!(
            (seen(310), seen(311)),
            ((true, true), (true, false)),
            "ten seconds since the last one failed"
        );
        state(a, 400, State::Active);
        assert_eq!(seen(400), (false, false));
        state(a, 500, State::Failed);
        assert_eq!(seen(505), (true, true), "another outage is another excuse");
    }

    #[test]
    fn starved_lasts_while_the_service_waits_for_that_upstream() {
        let ups = Upstreams::new(vec![upstream(&["10.0.0.1:1"]), upstream(&["10.0.0.2:1"])]);
        let [a, b] = [0, 1].map(|i| ups[i].endpoints[0].clone());
        state(&a, 100, State::Failed);
        let elsewhere = Asking::new(&b);
        assert!(!ups.starved(at(200)), "it waits for another one, which is well");
        let asking = Asking::new(&a);
        assert!(ups.starved(at(200)), "no way to it yet");
        asking.set(false);
        assert!(!ups.starved(at(200)), "a connection of a pool");
        asking.set(true);
        asking.set(true);
        assert!(ups.starved(at(200)), "a question");
        asking.set(false);
        drop((asking, elsewhere));
        assert!(!ups.starved(at(200)), "it was answered");
        assert_eq!(a.questions.let_down(), Stamp::ZERO);
        drop(Asking::new(&a));
        assert!(!a.questions.waiting() && a.questions.let_down() > Stamp::ZERO, "it got no answer");
        ups[0].turned_away(at(300));
        assert!(ups.starved(at(305)) && !ups.starved(at(306)), "it may try again");
    }

    #[test]
    fn a_worker_that_ever_heard_the_node_is_waited_for_until_it_asked() {
        let address: SocketAddr = "10.0.0.1:1".parse().unwrap();
        let e = Shared::new(0, address, address, 1, 0, 3, 1);
        assert_eq!(e.asked_elsewhere(0, at(9)), Stamp::ZERO, "nobody else has a link");
        e.heard(0, at(1));
        e.heard(1, at(1));
        e.asked(0, at(10));
        assert_eq!(e.asked_elsewhere(0, at(10)), Stamp::NEVER);
        e.asked(1, at(9));
        assert_eq!(e.asked_elsewhere(0, at(10)), Stamp::NEVER, "that was another doubt");
        e.asked(1, at(11));
        assert_eq!(e.asked_elsewhere(0, at(10)), at(11));
        assert_eq!(e.asked_elsewhere(1, at(10)), at(10));
        e.heard(2, at(11));
        assert_eq!(e.asked_elsewhere(0, at(10)), Stamp::NEVER, "the third has one now");
    }

    #[test]
    fn isolated_is_who_hears_nothing_from_anywhere() {
        let at = Stamp::from_millis;
        let ups = Upstreams::new(vec![
            upstream(&["10.0.0.1:1", "10.0.0.2:1"]),
            upstream(&["10.0.0.3:1", "10.0.0.4:1"]),
        ]);
        let all: Vec<_> = ups.iter().flat_map(|u| &u.endpoints).collect();
        for e in &all[..3] {
            e.heard(0, at(900));
            e.publish_silence(true, Some(at(1000)));
        }
        assert!(ups.self_isolated(), "the fourth was never linked: nobody watches it");
        all[3].publish_silence(true, None);
        assert!(!ups.self_isolated(), "the fourth speaks");
        all[3].publish_silence(true, Some(at(1050)));
        assert!(ups.self_isolated());
        ups.heard_inbound(at(1010));
        assert!(!ups.self_isolated(), "our network works");
    }
}
