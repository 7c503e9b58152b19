//! Look-ups of TCP sockets of our network namespace, whoever owns them (NETLINK_SOCK_DIAG). Needs no privileges.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with, sockopt,
};

use super::diag_wire::{Query, Reply, decode, encode};
use super::tcp::{TcpInfo, TcpState};

/// Answers fit one page each; a dump comes in several.
const BUFFER: usize = 16 * 1024;
/// Messages read for one request before it is given up: the kernel answers each request at once.
const MAX_READS: usize = 256;

/// A TCP socket as the kernel shows it to anyone in its network namespace.
#[derive(Clone, Debug, PartialEq)]
pub struct SockState {
    /// State.
    pub state: TcpState,
    /// Local address it is bound to.
    pub local: SocketAddr,
    /// Bytes received that its owner has not read; of a listener: connections not yet accepted.
    pub rqueue: u32,
    /// Bytes written that its peer has not acknowledged; of a listener: room of its accept queue.
    pub wqueue: u32,
    /// User who made it; 0 while no process owns it.
    pub uid: u32,
    /// Inode, as in `/proc/PID/fd`; 0 while no process owns it (a connection not yet accepted).
    pub inode: u32,
    /// Id of the cgroup (v2) it was made in; `None` before kernel 5.9.
    pub cgroup_id: Option<u64>,
    /// TCP_INFO, where asked for.
    pub info: Option<TcpInfo>,
}

/// A netlink socket for look-ups, reused. One per thread.
#[derive(Debug)]
pub struct SockDiag {
    fd: OwnedFd,
    seq: u32,
    buf: Vec<u8>,
}

