//! A scripted dialer, and an inbound sidecar with a service that the test plays by hand.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use sidebeat::wire::{Frame, GREETING_LEN, Hello, RefuseCode, Welcome, greeting};
use tokio::io::AsyncReadExt as _;

use crate::peer::{Auto, Peer, Pilot, What, dial, encoded, hello, runtime};
use crate::support::pair::{NAME, Sidecar};
use crate::support::service::{HANG, Service};
use crate::support::{Port, TempDir};

/// A service whose connections the test serves itself.
pub(crate) struct Hand {
    pub(crate) service: Service,
    taken: Mutex<Receiver<TcpStream>>,
}

impl Hand {
    pub(crate) fn new() -> Hand {
        let (tx, rx) = channel();
        let tx = Mutex::new(tx);
        let service = Service::start(move |stream| {
            // Nobody waits for it: the test is over.
            let _ = tx.lock().unwrap().send(stream);
        });
        Hand { service, taken: Mutex::new(rx) }
    }

    /// The next connection of the sidecar.
    pub(crate) fn next(&self) -> TcpStream {
        self.taken.lock().unwrap().recv_timeout(HANG).expect("a connection to the service")
    }
}

/// An inbound sidecar.
pub(crate) struct Inbound {
    pub(crate) sidecar: Sidecar,
    pub(crate) link: SocketAddr,
    _port: Port,
    _dir: TempDir,
}

impl Inbound {
    pub(crate) fn start(service: SocketAddr) -> Inbound {
        Inbound::with(service, "", "")
    }

    /// `more`: keys of the inbound; `tables`: more tables.
    pub(crate) fn with(service: SocketAddr, more: &str, tables: &str) -> Inbound {
        let (dir, port) = (TempDir::new(), Port::pick());
        let toml = format!(
            "[[inbound]]\nname = \"{NAME}\"\nlink_listen = \"{}\"\nservice = \"{service}\"\n{more}\n{tables}",
            port.addr()
        );
        let sidecar = Sidecar::start(&dir, "inbound", &toml);
        Inbound { sidecar, link: port.addr(), _port: port, _dir: dir }
    }

    /// A link with a silent autopilot.
    pub(crate) fn link(&self) -> Peer {
        self.linked().0
    }

    pub(crate) fn linked(&self) -> (Peer, Welcome) {
        let peer = greeted(self.link, false);
        peer.say(&Frame::Hello(hello()));
        let welcome = wait_welcome(&peer);
        (peer, welcome)
    }

    /// A link whose kernel buffers are small, so that what is not read soon waits in the sidecar.
    pub(crate) fn narrow_link(&self) -> Peer {
        let peer = greeted(self.link, true);
        peer.say(&Frame::Hello(hello()));
        wait_welcome(&peer);
        peer
    }

    /// What the sidecar answers to that hello.
    pub(crate) fn refusal(&self, hello: Hello) -> (RefuseCode, String) {
        let peer = greeted(self.link, false);
        peer.say(&Frame::Hello(hello));
        let refusal = peer.frame("a refusal", |f| match f {
            Frame::Refuse { code, text } => Some((*code, text.clone())),
            _ => None,
        });
        peer.wait_closed();
        refusal
    }

    pub(crate) fn post(&self, path: &str) -> String {
        let mut admin = TcpStream::connect(self.sidecar.admin).unwrap();
        admin.set_read_timeout(Some(HANG)).unwrap();
        let host = self.sidecar.admin;
        write!(
            admin,
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        admin.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 2"), "{path}: {answer}");
        answer
    }
}

/// Connects and reads the greeting, which comes before a byte is said.
pub(crate) fn greeted(link: SocketAddr, small: bool) -> Peer {
    let mut io = dial(link, small);
    let first = runtime().block_on(async {
        let mut first = [0; GREETING_LEN];
        let read = io.read_exact(&mut first);
        tokio::time::timeout(HANG, read).await.expect("a greeting in time").expect("a greeting");
        first
    });
    assert_eq!(first, greeting());
    Peer::run(io, Vec::new(), Pilot::new(Auto::none()))
}

pub(crate) fn wait_welcome(peer: &Peer) -> Welcome {
    peer.frame("WELCOME", |f| match f {
        Frame::Welcome(w) => Some(w.clone()),
        _ => None,
    })
}

/// OPEN, bytes and possibly FIN as one write.
pub(crate) fn whole_request(stream: u32, bytes: &[u8]) -> Vec<u8> {
    let open = encoded(&Frame::Open { stream, service: NAME.to_owned() });
    [open, crate::peer::data_frame(stream, bytes), encoded(&Frame::Fin { stream })].concat()
}

/// Sends under the credit that was granted until the other side grants no more although it answers; gives all that
/// was sent, and the credit that is left (zero or a part that was never granted back).
pub(crate) fn fill(peer: &Peer, stream: u32, initial: u64, byte: u8) -> u64 {
    let mut sent = 0;
    let mut quiet = 0;
    while quiet < 20 {
        let left = initial + peer.granted(stream) - sent;
        if left == 0 {
            peer.sync();
            crate::support::pause();
            quiet += 1;
            continue;
        }
        quiet = 0;
        let n = left.min(64 * 1024);
        peer.data(stream, &vec![byte; n as usize]);
        sent += n;
    }
    sent
}

/// Bytes of DATA in the log behind entry `from`, up to the first entry that fits.
pub(crate) fn data_until(peer: &Peer, from: usize, fits: impl Fn(&What) -> bool) -> usize {
    let log = peer.log();
    let until = log.iter().skip(from).position(|h| fits(&h.what)).expect("it is there");
    let pieces = log[from..from + until].iter().map(|h| match &h.what {
        What::Data(_, bytes, _) => bytes.len(),
        _ => 0,
    });
    pieces.sum()
}

/// Reads to the end; the error if it ends by one.
pub(crate) fn read_all(stream: &mut TcpStream) -> (Vec<u8>, Option<std::io::ErrorKind>) {
    let mut all = Vec::new();
    let error = stream.read_to_end(&mut all).err().map(|e| e.kind());
    (all, error)
}

/// Longer than anything takes that must happen at once.
pub(crate) const SOON: Duration = Duration::from_secs(10);
