//! Links of other sidecars, and their streams to the local service.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpSocket, TcpStream};

use super::groups::Groups;
use super::meter::ServiceMeter;
use super::quota::{Permit, Quota};
use super::served::Served;
use super::strangers::Strangers;
use crate::clock;
use crate::detector::Output;
use crate::evidence::{Explain, ServiceStats};
use crate::link::driver::Peer;
use crate::link::duty::Duty;
use crate::link::handshake::{self, DialError};
use crate::link::pace::{OFF_DUTY, PaceParams};
use crate::link::tune::{tune_loopback, tune_service};
use crate::link::{BeatFacts, Link, LinkConf, Lost, Side, Stream};
use crate::metrics::{CloseReason, Direction, Handshake, InboundMetrics, Metrics, RejectReason};
use crate::seldom::Seldom;
use crate::stamp::Stamp;
use crate::upstream::registry::Upstreams;
use crate::wire::{
    self, BeatFlags, FEATURE_ONE_STREAM, Frame, Hello, Maintenance, RefuseCode, VERSION, Welcome,
};
use crate::worker::Worker;

/// Idle promise per link, so that a process sends at most 5 000 idle beats a second to all its observers: they leave at
/// 0.8 of the promise (detection.md section 7).
const PROMISE_PER_LINK: Duration = Duration::from_micros(250);
/// Least promise a peer may ask for, ms.
const FASTEST_MS: u16 = 5;
/// The service is dialled from here, so that rules which trust 127.0.0.1 do not trust the network (link.md, Trust).
const FROM: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 6);
/// errno of "no more streams".
const EMFILE: u16 = 24;
/// Most sidecars on one path.
const HOPS_MAX: u8 = 8;

/// Parameters of one inbound service.
#[derive(Clone, Debug)]
pub struct InboundParams {
    /// Name.
    pub name: String,
    /// The service.
    pub service: SocketAddr,
    /// Networks (address, prefix length) that may link; empty: all.
    pub allow: Vec<(IpAddr, u8)>,
}

/// What all workers share of one inbound service.
pub struct Inbound {
    /// Parameters.
    pub params: InboundParams,
    /// Evidence.
    pub stats: Arc<ServiceStats>,
    /// Metrics.
    pub metrics: Arc<InboundMetrics>,
    /// Links open now.
    pub links: AtomicUsize,
    /// The evidence behind the vouch, as of the last look worth telling.
    pub explain: Mutex<Option<Explain>>,
}

/// What all links of this process say and keep to.
pub struct Common {
    /// Our node id.
    pub node: String,
    /// Random per start.
    pub incarnation: u64,
    /// Promises of the configuration.
    pub pace: PaceParams,
    /// Credit of new streams.
    pub initial_credit: u32,
    /// Most credit of one stream.
    pub window_max: u32,
    /// Send queue cap.
    pub queue_max: usize,
    /// Backpressure threshold.
    pub threshold: f64,
    /// Streams per link.
    pub streams_max: usize,
    /// For a hello.
    pub hello_timeout: Duration,
    /// Links in all.
    pub link_quota: Arc<Quota>,
    /// Open inbound links of the process.
    pub link_count: AtomicUsize,
    /// Links per peer that hold the short promise.
    pub duty: usize,
    /// End of an announced maintenance, CLOCK_MONOTONIC ns; 0: none.
    pub frozen_until: AtomicU64,
    /// True while draining.
    pub draining: std::sync::atomic::AtomicBool,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Links by peer.
    pub groups: Groups,
    /// What our own service depends on.
    pub ups: Arc<Upstreams>,
}

/// A peer that said hello and may have its link.
struct Guest {
    io: TcpStream,
    from: SocketAddr,
    hello: Hello,
    /// Bytes behind the hello.
    rest: Vec<u8>,
    /// Which inbound it wants.
    index: usize,
    permit: Permit,
}

