//! What an outbound link tells: to the owner of the verdict, and to its worker's hub.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::facts::LinkLost;
use super::hub::{Hub, Key, News, Order, WeakHub};
use super::registry::Shared;
use crate::admin::events::Event;
use crate::detector::{Output, Shift};
use crate::link::{BeatFacts, Link, Lost, Side, Stream};
use crate::stamp::Stamp;
use crate::verdict::{Cause, State, Vouch};
use crate::wire;

/// While an endpoint is doubted its owner hears of life at most this often.
const TELL_EVERY: Duration = Duration::from_millis(2);
/// Only the observer needs a short idle promise; towards the service a second is enough (detection.md section 7).
pub const IDLE_TOWARDS_SERVICE: Duration = Duration::from_secs(1);

/// Vouch, frozen, starved.
type Said = (Vouch, bool, bool);

/// The dialler's [`Side`].
pub struct OutboundSide {
    hub: WeakHub,
    key: Key,
    shared: Arc<Shared>,
    worker: usize,
    /// Set once the link exists.
    pub(super) link: Cell<u64>,
    told: Cell<Stamp>,
    /// When the link was doubted last, and other workers were told to ask.
    doubted: Cell<Stamp>,
    /// What the last beat said, and when.
    vouched: Cell<Option<(Stamp, Said)>>,
    /// Answers that it counted, wraps.
    answers: Cell<Option<u32>>,
    /// Leads to a node whose service is worse than that of another node behind the same address: the owner has to
    /// hear of each beat that it recovers by.
    pub(super) shunned: Cell<bool>,
    /// Per-connection links promise nothing short: the node's watch link speaks for them.
    duty: bool,
}

impl OutboundSide {
    pub(super) fn new(hub: &Rc<Hub>, key: Key, duty: bool) -> Rc<OutboundSide> {
        Rc::new(OutboundSide {
            hub: Rc::downgrade(hub),
            key,
            shared: hub.shared(key).clone(),
            worker: hub.w.index,
            link: Cell::new(0),
            told: Cell::new(Stamp::ZERO),
            doubted: Cell::new(Stamp::ZERO),
            vouched: Cell::new(None),
            answers: Cell::new(None),
            shunned: Cell::new(false),
            duty,
        })
    }

    fn tell(&self, now: Stamp, news: News) {
        if let Some(hub) = self.hub.upgrade() {
            hub.tell(self.key, now, news);
        }
    }
}

impl Side for OutboundSide {
    fn heard(&self, now: Stamp) {
        self.shared.heard(self.worker, now);
        if self.shared.state() != State::Active && now.since(self.told.get()) >= TELL_EVERY {
            self.told.set(now);
            self.tell(now, News::Heard(self.link.get()));
        }
    }

    fn others_heard(&self, link: &Link) -> Stamp {
        self.hub.upgrade().map_or(Stamp::ZERO, |h| h.others_heard(self.key, link.id))
    }

    fn others_hear(&self, link: &Link) -> Stamp {
        self.hub.upgrade().map_or(Stamp::ZERO, |h| h.others_hear(self.key, link.id))
    }

    fn others_asked(&self, _link: &Link) -> Stamp {
        self.shared.asked_elsewhere(self.worker, self.doubted.get())
    }

    fn judged(&self, link: &Rc<Link>, now: Stamp, output: &Output) {
        if let Some(hub) = self.hub.upgrade() {
            match output {
                Output::Suspect(_) => {
                    self.doubted.set(now);
                    hub.order(now, self.key, Order::AskOthers(link.id));
                }
                Output::LinkOnly(e) => {
                    tracing::info!(link = link.id, endpoint = %self.shared.address, silence_ms = e.silence.as_secs_f64() * 1e3,
                        since_last_ms = e.since_last.as_secs_f64() * 1e3, "one link is silent while the node lives on others");
                    hub.demote(self.key, link, now);
                }
                _ => {}
            }
        }
        self.tell(now, News::Judged(link.id, *output));
    }

