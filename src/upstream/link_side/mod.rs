//! Pure: no IO, no clock. The link's half of an endpoint: its links, its fresh dials, and plain mode.

mod alone;
mod dials;
mod plain;
mod reading;

use std::time::Duration;

use crate::detector::promise::reached;
use crate::detector::{
    Evidence, FAILED_BELOW, FRAME_SPACING, FRAME_WORTH, HEALED_FROM, Output, SUSPECT_BELOW,
};
use crate::stamp::Stamp;
use crate::verdict::{Cause, State};

use crate::upstream::facts::{
    DialResult, EndpointParams, LinkLost, LinkPolicy, Mode, PlainResult, PortState,
};

/// A cause may be refined for this long after the doubt or the verdict.
const REFINE_FOR: Duration = Duration::from_millis(250);
/// Without a link, and with nothing but negative answers to fresh dials, for this long: FAILED by silence.
const PATIENCE: Duration = Duration::from_millis(250);
/// Links of one endpoint that are tracked; more are a shell's mistake, never a peer's power.
const LINKS_MAX: usize = 1024;

#[derive(Clone, Debug)]
struct Link {
    id: u64,
    state: State,
    born: Stamp,
    heard: Stamp,
    score: f64,
}

/// How a recovery went, told with the transition to ACTIVE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Healed {
    /// FAILED by silence was wrong.
    pub mistake: bool,
    /// FAILED was right and is over.
    pub outage: bool,
}

/// What a new link means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Up {
    /// One more link to the same node.
    Same,
    /// The node is a new incarnation: everything known of the old one is void.
    Restart,
}

/// State of the link's half.
#[derive(Clone, Debug)]
pub struct LinkSide {
    policy: LinkPolicy,
    learn_max: Duration,
    links: Vec<Link>,
    incarnation: Option<u64>,
    mode: Mode,
    state: State,
    cause: Cause,
    proof: bool,
    /// When the state last changed: refinement counts from here.
    since: Stamp,
    /// Where the silence began, past the deadline.
    doubt_from: Stamp,
    silence: Duration,
    since_last: Option<Duration>,
    base: f64,
    frames: u32,
    credited_at: Stamp,
    ended: Option<Duration>,
    explained: bool,
    healed: Healed,
    /// Since when no link is left though one is wanted, and whether its end came by FIN or RST.
    lost: Option<(Stamp, bool)>,
    negative: bool,
    refused: bool,
    draining: bool,
    plain: plain::Plain,
    heard: Stamp,
    /// Too much is silent at once: the fault is ours.
    isolated: bool,
    /// FAILED by silence waits until then, for that reason.
    waits_until: Option<Stamp>,
}

impl LinkSide {
    /// Nothing known: takes work.
    pub fn new(params: &EndpointParams, now: Stamp) -> Self {
        LinkSide {
            policy: params.policy,
            learn_max: params.learn_max,
            links: Vec::new(),
            incarnation: None,
            mode: if params.policy == LinkPolicy::Required { Mode::Framed } else { Mode::Plain },
            state: State::Active,
            cause: Cause::None,
            proof: false,
            since: now,
            doubt_from: now,
            silence: Duration::ZERO,
            since_last: None,
            base: 1.0,
            frames: 0,
            credited_at: Stamp::ZERO,
            ended: None,
            explained: false,
            healed: Healed::default(),
            lost: (params.policy == LinkPolicy::Required).then_some((now, false)),
            negative: false,
            refused: false,
            draining: false,
            plain: plain::Plain::default(),
            heard: Stamp::ZERO,
            isolated: false,
            waits_until: None,
        }
    }

    // === links ===

    /// A WELCOME was read on a new link. Links of an older incarnation that are void now are pushed to `stale`.
    pub fn link_up(&mut self, now: Stamp, id: u64, incarnation: u64, stale: &mut Vec<u64>) -> Up {
        let changed = self.incarnation.is_some_and(|known| known != incarnation);
        // Behind one address may stand several nodes: a link that its judge trusts proves that the other one lives.
        let coexists = self.links.iter().any(|l| l.state == State::Active);
        let up = if changed && !coexists { Up::Restart } else { Up::Same };
        if up == Up::Restart {
            stale.extend(self.links.drain(..).map(|l| l.id));
            self.healed = self.end_failure(now);
            self.healed = Healed { mistake: false, outage: self.healed.outage || self.healed.mistake };
            self.set(now, State::Active, Cause::Restart, false);
        }
        self.incarnation = Some(incarnation);
        self.mode = Mode::Framed;
        self.draining = false;
        self.lost = None;
        self.refused = false;
        self.negative = false;
        self.links.retain(|l| l.id != id);
        if self.links.len() < LINKS_MAX {
            self.links.push(Link { id, state: State::Active, born: now, heard: now, score: 1.0 });
        }
        self.heard = now;
        if self.state == State::Active {
            if self.cause == Cause::SidecarLost {
                self.cause = Cause::None;
            }
        } else {
            self.credit(now);
        }
        up
    }

