//! The demo's service: a tiny HTTP/1.1 keep-alive server with fixed answers.
//!
//! `GET /` answers its name, `GET /large?mib=N` a large body, `POST /echo` what it was sent. `POST /deadlock?ms=N` stops all
//! its workers for that long while it still accepts; `POST /spin?ms=N` burns CPU time meanwhile and does nothing else. With
//! `--through` it asks another service before each answer, one request at a time.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Mutex, watch};

use crate::clock;

/// Arguments of the hidden `demo-service`.
#[derive(clap::Args, Clone, Debug)]
pub struct ServiceArgs {
    /// Where to listen.
    #[arg(long)]
    pub listen: SocketAddr,
    /// Name in each answer.
    #[arg(long)]
    pub name: String,
    /// A service to ask before each answer; until it answers nothing else is read.
    #[arg(long)]
    pub through: Option<SocketAddr>,
}

const HEAD_MAX: usize = 16 * 1024;
const ECHO_MAX: usize = 1 << 20;
const LARGE_MIB_MAX: u64 = 1024;
/// Longest fault that may be asked for.
const FAULT_MAX: Duration = Duration::from_secs(60);

/// What all connections share.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    name: String,
    /// True while all workers are dead-locked.
    locked: watch::Sender<bool>,
    /// The one who may ask the service behind this one.
    through: Option<Arc<Mutex<Behind>>>,
}

impl Shared {
    pub(super) fn new(name: &str, through: Option<SocketAddr>) -> Shared {
        let behind = |to| Arc::new(Mutex::new(Behind { to, socket: None }));
        Shared { name: name.to_owned(), locked: watch::Sender::new(false), through: through.map(behind) }
    }

    /// Waits while the workers are dead-locked.
    async fn unlocked(&self) {
        // The sender lives as long as this value.
        let _ = self.locked.subscribe().wait_for(|locked| !locked).await;
    }

    fn deadlock(&self, pause: Duration) {
        self.locked.send_replace(!pause.is_zero());
        let locked = self.locked.clone();
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            locked.send_replace(false);
        });
    }
}

/// The service behind this one, over one kept connection.
#[derive(Debug)]
struct Behind {
    to: SocketAddr,
    socket: Option<TcpStream>,
}

impl Behind {
    async fn ask(&mut self) -> io::Result<()> {
        let mut socket = match self.socket.take() {
            Some(socket) => socket,
            None => TcpStream::connect(self.to).await?,
        };
        socket.write_all(b"GET / HTTP/1.1\r\nhost: behind\r\n\r\n").await?;
        let mut buf = Vec::with_capacity(512);
        let Some(head) = fill_head(&mut socket, &mut buf).await? else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let text = String::from_utf8_lossy(&buf[..head]).to_ascii_lowercase();
        let len = text.lines().find_map(|l| l.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
        let body = len.filter(|n| *n <= ECHO_MAX).ok_or(io::ErrorKind::InvalidData)?;
        while buf.len() < head + body {
            if socket.read_buf(&mut buf).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        self.socket = Some(socket);
        Ok(())
    }
}

/// Serves until SIGTERM.
pub fn run(args: &ServiceArgs) -> ExitCode {
    let served = super::runtime().and_then(|rt| rt.block_on(serve(args)));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("demo-service {}: {e}", args.listen);
            ExitCode::FAILURE
        }
    }
}

async fn serve(args: &ServiceArgs) -> io::Result<()> {
    let listener = TcpListener::bind(args.listen).await?;
    let shared = Shared::new(&args.name, args.through);
    let mut term = signal(SignalKind::terminate())?;
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((socket, _)) = accepted {
                let shared = shared.clone();
                tokio::spawn(async move { connection(socket, &shared).await });
            },
            _ = term.recv() => return Ok(()),
        }
    }
}

/// One connection until its end.
pub(super) async fn connection(mut socket: TcpStream, shared: &Shared) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut buf = Vec::with_capacity(2048);
    loop {
        shared.unlocked().await;
        let mut turn = None;
        if let Some(behind) = &shared.through {
            if buf.is_empty() {
                socket.readable().await?;
            }
            turn = Some(behind.lock().await);
        }
        let Some(head_len) = fill_head(&mut socket, &mut buf).await? else { return Ok(()) };
        let request = Request::parse(&buf[..head_len]);
        buf.drain(..head_len);
        let Some(request) = request else {
            return socket
                .write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                .await;
        };
        while buf.len() < request.body_len {
            if socket.read_buf(&mut buf).await? == 0 {
                return Ok(());
            }
        }
        let body: Vec<u8> = buf.drain(..request.body_len).collect();
        if let Some(pause) = request.fault("/deadlock?ms=") {
            shared.deadlock(pause);
        } else {
            shared.unlocked().await;
        }
        let behind = match &mut turn {
            Some(behind) => behind.ask().await,
            None => Ok(()),
        };
        answer(&mut socket, &shared.name, &request, &body, behind).await?;
        if request.close {
            return Ok(());
        }
    }
}

async fn fill_head(socket: &mut TcpStream, buf: &mut Vec<u8>) -> io::Result<Option<usize>> {
    loop {
        if let Some(end) = buf.windows(4).position(|w| w == b"\r\n\r\n") {
            return Ok(Some(end + 4));
        }
        if buf.len() > HEAD_MAX || socket.read_buf(buf).await? == 0 {
            return Ok(None);
        }
    }
}

