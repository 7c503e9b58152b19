//! One worker's view of all upstreams: its links per endpoint, its balancers, and the way to each verdict's owner.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::net::TcpStream;

use super::balance::{Balance, Enforce, View};
use super::dial::{self, Dialer};
use super::facts::{LinkLost, LinkPolicy, Mode, PlainResult};
use super::owner::Owner;
use super::plain::PlainSide;
use super::registry::{Shared, Upstreams};
use super::side::OutboundSide;
use super::slot::{Held, Slot};
use crate::admin::events::EventLog;
use crate::clock;
use crate::detector::{LinkJudge, Output, Tap};
use crate::link::{Ended, Link, Lost, Stream};
use crate::metrics::{Metrics, UpstreamMetrics};
use crate::stamp::Stamp;
use crate::trace::format::LinkInfo;
use crate::trace::{Recorder, settings};
use crate::verdict::{State, Vouch};
use crate::worker::{IdMap, Worker};

/// An endpoint of an upstream, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Upstream.
    pub up: usize,
    /// Endpoint.
    pub ep: usize,
}

/// What a worker tells the owner of a verdict.
#[derive(Clone, Debug)]
pub enum News {
    /// A link is up: id, incarnation, node.
    Up(u64, u64, String),
    /// The judge of a link spoke.
    Judged(u64, Output),
    /// A link ended.
    Lost(u64, LinkLost),
    /// Bytes arrived on a link while the endpoint is doubted.
    Heard(u64),
    /// A beat of that link said so: vouch, frozen, starved.
    Vouch(u64, Vouch, bool, bool),
    /// Until then beats kept saying what [`News::Vouch`] told last.
    StillVouched(u64, Stamp, Vouch, bool, bool),
    /// The peer of that link announced a pause.
    Maintenance(u64, Duration),
    /// A peer is full, or no longer.
    Backpressure(bool),
    /// The peer's own loop was late: that explains the silence.
    PeerStalled,
    /// A peer drains.
    Goaway,
    /// The service behind that link did not take a stream; true if it refused.
    OpenFailed(u64, bool),
    /// A plain connection told this.
    Plain(PlainResult),
}

impl News {
    /// Kind and word of what this says of the endpoint; None where it says no more than "alive".
    pub(super) fn evidence(&self) -> Option<[&'static str; 2]> {
        Some(match self {
            News::Up(..) => ["link", "up"],
            News::Judged(_, Output::Suspect(_)) => ["silence", "doubted"],
            News::Judged(_, Output::Failed(_)) => ["silence", "failed"],
            News::Judged(_, Output::LinkOnly(_)) => ["silence", "of one link"],
            News::Judged(_, Output::Active(_)) => ["silence", "over"],
            News::Judged(_, Output::Challenge | Output::Held(_)) | News::Heard(_) => return None,
            News::Lost(_, LinkLost::Goaway) | News::Goaway => ["link", "goaway"],
            News::Lost(_, LinkLost::Fin) => ["link", "ended by FIN"],
            News::Lost(_, LinkLost::Rst) => ["link", "reset"],
            News::Lost(_, LinkLost::TimedOut) => ["link", "timed out"],
            News::Lost(_, LinkLost::Cut) => ["link", "ended by us"],
            News::Lost(_, LinkLost::Protocol) => ["link", "broke the protocol"],
            News::Vouch(_, vouch, ..) | News::StillVouched(_, _, vouch, ..) => ["vouch", vouch.name()],
            News::Maintenance(..) => ["maintenance", "announced"],
            News::Backpressure(true) => ["backpressure", "begins"],
            News::Backpressure(false) => ["backpressure", "ends"],
            News::PeerStalled => ["peer", "was late itself"],
            News::OpenFailed(_, true) => ["stream", "refused by the service"],
            News::OpenFailed(_, false) => ["stream", "not taken in time"],
            News::Plain(PlainResult::Accepted) => ["connection", "accepted"],
            News::Plain(PlainResult::Answered) => ["connection", "answered"],
            News::Plain(PlainResult::Refused) => ["connection", "refused"],
            News::Plain(PlainResult::Reset) => ["connection", "reset"],
            News::Plain(PlainResult::Broken) => ["connection", "broken off"],
            News::Plain(PlainResult::Timeout) => ["connection", "unanswered"],
            News::Plain(PlainResult::Silent) => ["connection", "not acknowledged"],
            News::Plain(PlainResult::Late) => ["answer", "late"],
        })
    }
}

