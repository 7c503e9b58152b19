//! The demo's service: a tiny HTTP/1.1 keep-alive server with fixed answers.
//!
//! `GET /` answers its name, `GET /large?mib=N` a large body, `POST /echo` what it was sent.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};

/// Arguments of the hidden `demo-service`.
#[derive(clap::Args, Clone, Debug)]
pub struct ServiceArgs {
    /// Where to listen.
    #[arg(long)]
    pub listen: SocketAddr,
    /// Name in each answer.
    #[arg(long)]
    pub name: String,
}

const HEAD_MAX: usize = 16 * 1024;
const ECHO_MAX: usize = 1 << 20;
const LARGE_MIB_MAX: u64 = 1024;

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
    let mut term = signal(SignalKind::terminate())?;
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((socket, _)) = accepted {
                let name = args.name.clone();
                tokio::spawn(async move { connection(socket, &name).await });
            },
            _ = term.recv() => return Ok(()),
        }
    }
}

/// One connection until its end.
pub(super) async fn connection(mut socket: TcpStream, name: &str) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut buf = Vec::with_capacity(2048);
    loop {
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
        answer(&mut socket, name, &request, &body).await?;
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
}

async fn answer(socket: &mut TcpStream, name: &str, request: &Request, body: &[u8]) -> io::Result<()> {
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
    let line = format!("{name}\n");
    let (code, content): (_, &[u8]) = match (request.method.as_str(), request.path.as_str()) {
        ("POST", "/echo") => ("200 OK", body),
        ("GET", "/") => ("200 OK", line.as_bytes()),
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
        let task = tokio::spawn(async move { connection(server, "orders-1").await });
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