    /// Anything was read on that link.
    pub fn link_heard(&mut self, now: Stamp, id: u64) {
        self.heard = self.heard.max(now);
        let Some(link) = self.links.iter_mut().find(|l| l.id == id) else { return };
        link.heard = link.heard.max(now);
        // While we are not heard, only a link that was made since shows that we are again.
        let trusted =
            link.state == State::Active && (self.cause != Cause::OneWay || link.born > self.doubt_from);
        if self.state != State::Active {
            self.note_end(now);
            if trusted {
                self.credit(now);
            }
        }
    }

    /// The judge of that link said something.
    pub fn link_output(&mut self, now: Stamp, id: u64, output: &Output) {
        let Some(index) = self.links.iter().position(|l| l.id == id) else { return };
        match output {
            Output::Challenge | Output::Held(_) => {}
            Output::Suspect(evidence) => {
                self.mark(index, State::Suspect, evidence);
                if self.state == State::Active && !self.other_alive(now, index, evidence) {
                    self.doubt(now, evidence);
                    self.set(now, State::Suspect, silent_cause(evidence), false);
                }
            }
            Output::Failed(evidence) => {
                self.mark(index, State::Failed, evidence);
                if self.state != State::Failed && !self.other_alive(now, index, evidence) {
                    self.doubt(now, evidence);
                    let cause = if self.state == State::Suspect && self.cause != Cause::Silent {
                        self.cause
                    } else {
                        silent_cause(evidence)
                    };
                    self.fail_by_silence(now, cause);
                }
            }
            Output::LinkOnly(evidence) => self.mark(index, State::Failed, evidence),
            Output::Active(evidence) => {
                self.mark(index, State::Active, evidence);
                self.links[index].heard = now;
                self.heard = self.heard.max(now);
                if self.state != State::Active {
                    self.note_end(now);
                    let by_silence = self.state == State::Failed && !self.proof;
                    self.healed = self.end_failure(now);
                    if by_silence && (evidence.mistake || evidence.outage) {
                        self.healed = Healed { mistake: evidence.mistake, outage: evidence.outage };
                    }
                    self.set(now, State::Active, Cause::None, false);
                }
            }
        }
    }

    /// Score of a link as its judge sees it, for `/status`; optional.
    pub fn link_scored(&mut self, id: u64, score: f64) {
        if let Some(link) = self.links.iter_mut().find(|l| l.id == id) {
            link.score = score;
        }
    }

    /// That link is over.
    pub fn link_lost(&mut self, now: Stamp, id: u64, how: LinkLost) {
        if how == LinkLost::Goaway {
            self.draining = true;
        }
        let before = self.links.len();
        self.links.retain(|l| l.id != id);
        if self.links.len() == before || self.draining || self.links.iter().any(|l| l.state == State::Active)
        {
            return;
        }
        let by_end = matches!(how, LinkLost::Fin | LinkLost::Rst);
        if !self.links.is_empty() && !by_end {
            return;
        }
        self.lost.get_or_insert((now, by_end));
        self.negative = false;
        if self.state != State::Failed {
            self.since_last = Some(now.since(self.heard));
        }
        match how {
            LinkLost::TimedOut if self.state != State::Failed => {
                self.doubt_from = self.heard;
                self.silence = now.since(self.heard);
                self.fail_by_silence(now, self.cause_or_silent());
            }
            LinkLost::Cut => {}
            _ if self.state == State::Active => {
                self.doubt_from = now;
                self.silence = Duration::ZERO;
                self.set(now, State::Suspect, Cause::Silent, false);
            }
            _ => {}
        }
        if self.refused {
            self.proved_or_ask(now);
        }
    }

    /// GOAWAY was read: planned, never a failure.
    pub fn goaway(&mut self) {
        self.draining = true;
    }

    /// The peer's own stall explains the silence: FAILED was right.
    pub fn explained(&mut self) {
        self.explained = true;
    }

    /// Time passed: patience without a link may be over.
    pub fn settle(&mut self, now: Stamp) {
        self.settle_plain(now);
        if now >= self.patience_over() {
            self.silence = now.since(self.doubt_from);
            self.fail_by_silence(now, self.cause_or_silent());
        }
    }

    /// When [`LinkSide::settle`] may change something by itself.
    pub fn due(&self) -> Stamp {
        self.patience_over().min(self.plain.doubted_until.unwrap_or(Stamp::NEVER))
    }

    fn patience_over(&self) -> Stamp {
        if let Some(until) = self.waits_until {
            return until;
        }
        match self.lost {
            Some((since, _)) if self.negative && self.framed_wanted() && self.state != State::Failed => {
                since + PATIENCE
            }
            _ => Stamp::NEVER,
        }
    }
}

// === how ===

impl LinkSide {
    fn framed_wanted(&self) -> bool {
        self.policy != LinkPolicy::Off
    }

    /// A link speaks for the node: it is trusted, and was heard since the doubt began. One off duty may stay silent for
    /// seconds without breaking a promise.
    fn some_link_lives(&self) -> bool {
        let doubt = self.state != State::Active;
        self.links.iter().any(|l| l.state == State::Active && !(doubt && l.heard <= self.doubt_from))
    }

