//! Services and byte streams of the tests themselves.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use socket2::SockRef;

use super::rng::{Rng, Sum};

/// Longest wait for anything on a socket: longer means that it hangs.
pub(crate) const HANG: Duration = Duration::from_secs(30);

/// A listener that runs `handler` on a thread per connection, until it is dropped.
pub(crate) struct Service {
    pub(crate) addr: SocketAddr,
    stop: Arc<AtomicBool>,
}

impl Service {
    pub(crate) fn start(handler: impl Fn(TcpStream) + Send + Sync + 'static) -> Service {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listen");
        let addr = listener.local_addr().expect("local address");
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, handler) = (stop.clone(), Arc::new(handler));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Acquire) {
                    return;
                }
                let (Ok(stream), handler) = (stream, handler.clone()) else { continue };
                let small = std::thread::Builder::new().stack_size(256 * 1024);
                small.spawn(move || handler(patient(stream))).expect("thread");
            }
        });
        Service { addr, stop }
    }

    /// Sends back what comes, and the end of it.
    pub(crate) fn echo() -> Service {
        Service::start(|mut stream| {
            let mut buf = vec![0; 16 * 1024];
            while let Ok(n @ 1..) = stream.read(&mut buf) {
                if stream.write_all(&buf[..n]).is_err() {
                    return;
                }
            }
        })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let _ = TcpStream::connect(self.addr);
    }
}

fn patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(HANG)).expect("timeout");
    stream.set_write_timeout(Some(HANG)).expect("timeout");
    stream.set_nodelay(true).expect("nodelay");
    stream
}

/// Connects; reads and writes on the stream fail rather than hang.
pub(crate) fn connect(addr: SocketAddr) -> TcpStream {
    patient(TcpStream::connect_timeout(&addr, HANG).expect("connect"))
}

/// Connects from 127.0.0.10-209, `n` chooses: many connections need many source addresses.
pub(crate) fn connect_from(addr: SocketAddr, n: usize) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("socket");
    let from = SocketAddr::from(([127, 0, 0, 10 + (n % 200) as u8], 0));
    socket.set_reuse_address(true).expect("reuse");
    socket.bind(&from.into()).expect("bind");
    socket.connect(&addr.into()).expect("connect");
    patient(socket.into())
}

/// Ends the connection with RST.
pub(crate) fn reset(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("linger");
}

/// Sends `len` random bytes of `seed` and gives their checksum.
pub(crate) fn send_random(stream: &mut impl Write, seed: u64, len: u64) -> io::Result<Sum> {
    let (mut rng, mut sum, mut buf) = (Rng::new(seed), Sum::default(), vec![0; 64 * 1024]);
    let mut left = len;
    while left > 0 {
        // Odd sizes, so that nothing depends on round ones.
        let n = left.min(1 + rng.below(buf.len()) as u64) as usize;
        rng.fill(&mut buf[..n]);
        stream.write_all(&buf[..n])?;
        sum.add(&buf[..n]);
        left -= n as u64;
    }
    Ok(sum)
}

/// Reads to the end of the stream and gives the checksum.
pub(crate) fn receive_all(stream: &mut impl Read) -> io::Result<Sum> {
    receive(stream, u64::MAX)
}

/// Reads at most `len` bytes, fewer only if the stream ends, and gives the checksum.
pub(crate) fn receive(stream: &mut impl Read, len: u64) -> io::Result<Sum> {
    let (mut sum, mut buf) = (Sum::default(), vec![0; 64 * 1024]);
    while sum.len < len {
        let most = buf.len().min(usize::try_from(len - sum.len).unwrap_or(usize::MAX));
        match stream.read(&mut buf[..most])? {
            0 => break,
            n => sum.add(&buf[..n]),
        }
    }
    Ok(sum)
}

/// One question of 32 bytes and its echo.
pub(crate) fn round_trip(stream: &mut TcpStream, rng: &mut Rng) -> io::Result<()> {
    let question = rng.bytes(32);
    stream.write_all(&question)?;
    let mut answer = [0; 32];
    stream.read_exact(&mut answer)?;
    if answer[..] == question[..] {
        Ok(())
    } else {
        Err(io::Error::other("another answer than the question"))
    }
}

/// A service whose handler tells its outcome over a channel.
pub(crate) fn telling<T: Send + 'static>(
    handler: impl Fn(TcpStream) -> T + Send + Sync + 'static,
) -> (Service, mpsc::Receiver<T>) {
    let (tell, told) = mpsc::channel();
    let service = Service::start(move |stream| {
        let _ = tell.send(handler(stream));
    });
    (service, told)
}

/// Sends and receives `len` bytes at once; gives the sums of both.
pub(crate) fn both_ways(stream: TcpStream, seed: u64, len: u64) -> (Sum, Sum) {
    let mut reader = stream.try_clone().expect("another handle");
    let heard = std::thread::spawn(move || receive(&mut reader, len).expect("all bytes come"));
    let said = send_random(&mut &stream, seed, len).expect("all bytes go");
    (said, heard.join().expect("the reader ends"))
}
