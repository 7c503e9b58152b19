//! The one writer of an endpoint's state: it lives on one worker, hears of every link on any worker, and does what the
//! pure [`Endpoint`] asks for.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::AbortHandle;

use super::balance::{Balance, Enforce, View};
use super::dial::{self, Purpose};
use super::endpoint::{Endpoint, ISOLATION_CHECK};
use super::facts::{DialResult, EndpointOutput, EndpointParams, Mode, PortState};
use super::hub::{Hub, Key, News, Order, WeakHub};
use super::registry::Shared;
use crate::admin::events::EventLog;
use crate::clock;
use crate::detector::Output;
use crate::link::handshake::DialError;
use crate::metrics::{Gate, UpstreamMetrics};
use crate::seldom::Seldom;
use crate::stamp::Stamp;
use crate::worker::Timed;
use crate::worker::wheel::Ticket;

/// A fresh dial is given up after this, for the connect and for the welcome.
const DIAL_TIMEOUT: Duration = Duration::from_secs(2);
/// A kernel that accepted, but whose sidecar says nothing for this long, may be one of a stopped process.
const HANG_AFTER: Duration = Duration::from_millis(80);
/// Fresh dials of one endpoint at once.
const DIALS_MAX: usize = 8;
/// Where a sidecar is gone, so long the service's own port has for its answer.
const PORT_TIMEOUT: Duration = Duration::from_millis(250);
/// The same in plain mode, where nothing but this port tells anything: a SYN may be lost, and the second one comes after a
/// second.
const PLAIN_PORT_TIMEOUT: Duration = Duration::from_secs(2);
/// Silence of a connect that makes the cause `blackhole`, while the dial itself goes on.
const HOLE_AFTER: Duration = Duration::from_millis(80);