/// One worker's acceptor of links.
pub struct Acceptor {
    w: Rc<Worker>,
    common: Arc<Common>,
    inbounds: Vec<Arc<Inbound>>,
    links: RefCell<HashMap<u64, (Weak<Link>, usize)>>,
    strangers: Strangers,
    /// A flood of bad peers must not fill the log.
    complaints: Cell<Seldom>,
}

impl Acceptor {
    /// An acceptor for the inbounds of this process.
    pub fn new(w: Rc<Worker>, common: Arc<Common>, inbounds: Vec<Arc<Inbound>>) -> Rc<Acceptor> {
        Rc::new(Acceptor {
            w,
            common,
            inbounds,
            links: RefCell::default(),
            strangers: Strangers::default(),
            complaints: Cell::new(Seldom::new(5, Duration::from_secs(1))),
        })
    }

    /// Takes one connection on the link port that serves `served` (indexes of inbounds).
    pub async fn serve(self: Rc<Self>, io: TcpStream, from: SocketAddr, served: Arc<Vec<usize>>) {
        // Boxed: the room that it needs for a moment is not the link's as long as it lives.
        let handshake = self.strangers.admit(clock::now(), self.handshake(io, from, &served));
        match Box::pin(handshake).await.unwrap_or(Err(DialError::NoWelcome)) {
            Ok(guest) => self.run(guest).await,
            Err(e) => {
                self.common.metrics.handshake(Direction::In, e.result());
                if is_everyday(&e) {
                    tracing::debug!(peer = %from, error = %e, "no link");
                } else if let Some(suppressed) = self.may_complain() {
                    tracing::warn!(peer = %from, reason = %e, suppressed, "no link: the peer is turned away");
                }
            }
        }
    }

    /// A few lines at once, then one a second, whatever peers do; how many were left out since the last one.
    fn may_complain(&self) -> Option<u64> {
        let mut complaints = self.complaints.get();
        let line = complaints.line(clock::now());
        self.complaints.set(complaints);
        line
    }

    async fn handshake(
        &self,
        mut io: TcpStream,
        from: SocketAddr,
        served: &[usize],
    ) -> Result<Guest, DialError> {
        let (hello, rest) = handshake::accept(&self.w, &mut io, self.common.hello_timeout).await?;
        let quota = &self.common.link_quota;
        let checked = self.check(&hello, from.ip(), served).and_then(|index| {
            let full = || format!("limits.links: {} links are up here", quota.used());
            quota.take().map(|permit| (index, permit)).ok_or_else(|| (RefuseCode::TooMany, full()))
        });
        match checked {
            Ok((index, permit)) => Ok(Guest { io, from, hello, rest, index, permit }),
            Err((code, text)) => {
                // The peer may be gone already; the reason is for it alone.
                let _ = handshake::refuse(&self.w, &mut io, code, &text).await;
                Err(DialError::Said(code, text))
            }
        }
    }

    fn check(&self, h: &Hello, from: IpAddr, served: &[usize]) -> Result<usize, (RefuseCode, String)> {
        let no = |code, text: String| Err((code, text));
        if !handshake::speaks(h.version) {
            return no(RefuseCode::Version, format!("this sidecar speaks version {VERSION}"));
        }
        let own = h.node == self.common.node && h.incarnation == self.common.incarnation;
        if own || h.hops > HOPS_MAX {
            return no(RefuseCode::Loop, "this is a link to oneself or a loop".to_owned());
        }
        // It heard GOAWAY and looks for a successor. Who is new here gets its link, and hears it too.
        if self.common.draining.load(Relaxed) && self.common.groups.linked(&h.node, h.incarnation) {
            return no(RefuseCode::Draining, "this sidecar is on its way out".to_owned());
        }
        let found = served.iter().copied().find(|i| self.inbounds[*i].params.name == h.service);
        let Some(index) = found else {
            return no(RefuseCode::NoSuchService, "no such inbound on this port".to_owned());
        };
        if !allowed(&self.inbounds[index].params.allow, from) {
            self.inbounds[index].metrics.connections.reject(RejectReason::NotAllowed);
            return no(RefuseCode::NotAllowed, "this address is not in `allow`".to_owned());
        }
        Ok(index)
    }

