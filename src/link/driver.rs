//! The link itself: one socket, one task, one send queue.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::net::TcpStream;

use super::beats::Beats;
use super::outq::OutQueue;
use super::pace::{Pace, PaceParams};
use super::pressure::Pressure;
use super::send::Unsaid;
use super::splice::Splicing;
use super::stream::{Ended, Stream};
use super::{Lost, Side, socket};
use crate::clock;
use crate::detector::{Input, LinkJudge};
use crate::stamp::Stamp;
use crate::wire::{Decoder, Limits};
use crate::worker::wheel::Ticket;
use crate::worker::{Dir, Worker};

/// What a link needs to know; all of it agreed in the handshake or configured.
#[derive(Clone, Debug)]
pub struct LinkConf {
    /// Promises of this direction.
    pub pace: PaceParams,
    /// Credit we give each new stream.
    pub initial_credit: u32,
    /// Credit the peer gives each new stream.
    pub peer_credit: u32,
    /// Most credit of one stream.
    pub window_max: u32,
    /// Cap of the send queue, bytes.
    pub queue_max: usize,
    /// Share of the cap that means backpressure.
    pub threshold: f64,
    /// Most streams at once.
    pub streams_max: usize,
    /// True on the side that dials and judges.
    pub dialer: bool,
    /// The link carries one stream, so that bulk data may pass by splice.
    pub one_stream: bool,
}

/// See the module.
pub struct Link {
    /// Unique in this process.
    pub id: u64,
    /// Node id of the peer.
    pub peer_node: String,
    /// Incarnation of the peer.
    pub peer_incarnation: u64,
    pub(super) conf: LinkConf,
    pub(super) w: Rc<Worker>,
    pub(super) io: RefCell<TcpStream>,
    pub(super) side: Rc<dyn Side>,
    pub(super) out: RefCell<OutQueue>,
    pub(super) splice: RefCell<Splicing>,
    pub(super) decoder: RefCell<Decoder>,
    pub(super) streams: RefCell<HashMap<u32, Rc<Stream>>>,
    pub(super) last_stream: Cell<u32>,
    pub(super) judge: RefCell<Option<LinkJudge>>,
    pub(super) pace: RefCell<Pace>,
    pub(super) pressure: RefCell<Pressure>,
    pub(super) beats: RefCell<Beats>,
    pub(super) control_budget: Cell<(Stamp, u32)>,
    pub(super) waiting: RefCell<VecDeque<Rc<Stream>>>,
    /// Streams whose service has not accepted yet, and until when it may.
    pub(super) opening: RefCell<VecDeque<(Stamp, Weak<Stream>)>>,
    /// When the link ends, whatever is left to say.
    pub(super) close_by: Cell<Stamp>,
    pub(super) timer: Ticket,
    pub(super) quantum: Cell<usize>,
    pub(super) stuck_since: Cell<Option<Stamp>>,
    pub(super) want_beat: Cell<bool>,
    pub(super) new_data: Cell<bool>,
    pub(super) unsaid: Cell<Unsaid>,
    pub(super) unsaid_at: Cell<Stamp>,
    pub(super) goaway: Cell<bool>,
    pub(super) closing: Cell<bool>,
    /// We said our end; what still comes is read to the peer's.
    pub(super) half_closed: Cell<bool>,
    /// The open question: nonce and when it was asked.
    pub(super) asked: Cell<(u64, Stamp)>,
    pub(super) segments_at_doubt: Cell<u64>,
    pub(super) pressure_told: Cell<bool>,
    pub(super) lost: RefCell<Option<Lost>>,
    waker: RefCell<Option<Waker>>,
    pub(super) buffered: Cell<usize>,
}

/// The peer as its handshake described it.
pub struct Peer {
    /// Node id.
    pub node: String,
    /// Incarnation.
    pub incarnation: u64,
}

