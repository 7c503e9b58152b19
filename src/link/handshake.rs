//! The beginning of a link: the acceptor speaks first, so that a foreign server never receives a link byte.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::tune::{tune_link, tune_loopback};
use crate::metrics::Handshake;
use crate::wire::{
    Decoder, Event, Frame, GREETING_LEN, Hello, Limits, RefuseCode, VERSION, Welcome, WireError, greeting,
    parse_greeting,
};
use crate::worker::Worker;

/// Why there is no link.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// Nobody listens.
    #[error("connection refused")]
    Refused,
    /// The kernel of the peer did not answer.
    #[error("no answer to the connect")]
    Unanswered,
    /// Connected, but no greeting came in time.
    #[error("connected, but the sidecar does not speak")]
    NoWelcome,
    /// Somebody else listens there.
    #[error("not a sidecar: {0}")]
    NotSidecar(&'static str),
    /// The sidecar said no.
    #[error("refused by the peer: {1} ({0:?})")]
    Said(RefuseCode, String),
    /// The connect failed in another way.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// Anything else.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The peer broke the protocol.
    #[error("protocol error: {0}")]
    Wire(#[from] WireError),
}

impl DialError {
    /// As it is counted.
    pub fn result(&self) -> Handshake {
        match self {
            DialError::Refused | DialError::Unanswered | DialError::Connect(_) => Handshake::Connect,
            DialError::NoWelcome => Handshake::Timeout,
            DialError::NotSidecar(_) | DialError::Wire(_) => Handshake::Protocol,
            DialError::Said(..) => Handshake::Refused,
            DialError::Io(_) => Handshake::Io,
        }
    }
}

/// A dialled link: socket, welcome, and bytes that came behind it.
pub struct Dialled {
    /// The socket.
    pub io: TcpStream,
    /// What the peer said.
    pub welcome: Welcome,
    /// Bytes behind it.
    pub rest: Vec<u8>,
}

/// Dials a sidecar. `connect`: for the TCP handshake; `speak`: for greeting and welcome; `accepted` is called between.
pub async fn dial(
    w: &Rc<Worker>,
    to: SocketAddr,
    hello: &Hello,
    connect: Duration,
    speak: Duration,
    accepted: impl FnOnce(),
) -> Result<Dialled, DialError> {
    let mut io = match w.timeout(connect, connect_to(to)).await {
        Err(_) => return Err(DialError::Unanswered),
        Ok(Err(e)) if e.kind() == io::ErrorKind::ConnectionRefused => return Err(DialError::Refused),
        Ok(Err(e)) if e.kind() == io::ErrorKind::TimedOut => return Err(DialError::Unanswered),
        Ok(Err(e)) => return Err(DialError::Connect(e)),
        Ok(Ok(io)) => io,
    };
    tune_link(&io);
    accepted();
    match w.timeout(speak, exchange(&mut io, hello)).await {
        Err(_) => Err(DialError::NoWelcome),
        Ok(Err(e)) => Err(e),
        Ok(Ok((welcome, rest))) => Ok(Dialled { io, welcome, rest }),
    }
}

/// A connection on its way, tuned before it begins.
pub async fn connect_to(to: SocketAddr) -> io::Result<TcpStream> {
    let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    tune_loopback(&SockRef::from(&socket), to);
    socket.connect(to).await
}

async fn exchange(io: &mut TcpStream, hello: &Hello) -> Result<(Welcome, Vec<u8>), DialError> {
    let mut first = [0; GREETING_LEN];
    let mut have = 0;
    while have < GREETING_LEN {
        let n = io.read(&mut first[have..]).await.map_err(|e| foreign(&e, have))?;
        if n == 0 {
            return Err(DialError::NotSidecar("closed before a greeting"));
        }
        have += n;
        if first[..have] != greeting()[..have.min(8)] && have < 8 {
            return Err(DialError::NotSidecar("another greeting"));
        }
    }
    let version = parse_greeting(&first).map_err(|_| DialError::NotSidecar("another greeting or version"))?;
    let mut out = BytesMut::new();
    Frame::Hello(Hello { version, ..hello.clone() }).encode(&mut out);
    io.write_all(&out).await?;
    match read_frame(io).await? {
        (Frame::Welcome(w), rest) if w.version == version => Ok((w, rest)),
        (Frame::Welcome(_), _) => Err(DialError::NotSidecar("welcome in another version")),
        (Frame::Refuse { code, text }, _) => Err(DialError::Said(code, text)),
        _ => Err(DialError::NotSidecar("neither welcome nor refusal")),
    }
}

fn foreign(e: &io::Error, have: usize) -> DialError {
    if have == 0 && e.kind() == io::ErrorKind::ConnectionReset {
        return DialError::NotSidecar("reset before a greeting");
    }
    DialError::Io(io::Error::from(e.kind()))
}

/// One frame, and the bytes behind it.
async fn read_frame(io: &mut TcpStream) -> Result<(Frame, Vec<u8>), DialError> {
    let mut decoder = Decoder::new(Limits::HANDSHAKE);
    let mut buf = [0u8; 2048];
    loop {
        let n = io.read(&mut buf).await?;
        if n == 0 {
            return Err(DialError::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        let mut input = &buf[..n];
        match decoder.next(&mut input)? {
            Some(Event::Frame(f)) => return Ok((f, input.to_vec())),
            Some(_) => return Err(DialError::NotSidecar("data before the welcome")),
            None => {}
        }
    }
}

/// The acceptor's half: greeting out, hello in. The caller answers with [`welcome`] or [`refuse`].
pub async fn accept(
    w: &Rc<Worker>,
    io: &mut TcpStream,
    within: Duration,
) -> Result<(Hello, Vec<u8>), DialError> {
    tune_link(io);
    let both = async {
        io.write_all(&greeting()).await?;
        match read_frame(io).await? {
            (Frame::Hello(h), rest) => Ok((h, rest)),
            _ => Err(DialError::NotSidecar("no hello")),
        }
    };
    w.timeout(within, both).await.map_err(|_| DialError::NoWelcome)?
}

/// Says yes.
pub async fn welcome(w: &Rc<Worker>, io: &mut TcpStream, yes: Welcome) -> io::Result<()> {
    send(w, io, &Frame::Welcome(yes)).await
}

/// Says no, with a reason.
pub async fn refuse(w: &Rc<Worker>, io: &mut TcpStream, code: RefuseCode, text: &str) -> io::Result<()> {
    send(w, io, &Frame::Refuse { code, text: text.to_owned() }).await?;
    io.shutdown().await
}

async fn send(w: &Rc<Worker>, io: &mut TcpStream, frame: &Frame) -> io::Result<()> {
    let mut out = BytesMut::new();
    frame.encode(&mut out);
    w.timeout(Duration::from_secs(2), io.write_all(&out)).await?
}

/// True if the version is one we speak.
pub fn speaks(version: u16) -> bool {
    version == VERSION
}
