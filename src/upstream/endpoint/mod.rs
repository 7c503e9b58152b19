//! Pure: no IO, no clock. One endpoint: health = min(link, service), state, cause, and what to do about it.
//!
//! ```text
//!            doubt                  silence or proof
//!   ACTIVE ---------> SUSPECT ------------------------> FAILED
//!     ^  \________________________proof________________/  |
//!     +------- 2 frames, >= 0.5 ---+------ >= 0.8 ---------+
//! ```

mod reading;

use std::time::Duration;

pub use super::facts::{
    DialResult, EndpointOutput, EndpointParams, Facets, LinkLost, LinkPolicy, Mode, PlainResult, PortState,
    Transition,
};
use super::link_side::{Healed, LinkSide, Up};
use super::nodes::Nodes;
use super::redial::Redial;
use crate::detector::Output;
use crate::stamp::Stamp;
use crate::verdict::{Cause, State, Vouch};

/// After FAILED the share of new work grows from a tenth to the whole within this.
const SLOW_START: Duration = Duration::from_secs(10);
const SLOW_START_FROM: f64 = 0.1;
/// Backpressure is fresh for this long after its last sign.
const SATURATED_FOR: Duration = Duration::from_secs(1);
/// How often it is asked anew whether everything is still silent.
pub const ISOLATION_CHECK: Duration = Duration::from_millis(20);
/// Who drains may have a successor behind the same address (a reload, another pod): it is looked for within this, and
/// then again and again.
const SUCCESSOR_WITHIN: Duration = Duration::from_millis(500);
const SUCCESSOR_EVERY: Duration = Duration::from_secs(5);
/// A fresh link to a node that is not ACTIVE is asked in rounds, this far apart.
const PROBE_AGAIN: Duration = Duration::from_millis(100);

/// State of one endpoint.
#[derive(Clone, Debug)]
pub struct Endpoint {
    params: EndpointParams,
    link: LinkSide,
    service: Nodes,
    state: State,
    cause: Cause,
    told_mode: Mode,
    saturated_until: Stamp,
    restarted: bool,
    dials: Redial,
    ports: Redial,
    probes: Option<(u64, Stamp)>,
    stale: Vec<u64>,
    cut_at: Stamp,
    /// While the peer drains: when its successor is looked for, behind the same address.
    successor_at: Stamp,
    /// And not before: one that was found may drain too.
    successor_from: Stamp,
    /// What was cut since FAILED: nothing, or for silence, or for proof.
    cut_done: Option<bool>,
    failed_before: bool,
    healed_at: Option<Stamp>,
    mistakes: u64,
    outages_healed: u64,
}

impl Endpoint {
    /// An endpoint of which nothing is known: it takes work.
    pub fn new(params: EndpointParams, now: Stamp) -> Self {
        let link = LinkSide::new(&params, now);
        let mut endpoint = Endpoint {
            params,
            told_mode: link.mode(),
            link,
            service: Nodes::new(),
            state: State::Active,
            cause: Cause::None,
            saturated_until: Stamp::ZERO,
            restarted: false,
            dials: Redial::new(params.seed),
            ports: Redial::new(params.seed.rotate_left(17)),
            probes: None,
            stale: Vec::new(),
            cut_at: Stamp::NEVER,
            successor_at: Stamp::NEVER,
            successor_from: Stamp::ZERO,
            cut_done: None,
            failed_before: false,
            healed_at: None,
            mistakes: 0,
            outages_healed: 0,
        };
        endpoint.schedule(now);
        endpoint
    }

    // === inputs: links ===

    /// WELCOME was read on a new link.
    pub fn link_up(&mut self, now: Stamp, link: u64, incarnation: u64) {
        if self.params.policy == LinkPolicy::Off {
            return;
        }
        if self.link.link_up(now, link, incarnation, &mut self.stale) == Up::Restart {
            self.service.restart(now, link, incarnation);
            self.restarted = true;
        } else {
            self.service.link_up(now, link, incarnation);
        }
        self.probes = (self.link.state() != State::Active).then_some((link, now));
        self.successor_at = Stamp::NEVER;
        self.schedule(now);
    }