impl Link {
    /// A link over a socket whose handshake is done.
    pub fn new(
        w: Rc<Worker>,
        io: TcpStream,
        peer: Peer,
        conf: LinkConf,
        judge: Option<LinkJudge>,
        side: Rc<dyn Side>,
    ) -> Rc<Link> {
        let now = clock::now();
        Rc::new_cyclic(|me: &Weak<Link>| Link {
            id: w.fresh_id(),
            peer_node: peer.node,
            peer_incarnation: peer.incarnation,
            out: RefCell::new(OutQueue::new(w.pool.clone())),
            splice: RefCell::default(),
            decoder: RefCell::new(Decoder::new(Limits::default())),
            streams: RefCell::default(),
            last_stream: Cell::new(0),
            judge: RefCell::new(judge),
            pace: RefCell::new(Pace::new(conf.pace, now)),
            pressure: RefCell::default(),
            beats: RefCell::new(Beats::new(now)),
            control_budget: Cell::new((now, 0)),
            waiting: RefCell::default(),
            opening: RefCell::default(),
            close_by: Cell::new(Stamp::NEVER),
            timer: w.register(me.clone()),
            quantum: Cell::new(64 * 1024),
            stuck_since: Cell::new(None),
            want_beat: Cell::new(true),
            new_data: Cell::new(false),
            unsaid: Cell::new(Unsaid::No),
            unsaid_at: Cell::new(now),
            goaway: Cell::new(false),
            closing: Cell::new(false),
            half_closed: Cell::new(false),
            asked: Cell::new((0, Stamp::ZERO)),
            segments_at_doubt: Cell::new(u64::MAX),
            pressure_told: Cell::new(false),
            lost: RefCell::default(),
            waker: RefCell::default(),
            buffered: Cell::new(0),
            w,
            io: RefCell::new(io),
            side,
            conf,
        })
    }

    /// Drives the link until it ends. `first`: bytes read behind the handshake.
    pub async fn run(self: Rc<Self>, first: Vec<u8>) {
        let now = clock::now();
        if let Err(how) = self.take_bytes(&first, now) {
            self.close(how);
        }
        self.reschedule();
        let how = std::future::poll_fn(|cx| self.poll(cx)).await;
        self.w.forget(self.timer);
        self.end_streams(Ended::LinkLost);
        self.out.borrow_mut().clear();
        self.splice.borrow_mut().clear();
        if !how.is_orderly() {
            // Nothing we still owe may linger in the kernel of a link that is known to be broken.
            let _ = socket2::SockRef::from(&*self.io.borrow()).set_linger(Some(Duration::ZERO));
        }
        // Streams that are still being delivered keep the link; the peer shall know at once. It may know already.
        let _ = socket2::SockRef::from(&*self.io.borrow()).shutdown(std::net::Shutdown::Both);
        let now = clock::now();
        if let Some(j) = &mut *self.judge.borrow_mut() {
            j.tell_tap(Input::Ended { at: now, how: how.end() });
        }
        let side = self.side.clone();
        side.lost(&self, now, &how);
    }

