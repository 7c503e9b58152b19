//! Plain passthrough: bytes from one socket to another, with no sidecar on the far side. Buffers exist only while data
//! moves; FIN is carried per direction, RST as RST. What passes at the service's end is told to a meter.

use std::io;
use std::net::Shutdown;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;

use crate::clock;
use crate::link::Meter;
use crate::worker::pool::{BLOCK, Block, Pool};

/// How a passthrough ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// FIN both ways.
    Done,
    /// The client failed or reset it.
    Client,
    /// The service failed or reset it.
    Service(io::ErrorKind),
    /// A verdict ended it.
    Cut,
}

#[derive(Default)]
struct Half {
    block: Option<Block>,
    from: usize,
    to: usize,
    eof: bool,
    shut: bool,
}

/// What a direction did.
#[derive(Clone, Copy)]
enum Moved {
    /// Bytes of its source; 0: their end.
    Read(usize),
    /// Bytes that its destination took.
    Wrote(usize),
}

enum Side {
    Reader(io::Error),
    Writer(io::Error),
}

impl Half {
    /// Moves bytes until one side waits. Ready when the direction is over.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        pool: &Rc<Pool>,
        src: &TcpStream,
        dst: &TcpStream,
        note: impl Fn(Moved),
    ) -> Poll<Result<(), Side>> {
        for _ in 0..16 {
            if self.from < self.to {
                let n = ready!(self.poll_out(cx, dst))?;
                note(Moved::Wrote(n));
                continue;
            }
            self.block = None;
            if self.eof {
                if !self.shut {
                    self.shut = true;
                    // Not connected any more: the other direction says so.
                    let _ = SockRef::from(dst).shutdown(Shutdown::Write);
                }
                return Poll::Ready(Ok(()));
            }
            let n = ready!(self.poll_in(cx, pool, src))?;
            note(Moved::Read(n));
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_out(&mut self, cx: &mut Context<'_>, dst: &TcpStream) -> Poll<Result<usize, Side>> {
        let Some(block) = &self.block else { return Poll::Ready(Ok(0)) };
        loop {
            ready!(dst.poll_write_ready(cx)).map_err(Side::Writer)?;
            match dst.try_write(&block[self.from..self.to]) {
                Ok(n) => {
                    self.from += n;
                    return Poll::Ready(Ok(n));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Poll::Ready(Err(Side::Writer(e))),
            }
        }
    }

    fn poll_in(
        &mut self,
        cx: &mut Context<'_>,
        pool: &Rc<Pool>,
        src: &TcpStream,
    ) -> Poll<Result<usize, Side>> {
        loop {
            // Nothing to read: take no buffer.
            ready!(src.poll_read_ready(cx)).map_err(Side::Reader)?;
            let mut block = pool.take();
            match src.try_read(&mut block[..BLOCK]) {
                Ok(n) => {
                    self.eof = n == 0;
                    (self.from, self.to) = (0, n);
                    self.block = (n > 0).then_some(block);
                    return Poll::Ready(Ok(n));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Poll::Ready(Err(Side::Reader(e))),
            }
        }
    }
}

/// Both sockets. Unless all was said both ways they end with RST, also where the task is dropped on its way: nobody may
/// take a truncated stream for a whole one.
struct Ends<'a> {
    client: TcpStream,
    service: &'a TcpStream,
    whole: bool,
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if !self.whole {
            let _ = SockRef::from(&self.client).set_linger(Some(Duration::ZERO));
            let _ = SockRef::from(self.service).set_linger(Some(Duration::ZERO));
        }
    }
}

/// Relays until both directions ended, or `cut` is over. `first`: bytes already read from the client.
pub async fn relay(
    pool: Rc<Pool>,
    client: TcpStream,
    service: &TcpStream,
    first: &[u8],
    meter: &dyn Meter,
    cut: impl Future<Output = ()>,
) -> Ended {
    let (mut up, mut down) = (Half::default(), Half::default());
    if !first.is_empty() {
        let mut block = pool.take();
        let n = first.len().min(BLOCK);
        block[..n].copy_from_slice(&first[..n]);
        up.block = Some(block);
        up.to = n;
    }
    let mut ends = Ends { client, service, whole: false };
    let mut cut = pin!(cut);
    let ended = std::future::poll_fn(|cx| {
        if cut.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ended::Cut);
        }
        let u = up.poll(cx, &pool, &ends.client, service, |moved| {
            if let Moved::Wrote(n) = moved {
                meter.taken(clock::now(), n);
            }
        });
        // A service that ends after its client did has nothing left to answer.
        let over = up.eof;
        let d = down.poll(cx, &pool, service, &ends.client, |moved| match moved {
            Moved::Read(0) if !over => meter.ended(clock::now(), false),
            Moved::Read(n @ 1..) => meter.sent(clock::now(), n),
            Moved::Read(_) | Moved::Wrote(_) => {}
        });
        match (u, d) {
            (Poll::Ready(Err(side)), _) => Poll::Ready(blame(&side, false)),
            (_, Poll::Ready(Err(side))) => Poll::Ready(blame(&side, true)),
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => Poll::Ready(Ended::Done),
            _ => Poll::Pending,
        }
    })
    .await;
    // RST is carried as RST.
    ends.whole = ended == Ended::Done;
    ended
}

/// Whose end failed; `down`: in the direction towards the client.
fn blame(side: &Side, down: bool) -> Ended {
    let (what, e, by_service) = match side {
        Side::Reader(e) => ("read", e, down),
        Side::Writer(e) => ("write", e, !down),
    };
    tracing::debug!(error = %e, what, "plain connection failed");
    if by_service { Ended::Service(e.kind()) } else { Ended::Client }
}
