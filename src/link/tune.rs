//! Options of sockets. What a listener has, the kernel gives to each connection that it accepts: nothing is set twice.

use std::net::SocketAddr;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// Options of a link socket. TCP_USER_TIMEOUT is safe here because the reader of a link always drains (ecosystem.md
/// section 4); application sockets never get it.
pub fn tune_link(io: &TcpStream) {
    let s = SockRef::from(io);
    let _ = s.set_tcp_nodelay(true);
    let _ = s.set_tcp_notsent_lowat(16 * 1024);
    let _ = s.set_tcp_user_timeout(Some(Duration::from_secs(15)));
    tune_keepalive(&s);
}

/// Options of a listener, and so of each application's connection that it accepts.
pub fn tune_listener(s: &SockRef<'_>, addr: SocketAddr) {
    let _ = s.set_tcp_nodelay(true);
    tune_keepalive(s);
    tune_loopback(s, addr);
}

/// Options of a connection to a service. Within the machine its kernel tells each end of it, so nobody asks.
pub fn tune_service(io: &TcpStream, service: SocketAddr) {
    let s = SockRef::from(io);
    let _ = s.set_tcp_nodelay(true);
    if !is_here(service) {
        tune_keepalive(&s);
    }
}

/// A path within the machine loses nothing: the timers with which bbr paces each send, where that is the system's
/// choice, are two thirds of the CPU time of bulk data and bring nothing. On a network the system's choice stands.
/// Best called before the socket connects: once begun, pacing never stops quite.
pub fn tune_loopback(s: &SockRef<'_>, peer: SocketAddr) {
    if is_here(peer) {
        // Every kernel has it and lets everybody choose it.
        let _ = s.set_tcp_congestion(b"reno");
    }
}

fn is_here(peer: SocketAddr) -> bool {
    peer.ip().to_canonical().is_loopback()
}

fn tune_keepalive(s: &SockRef<'_>) {
    let ka = TcpKeepalive::new().with_time(Duration::from_secs(30)).with_interval(Duration::from_secs(10));
    // Only a backstop: a kernel that refuses it loses nothing else.
    let _ = s.set_tcp_keepalive(&ka);
}
