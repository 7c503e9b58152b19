//! One application connection on a link: bytes from the socket to frames, under credit, and back.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use socket2::SockRef;
use tokio::io::ReadBuf;
use tokio::net::TcpStream;

use super::bulk::Bulk;
use super::credit::{RecvWindow, SendCredit};
use super::splice::Chunk;
use super::{Link, Meter, socket};
use crate::clock;
use crate::stamp::Stamp;
use crate::wire::{Frame, ResetReason};

/// First bytes of a stream kept until the service accepted, so that they can go to another endpoint instead.
const REPLAY_MAX: usize = 64 * 1024;

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// FIN both ways, every byte delivered.
    Done,
    /// The local application reset it.
    AppReset,
    /// The peer reset it.
    PeerReset,
    /// The service did not accept: errno.
    OpenFailed(u16),
    /// The link ended under it.
    LinkLost,
    /// The endpoint was taken out.
    Cut,
    /// The peer broke the rules of the stream.
    Protocol,
    /// Memory for those who do not read is used up.
    Limit,
}

/// See the module.
pub struct Stream {
    /// Id on the link.
    pub id: u32,
    pub(super) link: Rc<Link>,
    pub(super) io: RefCell<Option<TcpStream>>,
    pub(super) flow: RefCell<Flow>,
    pub(super) meter: RefCell<Option<Box<dyn Meter>>>,
    waker: RefCell<Option<Waker>>,
    /// In the link's queue for room.
    pub(super) waiting: Cell<bool>,
    ended: Cell<Option<Ended>>,
}

pub(super) struct Flow {
    credit: SendCredit,
    pub(super) window: RecvWindow,
    pub(super) pending: VecDeque<Chunk>,
    pub(super) pending_len: usize,
    /// Read before the stream existed, and not sent yet.
    unsent: Bytes,
    /// The application takes no more; what it said before that is still to be read.
    pub(super) deaf: bool,
    pub(super) fin_in: bool,
    pub(super) fin_delivered: bool,
    pub(super) fin_out: bool,
    pub(super) opened: bool,
    replay: Option<Vec<u8>>,
    pub(super) outgoing: Bulk,
}

impl Stream {
    pub(super) fn new(
        id: u32,
        link: Rc<Link>,
        io: Option<TcpStream>,
        dialer: bool,
        now: Stamp,
    ) -> Rc<Stream> {
        let initial = link.conf.initial_credit;
        let flow = Flow {
            credit: SendCredit::new(link.conf.peer_credit),
            window: RecvWindow::new(initial, now),
            pending: VecDeque::new(),
            pending_len: 0,
            unsent: Bytes::new(),
            deaf: false,
            fin_in: false,
            fin_delivered: false,
            fin_out: false,
            opened: !dialer,
            replay: dialer.then(Vec::new),
            outgoing: Bulk::default(),
        };
        Rc::new(Stream {
            id,
            link,
            io: RefCell::new(io),
            flow: RefCell::new(flow),
            meter: RefCell::default(),
            waker: RefCell::default(),
            waiting: Cell::new(false),
            ended: Cell::new(None),
        })
    }

    /// Who watches the application connection.
    pub fn set_meter(&self, meter: Box<dyn Meter>) {
        *self.meter.borrow_mut() = Some(meter);
    }

    /// The service accepted (acceptor's side): from here on bytes flow.
    pub fn attach(&self, io: TcpStream) {
        *self.io.borrow_mut() = Some(io);
        self.link.send_control(&Frame::Opened { stream: self.id });
        self.wake();
    }

    /// The service did not accept (acceptor's side).
    pub fn refuse(&self, errno: u16, text: &str) {
        self.link.send_control(&Frame::OpenFailed { stream: self.id, errno, text: text.to_owned() });
        self.end(Ended::OpenFailed(errno));
        self.link.forget_stream(self.id);
    }

    /// The application's socket and the bytes that never reached a service, after `OpenFailed` or a link that was
    /// lost before the service accepted. None if bytes may have reached one.
    pub fn take_back(&self) -> Option<(TcpStream, Vec<u8>)> {
        let mut flow = self.flow.borrow_mut();
        if flow.opened {
            return None;
        }
        let first = flow.replay.take()?;
        let io = self.io.borrow_mut().take()?;
        Some((io, first))
    }

    pub(super) fn wake(&self) {
        if let Some(w) = &*self.waker.borrow() {
            w.wake_by_ref();
        }
    }

    /// Runs the stream until it ends; the link forgets it then. Cancel safe: dropping it resets the stream.
    pub async fn run(self: Rc<Self>) -> Ended {
        let guard = Abandon(&self);
        let ended = std::future::poll_fn(|cx| {
            let ended = self.poll(cx);
            self.link.queued_some();
            ended
        })
        .await;
        std::mem::forget(guard);
        self.finish(ended);
        ended
    }

