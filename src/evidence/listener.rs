//! Evidence E4: does the service's port still listen, and does its accept queue grow?

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use super::fuse::ListenerView;
use super::owners::Owner;
use crate::stamp::Stamp;
use crate::sys::sock_diag::{SockDiag, SockState};

/// The members of a SO_REUSEPORT group are counted anew after this.
const RECOUNT: Duration = Duration::from_secs(1);
/// Connections that succeed while no listener can be seen prove that it is not in our network namespace.
const CONTRADICTIONS: u64 = 3;

/// A service's address as a client of this machine reaches it: an unspecified address is the loopback one.
pub fn reachable(service: SocketAddr) -> SocketAddr {
    let ip = match service.ip() {
        IpAddr::V4(v4) if v4.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(v6) if v6.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        other => other,
    };
    SocketAddr::new(ip, service.port())
}

/// Watches the listener of one service.
#[derive(Debug)]
pub struct ListenerWatch {
    service: SocketAddr,
    /// "No listener" is believed: one was seen here, or the address is a loopback one and thus ours.
    authority: bool,
    opened_at_miss: Option<u64>,
    owner: Option<Owner>,
    first: Option<SockState>,
    group: usize,
    counted_at: Option<Stamp>,
}

impl ListenerWatch {
    /// For a service's address as configured.
    pub fn new(service: SocketAddr) -> ListenerWatch {
        let service = reachable(service);
        let authority = service.ip().to_canonical().is_loopback();
        let (opened_at_miss, owner, first, counted_at) = (None, None, None, None);
        ListenerWatch { service, authority, opened_at_miss, owner, first, group: 0, counted_at }
    }

    /// Who owns the listener, as of the last look.
    pub fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()
    }

    /// Looks the listener up; 4-10 us, more for a SO_REUSEPORT group. `opened`: connections to the service made so far.
    /// `Ok(None)`: it cannot be seen from here.
    ///
    /// # Errors
    /// That of the netlink socket.
    pub fn look(&mut self, diag: &mut SockDiag, now: Stamp, opened: u64) -> io::Result<Option<ListenerView>> {
        let Some(found) = diag.listener(self.service)? else {
            return Ok(self.missed(opened));
        };
        self.authority = true;
        self.opened_at_miss = None;
        let changed = self.first.as_ref().is_none_or(|f| f.inode != found.inode);
        let recount = self.counted_at.is_none_or(|at| now.since(at) >= RECOUNT);
        self.first = Some(found.clone());
        if !(changed || recount || self.group > 1) {
            return Ok(Some(view(&[found])));
        }
        let mut members = diag.listeners(self.service)?;
        if members.is_empty() {
            members.push(found);
        }
        if changed || recount {
            self.counted_at = Some(now);
            self.group = members.len();
        }
        self.owner = Some(owner(&members));
        Ok(Some(view(&members)))
    }

    fn missed(&mut self, opened: u64) -> Option<ListenerView> {
        self.first = None;
        self.owner = None;
        let before = *self.opened_at_miss.get_or_insert(opened);
        if opened.saturating_sub(before) >= CONTRADICTIONS {
            self.authority = false;
        }
        self.authority.then_some(ListenerView { listening: false, queue: 0, backlog: 0 })
    }
}

fn view(members: &[SockState]) -> ListenerView {
    let sum = |of: fn(&SockState) -> u32| members.iter().map(of).fold(0, u32::saturating_add);
    ListenerView { listening: true, queue: sum(|s| s.rqueue), backlog: sum(|s| s.wqueue) }
}

fn owner(members: &[SockState]) -> Owner {
    let mut inodes: Vec<u32> = members.iter().map(|s| s.inode).collect();
    inodes.sort_unstable();
    let first = members.first();
    Owner { inodes, uid: first.map_or(0, |s| s.uid), cgroup_id: first.and_then(|s| s.cgroup_id) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_listener_comes_grows_and_goes() {
        let mut diag = SockDiag::open().unwrap();
        let l = TcpListener::bind("0.0.0.0:0").unwrap();
        let at = SocketAddr::from(([0, 0, 0, 0], l.local_addr().unwrap().port()));
        let mut w = ListenerWatch::new(at);
        let v = w.look(&mut diag, Stamp::from_millis(1), 0).unwrap().unwrap();
        assert_eq!((v.listening, v.queue), (true, 0));
        assert_eq!(w.owner().unwrap().inodes.len(), 1);
        let _c = TcpStream::connect(reachable(at)).unwrap();
        assert_eq!(w.look(&mut diag, Stamp::from_millis(2), 1).unwrap().unwrap().queue, 1);
        drop(l);
        assert!(!w.look(&mut diag, Stamp::from_millis(3), 1).unwrap().unwrap().listening);
        assert_eq!(w.owner(), None);
    }

    #[test]
    fn connections_that_succeed_without_a_visible_listener_end_the_authority() {
        let mut w = ListenerWatch::new("127.0.0.1:1".parse().unwrap());
        assert!(w.missed(10).is_some_and(|v| !v.listening));
        assert!(w.missed(12).is_some());
        assert!(w.missed(13).is_none());
    }

    #[test]
    fn a_foreign_address_has_no_authority_until_seen() {
        let mut w = ListenerWatch::new("192.0.2.1:80".parse().unwrap());
        assert_eq!(w.missed(0), None);
        assert_eq!(reachable("[::]:5".parse().unwrap()), "[::1]:5".parse().unwrap());
    }
}