    fn mark(&mut self, index: usize, state: State, evidence: &Evidence) {
        self.links[index].state = state;
        self.links[index].score = evidence.score;
    }

    /// Another link is heard. If we are the ones who are not, that says nothing, and the judge has asked already whether
    /// we are heard on another link.
    fn other_alive(&self, now: Stamp, index: usize, evidence: &Evidence) -> bool {
        if evidence.one_way {
            return false;
        }
        let from = now - evidence.silence;
        self.links.iter().enumerate().any(|(i, l)| i != index && l.state == State::Active && l.heard > from)
    }

    fn doubt(&mut self, now: Stamp, evidence: &Evidence) {
        self.doubt_from = now - evidence.silence;
        self.silence = evidence.silence;
        self.since_last = Some(evidence.since_last);
        self.base = evidence.score;
    }

    fn set(&mut self, now: Stamp, state: State, cause: Cause, proof: bool) {
        if state != self.state {
            self.since = now;
            self.frames = 0;
        }
        match state {
            State::Active => self.base = 1.0,
            State::Suspect => self.base = self.base.min(SUSPECT_BELOW - 0.01),
            State::Failed => self.base = if proof { 0.0 } else { self.base.min(FAILED_BELOW) },
        }
        if state == State::Failed && self.state != State::Failed {
            (self.ended, self.explained) = (None, false);
        }
        if state != State::Suspect {
            self.plain.doubted_until = None;
        }
        self.waits_until = None;
        (self.state, self.cause, self.proof) = (state, cause, proof);
    }

    fn fail_by_proof(&mut self, now: Stamp, cause: Cause) {
        if self.state != State::Failed {
            self.since_last = (self.heard != Stamp::ZERO).then(|| now.since(self.heard));
        }
        if !self.by_proof() {
            self.set(now, State::Failed, cause, true);
        }
    }

    /// The link port is refused. Proof of a dead sidecar if its link ended too; whether the service died with it
    /// only its own port can tell (true: look at it).
    fn proved_or_ask(&mut self, now: Stamp) -> bool {
        let silent_link = !self.links.is_empty() && !self.lost.is_some_and(|(_, by_end)| by_end);
        if silent_link {
            self.refine(now, Cause::Crash);
            return false;
        }
        if self.policy == LinkPolicy::Required && !self.draining {
            self.fail_by_proof(now, Cause::Crash);
        }
        true
    }

    fn refine(&mut self, now: Stamp, cause: Cause) {
        // Of a host that never had a sidecar its link port tells nothing.
        let asked = self.mode == Mode::Framed || self.incarnation.is_some();
        let open = asked && matches!(self.cause, Cause::Silent | Cause::Blackhole | Cause::HangPeer);
        if self.state != State::Active && !self.proof && open && now.since(self.since) <= REFINE_FOR {
            self.cause = cause;
        }
    }

    fn refine_to(&mut self, cause: Cause) {
        if self.state != State::Active && self.refused {
            self.cause = cause;
        }
    }

    fn cause_or_silent(&self) -> Cause {
        if self.cause == Cause::None || self.state == State::Active { Cause::Silent } else { self.cause }
    }

    fn go_plain(&mut self) {
        self.mode = Mode::Plain;
        self.lost = None;
        self.draining = false;
        self.links.clear();
        self.plain = plain::Plain::default();
    }

    fn plain_cause(&self) -> Cause {
        if self.incarnation.is_some() { Cause::SidecarLost } else { Cause::None }
    }

    fn note_end(&mut self, now: Stamp) {
        if self.state == State::Failed && self.ended.is_none() {
            self.ended = Some(now.since(self.doubt_from));
        }
    }

    fn end_failure(&mut self, now: Stamp) -> Healed {
        if self.state != State::Failed {
            return Healed::default();
        }
        let late = self.ended.unwrap_or(now.since(self.doubt_from));
        let mistake = !self.proof && !self.explained && late <= self.learn_max;
        Healed { mistake, outage: !mistake }
    }

    fn credit(&mut self, now: Stamp) {
        if self.frames > 0 && now < self.credited_at + FRAME_SPACING {
            return;
        }
        self.note_end(now);
        if self.state == State::Failed && self.frames == 0 {
            self.base = 0.0;
        }
        self.base = (self.base + FRAME_WORTH).min(1.0);
        self.frames += 1;
        self.credited_at = now;
        let trusted = match self.state {
            State::Suspect => self.frames >= 2 && reached(self.base, SUSPECT_BELOW),
            State::Failed => reached(self.base, HEALED_FROM),
            State::Active => false,
        };
        if trusted {
            self.healed = self.end_failure(now);
            self.set(now, State::Active, Cause::None, false);
        }
    }
}

fn silent_cause(evidence: &Evidence) -> Cause {
    if evidence.one_way { Cause::OneWay } else { Cause::Silent }
}