    fn finish(&self, ended: Ended) {
        self.link.forget_stream(self.id);
        let mut flow = self.flow.borrow_mut();
        self.drop_pending(&mut flow);
        let retry =
            matches!(ended, Ended::OpenFailed(_) | Ended::LinkLost) && !flow.opened && flow.replay.is_some();
        if ended != Ended::Done && !retry {
            self.reset_app();
        }
    }

    pub(super) fn drop_pending(&self, flow: &mut Flow) {
        self.link.unbuffer(flow.pending_len);
        flow.pending.clear();
        flow.pending_len = 0;
    }

    /// RST instead of FIN when the socket is dropped.
    fn reset_app(&self) {
        if let Some(io) = self.io.borrow_mut().take() {
            // A socket that cannot be told is already gone.
            let _ = SockRef::from(&io).set_linger(Some(Duration::ZERO));
        }
    }

    fn poll(self: &Rc<Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        if let Some(e) = self.ended.get() {
            return Poll::Ready(e);
        }
        {
            let mut w = self.waker.borrow_mut();
            if !w.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
                *w = Some(cx.waker().clone());
            }
        }
        if self.io.borrow().is_none() {
            return Poll::Pending;
        }
        self.poll_to_app(cx);
        self.poll_from_app(cx);
        if let Some(e) = self.ended.get() {
            return Poll::Ready(e);
        }
        let flow = self.flow.borrow();
        if flow.fin_out && flow.fin_delivered { Poll::Ready(Ended::Done) } else { Poll::Pending }
    }

    // === from the application ===

    fn poll_from_app(self: &Rc<Self>, cx: &mut Context<'_>) {
        let mut taken = 0;
        let quantum = self.link.quantum();
        loop {
            if self.ended.get().is_some() || self.flow.borrow().fin_out {
                return;
            }
            if !self.link.has_room(self) {
                return;
            }
            let credit = self.flow.borrow().credit.left();
            if credit == 0 {
                return self.wait_for_credit(cx);
            }
            if taken >= quantum {
                // Others get their turn first.
                cx.waker().wake_by_ref();
                return;
            }
            if !self.flow.borrow().unsent.is_empty() {
                self.send_unsent(clock::now());
                continue;
            }
            let want = credit.min(quantum - taken);
            match self.poll_take_once(cx, want) {
                Poll::Pending => return,
                Poll::Ready(Ok(0)) if self.flow.borrow().deaf => return self.app_failed(clock::now()),
                Poll::Ready(Ok(0)) => return self.app_fin(),
                Poll::Ready(Ok(n)) => taken += n,
                Poll::Ready(Err(_)) => return self.app_failed(clock::now()),
            }
        }
    }

    fn poll_take_once(self: &Rc<Self>, cx: &mut Context<'_>, want: usize) -> Poll<io::Result<usize>> {
        let got = self.poll_splice_once(cx, want).unwrap_or_else(|| self.poll_read_once(cx, want));
        if let Poll::Ready(Ok(n)) = got
            && self.link.conf.one_stream
        {
            self.flow.borrow_mut().outgoing.piece(n, want);
        }
        got
    }

    /// Only data needs credit: an end does not, and nothing to send is no backpressure.
    fn wait_for_credit(&self, cx: &mut Context<'_>) {
        let unsent = !self.flow.borrow().unsent.is_empty();
        match if unsent { Poll::Ready(Ok(1)) } else { self.poll_peek(cx) } {
            Poll::Pending => {}
            Poll::Ready(Ok(0)) if self.flow.borrow().deaf => self.app_failed(clock::now()),
            Poll::Ready(Ok(0)) => self.app_fin(),
            Poll::Ready(Ok(_)) => {
                let since = self.flow.borrow_mut().credit.block(clock::now());
                self.link.blocked(self.id, since);
            }
            Poll::Ready(Err(_)) => self.app_failed(clock::now()),
        }
    }

    fn poll_peek(&self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut io = self.io.borrow_mut();
        let Some(io) = io.as_mut() else { return Poll::Pending };
        let mut one = [0];
        io.poll_peek(cx, &mut ReadBuf::new(&mut one))
    }

    /// A blocked stream is not read, so the reset of its application must be asked for. Called now and then.
    pub(super) fn look_at_app(&self, now: Stamp) {
        let failed = self.io.borrow().as_ref().is_some_and(|io| !matches!(io.take_error(), Ok(None)));
        if failed {
            self.app_failed(now);
        }
    }

    fn poll_read_once(&self, cx: &mut Context<'_>, want: usize) -> Poll<io::Result<usize>> {
        let io = self.io.borrow();
        let Some(io) = &*io else { return Poll::Pending };
        // Nothing to read: take no buffer.
        let mut out = self.link.out.borrow_mut();
        let (room, n) = loop {
            ready!(io.poll_read_ready(cx))?;
            let room = out.room(want);
            match socket::read_ready(io, room) {
                Ok(0) => return Poll::Ready(Ok(0)),
                Ok(n) => break (room, n),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        };
        let mut flow = self.flow.borrow_mut();
        if !flow.opened {
            let read = &room[..n];
            let fits = flow.replay.as_ref().is_some_and(|r| r.len() + n <= REPLAY_MAX);
            match &mut flow.replay {
                Some(replay) if fits => replay.extend_from_slice(read),
                other => *other = None,
            }
        }
        out.commit_data(self.id, n);
        drop((out, flow));
        self.took(n);
        Poll::Ready(Ok(n))
    }

    /// `n` bytes of the application are in a DATA frame.
    pub(super) fn took(&self, n: usize) {
        self.flow.borrow_mut().credit.spend(n);
        let now = clock::now();
        self.link.sent_data(now, n);
        if let Some(m) = &*self.meter.borrow() {
            m.sent(now, n);
        }
    }

    /// Sends bytes that were read before this stream existed (a retry on another endpoint).
    pub(super) fn send_first(&self, first: &[u8], now: Stamp) {
        let mut flow = self.flow.borrow_mut();
        if let Some(r) = &mut flow.replay {
            r.extend_from_slice(first);
        }
        flow.unsent = Bytes::copy_from_slice(first);
        drop(flow);
        self.send_unsent(now);
    }

    /// As much of them as there is credit for: another endpoint may give less than the first one did.
    fn send_unsent(&self, now: Stamp) {
        let mut flow = self.flow.borrow_mut();
        let n = flow.unsent.len().min(flow.credit.left());
        if n == 0 {
            return;
        }
        let part = flow.unsent.split_to(n);
        flow.credit.spend(n);
        drop(flow);
        self.link.out.borrow_mut().append_data(self.id, &part);
        self.link.sent_data(now, n);
    }

    fn app_fin(&self) {
        self.flow.borrow_mut().fin_out = true;
        if let Some(m) = &*self.meter.borrow() {
            m.ended(clock::now(), false);
        }
        self.link.send_ordered(&Frame::Fin { stream: self.id });
    }

    pub(super) fn app_failed(&self, now: Stamp) {
        if self.ended.get().is_some() {
            return;
        }
        if let Some(m) = &*self.meter.borrow() {
            m.ended(now, true);
        }
        self.link.reset_stream(self, ResetReason::Rst);
        self.end(Ended::AppReset);
    }

    // === events of the link ===

    pub(super) fn opened(&self) {
        let mut flow = self.flow.borrow_mut();
        flow.opened = true;
        flow.replay = None;
    }

    pub(super) fn granted(&self, bytes: u32) -> bool {
        let ok = self.flow.borrow_mut().credit.grant(bytes);
        self.wake();
        ok
    }

    /// The service has not accepted yet.
    pub(super) fn is_opening(&self) -> bool {
        !self.flow.borrow().opened && self.ended.get().is_none()
    }

    /// The service did not answer in time: the connection may go elsewhere. Nothing happens once it accepted.
    pub(super) fn expire(&self) {
        if self.is_opening() {
            self.link.reset_stream(self, ResetReason::Limit);
            self.end(Ended::OpenFailed(ETIMEDOUT));
        }
    }

    /// Both sides have said all; only delivery is left, and that needs no link.
    pub(super) fn all_said(&self) -> bool {
        let flow = self.flow.borrow();
        flow.fin_in && flow.fin_out
    }

    /// Waits until the stream is over. For the time before [`Stream::run`] only.
    pub async fn over(&self) {
        std::future::poll_fn(|cx| {
            if self.ended.get().is_some() {
                return Poll::Ready(());
            }
            *self.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Ends the stream with `why`; its task cleans up.
    pub(super) fn end(&self, why: Ended) {
        if self.ended.get().is_none() {
            self.ended.set(Some(why));
            self.wake();
        }
    }

    pub(super) fn has_room_now(&self) {
        self.waiting.set(false);
        self.wake();
    }
}

/// errno of "connection timed out".
const ETIMEDOUT: u16 = 110;

/// A stream whose task was dropped is reset, so that the peer does not wait for it.
struct Abandon<'a>(&'a Rc<Stream>);

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        let s = self.0;
        s.link.reset_stream(s, ResetReason::Shutdown);
        s.finish(Ended::Cut);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // A stream that was refused never ran.
        self.link.unbuffer(self.flow.borrow().pending_len);
    }
}