/// What every worker is told, mostly by the owner.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    /// End the connections of the endpoint.
    Cut {
        /// Plain ones only if nothing came on them for this long: TCP would carry the others over.
        quiet: Duration,
    },
    /// Close that link: it leads to a dead incarnation.
    Close(u64),
    /// That link shall be asked now.
    Probe(u64),
    /// That link is silent; all others of its endpoint shall be asked now, those off duty too, before it is said that the
    /// node is (detection.md section 3, gate 5).
    AskOthers(u64),
    /// Whether that link gets new streams, as long as others may have them.
    NewWork(u64, bool),
}

/// A message to a worker about an endpoint.
#[derive(Clone, Debug)]
pub enum Msg {
    /// To the owner.
    News(Key, News),
    /// From the owner.
    Order(Key, Order),
}

/// Sends to another worker.
pub type Post = Box<dyn Fn(Msg)>;

/// They are closed when nothing passed for this long and the endpoint is well (detection.md section 7).
const IDLE_CLOSE: Duration = Duration::from_secs(60);
/// So long such a link may take for its last words.
const PARTING: Duration = Duration::from_secs(1);
const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// See the module.
pub struct Hub {
    /// The worker.
    pub w: Rc<Worker>,
    /// All upstreams.
    pub ups: Arc<Upstreams>,
    /// How links are dialled.
    pub dialer: Dialer,
    /// Metrics per upstream.
    pub metrics: Vec<Arc<UpstreamMetrics>>,
    /// Metrics of the process.
    pub process: Arc<Metrics>,
    pub(super) events: Arc<EventLog>,
    pub(super) slots: RefCell<IdMap<Key, Slot>>,
    owners: RefCell<IdMap<Key, Rc<Owner>>>,
    balancers: RefCell<Vec<Balance>>,
    /// Where connections go, or went, without a link.
    pub(super) plains: RefCell<IdMap<Key, Rc<PlainSide>>>,
    post: Vec<Post>,
    dialled: tokio::sync::Notify,
    /// Another generation of this process judges: this one only serves what is open.
    pub(super) retired: Cell<bool>,
    /// Of this worker's links, if they are recorded.
    recorder: RefCell<Option<Rc<Recorder>>>,
}

impl Hub {
    /// A hub; `post` reaches every worker by index.
    pub fn new(
        w: Rc<Worker>,
        ups: Arc<Upstreams>,
        dialer: Dialer,
        metrics: Vec<Arc<UpstreamMetrics>>,
        process: Arc<Metrics>,
        events: Arc<EventLog>,
        post: Vec<Post>,
    ) -> Rc<Hub> {
        let balancers = ups.iter().map(|u| Balance::new(u.enforce(), u.params.max_failed)).collect();
        Rc::new(Hub {
            w,
            ups,
            dialer,
            metrics,
            process,
            events,
            slots: RefCell::default(),
            owners: RefCell::default(),
            balancers: RefCell::new(balancers),
            plains: RefCell::default(),
            post,
            dialled: tokio::sync::Notify::new(),
            retired: Cell::new(false),
            recorder: RefCell::default(),
        })
    }

    /// What judges of links are told from now on is recorded.
    pub fn record_with(&self, recorder: Option<Rc<Recorder>>) {
        *self.recorder.borrow_mut() = recorder;
    }

    /// The tap for the judge of a new link to `node`, if it is recorded.
    pub(super) fn tap(&self, key: Key, node: &str, now: Stamp) -> Option<Box<dyn Tap>> {
        let recorder = self.recorder.borrow().clone()?;
        let params = &self.ups[key.up].params;
        recorder.link(now, |worker| {
            let (law, settings) = settings::describe(&params.detector);
            LinkInfo {
                worker,
                upstream: params.name.clone(),
                endpoint: self.shared(key).address.to_string(),
                node: node.to_owned(),
                law: law.to_owned(),
                settings,
                first_promise: params.detector.first_promise,
            }
        })
    }

    /// Begins to watch the endpoints this worker owns.
    pub fn start(self: &Rc<Self>) {
        for (up, upstream) in self.ups.iter().enumerate() {
            for ep in &upstream.endpoints {
                if ep.owner != self.w.index {
                    continue;
                }
                let key = Key { up, ep: ep.index };
                let owner = Owner::new(self, key, self.events.clone());
                self.owners.borrow_mut().insert(key, owner.clone());
                owner.start();
            }
        }
    }

    /// Closes idle links for ever.
    pub async fn sweep(self: Rc<Self>) {
        loop {
            let now = clock::now();
            for (key, slot) in &*self.slots.borrow() {
                let shared = self.shared(*key);
                if slot.main.is_some() && shared.state() == State::Active {
                    // The one that holds the short promise stays until another link has carried something.
                    let over = |l: &&Rc<Link>| now.since(l.used()) > IDLE_CLOSE && !shared.duty.is_last(l.id);
                    slot.idle().iter().filter(over).for_each(|l| l.part(PARTING));
                }
            }
            self.w.sleep_until(now + SWEEP_EVERY).await;
        }
    }

