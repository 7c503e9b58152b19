//! A path with delay and a rate, in user space: what `tc netem` does elsewhere. Bytes are stamped on arrival and
//! released at stamp + delay, no faster than the rate.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use sidebeat::stamp::Stamp;

use super::clock;

/// What a direction may hold: twice the bandwidth-delay product of the slowest path of the tests.
const QUEUE: usize = 4 << 20;

#[derive(Default)]
struct Queue {
    chunks: VecDeque<(Stamp, Vec<u8>)>,
    bytes: usize,
    ended: bool,
}

/// Starts a relay to `to` and gives its address. It lives as long as the process.
pub(crate) fn start(to: SocketAddr, delay: Duration, bytes_per_s: f64) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listen");
    let addr = listener.local_addr().expect("local address");
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let Ok(far) = TcpStream::connect(to) else { continue };
            for s in [&near, &far] {
                let _ = s.set_nodelay(true);
            }
            let (Ok(near2), Ok(far2)) = (near.try_clone(), far.try_clone()) else { continue };
            direction(near, far, delay, bytes_per_s);
            direction(far2, near2, delay, bytes_per_s);
        }
    });
    addr
}

fn direction(mut from: TcpStream, mut to: TcpStream, delay: Duration, bytes_per_s: f64) {
    let shared = Arc::new((Mutex::new(Queue::default()), Condvar::new()));
    let filling = shared.clone();
    std::thread::spawn(move || {
        let (queue, changed) = &*filling;
        let mut buf = vec![0; 16 * 1024];
        loop {
            let n = from.read(&mut buf).unwrap_or(0);
            let mut q = queue.lock().expect("queue");
            while q.bytes > QUEUE && !q.ended {
                q = changed.wait(q).expect("queue");
            }
            q.ended |= n == 0;
            q.bytes += n;
            q.chunks.push_back((clock::now() + delay, buf[..n].to_vec()));
            changed.notify_all();
            if q.ended {
                return;
            }
        }
    });
    std::thread::spawn(move || {
        let (queue, changed) = &*shared;
        let mut free_at = Stamp::ZERO;
        loop {
            let mut q = queue.lock().expect("queue");
            while q.chunks.is_empty() {
                q = changed.wait(q).expect("queue");
            }
            let (due, chunk) = q.chunks.pop_front().expect("not empty");
            q.bytes -= chunk.len();
            changed.notify_all();
            drop(q);
            let start = due.max(free_at);
            free_at = start + Duration::from_secs_f64(chunk.len() as f64 / bytes_per_s);
            wait_until(start);
            if chunk.is_empty() || to.write_all(&chunk).is_err() {
                let _ = to.shutdown(Shutdown::Write);
                queue.lock().expect("queue").ended = true;
                changed.notify_all();
                return;
            }
        }
    });
}

#[expect(clippy::disallowed_methods, reason = "the delay is what this is for")]
fn wait_until(at: Stamp) {
    let left = at.since(clock::now());
    if !left.is_zero() {
        std::thread::sleep(left);
    }
}