/// See the module.
pub struct Owner {
    pub(super) key: Key,
    pub(super) timer: Ticket,
    pub(super) hub: WeakHub,
    pub(super) shared: Arc<Shared>,
    pub(super) metrics: Arc<UpstreamMetrics>,
    pub(super) events: Arc<EventLog>,
    pub(super) ep: RefCell<Endpoint>,
    /// Number of the newest fresh dial.
    pub(super) dial_no: Cell<u64>,
    pub(super) node: RefCell<Option<String>>,
    pub(super) pressed: Cell<bool>,
    pub(super) dials: RefCell<Vec<AbortHandle>>,
    pub(super) refusal: RefCell<Option<String>>,
    /// A look at the service's port is under way.
    pub(super) knocking: Cell<bool>,
    /// When something last spoke for or against it, and what: kind and word.
    pub(super) evidence: Cell<Option<(Stamp, [&'static str; 2])>>,
    /// Since when it is in its state.
    pub(super) changed: Cell<Stamp>,
    /// A peer that flaps must not fill the log.
    pub(super) lines: Cell<Seldom>,
}

impl Owner {
    pub(super) fn new(hub: &Rc<Hub>, key: Key, events: Arc<EventLog>) -> Rc<Owner> {
        let upstream = &hub.ups[key.up].params;
        let params = EndpointParams {
            policy: upstream.policy,
            cut_after: upstream.cut_after,
            learn_max: upstream.detector.learn_max,
            seed: hub.w.random(),
        };
        Rc::new_cyclic(|me: &Weak<Owner>| Owner {
            key,
            timer: hub.w.register(me.clone()),
            hub: Rc::downgrade(hub),
            shared: hub.shared(key).clone(),
            metrics: hub.metrics[key.up].clone(),
            events,
            ep: RefCell::new(Endpoint::new(params, clock::now())),
            dial_no: Cell::new(0),
            node: RefCell::default(),
            pressed: Cell::new(false),
            dials: RefCell::default(),
            refusal: RefCell::default(),
            knocking: Cell::new(false),
            evidence: Cell::new(None),
            changed: Cell::new(clock::now()),
            lines: Cell::new(Seldom::new(50, Duration::from_millis(100))),
        })
    }

    pub(super) fn start(self: &Rc<Self>) {
        self.pump(clock::now());
    }

    /// News of a link, wherever it lives.
    pub(super) fn take(self: &Rc<Self>, now: Stamp, news: News) {
        if let Some(words) = news.evidence() {
            self.evidence.set(Some((now, words)));
        }
        {
            let mut ep = self.ep.borrow_mut();
            let excused = ep.excused();
            match news {
                News::Up(link, incarnation, node) => {
                    *self.node.borrow_mut() = Some(node);
                    ep.link_up(now, link, incarnation);
                }
                News::Judged(link, output) => {
                    self.judged(&mut ep, now, link, &output);
                }
                News::Lost(link, how) => ep.link_lost(now, link, how),
                News::StillVouched(link, at, vouch, frozen, starved) => {
                    ep.vouch(at.min(now), link, vouch, frozen, starved);
                }
                News::Heard(link) => ep.link_heard(now, link),
                News::Vouch(link, vouch, frozen, starved) => ep.vouch(now, link, vouch, frozen, starved),
                News::Maintenance(link, pause) => ep.maintenance(now, link, pause),
                News::Backpressure(active) => {
                    self.pressed.set(active);
                    ep.backpressure(now, active);
                }
                News::PeerStalled => ep.peer_stalled(),
                News::Goaway => ep.goaway(now),
                News::OpenFailed(link, refused) => ep.open_failed(now, link, refused),
                News::Plain(result) => ep.plain_result(now, result),
            }
            if ep.excused()
                && !excused
                && let Some(hub) = self.hub.upgrade()
            {
                hub.process.gate_hold(Gate::Starved);
            }
        }
        self.pump(now);
    }

    fn judged(&self, ep: &mut Endpoint, now: Stamp, link: u64, output: &Output) {
        let Some(hub) = self.hub.upgrade() else { return };
        if let Output::Held(gate) = output
            && let Some(gate) = Gate::from_name(gate.name())
        {
            hub.process.gate_hold(gate);
        }
        let held = ep.is_held();
        if matches!(output, Output::Failed(_)) {
            ep.isolation(now, hub.ups.self_isolated());
        }
        ep.link_output(now, link, output);
        if ep.is_held() && !held {
            hub.process.gate_hold(Gate::SelfIsolated);
        }
    }

    fn pump(self: &Rc<Self>, now: Stamp) {
        // Bounded: an endpoint that never rests is a defect, not a reason to hang the worker.
        for _ in 0..32 {
            let output = self.ep.borrow_mut().poll(now);
            let Some(output) = output else { break };
            let before = matches!(output, EndpointOutput::Transition(_)).then(|| self.views());
            self.publish(now);
            if let Some(before) = before {
                self.count_held(&before);
            }
            self.act(now, output);
        }
        self.publish(now);
        if let Some(hub) = self.hub.upgrade() {
            let ep = self.ep.borrow();
            let due = ep.next_due(now).0;
            hub.w.schedule(
                self.timer,
                if ep.asks_isolation(now) { due.min(now + ISOLATION_CHECK) } else { due },
            );
        }
    }

    pub(super) fn publish(&self, now: Stamp) {
        let ep = self.ep.borrow();
        self.shared.publish(now, &View::of(&ep, self.shared.weight, now), ep.mode());
        let watched = ep.mode() == Mode::Framed && ep.incarnation().is_some();
        self.shared.publish_silence(watched, ep.silent_since());
    }

    /// All endpoints of the upstream, as last published.
    fn views(&self) -> Vec<View> {
        let hub = self.hub.upgrade();
        let all = hub.iter().flat_map(|h| &h.ups[self.key.up].endpoints);
        all.map(|e| e.view()).collect()
    }

    /// FAILED that the panic rule holds back, since this endpoint changed its state.
    fn count_held(&self, before: &[View]) {
        let Some(hub) = self.hub.upgrade().filter(|h| !h.retired.get()) else { return };
        let upstream = &hub.ups[self.key.up];
        let balance = Balance::new(upstream.enforce(), upstream.params.max_failed);
        for _ in 0..balance.newly_held(before, &self.views()) {
            hub.process.gate_hold(Gate::Panic);
        }
    }

    fn act(self: &Rc<Self>, now: Stamp, output: EndpointOutput) {
        let Some(hub) = self.hub.upgrade() else { return };
        if hub.retired.get() && output.is_for_the_living() {
            return;
        }
        match output {
            EndpointOutput::Transition(t) => self.transition(now, &t),
            EndpointOutput::CauseRefined(cause) => self.refined(now, cause),
            EndpointOutput::FreshDial => self.fresh_dial(&hub),
            EndpointOutput::ProbeServicePort => self.probe_port(),
            EndpointOutput::Probe(link) => hub.order(now, self.key, Order::Probe(link)),
            EndpointOutput::CutLink(link) => hub.order(now, self.key, Order::Close(link)),
            EndpointOutput::NewWork(link, work) => hub.order(now, self.key, Order::NewWork(link, work)),
            // What a verdict may not do it does not do to what is open either.
            EndpointOutput::CutStreams if hub.ups[self.key.up].enforce() != Enforce::Failed => {}
            EndpointOutput::CutStreams => {
                let plain = self.ep.borrow().mode() == Mode::Plain;
                let quiet = hub.ups[self.key.up].params.cut_after.filter(|_| plain).unwrap_or_default();
                hub.order(now, self.key, Order::Cut { quiet });
            }
            EndpointOutput::ModePlain | EndpointOutput::ModeFramed => {
                tracing::info!(upstream = self.upstream(&hub), endpoint = %self.shared.address,
                    mode = self.ep.borrow().mode().name(), "mode");
            }
        }
    }

    pub(super) fn upstream<'a>(&self, hub: &'a Hub) -> &'a str {
        &hub.ups[self.key.up].params.name
    }

