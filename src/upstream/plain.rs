//! Connections that go straight to a service, as one worker sees them: they are counted, looked at while a question waits,
//! and told of to the owner. What it means is for [`super::talk`].

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::net::TcpStream;

use super::facts::PlainResult;
use super::hub::{Hub, Key, News, WeakHub};
use super::registry::Shared;
use super::talk::{Judge, Talk, Wait};
use crate::clock;
use crate::link::Meter;
use crate::stamp::Stamp;
use crate::sys::tcp;
use crate::verdict::State;
use crate::worker::wheel::Ticket;
use crate::worker::{Dir, IdMap, Timed, Worker};

/// How often connections whose question waits are looked at.
const LOOK: Duration = Duration::from_millis(250);
/// Sockets whose kernel is asked at one look: a few tell as much as a thousand.
const LOOK_MOST: usize = 64;
/// Sent again so often without an answer is no chance loss.
const RETRANSMITS: u8 = 2;
/// While the endpoint is doubted its owner hears of answers at most this often.
const TELL_EVERY: Duration = Duration::from_millis(2);

/// The plain connections of one endpoint on one worker.
pub struct PlainSide {
    hub: WeakHub,
    key: Key,
    shared: Arc<Shared>,
    w: Rc<Worker>,
    timer: Ticket,
    /// The next look is due.
    looks: Cell<bool>,
    judge: RefCell<Judge>,
    told: Cell<Stamp>,
    open: RefCell<IdMap<u64, Weak<PlainConn>>>,
}

impl Hub {
    fn plain_side(self: &Rc<Self>, key: Key) -> Rc<PlainSide> {
        let mut plains = self.plains.borrow_mut();
        let made = || {
            Rc::new_cyclic(|me: &Weak<PlainSide>| PlainSide {
                hub: Rc::downgrade(self),
                key,
                shared: self.shared(key).clone(),
                w: self.w.clone(),
                timer: self.w.register(me.clone()),
                looks: Cell::new(false),
                judge: RefCell::default(),
                told: Cell::new(Stamp::ZERO),
                open: RefCell::default(),
            })
        };
        plains.entry(key).or_insert_with(made).clone()
    }

    /// A connection to the service itself is made: from here on it is watched.
    pub fn plain(self: &Rc<Self>, key: Key, io: TcpStream) -> Rc<PlainConn> {
        let (side, now) = (self.plain_side(key), clock::now());
        if side.shared.state() != State::Active {
            self.tell(key, now, News::Plain(PlainResult::Accepted));
        }
        let conn = Rc::new(PlainConn {
            id: self.w.fresh_id(),
            io,
            side,
            talk: Cell::new(Talk::new(now)),
            cut: Cell::new(false),
            waker: RefCell::default(),
        });
        conn.side.open.borrow_mut().insert(conn.id, Rc::downgrade(&conn));
        conn
    }

    /// No connection to the service itself could be made.
    pub fn plain_failed(&self, key: Key, why: io::ErrorKind) {
        let news = match why {
            io::ErrorKind::ConnectionRefused => PlainResult::Refused,
            io::ErrorKind::TimedOut => PlainResult::Timeout,
            _ => PlainResult::Reset,
        };
        self.tell(key, clock::now(), News::Plain(news));
    }
}

impl PlainSide {
    fn tell(&self, now: Stamp, result: PlainResult) {
        if let Some(hub) = self.hub.upgrade() {
            hub.tell(self.key, now, News::Plain(result));
        }
    }

    fn answered(&self, now: Stamp, first: bool) {
        self.shared.note_answer(now);
        let doubted = || self.shared.state() != State::Active && now.since(self.told.get()) >= TELL_EVERY;
        if first || doubted() {
            self.told.set(now);
            self.tell(now, PlainResult::Answered);
        }
    }

    fn look_later(&self, now: Stamp) {
        if !self.looks.replace(true) {
            self.w.schedule(self.timer, now + LOOK);
        }
    }

    fn waits(&self, now: Stamp) -> Vec<Wait> {
        let open = self.open.borrow();
        let all = open.values().filter_map(Weak::upgrade).filter(|c| c.talk.get().waits().is_some());
        all.enumerate().filter_map(|(n, c)| c.look(now, n < LOOK_MOST)).collect()
    }