    /// The judge of a link said something.
    pub fn link_output(&mut self, now: Stamp, link: u64, output: &Output) {
        self.link.link_output(now, link, output);
        self.schedule(now);
    }

    /// Anything was read on a link. Cheap: may be called for every read.
    pub fn link_heard(&mut self, now: Stamp, link: u64) {
        let doubted = self.link.state() != State::Active;
        self.link.link_heard(now, link);
        if doubted {
            self.schedule(now);
        }
    }

    /// Score of a link as its judge sees it, so that `/status` shows a decay in progress. Optional.
    pub fn link_scored(&mut self, link: u64, score: f64) {
        self.link.link_scored(link, score);
    }

    /// A link ended.
    pub fn link_lost(&mut self, now: Stamp, link: u64, how: LinkLost) {
        self.link.link_lost(now, link, how);
        self.service.link_lost(now, link);
        if self.link.dying(now) {
            self.dials.restart(now);
        }
        self.schedule(now);
    }

    /// GOAWAY was read on a link: no new work, never a failure.
    pub fn goaway(&mut self, now: Stamp) {
        self.link.goaway();
        if self.params.policy != LinkPolicy::Off && self.successor_at == Stamp::NEVER {
            // All observers hear it at the same instant: they must not all come at once.
            let share = (self.params.seed % 1024) as f64 / 1024.0;
            self.successor_at = (now + SUCCESSOR_WITHIN.mul_f64(share)).max(self.successor_from);
        }
        self.schedule(now);
    }

    /// The peer's beat explains the silence of its link by its own stall.
    pub fn peer_stalled(&mut self) {
        self.link.explained();
    }

    // === inputs: the service ===

    /// A beat of that link carried this vouch and these flags.
    pub fn vouch(&mut self, now: Stamp, link: u64, vouch: Vouch, frozen: bool, starved: bool) {
        self.service.of(link).vouch(now, vouch, frozen, starved);
    }

    /// A maintenance frame on that link: the service's score is frozen for that long, at most 30 s; zero ends it.
    pub fn maintenance(&mut self, now: Stamp, link: u64, pause: Duration) {
        self.service.of(link).maintenance(now, pause);
    }

    /// A backpressure frame: saturated is never dead.
    pub fn backpressure(&mut self, now: Stamp, active: bool) {
        self.saturated_until = if active { now + SATURATED_FOR } else { now };
    }

    /// OPEN_FAILED was read on that link; `refused`: the service's port refused.
    pub fn open_failed(&mut self, now: Stamp, link: u64, refused: bool) {
        self.service.of(link).open_failed(now, refused);
    }

    // === inputs: fresh connections ===

    /// A [`EndpointOutput::FreshDial`] ended.
    pub fn dial(&mut self, now: Stamp, result: DialResult) {
        let look = self.link.dial(now, result);
        if matches!(result, DialResult::NotSidecar | DialResult::AcceptedNoWelcome) && self.link.dying(now) {
            self.dials.race(now);
        }
        // Only who answered and is no sidecar is left alone for long: a port that is not open yet may open any time.
        if result == DialResult::NotSidecar && self.link.never_linked() && self.link.state() == State::Active
        {
            self.dials.remember_negative(now);
        }
        if look {
            self.ports.start(now);
        }
        self.schedule(now);
    }

    /// A [`EndpointOutput::ProbeServicePort`] ended.
    pub fn service_port(&mut self, now: Stamp, port: PortState) {
        self.link.service_port(now, port);
        self.schedule(now);
    }

    /// A connection straight to the service told this (passive detection in plain mode).
    pub fn plain_result(&mut self, now: Stamp, result: PlainResult) {
        if self.link.plain_result(now, result) {
            self.ports.start(now);
        }
        let proved = matches!(result, PlainResult::Accepted | PlainResult::Answered);
        if proved && self.link.mode() == Mode::Plain {
            // The service's own port proves more than an old vouch of a sidecar that is gone.
            self.service = Nodes::new();
        }
        self.schedule(now);
    }