    /// The shared face of an endpoint.
    pub fn shared(&self, key: Key) -> &Arc<Shared> {
        &self.ups[key.up].endpoints[key.ep]
    }

    /// The owner, if it is this worker.
    pub(super) fn owner(&self, key: Key) -> Option<Rc<Owner>> {
        self.owners.borrow().get(&key).cloned()
    }

    /// Tells the owner of the verdict, wherever it is.
    pub fn tell(&self, key: Key, now: Stamp, news: News) {
        if let Some(owner) = self.owner(key) {
            return owner.take(now, news);
        }
        if let Some(post) = self.post.get(self.shared(key).owner) {
            post(Msg::News(key, news));
        }
    }

    /// A message of another worker.
    pub fn receive(self: &Rc<Self>, now: Stamp, msg: Msg) {
        match msg {
            Msg::News(key, news) => {
                if let Some(owner) = self.owner(key) {
                    owner.take(now, news);
                }
            }
            Msg::Order(key, order) => self.obey(now, key, order),
        }
    }

    /// An order to every worker, this one included.
    pub(super) fn order(self: &Rc<Self>, now: Stamp, key: Key, order: Order) {
        for (i, post) in self.post.iter().enumerate() {
            if i != self.w.index {
                post(Msg::Order(key, order));
            }
        }
        self.obey(now, key, order);
    }

    fn obey(&self, now: Stamp, key: Key, order: Order) {
        let find = |id| self.links(key).into_iter().find(|l| l.id == id);
        match order {
            Order::Cut { quiet } => self.cut(now, key, quiet),
            Order::Close(id) => find(id).iter().for_each(|l| l.close(Lost::Cut)),
            Order::Probe(id) => find(id).iter().for_each(|l| l.probe(now)),
            Order::AskOthers(id) => {
                self.links(key).iter().filter(|l| l.id != id).for_each(|l| l.ask(now));
                self.shared(key).asked(self.w.index, now);
            }
            Order::NewWork(id, work) => {
                if let Some(held) = self.slots.borrow().get(&key).and_then(|s| s.all.get(&id)) {
                    held.side.shunned.set(!work);
                }
            }
        }
    }

    fn cut(&self, now: Stamp, key: Key, quiet: Duration) {
        self.links(key).iter().for_each(|l| l.end_streams(Ended::Cut));
        if let Some(plain) = self.plains.borrow().get(&key) {
            plain.cut(now, quiet);
        }
    }

    /// From here on verdicts cut what they must and tell nobody; nothing is dialled.
    pub fn retire(&self) {
        self.retired.set(true);
    }

    /// Publishes fresh reports of the endpoints this worker owns.
    pub fn refresh(&self, now: Stamp) {
        let owners: Vec<_> = self.owners.borrow().values().cloned().collect();
        for o in owners {
            o.report(now);
        }
    }

    // === picking ===

    /// An endpoint for new work, none of `tried`.
    pub fn pick(&self, up: usize, tried: &[usize]) -> Option<Key> {
        let upstream = &self.ups[up];
        let views: Vec<View> = upstream.endpoints.iter().map(|e| e.view()).collect();
        let balance = &mut self.balancers.borrow_mut()[up];
        balance.set_enforce(upstream.enforce());
        let ep = balance.pick(&views, tried)?;
        Some(Key { up, ep })
    }

    // === links ===

    /// A live link for new streams on this worker, dialled if there is none.
    pub async fn link(self: &Rc<Self>, key: Key) -> Option<Rc<Link>> {
        let wait = self.ups[key.up].params.connect_timeout;
        let deadline = clock::now() + wait;
        loop {
            if let Some(l) = self.main(key) {
                return Some(l);
            }
            let busy = self.slots.borrow().get(&key).is_some_and(|s| s.dialing > 0);
            if busy {
                let changed = self.dialled.notified();
                self.w.timeout_at(deadline, changed).await.ok()?;
                continue;
            }
            return dial::dial(self, key, wait, wait, dial::Purpose::Main, || {}).await.ok();
        }
    }

    /// The link for new streams, if one is up.
    pub fn main(&self, key: Key) -> Option<Rc<Link>> {
        self.slots.borrow().get(&key)?.open_link()
    }

    pub(super) fn set_dialing(&self, key: Key, on: bool) {
        let mut slots = self.slots.borrow_mut();
        let dialing = &mut slots.entry(key).or_default().dialing;
        *dialing = if on { *dialing + 1 } else { dialing.saturating_sub(1) };
        drop(slots);
        if !on {
            self.dialled.notify_waiters();
        }
    }