    fn poll(self: &Rc<Self>, cx: &mut Context<'_>) -> Poll<Lost> {
        {
            let mut w = self.waker.borrow_mut();
            if !w.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
                *w = Some(cx.waker().clone());
            }
        }
        self.poll_read(cx);
        if self.lost.borrow().is_none() {
            self.poll_write(cx);
        }
        match self.lost.borrow().clone() {
            Some(how) => Poll::Ready(how),
            None => Poll::Pending,
        }
    }

    // === reading ===

    /// Reads until the socket is empty, at most a few times: other tasks have their turn too. Ends with the waker
    /// registered, or with the task woken.
    fn poll_read(self: &Rc<Self>, cx: &mut Context<'_>) {
        for _ in 0..4 {
            let got = match self.poll_move_in(cx) {
                Some(got) => got,
                None => self.poll_copy_in(cx),
            };
            match got {
                Poll::Pending => return,
                Poll::Ready(Ok(0)) => self.close(self.ended()),
                Poll::Ready(Ok(_)) => self.reschedule(),
                Poll::Ready(Err(e)) => self.close(io_lost(&e)),
            }
            if self.is_lost() {
                return;
            }
        }
        cx.waker().wake_by_ref();
    }

    /// What the peer's FIN means.
    fn ended(&self) -> Lost {
        // Who accepts is not told that a link of one stream has done its work: there is nothing else it could be for.
        let served = self.conf.one_stream && !self.conf.dialer && self.last_stream.get() > 0;
        if self.half_closed.get() || served && self.streams.borrow().is_empty() {
            return Lost::Done;
        }
        if self.goaway.get() { Lost::Goaway } else { Lost::Fin }
    }

    /// One read, decoded and passed on.
    fn poll_copy_in(self: &Rc<Self>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let w = self.w.clone();
        let mut scratch = w.scratch.borrow_mut();
        let most = self.read_most(scratch.len());
        let n = ready!(socket::poll_read(&self.io.borrow(), cx, &mut scratch[..most]))?;
        match self.take_bytes(&scratch[..n], clock::now()) {
            Ok(()) => self.note_read(n),
            Err(how) => self.close(how),
        }
        Poll::Ready(Ok(n))
    }

    /// Reads whatever the kernel holds, whether or not the runtime knows of it yet: judging needs the time *before*
    /// the last empty poll (detection.md gate 2).
    pub(super) fn drain_now(self: &Rc<Self>) {
        let w = self.w.clone();
        for _ in 0..16 {
            let Ok(mut scratch) = w.scratch.try_borrow_mut() else { return };
            let got =
                rustix::net::recv(&*self.io.borrow(), &mut scratch[..], rustix::net::RecvFlags::DONTWAIT);
            let n = match got {
                Ok((n, _)) => n,
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return,
                // The kernel tells an error once: the task would take what follows for a clean end.
                Err(e) => return self.close(io_lost(&e.into())),
            };
            if n == 0 {
                // The task sees the end itself; its readiness is still set.
                drop(scratch);
                return self.wake();
            }
            if let Err(how) = self.take_bytes(&scratch[..n], clock::now()) {
                return self.close(how);
            }
        }
    }

    /// The stream is over; what still arrives for it is discarded.
    pub(super) fn forget_stream(&self, id: u32) {
        let gone = self.streams.borrow_mut().remove(&id);
        self.pressure.borrow_mut().unblock(id);
        if self.splice.borrow_mut().abandon(id) {
            self.wake_waiting();
        }
        if gone.is_some() && self.streams.borrow().is_empty() {
            self.pace.borrow_mut().no_streams();
        }
    }

    /// No window grows while memory is short.
    pub(super) fn window_max(&self) -> u32 {
        if self.w.memory_is_short() { self.conf.initial_credit } else { self.conf.window_max }
    }

    /// False if memory for slow applications is used up.
    pub(super) fn may_buffer(&self, n: usize) -> bool {
        self.w.held.get() + n <= self.w.memory_max.get()
    }

    pub(super) fn buffer(&self, n: usize) {
        self.buffered.set(self.buffered.get() + n);
        self.w.held.set(self.w.held.get() + n);
    }

    pub(super) fn unbuffer(&self, n: usize) {
        self.buffered.set(self.buffered.get().saturating_sub(n));
        self.w.held.set(self.w.held.get().saturating_sub(n));
    }

    pub(super) fn count(&self, dir: Dir, kind: crate::wire::Kind, bytes: usize) {
        self.w.counters.frame(dir, kind.metric_index(), 1, bytes as u64);
    }

    pub(super) fn wake(&self) {
        if let Some(w) = &*self.waker.borrow() {
            w.wake_by_ref();
        }
    }
}

pub(super) fn io_lost(e: &io::Error) -> Lost {
    match e.kind() {
        io::ErrorKind::TimedOut => Lost::TimedOut,
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Lost::Rst,
        _ => Lost::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::LinkError;

    #[test]
    fn what_a_socket_says_is_counted_by_its_name() {
        for (kind, error) in [
            (io::ErrorKind::TimedOut, LinkError::Timeout),
            (io::ErrorKind::ConnectionReset, LinkError::Reset),
            (io::ErrorKind::BrokenPipe, LinkError::Reset),
            (io::ErrorKind::HostUnreachable, LinkError::Io),
        ] {
            assert_eq!(io_lost(&kind.into()).error(), Some(error), "{kind}");
        }
        assert_eq!((Lost::Done.error(), Lost::Goaway.error()), (None, None), "planned");
    }
}