    /// Whether so many endpoints fell silent together that the fault is ours (see [`super::isolation`]). To be told
    /// before the judge of a link fails it, and each [`ISOLATION_CHECK`] while [`Endpoint::asks_isolation`].
    pub fn isolation(&mut self, now: Stamp, isolated: bool) {
        self.link.isolation(now, isolated);
        self.schedule(now);
    }

    // === time ===

    /// When [`Endpoint::poll`] has something to do next without a new input, and why.
    pub fn next_due(&self, now: Stamp) -> (Stamp, &'static str) {
        let probe = self.probes.map_or(Stamp::NEVER, |(_, at)| at);
        let due = [
            (self.link.due(), "patience"),
            (self.service.due(now), "maintenance"),
            (self.dials.due(), "dial"),
            (self.ports.due(), "port"),
            (probe, "probe"),
            (self.cut_at, "cut"),
            (self.successor_at, "successor"),
            (if self.saturated_until > now { self.saturated_until } else { Stamp::NEVER }, "saturated"),
        ];
        due.into_iter().min_by_key(|d| d.0).unwrap_or((Stamp::NEVER, "idle"))
    }

    /// What is to be done at `now`. Call until `None` after each input and at [`Endpoint::next_due`].
    pub fn poll(&mut self, now: Stamp) -> Option<EndpointOutput> {
        self.settle(now);
        if let Some(link) = self.stale.pop() {
            return Some(EndpointOutput::CutLink(link));
        }
        if let Some(output) = self.poll_mode() {
            return Some(output);
        }
        if let Some((link, work)) = self.service.poll(now) {
            return Some(EndpointOutput::NewWork(link, work));
        }
        if let Some(output) = self.poll_verdict(now) {
            return Some(output);
        }
        let output = self.poll_actions(now);
        self.check_invariants(now);
        output
    }
}

// === how ===

impl Endpoint {
    fn settle(&mut self, now: Stamp) {
        self.link.settle(now);
        self.service.settle(now);
    }

    /// Starts and stops the series of dials as the link's half asks.
    fn schedule(&mut self, now: Stamp) {
        if self.link.wants_dial() {
            self.dials.start(now);
        } else {
            self.dials.stop();
        }
        if self.link.wants_port() {
            self.ports.start(now);
        }
        if self.link.state() == State::Active {
            self.probes = None;
        }
    }

    fn poll_mode(&mut self) -> Option<EndpointOutput> {
        let mode = self.link.mode();
        if mode == self.told_mode {
            return None;
        }
        self.told_mode = mode;
        Some(match mode {
            Mode::Framed => EndpointOutput::ModeFramed,
            Mode::Plain => EndpointOutput::ModePlain,
        })
    }

    fn poll_verdict(&mut self, now: Stamp) -> Option<EndpointOutput> {
        let state = self.link.state().max(self.service_state());
        let cause = self.current_cause(now, state);
        if state == self.state {
            return self.refined(now, state, cause);
        }
        let healed = if state == State::Active { self.link.take_healed() } else { Healed::default() };
        let from = std::mem::replace(&mut self.state, state);
        self.cause = cause;
        self.restarted = false;
        self.count(now, from, healed);
        self.plan_cut(now);
        Some(EndpointOutput::Transition(Transition {
            from,
            to: state,
            cause,
            score: self.score(now),
            link_score: self.link.score(),
            service_score: self.service.score(now),
            silence: if self.link_is_worse() { self.link.silence() } else { Duration::ZERO },
            by_proof: self.by_proof(),
            mistake: healed.mistake,
            outage_healed: from == State::Failed && state == State::Active && !healed.mistake,
            detection: (state == State::Failed).then(|| self.detection(now)).flatten(),
        }))
    }

    fn refined(&mut self, now: Stamp, state: State, cause: Cause) -> Option<EndpointOutput> {
        if state == State::Failed {
            self.plan_cut(now);
        }
        if cause == self.cause {
            return None;
        }
        self.cause = cause;
        Some(EndpointOutput::CauseRefined(cause))
    }

    /// A sidecar that is gone vouches for nothing any more.
    fn service_state(&self) -> State {
        if self.link.mode() == Mode::Plain { State::Active } else { self.service.state() }
    }

