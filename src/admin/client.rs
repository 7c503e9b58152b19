//! The other side of the admin port: what `sidebeat status`, `healthcheck` and `maintenance` do.

use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::query::encode;
use super::report::Status;
use super::table;

/// A look or a command on the same machine; a busy one may be slow.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Less than the limit of Docker in our HEALTHCHECK line: what is wrong shall be said.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);
/// Between two looks of `--watch`.
const WATCH_EVERY: Duration = Duration::from_millis(500);
/// Longest answer of the hook's socket, bytes.
const MAX_LINE: u64 = 1024;
/// Ten thousand endpoints fit.
const MAX_ANSWER: usize = 16 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No connection.
    #[error("nobody answers on {0}: {1}")]
    Connect(SocketAddr, #[source] std::io::Error),
    /// No answer in time.
    #[error("no answer from {0} within {1:?}")]
    Timeout(SocketAddr, Duration),
    /// Not an HTTP answer, or one that is too large or broken off.
    #[error("broken answer from {0}: {1}")]
    Answer(SocketAddr, String),
}

impl ClientError {
    /// What to try.
    pub fn hint(&self) -> &'static str {
        match self {
            ClientError::Connect(..) => {
                "is sidebeat running here, and is this its `[admin] listen`? Give another with --admin ADDR"
            }
            ClientError::Timeout(..) => "the process may be stopped, or starved of CPU",
            ClientError::Answer(..) => "is this the port of `[admin] listen`?",
        }
    }
}

/// Asks the admin port once. `path` includes the query.
///
/// # Errors
/// When there is no complete answer within `timeout`; an answer with an error status is an answer.
pub async fn request(
    admin: SocketAddr,
    method: Method,
    path: &str,
    timeout: Duration,
) -> Result<(StatusCode, Bytes), ClientError> {
    let admin = reachable(admin);
    tokio::time::timeout(timeout, exchange(admin, method, path))
        .await
        .unwrap_or(Err(ClientError::Timeout(admin, timeout)))
}

async fn exchange(admin: SocketAddr, method: Method, path: &str) -> Result<(StatusCode, Bytes), ClientError> {
    let broken = |e: &dyn std::fmt::Display| ClientError::Answer(admin, e.to_string());
    let stream = TcpStream::connect(admin).await.map_err(|e| ClientError::Connect(admin, e))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|e| broken(&e))?;
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, admin.to_string())
        .body(Empty::<Bytes>::new())
        .map_err(|e| broken(&e))?;
    let talk = async {
        let reply = sender.send_request(request).await.map_err(|e| broken(&e))?;
        let status = reply.status();
        let body = Limited::new(reply.into_body(), MAX_ANSWER).collect().await;
        Ok((status, body.map_err(|e| broken(&e))?.to_bytes()))
    };
    let mut talk = std::pin::pin!(talk);
    tokio::select! {
        answer = talk.as_mut() => answer,
        // It may end just before the last byte is handed on; what broke it is then in the answer.
        _ = connection => talk.await,
    }
}

// `0.0.0.0` is a place to listen, not one to connect to.
fn reachable(admin: SocketAddr) -> SocketAddr {
    let ip = match admin.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, admin.port())
}

/// `GET /status`, parsed.
///
/// # Errors
/// As [`request`], and when the answer is no status.
pub async fn fetch_status(admin: SocketAddr) -> Result<Status, ClientError> {
    let (_, body) = fetch(admin).await?;
    Ok(body)
}

async fn fetch(admin: SocketAddr) -> Result<(Bytes, Status), ClientError> {
    let (status, body) = request(admin, Method::GET, "/status", TIMEOUT).await?;
    if status != StatusCode::OK {
        return Err(ClientError::Answer(admin, format!("/status answers {status}")));
    }
    let parsed = serde_json::from_slice(&body).map_err(|e| ClientError::Answer(admin, e.to_string()))?;
    Ok((body, parsed))
}

/// `sidebeat status`: a table, or the JSON as it came, once or every half second until interrupted. Blocking; not for
/// use inside a runtime. Exit code 0, 3 if any endpoint is FAILED, 1 if there is no answer.
pub fn status(admin: SocketAddr, watch: bool, json: bool) -> ExitCode {
    block_on(async {
        let screen = std::io::stdout().is_terminal();
        let colours = screen && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        loop {
            let fetched = fetch(admin).await;
            let (text, code) = match &fetched {
                Ok((raw, _)) if json => (String::from_utf8_lossy(raw).into_owned(), 0),
                Ok((_, status)) => (table::render(status, colours), 0),
                Err(e) => (complain(e), 1),
            };
            let code = if fetched.is_ok_and(|(_, s)| s.any_failed()) { 3 } else { code };
            let clear = watch && screen && !json;
            if !show(&text, clear, code == 1) || !watch {
                return ExitCode::from(code);
            }
            tokio::time::sleep(WATCH_EVERY).await;
        }
    })
}

