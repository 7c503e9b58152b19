//! Dialling a sidecar: from socket to running link.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::hub::{Hub, Key, News};
use super::side::{IDLE_TOWARDS_SERVICE, OutboundSide};
use crate::clock;
use crate::detector::LinkJudge;
use crate::link::driver::Peer;
use crate::link::handshake::{self, DialError};
use crate::link::pace::PaceParams;
use crate::link::{Link, LinkConf};
use crate::metrics::{Direction, Handshake, Metrics};
use crate::stamp::Stamp;
use crate::wire::{FEATURE_ONE_STREAM, Hello, VERSION};

/// What every dial of this process says and uses.
#[derive(Clone, Debug)]
pub struct Dialer {
    /// Our node id.
    pub node: String,
    /// Random per start.
    pub incarnation: u64,
    /// Promise while active, ours and wanted.
    pub active: Duration,
    /// Promise while idle that we want.
    pub idle: Duration,
    /// Most credit of one stream.
    pub window_max: u32,
    /// Send queue cap.
    pub queue_max: usize,
    /// Backpressure threshold.
    pub threshold: f64,
    /// Streams per link.
    pub streams_max: usize,
}

/// What the link is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// New streams go there.
    Main,
    /// One stream only (`link_mode = "per-connection"`).
    OneStream,
}

/// Most sidecars on one path.
const HOPS_MAX: u8 = 8;

impl Dialer {
    fn hello(&self, service: &str, features: u32, trace: [u8; 16]) -> Hello {
        let ms = crate::link::beats::millis16;
        Hello {
            version: VERSION,
            features,
            incarnation: self.incarnation,
            node: self.node.clone(),
            service: service.to_owned(),
            active_ms: ms(self.active),
            idle_ms: ms(IDLE_TOWARDS_SERVICE),
            accept_min_ms: 5,
            want_active_ms: ms(self.active),
            want_idle_ms: ms(self.idle),
            hops: 1.min(HOPS_MAX),
            trace,
        }
    }
}

/// Dials and starts the link; it is known to the hub and to the owner of the verdict when this returns. `accepted` is
/// called once the peer's kernel has accepted.
pub async fn dial(
    hub: &Rc<Hub>,
    key: Key,
    connect: Duration,
    speak: Duration,
    purpose: Purpose,
    accepted: impl FnOnce(),
) -> Result<Rc<Link>, DialError> {
    let main = purpose == Purpose::Main;
    if main {
        hub.set_dialing(key, true);
    }
    let busy = Busy(main.then(|| (hub.clone(), key)));
    let d = &hub.dialer;
    let mut trace = [0; 16];
    trace[..8].copy_from_slice(&hub.w.random().to_be_bytes());
    trace[8..].copy_from_slice(&hub.w.random().to_be_bytes());
    let params = &hub.ups[key.up].params;
    let features = if main { 0 } else { FEATURE_ONE_STREAM };
    let hello = d.hello(&params.remote, features, trace);
    let attempt = Attempt::begin(hub);
    let connected = || {
        attempt.accepted.set(true);
        accepted();
    };
    let got = handshake::dial(&hub.w, hub.shared(key).link, &hello, connect, speak, connected).await;
    attempt.ended(got.as_ref().map_or_else(DialError::result, |_| Handshake::Ok));
    let got = got?;
    let now = clock::now();
    let side = OutboundSide::new(hub, key, main);
    let conf = LinkConf {
        pace: PaceParams {
            active: d
                .active
                .max(Duration::from_millis(u64::from(got.welcome.accept_min_ms)))
                .min(IDLE_TOWARDS_SERVICE),
            idle: IDLE_TOWARDS_SERVICE,
        },
        // The welcome says what holds in both directions, but memory is ours.
        initial_credit: got.welcome.initial_credit.min(crate::link::credit::INITIAL),
        peer_credit: got.welcome.initial_credit,
        window_max: d.window_max,
        queue_max: d.queue_max,
        threshold: d.threshold,
        streams_max: if main { d.streams_max } else { 1 },
        dialer: true,
        one_stream: !main,
    };
    let mut judge = LinkJudge::with_shadows(&params.detector, &params.shadows, now);
    // The links of single connections come and go by the thousand and promise nothing of their own.
    if let Some(tap) = main.then(|| hub.tap(key, &got.welcome.node, now)).flatten() {
        judge.tap(tap);
    }
    judge.inherit(now, hub.peak(key, now));
    let peer = Peer { node: got.welcome.node.clone(), incarnation: got.welcome.incarnation };
    let link = Link::new(hub.w.clone(), got.io, peer, conf, Some(judge), side.clone());
    side.link.set(link.id);
    hub.add_link(key, &link, side, main);
    drop(busy);
    let (running, counted) = (link.clone().run(got.rest), hub.process.link_up(Direction::Out));
    tokio::task::spawn_local(async move {
        running.await;
        drop(counted);
    });
    hub.tell(key, now, News::Up(link.id, got.welcome.incarnation, got.welcome.node));
    Ok(link)
}

/// A dial that gave way to later ones after this was not answered; one before lost a race, which says nothing.
const GIVEN_UP: Duration = Duration::from_secs(1);

/// Counts how a dial ended, also when it is dropped half-way.
struct Attempt {
    process: Arc<Metrics>,
    begun: Stamp,
    accepted: Cell<bool>,
    counted: Cell<bool>,
}

impl Attempt {
    fn begin(hub: &Hub) -> Attempt {
        let (accepted, counted) = (Cell::new(false), Cell::new(false));
        Attempt { process: hub.process.clone(), begun: clock::now(), accepted, counted }
    }

    fn ended(&self, result: Handshake) {
        self.counted.set(true);
        self.process.handshake(Direction::Out, result);
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.counted.get() && clock::now().since(self.begun) >= GIVEN_UP {
            self.ended(if self.accepted.get() { Handshake::Timeout } else { Handshake::Connect });
        }
    }
}

/// Says that the dial is over, also when it is dropped half-way.
struct Busy(Option<(Rc<Hub>, Key)>);

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some((hub, key)) = &self.0 {
            hub.set_dialing(*key, false);
        }
    }
}
