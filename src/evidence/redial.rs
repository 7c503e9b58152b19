//! A connect to a service that refused, where its listener cannot be seen: the only way to notice that it is back.

use std::net::SocketAddr;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::stamp::Stamp;

/// One connect at a time, this often.
const EVERY: Duration = Duration::from_millis(100);
/// A connect that is neither accepted nor refused is given up.
const GIVE_UP: Duration = Duration::from_secs(1);

/// A non-blocking connect, repeated until it succeeds.
#[derive(Debug, Default)]
pub(super) struct Redial {
    pending: Option<Socket>,
    begun: Option<Stamp>,
}

impl Redial {
    /// True once a connection is made; it is closed at once.
    pub(super) fn poll(&mut self, now: Stamp, service: SocketAddr) -> bool {
        if let Some(s) = &self.pending {
            match s.take_error() {
                Ok(None) if s.peer_addr().is_ok() => {
                    *self = Redial::default();
                    return true;
                }
                Ok(None) => {}
                Ok(Some(_)) | Err(_) => self.pending = None,
            }
        }
        let age = self.begun.map_or(Duration::MAX, |b| now.since(b));
        let wait = if self.pending.is_some() { GIVE_UP } else { EVERY };
        if age < wait {
            return false;
        }
        self.begun = Some(now);
        self.pending = begin(service);
        false
    }
}

fn begin(service: SocketAddr) -> Option<Socket> {
    let s = Socket::new(Domain::for_address(service), Type::STREAM, Some(Protocol::TCP)).ok()?;
    s.set_nonblocking(true).ok()?;
    match s.connect(&service.into()) {
        Ok(()) => Some(s),
        Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => Some(s),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_refused_service_is_found_again() {
        let l = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = l.local_addr().unwrap();
        drop(l);
        let mut p = Redial::default();
        let ms = Stamp::from_millis;
        assert!(!p.poll(ms(1000), at));
        assert!(!p.poll(ms(1005), at));
        let _l = TcpListener::bind(at).unwrap();
        assert!(!p.poll(ms(1050), at), "not before its time");
        assert!((0..100).any(|i| p.poll(ms(1200 + i), at)));
    }
}
