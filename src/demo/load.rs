//! The open-loop load: requests leave when they are due, whatever became of the earlier ones.
//!
//! A pool of keep-alive connections through the client's sidecar takes turns, and each eighth request uses a
//! connection of its own, so that all endpoints carry traffic and new connections are balanced all the time.
//! A request whose connection is cut, or which is not answered within the time limit, is sent once more on a new
//! connection: it is an idempotent GET.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::LocalSet;

use super::args::Gap;
use super::ledger::{Ledger, Shot};
use super::noise;
use super::rng::Rng;
use super::threads::Threads;
use crate::clock;
use crate::stamp::Stamp;

/// Keep-alive connections per service; at least two of them stay busy after a fault moved some away.
const POOL_PER_SERVICE: usize = 6;
/// Each n-th request uses a connection of its own.
const FRESH_EVERY: u64 = 8;
/// One try ends after this: longer than the client's sidecar is ever stopped on purpose.
const TRY_LIMIT: Duration = Duration::from_millis(2500);
/// A request that found no free connection for this long has failed.
const QUEUE_LIMIT: Duration = Duration::from_secs(5);
/// Requests on connections of their own at once.
const FRESH_MAX: usize = 256;
/// A pooled connection is renewed after about this, so that a healed endpoint gets its share again.
const RENEW: Duration = Duration::from_millis(1500);

/// How the load is shaped.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Where the client's sidecar listens.
    pub to: SocketAddr,
    /// Number of services.
    pub services: usize,
    /// Requests per second, unless `gap` is given.
    pub rate: u32,
    /// Random gaps.
    pub gap: Option<Gap>,
    /// Bursts and silences.
    pub bursts: bool,
    /// Seed of the gaps.
    pub seed: u64,
}

/// A running load; ends when dropped.
#[derive(Debug)]
pub struct Load {
    ledger: Arc<Mutex<Ledger>>,
    _threads: Threads,
}

impl Load {
    /// Starts the pacing thread and the sending thread.
    pub fn start(shape: Shape) -> io::Result<Load> {
        let ledger = Arc::new(Mutex::new(Ledger::new(shape.services)));
        let due = Arc::new(Due::default());
        let mut threads = Threads::default();
        let (d, sh) = (due.clone(), shape.clone());
        threads.spawn("demo-pacer", move |stop| pace(&sh, &d, stop))?;
        let (l, rt) = (ledger.clone(), super::runtime()?);
        threads.spawn("demo-load", move |stop| {
            LocalSet::new().block_on(&rt, send_all(shape, l, due, stop));
        })?;
        Ok(Load { ledger, _threads: threads })
    }

    /// The counts so far.
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Requests that are due: the pacer puts them in, the senders take them in turn (the semaphore is fair).
#[derive(Debug)]
struct Due {
    pooled: Mutex<VecDeque<Stamp>>,
    pooled_count: Semaphore,
    fresh: Mutex<VecDeque<Stamp>>,
    fresh_count: Semaphore,
}

impl Default for Due {
    fn default() -> Due {
        let queue = || Mutex::new(VecDeque::new());
        Due {
            pooled: queue(),
            pooled_count: Semaphore::new(0),
            fresh: queue(),
            fresh_count: Semaphore::new(0),
        }
    }
}

impl Due {
    fn put(&self, fresh: bool, at: Stamp) {
        let (queue, count) = match fresh {
            true => (&self.fresh, &self.fresh_count),
            false => (&self.pooled, &self.pooled_count),
        };
        lock(queue).push_back(at);
        count.add_permits(1);
    }

    async fn take(&self, fresh: bool) -> Stamp {
        let (queue, count) = match fresh {
            true => (&self.fresh, &self.fresh_count),
            false => (&self.pooled, &self.pooled_count),
        };
        if let Ok(permit) = count.acquire().await {
            permit.forget();
        }
        lock(queue).pop_front().unwrap_or_else(clock::now)
    }
}

/// Bursts of 5 to 200 requests, 2 ms apart on average at random, and silences of 50 ms to 3 s (detection.md section 8).
#[derive(Debug, Default)]
struct Bursts {
    left: usize,
}

impl Bursts {
    fn gap(&mut self, rng: &mut Rng) -> Duration {
        if self.left == 0 {
            self.left = 5 + rng.below(196);
            return rng.between(Duration::from_millis(50), Duration::from_secs(3));
        }
        self.left -= 1;
        Duration::from_millis(2).mul_f64(-(1.0 - rng.unit()).ln())
    }
}

fn pace(shape: &Shape, due: &Due, stop: &AtomicBool) {
    let mut rng = Rng::new(shape.seed);
    let mut bursts = Bursts::default();
    let mut next = clock::now();
    let mut seq = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        noise::sleep_until(next);
        due.put(seq.is_multiple_of(FRESH_EVERY), next);
        seq += 1;
        next = next
            + match shape.gap {
                _ if shape.bursts => bursts.gap(&mut rng),
                Some(g) => rng.between(g.min, g.max),
                None => Duration::from_secs(1) / shape.rate,
            };
    }
}