    async fn run(self: Rc<Self>, guest: Guest) {
        let Guest { mut io, from, hello, rest, index, permit } = guest;
        let c = &self.common;
        let one_stream = hello.features & FEATURE_ONE_STREAM != 0;
        let (pace, side) = self.side(&hello, index, from);
        let w = Welcome {
            version: VERSION,
            features: hello.features & FEATURE_ONE_STREAM,
            incarnation: c.incarnation,
            node: c.node.clone(),
            active_ms: crate::link::beats::millis16(pace.active),
            idle_ms: crate::link::beats::millis16(pace.idle),
            accept_min_ms: FASTEST_MS,
            initial_credit: c.initial_credit,
        };
        if handshake::welcome(&self.w, &mut io, w).await.is_err() {
            return c.metrics.handshake(Direction::In, Handshake::Io);
        }
        c.metrics.handshake(Direction::In, Handshake::Ok);
        let conf = LinkConf {
            pace,
            initial_credit: c.initial_credit,
            peer_credit: c.initial_credit,
            window_max: c.window_max,
            queue_max: c.queue_max,
            threshold: c.threshold,
            streams_max: if one_stream { 1 } else { c.streams_max },
            dialer: false,
            one_stream,
        };
        let peer = Peer { node: hello.node, incarnation: hello.incarnation };
        let link = Link::new(self.w.clone(), io, peer, conf, None, side.clone());
        side.id.set(link.id);
        self.links.borrow_mut().insert(link.id, (Rc::downgrade(&link), index));
        let _up = c.metrics.link_up(Direction::In);
        if c.draining.load(Relaxed) {
            link.go_away(Duration::from_secs(30));
        }
        link.run(rest).await;
        drop(permit);
    }

    fn side(self: &Rc<Self>, hello: &Hello, index: usize, from: SocketAddr) -> (PaceParams, Rc<InboundSide>) {
        let c = &self.common;
        let fastest = hello.accept_min_ms.max(FASTEST_MS);
        let wanted = |ms: u16| Duration::from_millis(u64::from(ms.max(fastest))).min(OFF_DUTY);
        let active = wanted(hello.want_active_ms);
        let idle = wanted(hello.want_idle_ms).max(active);
        let inbound = self.inbounds[index].clone();
        inbound.links.fetch_add(1, Relaxed);
        c.link_count.fetch_add(1, Relaxed);
        let side = Rc::new(InboundSide {
            acceptor: self.clone(),
            inbound,
            duty: c.groups.join(&hello.node, hello.incarnation, c.duty),
            peer: (hello.node.clone(), hello.incarnation),
            carried: Rc::new(()),
            id: Cell::new(0),
            idle,
            from,
            far: !from.ip().to_canonical().is_loopback(),
        });
        (PaceParams { active, idle: side.idle_promise() }, side)
    }

    /// A vouch changed: every observer of that inbound hears it now.
    pub fn vouch_changed(&self, index: usize) {
        for link in self.of(Some(index)) {
            link.beat_now();
        }
    }

    /// Announces a pause to every observer.
    pub fn announce(&self, duration: Duration, reason: &str) {
        for link in self.of(None) {
            link.announce(&Frame::Maintenance(Maintenance {
                for_ms: u32::try_from(duration.as_millis()).unwrap_or(u32::MAX),
                promise_ms: crate::link::beats::millis16(self.common.pace.idle),
                reason: reason.to_owned(),
            }));
        }
    }

    /// Planned end.
    pub fn drain(&self, deadline: Duration) {
        for link in self.of(None) {
            link.go_away(deadline);
        }
    }

    fn of(&self, index: Option<usize>) -> Vec<Rc<Link>> {
        let links = self.links.borrow();
        links
            .values()
            .filter(|(_, i)| index.is_none_or(|x| x == *i))
            .filter_map(|(l, _)| l.upgrade())
            .collect()
    }
}

