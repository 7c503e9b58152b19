//! From the send queue to the socket: batches, each ended by a beat (link.md rules 4 and 5).

use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;

use super::Lost;
use super::driver::{Link, io_lost};
use super::outq::MAX_SLICES;
use super::stream::Stream;
use crate::clock;
use crate::stamp::Stamp;
use crate::wire::{BEAT_WIRE_LEN, Frame, HEADER_LEN, Kind, ResetReason};
use crate::worker::pool::BLOCK;
use crate::worker::{Dir, Outlet};

/// Smallest and largest share of the path one stream may take at a time (link.md rule 4).
const QUANTUM: std::ops::RangeInclusive<usize> = 16 * 1024..=256 * 1024;
/// Control frames that wait for a peer that does not read, bytes. An honest one makes us say little while it is
/// stopped; what a peer may ask for at most must not become memory.
const CONTROL_MAX: usize = 4 << 20;
/// So much data does not wait for more.
const ENOUGH: usize = 16 * 1024;
/// A batch that takes longer than this to leave is too large for the path.
const BATCH_TIME: Duration = Duration::from_millis(5);

/// Data that was queued, and of which nobody was told who would write it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unsaid {
    No,
    Queued,
    /// The worker will flush it.
    Listed,
}

impl Outlet for Link {
    fn flush(self: Rc<Self>) {
        self.flush_now(None);
    }
}