    /// Told once per node: by the link that was used last, until any was by each worker's.
    fn shadowed(&self, link: &Link, shift: &Shift) {
        let duty = &self.shared.duty;
        let speaks = self.duty && duty.holds(link.id) && (duty.is_last(link.id) || duty.is_free());
        let counts = |hub: &Rc<Hub>| speaks && !hub.retired.get();
        let Some(hub) = self.hub.upgrade().filter(counts) else { return };
        hub.metrics[self.key.up].shadowed(shift.detector, shift.to);
        let cause = if shift.to == State::Active { Cause::None } else { Cause::Silent };
        let (upstream, endpoint) = (&hub.ups[self.key.up].params.name, self.shared.address.to_string());
        let mut event = Event::new(shift.at, upstream, &endpoint, shift.from, shift.to, cause);
        event.node = Some(link.peer_node.clone());
        event.silence_ms = link.with_judge(|j| shift.at.millis_since(j.last_heard()).max(0.0));
        event.detector = Some(shift.detector.to_owned());
        event.link = Some(link.id);
        hub.events.shadows().push(event);
    }

    fn beat(&self, _link: &Link, now: Stamp, beat: &wire::Beat) {
        if beat.flags.own_stall && self.shared.state() != State::Active {
            self.tell(now, News::PeerStalled);
        }
        let counted = self.answers.replace(Some(beat.utility));
        self.shared.work.beat(now, beat, counted.is_some_and(|n| n != beat.utility));
        let said = (beat.vouch, beat.flags.frozen, beat.flags.starved);
        let before = self.vouched.replace(Some((now, said)));
        let changed = before.is_none_or(|(_, b)| b != said);
        if changed && let Some((at, (vouch, frozen, starved))) = before {
            self.tell(now, News::StillVouched(self.link.get(), at, vouch, frozen, starved));
        }
        if changed || self.shunned.get() || self.shared.state() != State::Active {
            self.tell(now, News::Vouch(self.link.get(), said.0, said.1, said.2));
        }
    }

    fn late(&self, late: Duration) {
        if let Some(hub) = self.hub.upgrade() {
            hub.metrics[self.key.up].late(late);
        }
    }

    fn backpressure(&self, now: Stamp, active: bool) {
        self.tell(now, News::Backpressure(active));
    }

    fn maintenance(&self, now: Stamp, duration: Duration) {
        self.tell(now, News::Maintenance(self.link.get(), duration));
    }

    fn goaway(&self, _link: &Rc<Link>, now: Stamp, _deadline: Duration) {
        self.tell(now, News::Goaway);
    }

    fn lost(&self, link: &Rc<Link>, now: Stamp, how: &Lost) {
        let Some(hub) = self.hub.upgrade() else { return };
        if let Some(peak) = link.with_judge(|j| j.peak(now)) {
            self.shared.keep_peak(now, peak, hub.ups[self.key.up].params.detector.half_life);
        }
        hub.remove_link(self.key, link.id);
        if let Some(error) = how.error() {
            hub.process.link_error(error);
        }
        let how = match how {
            Lost::Fin => LinkLost::Fin,
            Lost::Rst => LinkLost::Rst,
            Lost::TimedOut => LinkLost::TimedOut,
            Lost::Goaway => LinkLost::Goaway,
            Lost::Done | Lost::Cut | Lost::Io => LinkLost::Cut,
            Lost::Protocol(_) | Lost::Limit(_) => LinkLost::Protocol,
        };
        hub.tell(self.key, now, News::Lost(link.id, how));
    }

    fn open(&self, _link: &Rc<Link>, _stream: &Rc<Stream>, _service: &str) -> bool {
        false
    }

    fn facts(&self, _now: Stamp) -> BeatFacts {
        BeatFacts::default()
    }

    fn on_duty(&self, link: u64) -> bool {
        self.duty && self.shared.duty.holds(link)
    }

    fn used(&self, link: u64, now: Stamp) {
        self.shared.duty.used(link, now);
    }

    fn idle_promise(&self) -> Duration {
        IDLE_TOWARDS_SERVICE
    }
}
