//! The listeners of the admin port, and what protects them (row D11).

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::body::Body;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use super::Control;
use super::events::EventLog;
use super::routes::{self, Door, Shared};
use crate::metrics::Metrics;

/// Connections at once, per listener: a flood on the public one leaves the other usable.
const MAX_CONNECTIONS: usize = 64;
/// A request head must be complete within this; also the longest idle time, as each connection serves one request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(3);
/// A connection that does not follow events must be over within this.
const LIFETIME: Duration = Duration::from_secs(20);
/// A client that takes no byte for this long is gone. The kernel judges: it also kills readers that merely do not
/// read, which is wanted here and nowhere else.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);
/// Answers under way get this long when the program stops.
const FAREWELL: Duration = Duration::from_secs(1);
/// After an error of accept such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Room for a request head.
const HEAD_BYTES: usize = 16 * 1024;

const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\ncontent-length: 21\r\n\
connection: close\r\n\r\ntoo many connections\n";

/// Serves `listener` (everything) and `public` (probes and metrics only) until `shutdown` completes; then open
/// answers have a second to end. Runs on the control thread's `current_thread` runtime, as [`Control`] is called from
/// the task that serves the request.
pub async fn serve(
    listener: TcpListener,
    public: Option<TcpListener>,
    control: Arc<dyn Control>,
    metrics: Arc<Metrics>,
    events: Arc<EventLog>,
    shutdown: impl Future<Output = ()>,
) {
    let (stop, stopping) = watch::channel(false);
    let shared = Arc::new(Shared { control, metrics, events: events.clone() });
    let mut doors = JoinSet::new();
    doors.spawn(accept(listener, false, shared.clone(), stopping.clone()));
    if let Some(public) = public {
        doors.spawn(accept(public, true, shared, stopping));
    }
    shutdown.await;
    stop.send_replace(true);
    events.end_followers();
    if tokio::time::timeout(FAREWELL, async { while doors.join_next().await.is_some() {} }).await.is_err() {
        tracing::debug!("admin connections were cut at shutdown");
    }
}

async fn accept(
    listener: TcpListener,
    public: bool,
    shared: Arc<Shared>,
    mut stopping: watch::Receiver<bool>,
) {
    let listen = match listener.local_addr() {
        Ok(listen) => listen,
        Err(e) => return tracing::error!(error = %e, "the admin listener has no address"),
    };
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            _ = stopping.wait_for(|s| *s) => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(e) => {
                tracing::warn!(error = %e, %listen, "the admin listener could not accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(permit) = room.clone().try_acquire_owned() else {
            // Best effort: a fresh socket has room for it.
            let _ = stream.try_write(BUSY);
            continue;
        };
        connections.spawn(connection(stream, listen, public, shared.clone(), stopping.clone(), permit));
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn connection(
    stream: TcpStream,
    listen: SocketAddr,
    public: bool,
    shared: Arc<Shared>,
    mut stopping: watch::Receiver<bool>,
    _room: OwnedSemaphorePermit,
) {
    let Ok(local) = prepare(&stream) else { return };
    let door = Door { listen, local, public };
    let streams = AtomicBool::new(false);
    let service = service_fn(|request| {
        let (shared, streams) = (&shared, &streams);
        async move {
            let reply = routes::answer(shared, door, request).await;
            streams.store(reply.body().size_hint().exact().is_none(), Ordering::Relaxed);
            Ok::<_, Infallible>(reply)
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    let mut served = std::pin::pin!(served);
    let mut too_long = std::pin::pin!(tokio::time::sleep(LIFETIME));
    let (mut limited, mut stop_seen) = (true, false);
    loop {
        tokio::select! {
            ended = served.as_mut() => {
                if let Err(e) = ended {
                    tracing::debug!(error = %e, "an admin connection ended early");
                }
                return;
            }
            () = too_long.as_mut(), if limited => {
                if !streams.load(Ordering::Relaxed) {
                    return;
                }
                limited = false;
            }
            _ = stopping.wait_for(|s| *s), if !stop_seen => {
                stop_seen = true;
                served.as_mut().graceful_shutdown();
            }
        }
    }
}

fn prepare(stream: &TcpStream) -> io::Result<SocketAddr> {
    let socket = SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_user_timeout(Some(WRITE_TIMEOUT))?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(WRITE_TIMEOUT))?;
    stream.local_addr()
}