    // === fresh connections ===

    /// A slow path is no hung peer: the cause is told early, but the dial goes on and may still bring a link.
    fn fresh_dial(self: &Rc<Self>, hub: &Rc<Hub>) {
        let no = self.dial_no.get() + 1;
        self.dial_no.set(no);
        let (me, hub) = (self.clone(), hub.clone());
        let task = tokio::task::spawn_local(async move {
            let accepted = Cell::new(None);
            let dial = dial::dial(&hub, me.key, DIAL_TIMEOUT, DIAL_TIMEOUT, Purpose::Main, || {
                accepted.set(Some(clock::now()));
            });
            tokio::pin!(dial);
            let mut got = hub.w.timeout(HOLE_AFTER, &mut dial).await.ok();
            if let (None, Some(at)) = (&got, accepted.get()) {
                got = hub.w.timeout_at(at + HANG_AFTER, &mut dial).await.ok();
            }
            let got = match got {
                Some(got) => got,
                None => {
                    let hangs = accepted.get().is_some();
                    me.dialled(
                        no,
                        if hangs { DialResult::AcceptedNoWelcome } else { DialResult::Unanswered },
                    );
                    dial.await
                }
            };
            me.dial_ended(no, got.map(drop));
        });
        self.keep_dial(task.abort_handle());
    }

    /// Dials overlap where answers take longer than the pause between them; the oldest give way.
    fn keep_dial(&self, dial: AbortHandle) {
        let mut dials = self.dials.borrow_mut();
        dials.retain(|d| !d.is_finished());
        if dials.len() >= DIALS_MAX {
            dials.remove(0).abort();
        }
        dials.push(dial);
    }

    fn dial_ended(self: &Rc<Self>, no: u64, got: Result<(), DialError>) {
        let result = match got {
            Ok(()) => {
                // One is enough: those that still wait would only add links. This one has nothing left to do.
                self.dials.borrow_mut().drain(..).for_each(|d| d.abort());
                DialResult::Welcomed
            }
            Err(DialError::Refused) => DialResult::Refused,
            Err(DialError::NoWelcome) => DialResult::AcceptedNoWelcome,
            Err(DialError::Unanswered) => return,
            Err(DialError::Connect(_)) => DialResult::Unanswered,
            Err(DialError::Io(e)) if e.kind() != io::ErrorKind::UnexpectedEof => DialResult::Unanswered,
            Err(e) => {
                self.tell_refusal(&e);
                DialResult::NotSidecar
            }
        };
        self.dialled(no, result);
    }

    /// A peer that says no says why; people want to know, once.
    fn tell_refusal(&self, e: &DialError) {
        let said = e.to_string();
        let news = matches!(e, DialError::Said(..)) && self.refusal.borrow().as_ref() != Some(&said);
        if news {
            tracing::warn!(endpoint = %self.shared.link, error = said, "no link");
            *self.refusal.borrow_mut() = Some(said);
        } else {
            tracing::debug!(endpoint = %self.shared.link, error = said, "no link");
        }
    }

    fn dialled(self: &Rc<Self>, no: u64, result: DialResult) {
        // Only the newest dial speaks; an old one that succeeds late still brings a link.
        if no != self.dial_no.get() && result != DialResult::Welcomed {
            return;
        }
        let now = clock::now();
        self.evidence.set(Some((now, ["dial", result.name()])));
        self.ep.borrow_mut().dial(now, result);
        self.pump(now);
    }

    fn probe_port(self: &Rc<Self>) {
        let Some(hub) = self.hub.upgrade() else { return };
        let plain = self.ep.borrow().mode() == Mode::Plain;
        // The long ones must not pile up.
        if plain && self.knocking.replace(true) {
            return;
        }
        let wait = if plain { PLAIN_PORT_TIMEOUT } else { PORT_TIMEOUT };
        let (me, w) = (self.clone(), hub.w.clone());
        tokio::task::spawn_local(async move {
            let got = w.timeout(wait, TcpStream::connect(me.shared.address)).await;
            if plain {
                me.knocking.set(false);
            }
            let state = match got {
                Ok(Ok(_)) => PortState::Accepts,
                Ok(Err(e)) if e.kind() == io::ErrorKind::ConnectionRefused => PortState::Refused,
                Ok(Err(_)) | Err(_) => PortState::Unanswered,
            };
            let now = clock::now();
            me.ep.borrow_mut().service_port(now, state);
            me.pump(now);
        });
    }
}

impl Timed for Owner {
    fn on_timer(self: Rc<Self>, now: Stamp) {
        if let Some(hub) = self.hub.upgrade()
            && self.ep.borrow().asks_isolation(now)
        {
            self.ep.borrow_mut().isolation(now, hub.ups.self_isolated());
        }
        self.pump(now);
    }

    fn own_stall(&self, _from: Stamp, _to: Stamp) {}
}