impl SockDiag {
    /// Opens the socket and proves by a listener of our own that look-ups work here: a kernel without `tcp_diag` answers
    /// "no such socket" to everything.
    ///
    /// # Errors
    /// That of the socket call (for example under seccomp); `Unsupported` if the proof fails.
    pub fn open() -> io::Result<SockDiag> {
        let fd = socket_with(
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            Some(netlink::SOCK_DIAG),
        )?;
        bind(&fd, &SocketAddrNetlink::new(0, 0))?;
        // The kernel answers within the send call: a wait can only mean that no answer will come.
        sockopt::set_socket_timeout(&fd, sockopt::Timeout::Recv, Some(std::time::Duration::from_millis(5)))?;
        let mut diag = SockDiag { fd, seq: 0, buf: vec![0; BUFFER] };
        let own = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .or_else(|_| TcpListener::bind((Ipv6Addr::LOCALHOST, 0)))?;
        if diag.listener(own.local_addr()?)?.is_none() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "sock_diag does not show TCP sockets"));
        }
        Ok(diag)
    }

    /// The socket whose own address is `local` and whose peer is `remote`; with TCP_INFO. `None`: no such socket.
    ///
    /// # Errors
    /// That of the netlink socket.
    pub fn connection(&mut self, local: SocketAddr, remote: SocketAddr) -> io::Result<Option<SockState>> {
        let found = self.exact(Query::Exact { local, remote }, true)?;
        Ok(found.filter(|s| s.state != TcpState::Listen))
    }

    /// The listener that would take a connection to `addr`, wildcard and dual-stack binds included. Of a SO_REUSEPORT
    /// group one member. `None`: nothing listens.
    ///
    /// # Errors
    /// That of the netlink socket.
    pub fn listener(&mut self, addr: SocketAddr) -> io::Result<Option<SockState>> {
        let any = match addr {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let found = self.exact(Query::Exact { local: addr, remote: SocketAddr::new(any, 0) }, false)?;
        Ok(found.filter(|s| s.state == TcpState::Listen))
    }

    /// All listeners that may take a connection to `addr`: the members of a SO_REUSEPORT group. Slower: the kernel walks
    /// its listeners.
    ///
    /// # Errors
    /// That of the netlink socket.
    pub fn listeners(&mut self, addr: SocketAddr) -> io::Result<Vec<SockState>> {
        let mut out = Vec::new();
        for v6 in [false, true] {
            if addr.is_ipv6() && !v6 {
                continue;
            }
            self.ask(Query::Listeners { v6, port: addr.port() }, false, |s| out.push(s))?;
        }
        out.retain(|s| s.state == TcpState::Listen && takes(s.local.ip(), addr.ip()));
        Ok(out)
    }

    fn exact(&mut self, query: Query, info: bool) -> io::Result<Option<SockState>> {
        let mut found = None;
        match self.ask(query, info, |s| found = Some(s)) {
            Ok(()) => Ok(found),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn ask(&mut self, query: Query, info: bool, mut each: impl FnMut(SockState)) -> io::Result<()> {
        self.seq = self.seq.wrapping_add(1);
        let dump = matches!(query, Query::Listeners { .. });
        send(&self.fd, &encode(query, self.seq, info), SendFlags::empty())?;
        for _ in 0..MAX_READS {
            let n = match recv(&self.fd, &mut self.buf[..], RecvFlags::empty()) {
                Ok((_, n)) => n,
                Err(Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
            };
            let (mut over, mut error) = (false, None);
            decode(self.buf.get(..n).unwrap_or_default(), self.seq, |reply| match reply {
                Reply::Socket(s) => {
                    each(*s);
                    over |= !dump;
                }
                Reply::Done | Reply::Error(0) => over = true,
                Reply::Error(errno) => error = Some(io::Error::from_raw_os_error(errno)),
            });
            if let Some(e) = error {
                return Err(e);
            }
            if over {
                return Ok(());
            }
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "no answer from sock_diag"))
    }
}

/// May a listener bound to `bound` take connections to `wanted`?
fn takes(bound: IpAddr, wanted: IpAddr) -> bool {
    match (bound.to_canonical(), wanted.to_canonical()) {
        (IpAddr::V6(b), IpAddr::V4(_)) => b.is_unspecified(),
        (b, w) => b.is_unspecified() || b == w,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpStream;

    fn open() -> SockDiag {
        SockDiag::open().expect("this kernel has sock_diag")
    }

    #[test]
    fn the_far_side_of_a_connection_shows_what_it_has_not_read() {
        let mut diag = open();
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(l) = TcpListener::bind(host) else { continue };
            let service = l.local_addr().unwrap();
            let mut c = TcpStream::connect(service).unwrap();
            c.write_all(b"hello").unwrap();
            let local = c.local_addr().unwrap();
            let s = diag.connection(service, local).unwrap().expect("exists");
            assert_eq!((s.state, s.rqueue, s.inode), (TcpState::Established, 5, 0), "not accepted yet");
            assert_eq!(s.info.unwrap().bytes_received, 5);
            assert_eq!(diag.listener(service).unwrap().expect("listens").rqueue, 1);
            let (_b, _) = l.accept().unwrap();
            assert_ne!(diag.connection(service, local).unwrap().unwrap().inode, 0);
            drop(l);
            assert_eq!(diag.listener(service).unwrap(), None);
            assert!(diag.connection(service, local).unwrap().is_some(), "outlives its listener");
        }
    }

    #[test]
    fn wildcard_and_dual_stack_listeners_are_found() {
        let mut diag = open();
        let l = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = l.local_addr().unwrap().port();
        let at = SocketAddr::from(([127, 0, 0, 1], port));
        assert!(diag.listener(at).unwrap().is_some());
        assert_eq!(diag.listeners(at).unwrap().len(), 1);
        let Ok(l6) = TcpListener::bind("[::]:0") else { return };
        let at = SocketAddr::from(([127, 0, 0, 1], l6.local_addr().unwrap().port()));
        assert!(diag.listener(at).unwrap().is_some());
        assert_eq!(diag.listeners(at).unwrap().len(), 1);
    }

    #[test]
    fn members_of_a_reuseport_group_are_listed() {
        use socket2::{Domain, Socket, Type};
        let mut diag = open();
        let group = |addr: SocketAddr| {
            let s = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            s.set_reuse_port(true).unwrap();
            s.bind(&addr.into()).unwrap();
            s.listen(16).unwrap();
            s
        };
        let a = group(([127, 0, 0, 1], 0).into());
        let at = a.local_addr().unwrap().as_socket().unwrap();
        let _b = group(at);
        assert!(diag.listener(at).unwrap().is_some());
        assert_eq!(diag.listeners(at).unwrap().len(), 2);
        assert!(diag.listeners(([127, 0, 0, 2], at.port()).into()).unwrap().is_empty());
    }

    #[test]
    fn addresses_match_as_the_kernel_matches_them() {
        let takes = |b: &str, w: &str| super::takes(b.parse().unwrap(), w.parse().unwrap());
        assert!(takes("0.0.0.0", "127.0.0.1") && takes("::", "127.0.0.1") && takes("::", "::1"));
        assert!(takes("::ffff:127.0.0.1", "127.0.0.1") && takes("127.0.0.1", "127.0.0.1"));
        assert!(!takes("127.0.0.2", "127.0.0.1") && !takes("::1", "127.0.0.1"));
    }
}
