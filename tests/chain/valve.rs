//! A path that can be cut. While it is, bytes that are under way stay under way, in both directions, and a new connection
//! is not answered: nobody is told anything. When it is joined again what was held goes on.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// A relay to one address; it lives as long as the process.
pub(crate) struct Valve {
    pub(crate) addr: SocketAddr,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    cut: Mutex<bool>,
    joined: Condvar,
}

impl Gate {
    fn set(&self, cut: bool) {
        *self.cut.lock().unwrap_or_else(PoisonError::into_inner) = cut;
        self.joined.notify_all();
    }

    fn wait(&self) {
        let mut cut = self.cut.lock().unwrap_or_else(PoisonError::into_inner);
        while *cut {
            cut = self.joined.wait(cut).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Valve {
    pub(crate) fn start(to: SocketAddr) -> Valve {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listen");
        let addr = listener.local_addr().expect("local address");
        let gate = Arc::new(Gate::default());
        let inner = gate.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                inner.wait();
                if let Ok(far) = TcpStream::connect(to) {
                    relay(near, far, &inner);
                }
            }
        });
        Valve { addr, gate }
    }

    pub(crate) fn cut(&self) {
        self.gate.set(true);
    }

    pub(crate) fn join(&self) {
        self.gate.set(false);
    }
}

fn relay(near: TcpStream, far: TcpStream, gate: &Arc<Gate>) {
    for s in [&near, &far] {
        // Not connected any more: the copies will see it.
        let _ = s.set_nodelay(true);
    }
    let (Ok(near2), Ok(far2)) = (near.try_clone(), far.try_clone()) else { return };
    for (from, to) in [(near, far), (far2, near2)] {
        let gate = gate.clone();
        std::thread::spawn(move || copy(from, to, &gate));
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, gate: &Gate) {
    let mut buf = vec![0; 16 * 1024];
    loop {
        let got = from.read(&mut buf);
        gate.wait();
        match got {
            Ok(0) => {
                let _ = to.shutdown(Shutdown::Write);
                return;
            }
            Ok(n) if to.write_all(&buf[..n]).is_ok() => {}
            // One of them is gone: so is the connection.
            Ok(_) | Err(_) => {
                let _ = to.shutdown(Shutdown::Both);
                let _ = from.shutdown(Shutdown::Both);
                return;
            }
        }
    }
}