impl Link {
    pub(super) fn poll_write(self: &Rc<Self>, cx: &mut Context<'_>) {
        while !self.write_out(None) {
            match self.io.borrow().poll_write_ready(cx) {
                Poll::Pending => return,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(e)) => return self.close(io_lost(&e)),
            }
        }
        self.close_politely();
    }

    /// Writes all there is; `now`: if the time is known. False if the socket takes no more.
    fn write_out(self: &Rc<Self>, mut now: Option<Stamp>) -> bool {
        while self.is_writing() || self.next_batch(now.take()) {
            match self.write_once() {
                Ok(true) => self.batch_left(),
                Ok(false) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.note_stuck();
                    return false;
                }
                Err(e) => {
                    // What the peer said before its end still counts.
                    self.drain_now();
                    self.close(io_lost(&e));
                    return true;
                }
            }
        }
        true
    }

    /// After a turn of a stream: what it queued leaves at once if nobody else has anything to add, or if it is much; else
    /// together with what the other streams say.
    pub(super) fn queued_some(self: &Rc<Self>) {
        if self.unsaid.get() == Unsaid::No {
            return;
        }
        self.w.note_queued();
        if self.streams.borrow().len() <= 1 || self.out.borrow().queued() >= ENOUGH {
            return self.flush_now(Some(self.unsaid_at.get()));
        }
        if self.unsaid.replace(Unsaid::Listed) != Unsaid::Listed {
            self.w.flush_later(self.clone());
        }
    }

    fn flush_now(self: &Rc<Self>, now: Option<Stamp>) {
        if self.unsaid.replace(Unsaid::No) != Unsaid::No && !self.is_lost() && !self.write_out(now) {
            self.wake();
        }
    }

    /// Ends our direction once all is written. The peer's end follows; a close before it could turn into a RST, and that
    /// takes away what the peer has not read yet.
    fn close_politely(&self) {
        if self.closing.get() && !self.half_closed.replace(true) {
            let _ = socket2::SockRef::from(&*self.io.borrow()).shutdown(std::net::Shutdown::Write);
        }
    }

    pub(super) fn is_writing(&self) -> bool {
        self.out.borrow().in_batch() || self.splice.borrow().is_moving()
    }

    fn write_once(&self) -> io::Result<bool> {
        let mut out = self.out.borrow_mut();
        if !out.in_batch() {
            return self.move_out();
        }
        let mut iov = [IoSlice::new(&[]); MAX_SLICES];
        let n = out.slices(&mut iov);
        let wrote = self.write_slices(&iov[..n])?;
        Ok(out.advance(wrote) && !self.splice.borrow_mut().head_written())
    }

    /// Everything that is ready, and the beat. False if there is nothing to write.
    fn next_batch(self: &Rc<Self>, now: Option<Stamp>) -> bool {
        let has_new = self.out.borrow().has_new() || self.splice.borrow().is_filled();
        if self.half_closed.get() || !has_new && !self.want_beat.get() {
            return false;
        }
        let now = now.unwrap_or_else(clock::now);
        let beat = self.make_beat(now, self.new_data.replace(false)).encode();
        self.count(Dir::Out, Kind::Beat, beat.len());
        self.want_beat.set(false);
        let mut out = self.out.borrow_mut();
        match self.splice.borrow_mut().head() {
            // A payload in a pipe was there before what is queued now.
            Some(head) => {
                let mut trailer = [0; BEAT_WIRE_LEN + HEADER_LEN];
                trailer[..BEAT_WIRE_LEN].copy_from_slice(&beat);
                trailer[BEAT_WIRE_LEN..].copy_from_slice(&head);
                out.start_batch(0, &trailer);
            }
            None => out.start_batch(self.quantum.get(), &beat),
        }
        drop(out);
        self.reschedule();
        true
    }

    fn note_stuck(&self) {
        let now = clock::now();
        match self.stuck_since.get() {
            None => self.stuck_since.set(Some(now)),
            Some(t) if now.since(t) > BATCH_TIME => {
                self.quantum.set((self.quantum.get() / 2).max(*QUANTUM.start()));
                self.stuck_since.set(Some(now));
            }
            Some(_) => {}
        }
    }

    fn batch_left(&self) {
        if self.stuck_since.take().is_none_or(|t| clock::now().since(t) < BATCH_TIME) {
            self.quantum.set((self.quantum.get() * 2).min(*QUANTUM.end()));
        }
        self.wake_waiting();
    }

    // === what streams ask ===

    /// How much one stream may take before the others have their turn.
    pub(super) fn quantum(&self) -> usize {
        self.quantum.get()
    }

    /// True if the stream may queue data now; else it is woken when there is room.
    pub(super) fn has_room(&self, stream: &Rc<Stream>) -> bool {
        // Where memory is short each link still has a batch under way.
        let most = if self.w.memory_is_short() { BLOCK } else { self.conf.queue_max };
        let room = self.out.borrow().pending() < most;
        if !room && !stream.waiting.get() {
            self.wait(stream);
            self.pressure.borrow_mut().full(clock::now());
            self.reschedule();
        }
        room
    }

    /// Wakes the stream when a batch has left.
    pub(super) fn wait(&self, stream: &Rc<Stream>) {
        if !stream.waiting.replace(true) {
            self.waiting.borrow_mut().push_back(stream.clone());
        }
    }

    pub(super) fn wake_waiting(&self) {
        let low = self.conf.queue_max / 2;
        let mut pending = self.out.borrow().pending();
        while pending < low {
            let Some(s) = self.waiting.borrow_mut().pop_front() else { return };
            s.has_room_now();
            pending += self.quantum.get();
        }
    }

    /// A stream has data but no credit since `since`.
    pub(super) fn blocked(&self, stream: u32, since: Stamp) {
        self.pressure.borrow_mut().block(stream, since);
        self.reschedule();
    }

    /// Data was queued. It leaves with the next batch, at the latest the one of [`Link::queued_some`].
    pub(super) fn sent_data(&self, now: Stamp, n: usize) {
        self.count(Dir::Out, Kind::Data, n + HEADER_LEN);
        let sent = &self.w.counters.payload[Dir::Out as usize];
        sent.set(sent.get() + n as u64);
        self.pace.borrow_mut().bytes(now, self.conf.dialer);
        self.side.used(self.id, now);
        self.new_data.set(true);
        self.unsaid_at.set(now);
        if self.unsaid.get() == Unsaid::No {
            self.unsaid.set(Unsaid::Queued);
        }
    }

    /// A control frame: leaves before data.
    pub(super) fn send_control(&self, frame: &Frame) {
        if self.is_lost() {
            return;
        }
        let mut out = self.out.borrow_mut();
        let before = out.control().len();
        frame.encode(out.control());
        let n = out.control().len() - before;
        drop(out);
        if before + n > CONTROL_MAX {
            return self.close(Lost::Limit("reads_nothing"));
        }
        self.count(Dir::Out, frame.kind(), n);
        self.wake();
    }

    /// A frame that keeps its order with the stream's data.
    pub(super) fn send_ordered(&self, frame: &Frame) {
        if self.is_lost() {
            return;
        }
        if self.out.borrow().pending() > self.conf.queue_max + CONTROL_MAX {
            return self.close(Lost::Limit("reads_nothing"));
        }
        let mut buf = BytesMut::with_capacity(64);
        frame.encode(&mut buf);
        self.count(Dir::Out, frame.kind(), buf.len());
        self.out.borrow_mut().append(&buf);
        self.wake();
    }

    /// Tells the peer that the stream is over.
    pub(super) fn reset_stream(&self, stream: &Stream, reason: ResetReason) {
        if self.streams.borrow().contains_key(&stream.id) {
            self.send_ordered(&Frame::Reset { stream: stream.id, reason });
        }
        self.forget_stream(stream.id);
    }
}