/// Nothing that anybody has to look at: who only wanted to know whether the port is open, or gave up a dial; and an observer
/// that asks a sidecar on its way out for its successor.
fn is_everyday(e: &DialError) -> bool {
    matches!(e, DialError::Io(_) | DialError::Said(RefuseCode::Draining, _))
}

/// True if `ip` is in one of the networks, or there are none.
pub fn allowed(nets: &[(IpAddr, u8)], ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    let inside = |(net, prefix): &(IpAddr, u8)| match (net, ip) {
        (IpAddr::V4(n), IpAddr::V4(i)) => {
            (u32::from(*n) ^ u32::from(i)).checked_shr(32 - u32::from(*prefix).min(32)).unwrap_or(0) == 0
        }
        (IpAddr::V6(n), IpAddr::V6(i)) => {
            (u128::from(*n) ^ u128::from(i)).checked_shr(128 - u32::from(*prefix).min(128)).unwrap_or(0) == 0
        }
        _ => false,
    };
    nets.is_empty() || nets.iter().any(inside)
}

/// The acceptor's [`Side`] of one link.
struct InboundSide {
    acceptor: Rc<Acceptor>,
    inbound: Arc<Inbound>,
    duty: Arc<Duty>,
    peer: (String, u64),
    /// Cloned by each stream that has, or is about to have, a connection to the service. A stream that is reset leaves
    /// the link at once, its connection does not.
    carried: Rc<()>,
    id: Cell<u64>,
    idle: Duration,
    from: SocketAddr,
    /// Of another machine: a byte of it shows that our network works.
    far: bool,
}

impl Drop for InboundSide {
    fn drop(&mut self) {
        self.inbound.links.fetch_sub(1, Relaxed);
        self.acceptor.common.link_count.fetch_sub(1, Relaxed);
        self.acceptor.common.groups.leave(&self.peer.0, self.peer.1);
    }
}

impl Side for InboundSide {
    fn heard(&self, now: Stamp) {
        if self.far {
            self.acceptor.common.ups.heard_inbound(now);
        }
    }

    fn others_heard(&self, _link: &Link) -> Stamp {
        Stamp::ZERO
    }

    fn others_hear(&self, _link: &Link) -> Stamp {
        Stamp::ZERO
    }

    fn judged(&self, _link: &Rc<Link>, _now: Stamp, _output: &Output) {}

    fn beat(&self, _link: &Link, _now: Stamp, _beat: &wire::Beat) {}

    fn late(&self, _late: Duration) {}

    fn backpressure(&self, _now: Stamp, _active: bool) {}

    fn maintenance(&self, _now: Stamp, _duration: Duration) {}

    fn goaway(&self, _link: &Rc<Link>, _now: Stamp, _deadline: Duration) {}

    fn lost(&self, link: &Rc<Link>, _now: Stamp, how: &Lost) {
        self.acceptor.links.borrow_mut().remove(&link.id);
        self.duty.hand_over(link.id, 0);
        if let Some(error) = how.error() {
            self.acceptor.common.metrics.link_error(error);
        }
        let (node, how_it_ended) = (&link.peer_node, how.label());
        if !matches!(how, Lost::Protocol(_) | Lost::Limit(_)) {
            tracing::debug!(peer = %self.from, node, how = how_it_ended, "link ended");
        } else if let Some(suppressed) = self.acceptor.may_complain() {
            tracing::warn!(peer = %self.from, node, reason = how_it_ended, suppressed, "link closed: the peer broke the rules");
        }
    }

    fn full(&self) {
        self.inbound.metrics.connections.reject(RejectReason::Limit);
    }

    fn open(&self, link: &Rc<Link>, stream: &Rc<Stream>, service: &str) -> bool {
        if service != self.inbound.params.name {
            stream.refuse(0, "no such inbound on this link");
            return true;
        }
        if Rc::strong_count(&self.carried) > self.acceptor.common.streams_max {
            self.full();
            stream.refuse(EMFILE, "too many streams on this link");
            return true;
        }
        let carried = self.carried.clone();
        let carry = carry(link.clone(), stream.clone(), self.inbound.clone(), self.acceptor.clone());
        tokio::task::spawn_local(async move {
            carry.await;
            drop(carried);
        });
        true
    }

