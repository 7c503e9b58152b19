//! A small HTTP client for the admin servers of the scene, also of those inside a network namespace.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::net;

const BODY_MAX: usize = 16 << 20;

/// A running answer.
#[derive(Debug)]
pub struct Stream {
    body: Incoming,
}

impl Stream {
    /// The next bytes; None at the end or on an error.
    pub async fn next(&mut self) -> Option<Bytes> {
        loop {
            let frame = self.body.frame().await?.ok()?;
            if let Ok(data) = frame.into_data() {
                return Some(data);
            }
        }
    }
}

/// Opens an endless `GET`.
pub async fn stream(to: SocketAddr, path: &str) -> Result<Stream, String> {
    let response = send(None, to, "GET", path).await?;
    if !response.status().is_success() {
        return Err(format!("{path}: {}", response.status()));
    }
    Ok(Stream { body: response.into_body() })
}

/// One request with a time limit; gives the status code and the body. `netns`: from inside that namespace.
pub async fn ask(
    netns: Option<&Path>,
    to: SocketAddr,
    method: &str,
    path: &str,
    limit: Duration,
) -> Result<(u16, Bytes), String> {
    let whole = async {
        let response = send(netns, to, method, path).await?;
        let code = response.status().as_u16();
        let body = http_body_util::Limited::new(response.into_body(), BODY_MAX);
        let bytes = body.collect().await.map_err(|e| format!("{path}: {e}"))?.to_bytes();
        Ok((code, bytes))
    };
    tokio::time::timeout(limit, whole).await.map_err(|_| format!("{path}: no answer within {limit:?}"))?
}

async fn send(
    netns: Option<&Path>,
    to: SocketAddr,
    method: &str,
    path: &str,
) -> Result<Response<Incoming>, String> {
    let socket = connect(netns, to).await.map_err(|e| format!("{to}: {e}"))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket))
        .await
        .map_err(|e| format!("{to}: {e}"))?;
    tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", to.to_string())
        .body(Empty::<Bytes>::new())
        .map_err(|e| e.to_string())?;
    sender.send_request(request).await.map_err(|e| format!("{to}{path}: {e}"))
}

async fn connect(netns: Option<&Path>, to: SocketAddr) -> std::io::Result<TcpStream> {
    let Some(path) = netns else { return TcpStream::connect(to).await };
    let path: PathBuf = path.to_owned();
    // A socket belongs to the namespace of the thread that makes it, for ever; the thread ends here.
    let made = tokio::task::spawn_blocking(move || {
        std::thread::spawn(move || {
            net::enter(&File::open(path)?)?;
            std::net::TcpStream::connect_timeout(&to, Duration::from_secs(1))
        })
        .join()
    });
    let socket = made.await?.map_err(|_| std::io::Error::other("the connecting thread died"))??;
    socket.set_nonblocking(true)?;
    TcpStream::from_std(socket)
}