    fn link_is_worse(&self) -> bool {
        self.link.state() >= self.service_state() && self.link.state() != State::Active
    }

    fn current_cause(&self, now: Stamp, state: State) -> Cause {
        let saturated = now < self.saturated_until;
        match state {
            State::Active if self.draining() => Cause::Draining,
            State::Active if saturated => Cause::Saturated,
            State::Active if self.service_state() == State::Active && self.mode() == Mode::Framed => {
                let service = self.service.cause();
                if service == Cause::None { self.link.cause() } else { service }
            }
            State::Active => self.link.cause(),
            State::Suspect if self.link_is_worse() && saturated => Cause::Saturated,
            _ if self.link_is_worse() => self.link.cause(),
            _ => self.service.cause(),
        }
    }

    fn count(&mut self, now: Stamp, from: State, healed: Healed) {
        match self.state {
            State::Failed => self.failed_before = true,
            State::Active if self.failed_before => {
                self.failed_before = false;
                self.healed_at = Some(now);
                self.mistakes += u64::from(healed.mistake);
                self.outages_healed += u64::from(!healed.mistake);
            }
            State::Active | State::Suspect => {}
        }
        debug_assert!(from != self.state, "transition to itself");
    }

    /// Proof cuts at once, silence (and a process that is only stopped) after `cut_after`; each once per FAILED.
    fn plan_cut(&mut self, now: Stamp) {
        if self.state != State::Failed {
            self.cut_at = Stamp::NEVER;
            self.cut_done = None;
            self.ports_if_plain();
            return;
        }
        match (self.dead(), self.cut_done, self.params.cut_after) {
            (true, None | Some(false), _) => self.cut_at = now,
            (false, None, Some(after)) => self.cut_at = self.cut_at.min(now + after),
            _ => {}
        }
    }

    /// Its connections are dead for sure, not only asleep. In plain mode no refusal says so: the kernel of a dead process ends
    /// each of its connections, and we see that ourselves; who lives and only takes no more may go on for `cut_after`.
    fn dead(&self) -> bool {
        let proved = self.link.by_proof() && self.link.mode() == Mode::Framed;
        proved || (self.service_state() == State::Failed && self.service.gone())
    }

    fn ports_if_plain(&mut self) {
        if !self.link.wants_port() {
            self.ports.stop();
        }
    }

    fn detection(&self, now: Stamp) -> Option<Duration> {
        if self.link_is_worse() {
            return self.link.since_last();
        }
        self.service.since_good(now)
    }

    fn poll_actions(&mut self, now: Stamp) -> Option<EndpointOutput> {
        if now >= self.cut_at {
            self.cut_at = Stamp::NEVER;
            self.cut_done = Some(self.dead());
            return Some(EndpointOutput::CutStreams);
        }
        if now >= self.dials.due() {
            self.dials.dialled(now);
            return Some(EndpointOutput::FreshDial);
        }
        if now >= self.successor_at {
            self.successor_at = if self.draining() { now + SUCCESSOR_EVERY } else { Stamp::NEVER };
            self.successor_from = now + SUCCESSOR_WITHIN;
            if self.draining() && self.link.links() > 0 {
                return Some(EndpointOutput::FreshDial);
            }
        }
        if now >= self.ports.due() {
            self.ports.dialled(now);
            if !self.link.wants_port() {
                self.ports.stop();
            }
            return Some(EndpointOutput::ProbeServicePort);
        }
        if let Some((link, at)) = self.probes
            && now >= at
        {
            self.probes = Some((link, now + PROBE_AGAIN));
            return Some(EndpointOutput::Probe(link));
        }
        None
    }

    fn check_invariants(&self, now: Stamp) {
        self.link.check_invariants();
        debug_assert!(
            self.state == State::Active || self.cause != Cause::None,
            "doubt without a cause: {self:?}"
        );
        debug_assert!(
            self.cut_at == Stamp::NEVER || self.state == State::Failed,
            "a cut without FAILED: {self:?}"
        );
        debug_assert!((0.0..=1.0).contains(&self.score(now)), "score out of range: {self:?}");
    }
}

#[cfg(test)]
mod tests;