struct Sender {
    shape: Shape,
    ledger: Arc<Mutex<Ledger>>,
    rng: RefCell<Rng>,
}

async fn send_all(shape: Shape, ledger: Arc<Mutex<Ledger>>, due: Arc<Due>, stop: &AtomicBool) {
    let rng = RefCell::new(Rng::new(shape.seed ^ 0x5eed));
    let workers = POOL_PER_SERVICE * shape.services;
    let sender = Rc::new(Sender { shape, ledger, rng });
    for _ in 0..workers {
        let (s, d) = (sender.clone(), due.clone());
        tokio::task::spawn_local(async move { s.pooled(&d).await });
    }
    let d = due.clone();
    tokio::task::spawn_local(async move { fresh(sender, &d).await });
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn fresh(sender: Rc<Sender>, due: &Due) {
    let slots = Arc::new(Semaphore::new(FRESH_MAX));
    loop {
        let intended = due.take(true).await;
        let Ok(slot) = slots.clone().try_acquire_owned() else {
            sender.give_up(intended, true);
            continue;
        };
        let s = sender.clone();
        tokio::task::spawn_local(async move {
            s.shoot(intended, true, &mut None).await;
            drop(slot);
        });
    }
}

impl Sender {
    async fn pooled(&self, due: &Due) {
        let mut conn: Option<Conn> = None;
        loop {
            let intended = due.take(false).await;
            if clock::now().since(intended) > QUEUE_LIMIT {
                self.give_up(intended, false);
                continue;
            }
            self.shoot(intended, false, &mut conn).await;
            if conn.as_ref().is_some_and(|c| clock::now() >= c.renew) {
                conn = None;
            }
        }
    }

    /// One request with at most two tries; the connection is left in `conn` if it is still good.
    async fn shoot(&self, intended: Stamp, fresh: bool, conn: &mut Option<Conn>) {
        if conn.as_ref().is_some_and(Conn::is_closed) {
            *conn = None;
        }
        let sent = clock::now();
        let mut by = self.attempt(conn).await;
        let retried = by.is_err();
        if retried {
            by = self.attempt(conn).await;
        }
        let shot = Shot { intended, sent, done: clock::now(), by: by.ok(), fresh, retried };
        lock(&self.ledger).record(&shot);
    }

    fn give_up(&self, intended: Stamp, fresh: bool) {
        let now = clock::now();
        let shot = Shot { intended, sent: now, done: now, by: None, fresh, retried: false };
        lock(&self.ledger).record(&shot);
    }

    async fn attempt(&self, slot: &mut Option<Conn>) -> io::Result<usize> {
        let mut conn = match slot.take() {
            Some(conn) => conn,
            None => {
                let life = self.rng.borrow_mut().between(RENEW / 2, RENEW * 3 / 2);
                let dial = TcpStream::connect(self.shape.to);
                let socket = tokio::time::timeout(TRY_LIMIT, dial).await??;
                socket.set_nodelay(true)?;
                Conn { socket, buf: Vec::with_capacity(512), renew: clock::now() + life }
            }
        };
        let by = tokio::time::timeout(TRY_LIMIT, conn.get()).await??;
        *slot = Some(conn);
        Ok(by)
    }
}

/// A keep-alive connection without an unanswered request.
struct Conn {
    socket: TcpStream,
    buf: Vec<u8>,
    renew: Stamp,
}

impl Conn {
    /// Closed by the sidecar while it was idle, or it said something nobody asked for.
    fn is_closed(&self) -> bool {
        let mut byte = [0];
        !matches!(self.socket.try_read(&mut byte), Err(e) if e.kind() == io::ErrorKind::WouldBlock)
    }

    /// One `GET /`; gives the index of the service that answered.
    async fn get(&mut self) -> io::Result<usize> {
        self.socket.write_all(b"GET / HTTP/1.1\r\nhost: orders\r\n\r\n").await?;
        self.buf.clear();
        loop {
            if let Some(answer) = Answer::parse(&self.buf)? {
                return Ok(answer.service);
            }
            if self.socket.read_buf(&mut self.buf).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// The head of an answer.
#[derive(Debug, PartialEq)]
pub(super) struct Answer {
    /// Index of the service: the number at the end of its name, less one.
    pub(super) service: usize,
}

const ANSWER_MAX: usize = 64 * 1024;

impl Answer {
    /// None until the answer is complete; an error if it is none of ours.
    fn parse(buf: &[u8]) -> io::Result<Option<Answer>> {
        let Some((answer, head, len)) = Answer::parse_head(buf)? else { return Ok(None) };
        Ok((buf.len() as u64 >= head as u64 + len).then_some(answer))
    }

    /// As soon as the head is complete: the answer, the length of the head and that of the body.
    pub(super) fn parse_head(buf: &[u8]) -> io::Result<Option<(Answer, usize, u64)>> {
        let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let Some(end) = buf.windows(4).position(|w| w == b"\r\n\r\n") else {
            return if buf.len() > ANSWER_MAX { Err(bad("endless head")) } else { Ok(None) };
        };
        let head = std::str::from_utf8(&buf[..end]).map_err(|_| bad("no text"))?;
        let mut lines = head.split("\r\n");
        if lines.next() != Some("HTTP/1.1 200 OK") {
            return Err(bad("not 200"));
        }
        let field = |name: &str| lines.clone().filter_map(|l| l.split_once(": ")).find(|(k, _)| *k == name);
        let number = |text: &str| text.rsplit('-').next().and_then(|n| n.parse::<usize>().ok());
        let service = field("x-served-by").and_then(|(_, v)| number(v)).and_then(|n| n.checked_sub(1));
        let len = field("content-length").and_then(|(_, v)| v.parse::<u64>().ok());
        match (service, len) {
            (Some(service), Some(len)) => Ok(Some((Answer { service }, end + 4, len))),
            _ => Err(bad("not from a service of the demo")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::service;
    use super::*;
    use tokio::net::TcpListener;

    #[test]
    fn answers_are_complete_or_not_or_refused() {
        let text = b"HTTP/1.1 200 OK\r\nx-served-by: orders-2\r\ncontent-length: 3\r\n\r\nabc";
        for cut in 0..text.len() {
            assert_eq!(Answer::parse(&text[..cut]).unwrap(), None, "cut at {cut}");
        }
        assert_eq!(Answer::parse(text).unwrap(), Some(Answer { service: 1 }));
        let bad: &[&[u8]] = &[
            b"HTTP/1.1 500 Oh\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nx-served-by: orders-0\r\ncontent-length: 3\r\n\r\nabc",
            b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc",
            b"\xff\r\n\r\n",
        ];
        assert!(!bad.is_empty());
        for b in bad {
            assert!(Answer::parse(b).is_err());
        }
        assert!(Answer::parse(&vec![b'x'; ANSWER_MAX + 1]).is_err());
    }

    #[test]
    fn bursts_have_silences_between_them() {
        let (mut rng, mut bursts) = (Rng::new(7), Bursts::default());
        let gaps: Vec<Duration> = (0..10_000).map(|_| bursts.gap(&mut rng)).collect();
        let silences = gaps.iter().filter(|g| **g >= Duration::from_millis(50)).count();
        assert!((60..200).contains(&silences), "{silences}");
        assert!(gaps.iter().all(|g| *g <= Duration::from_secs(3)));
    }

    /// Three services behind one port that hands connections out in turn; the second refuses all of its first
    /// connection's requests by closing it.
    async fn fake_sidecar(listener: TcpListener) {
        let mut n = 0_usize;
        while let Ok((socket, _)) = listener.accept().await {
            n += 1;
            let name = format!("orders-{}", n % 3 + 1);
            tokio::spawn(async move {
                if n == 2 {
                    drop(socket)
                } else {
                    let _ = service::connection(socket, &service::Shared::new(&name, None)).await;
                }
            });
        }
    }

    #[test]
    fn all_services_carry_load_and_a_cut_connection_is_retried() {
        let rt = super::super::runtime().unwrap();
        let listener = rt.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let to = listener.local_addr().unwrap();
        let load =
            Load::start(Shape { to, services: 3, rate: 2000, gap: None, bursts: false, seed: 1 }).unwrap();
        let done = async {
            loop {
                let counts = |l: &Ledger| {
                    let enough = l.served.iter().all(|n| *n > 20) && l.retried > 0;
                    enough.then(|| (l.failed, l.served.iter().sum::<u64>(), l.total))
                };
                // Read while the sidecar is there: what is on its way when it goes fails.
                if let Some(counts) = counts(&load.ledger()) {
                    break counts;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let (failed, served, total) = rt.block_on(async {
            tokio::select! {
                () = fake_sidecar(listener) => panic!("the listener died"),
                end = tokio::time::timeout(Duration::from_secs(20), done) => end.unwrap(),
            }
        });
        assert_eq!((failed, served), (0, total));
    }
}
