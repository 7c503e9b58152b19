//! Connections of the local service to an upstream: pick an endpoint, open a stream, try another one if the first fails
//! before any byte reached a service.

use std::rc::Rc;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;

use super::accept::Load;
use super::meter::AskingMeter;
use super::plain;
use super::quota::Permit;
use super::served::Served;
use crate::clock;
use crate::link::Ended;
use crate::link::handshake::connect_to;
use crate::link::tune::tune_service;
use crate::metrics::{CloseReason, Direction, Metrics, RejectReason};
use crate::upstream::asking::Asking;
use crate::upstream::dial::{self, Purpose};
use crate::upstream::facts::Mode;
use crate::upstream::hub::{Hub, Key, News};

/// What a link of one stream may take to hand over its last bytes.
const LAST_WORDS: Duration = Duration::from_secs(15);

/// An accepted connection on its way.
pub struct Accepted {
    /// The application's socket.
    pub io: TcpStream,
    /// Which upstream it wants.
    pub up: usize,
    /// Its place in the balance of workers.
    pub load: Load,
    /// Its share of the cap.
    pub permit: Permit,
}

/// How one attempt on an endpoint went.
enum Attempt {
    /// The connection was served to its end.
    Served(CloseReason),
    /// Nothing reached a service: the socket and what was read from it.
    Unserved(TcpStream, Vec<u8>),
}

/// Serves one connection.
pub async fn serve(hub: Rc<Hub>, metrics: std::sync::Arc<Metrics>, conn: Accepted) {
    let Accepted { mut io, up, load, permit } = conn;
    let counted = Served::begin(&hub.w, &hub.metrics[up].connections);
    let _stream = metrics.stream_open(Direction::Out);
    let mut first = Vec::new();
    let mut tried = Vec::new();
    let reason = loop {
        let Some(key) = hub.pick(up, &tried) else {
            hub.ups[up].turned_away(clock::now());
            let why = if tried.is_empty() { RejectReason::NoEndpoint } else { RejectReason::Unreachable };
            hub.metrics[up].connections.reject(why);
            abort(io);
            break CloseReason::OpenFailed;
        };
        tried.push(key.ep);
        match attempt(&hub, key, io, first).await {
            Attempt::Served(reason) => break reason,
            Attempt::Unserved(back, read) => (io, first) = (back, read),
        }
    };
    counted.close(reason);
    drop((load, permit));
}

async fn attempt(hub: &Rc<Hub>, key: Key, io: TcpStream, first: Vec<u8>) -> Attempt {
    let asking = Asking::new(hub.shared(key));
    match hub.mode(key) {
        Mode::Framed => framed(hub, key, io, first, asking).await,
        Mode::Plain => {
            // Boxed, so that a framed connection does not hold room for a plain one as long as it lives.
            let attempt = Box::pin(direct(hub, key, io, first)).await;
            // Who spoke last is not looked at here: it waits as long as it is connected.
            drop(asking);
            attempt
        }
    }
}

async fn framed(hub: &Rc<Hub>, key: Key, io: TcpStream, first: Vec<u8>, asking: Asking) -> Attempt {
    let params = &hub.ups[key.up].params;
    // Boxed: a dial needs kilobytes for a moment, the stream lives for hours.
    let link = if params.per_connection {
        let t = params.connect_timeout;
        Box::pin(dial::dial(hub, key, t, t, Purpose::OneStream, || {})).await.ok()
    } else {
        Box::pin(hub.link(key)).await
    };
    let Some(link) = link else { return Attempt::Unserved(io, first) };
    let stream = match hub.open(key, &link, io, &first) {
        Ok(s) => s,
        Err(io) => return Attempt::Unserved(io, first),
    };
    asking.set(!first.is_empty());
    stream.set_meter(Box::new(AskingMeter(asking)));
    let ended = stream.clone().run().await;
    hub.closed(key);
    if params.per_connection {
        link.close_when_written(LAST_WORDS);
    }
    if let Ended::OpenFailed(errno) = ended {
        hub.tell(key, clock::now(), News::OpenFailed(link.id, i32::from(errno) == libc_refused()));
    }
    if matches!(ended, Ended::OpenFailed(_) | Ended::LinkLost)
        && let Some((io, read)) = stream.take_back()
    {
        return Attempt::Unserved(io, read);
    }
    Attempt::Served(reason(ended))
}

fn libc_refused() -> i32 {
    rustix::io::Errno::CONNREFUSED.raw_os_error()
}

pub(super) fn reason(ended: Ended) -> CloseReason {
    match ended {
        Ended::Done => CloseReason::Fin,
        Ended::AppReset | Ended::PeerReset => CloseReason::Reset,
        Ended::OpenFailed(_) => CloseReason::OpenFailed,
        Ended::LinkLost => CloseReason::LinkLost,
        Ended::Cut => CloseReason::Failed,
        Ended::Protocol | Ended::Limit => CloseReason::Error,
    }
}

async fn direct(hub: &Rc<Hub>, key: Key, io: TcpStream, first: Vec<u8>) -> Attempt {
    let wait = hub.ups[key.up].params.connect_timeout;
    let to = hub.shared(key).address;
    let got = hub.w.timeout(wait, connect_to(to)).await;
    let service = match got.unwrap_or_else(|late| Err(late.into())) {
        Ok(s) => s,
        Err(e) => {
            hub.plain_failed(key, e.kind());
            return Attempt::Unserved(io, first);
        }
    };
    tune_service(&service, to);
    let conn = hub.plain(key, service);
    let ended = plain::relay(hub.w.pool.clone(), io, &conn.io, &first, &*conn, conn.is_cut()).await;
    if let plain::Ended::Service(why) = ended {
        conn.broke(why);
    }
    Attempt::Served(match ended {
        plain::Ended::Done => CloseReason::Fin,
        plain::Ended::Client | plain::Ended::Service(_) => CloseReason::Reset,
        plain::Ended::Cut => CloseReason::Failed,
    })
}

/// Ends a connection that cannot be served by RST: the client must not wait, nor take this for an empty answer.
pub fn abort(io: TcpStream) {
    let _ = SockRef::from(&io).set_linger(Some(Duration::ZERO));
    drop(io);
}