    fn facts(&self, now: Stamp) -> BeatFacts {
        let s = &self.inbound.stats;
        let c = &self.acceptor.common;
        BeatFacts {
            vouch: s.vouch(),
            flags: BeatFlags {
                draining: c.draining.load(Relaxed),
                frozen: c.frozen_until.load(Relaxed) > now.as_nanos(),
                starved: c.ups.starved(now),
                degraded: c.ups.degraded(now),
                ..BeatFlags::default()
            },
            processing_us: s.processing_us(),
            utility: s.utility(),
            in_flight: s.in_flight(),
            oldest_ms: crate::link::beats::millis16(s.oldest_unanswered(now)),
        }
    }

    fn on_duty(&self, link: u64) -> bool {
        self.duty.holds(link)
    }

    fn used(&self, link: u64, now: Stamp) {
        self.duty.used(link, now);
    }

    fn idle_promise(&self) -> Duration {
        let links = u32::try_from(self.acceptor.common.link_count.load(Relaxed)).unwrap_or(u32::MAX);
        self.idle.max(PROMISE_PER_LINK * links)
    }
}

/// One stream: connect to the service, then carry bytes until it ends.
async fn carry(link: Rc<Link>, stream: Rc<Stream>, inbound: Arc<Inbound>, acceptor: Rc<Acceptor>) {
    let counted = Served::begin(&acceptor.w, &inbound.metrics.connections);
    let _active = acceptor.common.metrics.stream_open(Direction::In);
    let connected = tokio::select! {
        biased;
        () = stream.over() => return counted.close(CloseReason::Reset),
        got = Box::pin(connect(&acceptor.w, inbound.params.service)) => got,
    };
    let io = match connected {
        Ok(io) => io,
        Err(e) => {
            inbound.stats.refused(clock::now());
            let errno = u16::try_from(e.raw_os_error().unwrap_or(0)).unwrap_or(0);
            stream.refuse(errno, &e.to_string());
            return counted.close(CloseReason::OpenFailed);
        }
    };
    tune_service(&io, inbound.params.service);
    if let Ok(local) = io.local_addr() {
        stream.set_meter(Box::new(ServiceMeter(inbound.stats.conn_opened(local))));
    }
    stream.attach(io);
    let ended = stream.run().await;
    drop(link);
    counted.close(super::outbound::reason(ended));
}

async fn connect(w: &Rc<Worker>, service: SocketAddr) -> io::Result<TcpStream> {
    let socket = if service.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    tune_loopback(&SockRef::from(&socket), service);
    if service.ip().is_loopback() && service.is_ipv4() {
        // The port is chosen at connect, so that 28 000 ports serve each destination, not all of them together.
        crate::sys::tcp::bind_no_port(&socket)?;
        socket.bind(SocketAddr::new(FROM.into(), 0))?;
    }
    let wait = Duration::from_secs(5);
    w.timeout(wait, socket.connect(service)).await?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allow_lists() {
        let ip = |s: &str| s.parse::<IpAddr>().unwrap();
        let nets = [(ip("10.0.0.0"), 8), (ip("2001:db8::"), 32)];
        assert!(allowed(&nets, ip("10.9.8.7")) && allowed(&nets, ip("::ffff:10.1.1.1")));
        assert!(allowed(&nets, ip("2001:db8:1::1")));
        assert!(!allowed(&nets, ip("11.0.0.1")) && !allowed(&nets, ip("2001:db9::1")));
        assert!(allowed(&[], ip("203.0.113.1")) && allowed(&[(ip("0.0.0.0"), 0)], ip("1.2.3.4")));
        assert!(!allowed(&[(ip("10.0.0.1"), 32)], ip("10.0.0.2")));
    }
}
