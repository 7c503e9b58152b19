//! The admin port, asked as any client would.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Status and body of one request.
pub(crate) fn get(addr: SocketAddr, path: &str) -> Result<(u16, String), String> {
    request(addr, "GET", path)
}

/// Status and body of a call that changes something.
pub(crate) fn post(addr: SocketAddr, path: &str) -> Result<(u16, String), String> {
    request(addr, "POST", path)
}

fn request(addr: SocketAddr, method: &str, path: &str) -> Result<(u16, String), String> {
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n");
    let text = exchange(addr, &format!("{head}Content-Length: 0\r\n\r\n"));
    let text = text.map_err(|e| format!("{path}: {e}"))?;
    let (head, body) =
        text.split_once("\r\n\r\n").ok_or_else(|| format!("{path}: no end of headers: {text}"))?;
    let status =
        head.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or_else(|| format!("{path}: {head}"))?;
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    Ok((status, if chunked { unchunk(body) } else { body.to_owned() }))
}

fn exchange(addr: SocketAddr, request: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&addr, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(request.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

fn unchunk(mut body: &str) -> String {
    let mut out = String::new();
    while let Some((len, rest)) = body.split_once("\r\n") {
        let len = usize::from_str_radix(len.trim(), 16).unwrap_or(0);
        if len == 0 || rest.len() < len {
            break;
        }
        out.push_str(&rest[..len]);
        body = rest[len..].trim_start_matches("\r\n");
    }
    out
}

/// Sum of all series of `name` that carry all `labels`; None if there is no such series.
pub(crate) fn metric(text: &str, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let wanted: Vec<String> = labels.iter().map(|(k, v)| format!("{k}=\"{v}\"")).collect();
    let series = text.lines().filter_map(|line| {
        let (key, value) = line.rsplit_once(' ')?;
        let (base, rest) = key.split_once('{').unwrap_or((key, ""));
        let fits = base == name && wanted.iter().all(|w| rest.contains(w.as_str()));
        fits.then(|| value.parse::<f64>().ok())?
    });
    series.fold(None, |sum, v| Some(sum.unwrap_or(0.0) + v))
}
