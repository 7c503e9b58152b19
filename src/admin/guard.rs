//! Pure: no IO, no clock. Who may ask, judged by the request head alone.
//!
//! A browser on this machine will send what any web page tells it to. Two checks stop that: a name that only resolves
//! here by trickery (DNS rebinding) fails the Host check, a page of another origin fails the Origin check.

use std::net::{IpAddr, SocketAddr};

use hyper::http::request::Parts;
use hyper::http::uri::Authority;
use hyper::{StatusCode, Version, header};

/// An answer instead of the wanted one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal(pub(super) StatusCode, pub(super) String);

fn bad(text: &str) -> Refusal {
    Refusal(StatusCode::BAD_REQUEST, text.to_owned())
}

fn forbidden(text: impl Into<String>) -> Refusal {
    Refusal(StatusCode::FORBIDDEN, text.into())
}

/// For every request: one Host (none only in HTTP/1.0), and no second opinion in an absolute target.
pub(super) fn well_formed(head: &Parts) -> Result<(), Refusal> {
    let mut hosts = head.headers.get_all(header::HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(bad("more than one Host"));
    }
    if host.is_none() && head.version >= Version::HTTP_11 {
        return Err(bad("no Host"));
    }
    if let Some(target) = head.uri.authority() {
        let same = host.is_some_and(|h| h.as_bytes().eq_ignore_ascii_case(target.as_str().as_bytes()));
        if !same {
            return Err(bad("the target's authority and Host differ"));
        }
    }
    Ok(())
}

/// For requests that change something: Host must name this machine's loopback or the address that was connected to
/// (`local`) or listened on (`listen`), and Origin must be absent or the same.
pub(super) fn may_change(head: &Parts, local: SocketAddr, listen: SocketAddr) -> Result<(), Refusal> {
    let host = head.headers.get(header::HOST).and_then(|h| h.to_str().ok()).unwrap_or_default();
    if !host_is_ours(host, &[local.ip(), listen.ip()]) {
        return Err(forbidden(format!(
            "Host `{host}` may not change anything: use localhost, a loopback address or {listen}"
        )));
    }
    let mut origins = head.headers.get_all(header::ORIGIN).iter();
    let Some(origin) = origins.next() else { return Ok(()) };
    let same = origin
        .to_str()
        .ok()
        .and_then(|o| o.strip_prefix("http://"))
        .is_some_and(|o| o.eq_ignore_ascii_case(host));
    if !same || origins.next().is_some() {
        return Err(forbidden("a page of another origin may not change anything"));
    }
    Ok(())
}

// Any port will do: published ports of containers differ from the one that is bound.
fn host_is_ours(host: &str, own: &[IpAddr]) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    if host.contains('@') {
        return false;
    }
    let name = authority.host();
    if name.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let bare = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name);
    let Ok(ip) = bare.parse::<IpAddr>() else { return false };
    let ip = ip.to_canonical();
    ip.is_loopback() || own.iter().any(|o| o.to_canonical() == ip)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    fn head(uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut r = Request::builder().method("POST").uri(uri);
        for (k, v) in headers {
            r = r.header(*k, *v);
        }
        r.body(()).unwrap().into_parts().0
    }

    fn change(headers: &[(&str, &str)]) -> bool {
        let local = "10.0.0.9:7421".parse().unwrap();
        let listen = "0.0.0.0:7421".parse().unwrap();
        may_change(&head("/drain", headers), local, listen).is_ok()
    }

    #[test]
    fn only_names_of_this_machine_may_change() {
        for host in [
            "localhost",
            "LOCALHOST:7421",
            "127.0.0.1:7421",
            "127.9.9.9",
            "[::1]:7421",
            "10.0.0.9:80",
            "0.0.0.0:7421",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert!(change(&[("host", host)]), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "10.0.0.8:7421",
            "x@localhost",
            "",
            "[::2]",
            "127.0.0.1.evil",
        ] {
            assert!(!change(&[("host", host)]), "{host}");
        }
        assert!(!change(&[]));
    }

    #[test]
    fn only_the_same_origin_may_change() {
        let host = ("host", "localhost:7421");
        assert!(change(&[host, ("origin", "http://localhost:7421")]));
        for origin in ["http://evil.example", "null", "https://localhost:7421", "http://localhost:80", ""] {
            assert!(!change(&[host, ("origin", origin)]), "{origin}");
        }
        let same = ("origin", "http://localhost:7421");
        assert!(!change(&[host, same, same]));
    }

    #[test]
    fn one_host_and_no_second_opinion() {
        assert!(well_formed(&head("/", &[("host", "a")])).is_ok());
        assert!(well_formed(&head("/", &[])).is_err());
        assert!(well_formed(&head("/", &[("host", "a"), ("host", "a")])).is_err());
        assert!(well_formed(&head("http://a:1/x", &[("host", "A:1")])).is_ok());
        assert!(well_formed(&head("http://b/x", &[("host", "a")])).is_err());
    }
}