    /// A verdict ends those on which nothing came for that long.
    pub(super) fn cut(&self, now: Stamp, quiet: Duration) {
        let open: Vec<_> = self.open.borrow().values().filter_map(Weak::upgrade).collect();
        open.iter().filter(|c| c.talk.get().quiet(now) >= quiet).for_each(|c| c.end());
    }
}

impl Timed for PlainSide {
    fn on_timer(self: Rc<Self>, now: Stamp) {
        self.looks.set(false);
        let waits = self.waits(now);
        let told = self.judge.borrow_mut().look(now, &waits, self.shared.answered());
        // As long as it lasts: the doubt ends by itself where nobody waits any more.
        if let Some(result) = told {
            self.tell(now, result);
        }
        if !waits.is_empty() {
            self.look_later(now);
        }
    }

    fn own_stall(&self, from: Stamp, to: Stamp) {
        // Shorter ones come many times a second where CPU time is scarce, and hide no silence of a second: bytes that wait
        // for us are seen at the look.
        if to.since(from) >= LOOK {
            self.judge.borrow_mut().own_stall();
        }
    }
}

/// One connection to a service itself.
pub struct PlainConn {
    id: u64,
    /// The service's socket.
    pub io: TcpStream,
    side: Rc<PlainSide>,
    talk: Cell<Talk>,
    cut: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl PlainConn {
    /// Waits until a verdict ends it.
    pub async fn is_cut(&self) {
        std::future::poll_fn(|cx| {
            if self.cut.get() {
                return Poll::Ready(());
            }
            let mut w = self.waker.borrow_mut();
            if !w.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
                *w = Some(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// The service's end of it failed like this, and not by our doing.
    pub fn broke(&self, why: io::ErrorKind) {
        let gave_up = matches!(
            why,
            io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable
        );
        let now = clock::now();
        if gave_up {
            // No strike, as a connect without an answer is: a firewall that forgets takes many connections at one instant.
            return self.side.tell(now, PlainResult::Silent);
        }
        self.ended(now, true);
    }

    fn end(&self) {
        self.cut.set(true);
        if let Some(w) = self.waker.take() {
            w.wake();
        }
    }

    /// What it shows while a question waits; `ask`: its kernel too.
    fn look(&self, now: Stamp, ask: bool) -> Option<Wait> {
        let mut talk = self.talk.get();
        let young = talk.waits().is_none_or(|asked| now.since(asked) < LOOK);
        let mut lost = false;
        if ask && !young {
            // It has answered, and the client is the one that does not read.
            if tcp::unread(&self.io).is_ok_and(|n| n > 0) {
                return None;
            }
            lost = tcp::tcp_info(&self.io).is_ok_and(|i| i.unacked > 0 && i.retransmits >= RETRANSMITS);
        }
        let wait = talk.look(lost);
        self.talk.set(talk);
        wait
    }

    fn count(&self, dir: Dir, n: usize) {
        let payload = &self.side.w.counters.payload[dir as usize];
        payload.set(payload.get() + n as u64);
    }
}

/// Of the service, as everywhere.
impl Meter for PlainConn {
    fn taken(&self, now: Stamp, n: usize) {
        self.count(Dir::Out, n);
        let mut talk = self.talk.get();
        talk.said(now);
        self.talk.set(talk);
        self.side.look_later(now);
    }

    fn sent(&self, now: Stamp, n: usize) {
        self.count(Dir::In, n);
        let mut talk = self.talk.get();
        let first = !talk.answered();
        if let Some(took) = talk.heard(now) {
            self.side.judge.borrow().answered(took);
        }
        self.talk.set(talk);
        self.side.answered(now, first);
    }

    fn ended(&self, now: Stamp, rst: bool) {
        if let Some(result) = self.talk.get().ended(rst) {
            self.side.tell(now, result);
        }
    }
}

impl Drop for PlainConn {
    fn drop(&mut self) {
        self.side.open.borrow_mut().remove(&self.id);
    }
}
