//! Plain passthrough: bytes from one socket to another, with no sidecar on the far side. Buffers exist only while data
//! moves; FIN is carried per direction, RST as RST.

use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::worker::pool::{BLOCK, Block, Pool};

/// How a passthrough ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// FIN both ways.
    Done,
    /// The client failed or reset it.
    Client,
    /// The service failed or reset it.
    Service,
}

/// Bytes that passed, for metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct Passed {
    /// Towards the service.
    pub up: u64,
    /// Towards the client.
    pub down: u64,
}

#[derive(Default)]
struct Half {
    block: Option<Block>,
    from: usize,
    to: usize,
    eof: bool,
    shut: bool,
    passed: u64,
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
        src: &mut TcpStream,
        dst: &mut TcpStream,
    ) -> Poll<Result<(), Side>> {
        for _ in 0..16 {
            if self.from < self.to {
                ready!(self.poll_out(cx, dst))?;
                continue;
            }
            self.block = None;
            if self.eof {
                if !self.shut {
                    self.shut = true;
                    // Not connected any more: the other direction says so.
                    let _ = SockRef::from(&*dst).shutdown(Shutdown::Write);
                }
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_in(cx, pool, src))?;
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_out(&mut self, cx: &mut Context<'_>, dst: &mut TcpStream) -> Poll<Result<(), Side>> {
        let Some(block) = &self.block else { return Poll::Ready(Ok(())) };
        let n = ready!(Pin::new(dst).poll_write(cx, &block[self.from..self.to])).map_err(Side::Writer)?;
        self.from += n;
        self.passed += n as u64;
        Poll::Ready(Ok(()))
    }

    fn poll_in(
        &mut self,
        cx: &mut Context<'_>,
        pool: &Rc<Pool>,
        src: &mut TcpStream,
    ) -> Poll<Result<(), Side>> {
        ready!(src.poll_read_ready(cx)).map_err(Side::Reader)?;
        let mut block = pool.take();
        let mut buf = ReadBuf::new(&mut block[..BLOCK]);
        ready!(Pin::new(src).poll_read(cx, &mut buf)).map_err(Side::Reader)?;
        let n = buf.filled().len();
        self.eof = n == 0;
        (self.from, self.to) = (0, n);
        self.block = (n > 0).then_some(block);
        Poll::Ready(Ok(()))
    }
}

/// Both sockets. Unless all was said both ways they end with RST, also where the task is dropped on its way: nobody may
/// take a truncated stream for a whole one.
struct Ends {
    client: TcpStream,
    service: TcpStream,
    whole: bool,
}

impl Drop for Ends {
    fn drop(&mut self) {
        if !self.whole {
            let _ = SockRef::from(&self.client).set_linger(Some(Duration::ZERO));
            let _ = SockRef::from(&self.service).set_linger(Some(Duration::ZERO));
        }
    }
}

/// Relays until both directions ended. `first`: bytes already read from the client.
pub async fn relay(
    pool: Rc<Pool>,
    client: TcpStream,
    service: TcpStream,
    first: &[u8],
    mut progress: impl FnMut(Passed),
) -> (Ended, Passed) {
    let (mut up, mut down) = (Half::default(), Half::default());
    if !first.is_empty() {
        let mut block = pool.take();
        let n = first.len().min(BLOCK);
        block[..n].copy_from_slice(&first[..n]);
        up.block = Some(block);
        up.to = n;
    }
    let mut ends = Ends { client, service, whole: false };
    let ended = std::future::poll_fn(|cx| {
        let Ends { client, service, .. } = &mut ends;
        let u = up.poll(cx, &pool, client, service);
        let d = down.poll(cx, &pool, service, client);
        progress(Passed { up: up.passed, down: down.passed });
        match (u, d) {
            (Poll::Ready(Err(side)), _) => Poll::Ready(blame(&side, Ended::Client, Ended::Service)),
            (_, Poll::Ready(Err(side))) => Poll::Ready(blame(&side, Ended::Service, Ended::Client)),
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => Poll::Ready(Ended::Done),
            _ => Poll::Pending,
        }
    })
    .await;
    // RST is carried as RST.
    ends.whole = ended == Ended::Done;
    (ended, Passed { up: up.passed, down: down.passed })
}

fn blame(side: &Side, reader: Ended, writer: Ended) -> Ended {
    match side {
        Side::Reader(e) => {
            tracing::debug!(error = %e, "plain read failed");
            reader
        }
        Side::Writer(e) => {
            tracing::debug!(error = %e, "plain write failed");
            writer
        }
    }
}
