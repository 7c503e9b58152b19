//! Accepting connections on a listener that all workers share: whoever is awake takes it, and hands it to a worker
//! with clearly fewer connections.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpStream};

use crate::clock;
use crate::link::tune::{tune_listener, tune_loopback};
use crate::worker::Worker;

/// Waiting connections the kernel keeps.
const BACKLOG: i32 = 4096;

/// A listening socket; what it accepts has the options of an application's socket. IPv6 wildcards take IPv4 too.
pub fn listen(addr: SocketAddr) -> io::Result<std::net::TcpListener> {
    let s = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    s.set_reuse_address(true)?;
    if addr.is_ipv6() {
        s.set_only_v6(false)?;
    }
    tune_listener(&SockRef::from(&s), addr);
    s.set_nonblocking(true)?;
    s.bind(&addr.into())?;
    s.listen(BACKLOG)?;
    Ok(s.into())
}

/// Connections per worker, for balance among workers.
#[derive(Debug)]
pub struct Loads {
    each: Vec<AtomicUsize>,
    slack: usize,
}

/// One connection of a worker.
#[derive(Debug)]
pub struct Load(Arc<Loads>, usize);

impl Loads {
    /// For `workers` workers. A connection moves to another worker that has fewer by `slack` or more, at least 1.
    pub fn new(workers: usize, slack: usize) -> Arc<Loads> {
        Arc::new(Loads { each: (0..workers).map(|_| AtomicUsize::new(0)).collect(), slack: slack.max(1) })
    }

    /// The worker that should serve a connection accepted by `me`; it is counted there from now on.
    pub fn place(self: &Arc<Self>, me: usize) -> (usize, Load) {
        let mine = self.each[me].load(Relaxed);
        let least = self.each.iter().enumerate().map(|(i, n)| (n.load(Relaxed), i)).min();
        let to = match least {
            Some((n, i)) if n + self.slack <= mine => i,
            _ => me,
        };
        self.each[to].fetch_add(1, Relaxed);
        (to, Load(self.clone(), to))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.each[self.1].fetch_sub(1, Relaxed);
    }
}

/// Accepts for ever. Errors of single connections are passed over; a full descriptor table is waited out.
pub async fn accept_loop(
    w: &Rc<Worker>,
    listener: TcpListener,
    what: &str,
    mut take: impl FnMut(TcpStream, SocketAddr),
) {
    let mut complained = false;
    let inherits = listener.local_addr().is_ok_and(|a| a.ip().to_canonical().is_loopback());
    loop {
        match listener.accept().await {
            Ok((io, from)) => {
                complained = false;
                if !inherits {
                    tune_loopback(&SockRef::from(&io), from);
                }
                take(io, from);
            }
            Err(e) if is_of_one_connection(&e) => {}
            Err(e) => {
                if !complained {
                    tracing::warn!(listener = what, error = %e,
                        "cannot accept; is the limit of open files (ulimit -n) too low?");
                    complained = true;
                }
                w.sleep_until(clock::now() + Duration::from_millis(50)).await;
            }
        }
    }
}

fn is_of_one_connection(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_goes_to_the_clearly_less_loaded_worker() {
        let loads = Loads::new(2, 2);
        let mut held = Vec::new();
        for _ in 0..10 {
            held.push(loads.place(0));
        }
        let on_one = held.iter().filter(|(to, _)| *to == 1).count();
        assert!((4..=5).contains(&on_one), "{on_one}");
        drop(held);
        assert_eq!(loads.each.iter().map(|n| n.load(Relaxed)).sum::<usize>(), 0);
    }

    #[test]
    fn with_no_slack_two_never_stay_on_one() {
        let loads = Loads::new(2, 1);
        let held: Vec<_> = (0..2).map(|_| loads.place(1)).collect();
        assert_eq!(held.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [1, 0]);
    }

    #[test]
    fn what_is_accepted_has_the_options_of_an_application() {
        let l = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        l.set_nonblocking(false).unwrap();
        let _client = std::net::TcpStream::connect(l.local_addr().unwrap()).unwrap();
        let (io, _) = l.accept().unwrap();
        let s = SockRef::from(&io);
        assert!(s.tcp_nodelay().unwrap() && s.keepalive().unwrap());
        assert_eq!(s.tcp_keepalive_time().unwrap(), Duration::from_secs(30));
        assert_eq!(s.tcp_congestion().unwrap()[..4], *b"reno");
    }

    #[test]
    fn a_second_listener_on_the_port_is_an_error() {
        let a = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let again = listen(a.local_addr().unwrap());
        assert_eq!(again.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