#[derive(Debug, PartialEq)]
struct Request {
    method: String,
    path: String,
    body_len: usize,
    close: bool,
}

impl Request {
    fn parse(head: &[u8]) -> Option<Request> {
        let text = std::str::from_utf8(head).ok()?;
        let mut lines = text.split("\r\n");
        let mut first = lines.next()?.split(' ');
        let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
        let mut request = Request { method, path, body_len: 0, close: false };
        for (key, value) in lines.filter_map(|l| l.split_once(':')) {
            match key.trim().to_ascii_lowercase().as_str() {
                "content-length" => {
                    request.body_len = value.trim().parse().ok().filter(|n| *n <= ECHO_MAX)?
                }
                "connection" => request.close = value.trim().eq_ignore_ascii_case("close"),
                "transfer-encoding" => return None,
                _ => {}
            }
        }
        Some(request)
    }

    /// Bytes asked for with `/large?mib=N`.
    fn large(&self) -> Option<u64> {
        let mib: u64 = self.path.strip_prefix("/large?mib=")?.parse().ok()?;
        Some(mib.min(LARGE_MIB_MAX) << 20)
    }

    /// Length of a fault asked for with `POST` and this path.
    fn fault(&self, path: &str) -> Option<Duration> {
        let ms = self.path.strip_prefix(path)?.parse().ok()?;
        (self.method == "POST").then(|| Duration::from_millis(ms).min(FAULT_MAX))
    }
}

async fn answer(
    socket: &mut TcpStream,
    name: &str,
    request: &Request,
    body: &[u8],
    behind: io::Result<()>,
) -> io::Result<()> {
    let head = |code: &str, len: u64| {
        format!("HTTP/1.1 {code}\r\nx-served-by: {name}\r\ncontent-length: {len}\r\n\r\n")
    };
    if let Some(len) = request.large() {
        socket.write_all(head("200 OK", len).as_bytes()).await?;
        let block = vec![b'.'; 64 * 1024];
        for _ in 0..len / block.len() as u64 {
            socket.write_all(&block).await?;
        }
        return Ok(());
    }
    if let Some(pause) = request.fault("/spin?ms=") {
        // The only thread: nothing else happens meanwhile.
        let until = clock::now() + pause;
        while clock::now() < until {
            std::hint::spin_loop();
        }
    }
    if let Err(e) = behind {
        let text = format!("{e}\n");
        socket.write_all(head("502 Bad Gateway", text.len() as u64).as_bytes()).await?;
        return socket.write_all(text.as_bytes()).await;
    }
    let line = format!("{name}\n");
    let (code, content): (_, &[u8]) = match (request.method.as_str(), request.path.as_str()) {
        ("POST", "/echo") => ("200 OK", body),
        ("GET", "/") => ("200 OK", line.as_bytes()),
        ("POST", path) if path.starts_with("/deadlock?ms=") || path.starts_with("/spin?ms=") => {
            ("200 OK", line.as_bytes())
        }
        _ => ("404 Not Found", b"GET / or /large?mib=N, POST /echo\n"),
    };
    let mut out = head(code, content.len() as u64).into_bytes();
    out.extend_from_slice(content);
    socket.write_all(&out).await
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn talk(script: &[u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        let task = tokio::spawn(async move { connection(server, &Shared::new("orders-1", None)).await });
        client.write_all(script).await.unwrap();
        client.shutdown().await.unwrap();
        let mut out = Vec::new();
        client.read_to_end(&mut out).await.unwrap();
        task.await.unwrap().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[tokio::test]
    async fn pipelined_requests_are_answered_in_order() {
        let out = talk(b"GET / HTTP/1.1\r\n\r\nPOST /echo HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET /x HTTP/1.1\r\n\r\n").await;
        assert_eq!(out.matches("x-served-by: orders-1").count(), 3, "{out}");
        assert!(
            out.contains("content-length: 9\r\n\r\norders-1\n")
                && out.contains("\r\n\r\nabc")
                && out.contains("404")
        );
    }

    #[tokio::test]
    async fn bad_input_gets_an_answer_or_an_end_and_no_panic() {
        let huge = vec![b'a'; HEAD_MAX * 2];
        assert_eq!(talk(&huge[..HEAD_MAX + 1]).await, "");
        let inputs: &[&[u8]] = &[
            b"\xff\xfe\r\n\r\n",
            b"GET\r\n\r\n",
            b"POST /echo HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n",
            b"POST /echo HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n",
        ];
        assert!(!inputs.is_empty());
        for input in inputs {
            assert!(talk(input).await.starts_with("HTTP/1.1 400"), "{input:?}");
        }
    }

    #[test]
    fn a_large_answer_has_a_limit() {
        let large = |path: &str| {
            Request { method: "GET".into(), path: path.into(), body_len: 0, close: false }.large()
        };
        assert_eq!(large("/large?mib=2"), Some(2 << 20));
        assert_eq!(large("/large?mib=999999999"), Some(1 << 30));
        assert_eq!(large("/large?mib=-1"), None);
    }
}