    pub(super) fn add_link(&self, key: Key, link: &Rc<Link>, side: Rc<OutboundSide>, main: bool) {
        let mut slots = self.slots.borrow_mut();
        let slot = slots.entry(key).or_default();
        slot.all.insert(link.id, Held { link: link.clone(), shared: main, side });
        if !main {
            return;
        }
        slot.main = Some(link.clone());
        let surplus = slot.surplus();
        drop(slots);
        surplus.iter().for_each(|l| l.close(Lost::Done));
    }

    pub(super) fn remove_link(&self, key: Key, id: u64) {
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(&key) else { return };
        slot.all.remove(&id);
        if slot.main.as_ref().is_some_and(|l| l.id == id) {
            slot.main =
                slot.all.values().map(|h| &h.link).find(|l| !l.is_lost() && !l.is_draining()).cloned();
        }
        let next = slot.main.as_ref().map_or(0, |l| l.id);
        drop(slots);
        self.shared(key).duty.hand_over(id, next);
    }

    /// The fault is this one link: new work takes another at once; its streams are cut only after the patience that
    /// TCP's own recovery deserves, if it stays silent.
    pub(super) fn demote(&self, key: Key, link: &Rc<Link>, now: Stamp) {
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(&key) else { return };
        if slot.main.as_ref().is_some_and(|l| l.id == link.id) {
            slot.main = slot.all.values().map(|h| &h.link).find(|l| l.id != link.id && !l.is_lost()).cloned();
        }
        drop(slots);
        let upstream = &self.ups[key.up];
        let Some(patience) = upstream.params.cut_after.filter(|_| upstream.enforce() == Enforce::Failed)
        else {
            return;
        };
        let (link, w) = (link.clone(), self.w.clone());
        tokio::task::spawn_local(async move {
            w.sleep_until(now + patience).await;
            let still_silent = link.with_judge(|j| j.last_heard() <= now).unwrap_or(false);
            if still_silent {
                tracing::info!(link = link.id, "the silent link is cut");
                link.close(Lost::Cut);
            }
        });
    }

    /// Latest arrival on any link to the node but `id`.
    pub(super) fn others_heard(&self, key: Key, id: u64) -> Stamp {
        self.of_others(key, id, LinkJudge::last_heard).max(self.shared(key).heard_elsewhere(self.w.index))
    }

    /// When the node had heard us last on any link of this worker but `id`.
    pub(super) fn others_hear(&self, key: Key, id: u64) -> Stamp {
        self.of_others(key, id, LinkJudge::heard_us)
    }

    fn of_others(&self, key: Key, id: u64, of: fn(&LinkJudge) -> Stamp) -> Stamp {
        let slots = self.slots.borrow();
        let others = slots.get(&key).into_iter().flat_map(|s| s.all.values()).filter(|h| h.link.id != id);
        others.filter_map(|h| h.link.with_judge(of)).max().unwrap_or(Stamp::ZERO)
    }

    /// The longest lateness that any link to the node has learned: a new one need not pay for it again.
    pub(super) fn peak(&self, key: Key, now: Stamp) -> Duration {
        let half_life = self.ups[key.up].params.detector.half_life;
        let live = self.links(key).iter().filter_map(|l| l.with_judge(|j| j.peak(now))).max();
        live.unwrap_or_default().max(self.shared(key).peak(now, half_life))
    }

    /// All live links to an endpoint on this worker.
    pub(super) fn links(&self, key: Key) -> Vec<Rc<Link>> {
        self.slots
            .borrow()
            .get(&key)
            .map_or_else(Vec::new, |s| s.all.values().map(|h| h.link.clone()).collect())
    }

    // === streams ===

    /// Opens a stream for an application connection on `link`.
    pub fn open(
        &self,
        key: Key,
        link: &Rc<Link>,
        io: TcpStream,
        first: &[u8],
    ) -> Result<Rc<Stream>, TcpStream> {
        let params = &self.ups[key.up].params;
        let stream = link.open(&params.remote, io, first, params.connect_timeout)?;
        self.shared(key).connections.fetch_add(1, Relaxed);
        Ok(stream)
    }

    /// The stream is over.
    pub fn closed(&self, key: Key) {
        self.shared(key).connections.fetch_sub(1, Relaxed);
    }

    /// How new work reaches the endpoint.
    pub fn mode(&self, key: Key) -> Mode {
        match self.ups[key.up].params.policy {
            LinkPolicy::Off => Mode::Plain,
            LinkPolicy::Required => Mode::Framed,
            LinkPolicy::Auto => self.shared(key).mode(),
        }
    }
}

/// A hub that may be gone already.
pub(super) type WeakHub = Weak<Hub>;
