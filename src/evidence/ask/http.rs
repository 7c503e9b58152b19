//! Does a GET answer, and with a status that is well? The head is enough: the body is not read.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;

/// Room for the head of an answer.
const HEAD_BYTES: usize = 16 * 1024;
/// Most bytes read for one answer: any number of `100 Continue` may come before it.
const READ_BYTES: usize = 64 * 1024;

/// Ranges of statuses that are well, both ends included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statuses(pub Vec<(u16, u16)>);

impl Statuses {
    fn hold(&self, status: u16) -> bool {
        self.0.iter().any(|(from, to)| (*from..=*to).contains(&status))
    }
}

impl fmt::Display for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (from, to)) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            if from == to { write!(f, "{comma}{from}")? } else { write!(f, "{comma}{from}-{to}")? }
        }
        Ok(())
    }
}

pub(super) async fn ask(service: SocketAddr, path: &str, well: &Statuses) -> Result<String, String> {
    let io = TcpStream::connect(service).await.map_err(|e| format!("cannot connect: {e}"))?;
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES);
    let (read, write) = io.into_split();
    let io = tokio::io::join(Limited { io: read, left: READ_BYTES }, write);
    let (mut sender, connection) =
        builder.handshake(TokioIo::new(io)).await.map_err(|e| format!("no HTTP: {e}"))?;
    let request = Request::get(path)
        .header(header::HOST, service.to_string())
        .header(header::USER_AGENT, concat!("sidebeat-probe/", env!("CARGO_PKG_VERSION")))
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|e| format!("`{path}` is no path: {e}"))?;
    let mut answer = std::pin::pin!(sender.send_request(request));
    let answer = tokio::select! {
        biased;
        answer = answer.as_mut() => answer,
        // It may end just before the answer is handed on; what broke it is then in the answer.
        _ = connection => answer.await,
    };
    let status = answer.map_err(|e| no_answer(&e))?.status().as_u16();
    if well.hold(status) {
        Ok(format!("status {status}"))
    } else {
        Err(format!("status {status}, not {well}"))
    }
}

fn no_answer(e: &hyper::Error) -> String {
    let why = e.source().map(|why| format!(": {why}")).unwrap_or_default();
    format!("no HTTP answer: {e}{why}")
}

/// Reads no more than so many bytes.
struct Limited {
    io: OwnedReadHalf,
    left: usize,
}

impl AsyncRead for Limited {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.left == 0 {
            let what = format!("more than {} KiB before an answer", READ_BYTES >> 10);
            return Poll::Ready(Err(io::Error::other(what)));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        self.left = self.left.saturating_sub(buf.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}