/// `sidebeat healthcheck`: exit code 0 if `/ready` answers 200 within 2 s, else 1, with a message.
pub fn healthcheck(admin: SocketAddr) -> ExitCode {
    block_on(async {
        match request(admin, Method::GET, "/ready", HEALTH_TIMEOUT).await {
            Ok((StatusCode::OK, _)) => finish("ready\n", false),
            Ok((_, why)) => finish(&format!("not ready: {}\n", String::from_utf8_lossy(&why).trim()), true),
            Err(e) => finish(&complain(&e), true),
        }
    })
}

/// `sidebeat maintenance`: announces a pause, or its end without one. Exit code 0 if that was done, else 1, with a message.
pub fn maintenance(admin: SocketAddr, pause: Option<Duration>, reason: &str) -> ExitCode {
    let pause = humantime::format_duration(pause.unwrap_or_default()).to_string();
    let mut path = format!("/maintenance?for={}", encode(&pause));
    if !reason.is_empty() {
        path.push_str(&format!("&reason={}", encode(reason)));
    }
    block_on(async {
        match request(admin, Method::POST, &path, TIMEOUT).await {
            Ok((status, said)) => finish(&String::from_utf8_lossy(&said), status != StatusCode::OK),
            Err(e) => finish(&complain(&e), true),
        }
    })
}

/// As [`maintenance`], by the hook's socket.
pub fn maintenance_by_socket(path: &Path, pause: Option<Duration>, reason: &str) -> ExitCode {
    // One line: what a reason may hold is checked there.
    let reason = reason.replace(['\n', '\r'], " ");
    let line = match pause {
        Some(pause) => format!("pause {} {reason}\n", packed(pause)),
        None => "resume\n".to_owned(),
    };
    match one_line(path, &line) {
        Ok(said) => finish(&format!("{}\n", said.trim_end()), !said.starts_with("ok ")),
        Err(e) => {
            let hint =
                "is sidebeat running, is this its `[maintenance] socket`, and may this user write to it?";
            finish(&format!("sidebeat: {}: {e}\n  hint: {hint}\n", path.display()), true)
        }
    }
}

/// A duration without blanks, as a word of a line.
fn packed(pause: Duration) -> String {
    humantime::format_duration(pause).to_string().replace(' ', "")
}

fn one_line(path: &Path, line: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.write_all(line.as_bytes())?;
    let mut said = String::new();
    BufReader::new(stream.take(MAX_LINE)).read_line(&mut said)?;
    Ok(said)
}

fn complain(e: &ClientError) -> String {
    format!("sidebeat: {e}\n  hint: {}\n", e.hint())
}

fn finish(text: &str, failed: bool) -> ExitCode {
    show(text, false, failed);
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Whether anybody still reads.
fn show(text: &str, clear: bool, to_stderr: bool) -> bool {
    let text = if clear { format!("\x1b[H\x1b[2J{text}") } else { text.to_owned() };
    if to_stderr {
        return std::io::stderr().write_all(text.as_bytes()).is_ok();
    }
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_ok()
}

fn block_on(work: impl Future<Output = ExitCode>) -> ExitCode {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(work),
        Err(e) => finish(&format!("sidebeat: no runtime: {e}\n"), true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_one_word_that_reads_back() {
        for ms in [1, 500, 1500, 29_001] {
            let (d, word) = (Duration::from_millis(ms), packed(Duration::from_millis(ms)));
            assert!(!word.contains(' '));
            assert_eq!(humantime::parse_duration(&word), Ok(d));
        }
    }

    #[test]
    fn a_wildcard_is_asked_on_loopback() {
        assert_eq!(reachable("0.0.0.0:7421".parse().unwrap()).to_string(), "127.0.0.1:7421");
        assert_eq!(reachable("[::]:7421".parse().unwrap()).to_string(), "[::1]:7421");
        assert_eq!(reachable("10.0.0.1:1".parse().unwrap()).to_string(), "10.0.0.1:1");
    }
}
