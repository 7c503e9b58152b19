//! Bulk data on a link of one stream: payloads pass through kernel pipes and are never copied (link.md rule 2).
//!
//! Out: application socket to pipe, so that the length is known; then, when it is the frame's turn, control frames, a
//! beat and the DATA header with MSG_MORE, and the pipe to the link. In: a read that ends with a DATA header, then
//! exactly its payload to a pipe, and the pipe to the application. What is in a pipe is ordered like copied bytes.

use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::bulk::Bulk;
use super::stream::Stream;
use super::{Link, socket};
use crate::clock;
use crate::wire::{BEAT_WIRE_LEN, HEADER_LEN, data_header};
use crate::worker::pipes::Pipe;

/// A beat and a DATA header: what a peer that splices sends in front of each payload.
const HEAD: usize = BEAT_WIRE_LEN + HEADER_LEN;
/// The rest of a payload is copied if it is shorter than this.
const WORTH: u32 = 8 * 1024;

/// The state of a link's bulk data.
#[derive(Default)]
pub(super) struct Splicing {
    incoming: Bulk,
    out: Option<Outgoing>,
}

/// The one DATA frame on its way out whose payload is in a pipe.
struct Outgoing {
    pipe: Pipe,
    stream: u32,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// No byte of the frame was written.
    Filled,
    /// The header is in the batch that is being written.
    Headed,
    /// The header is written: nothing but the payload may follow.
    Moving,
}

/// Bytes on their way to an application.
pub(super) enum Chunk {
    Copied(BytesMut),
    Piped(Pipe),
}

impl Chunk {
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Chunk::Copied(b) => b.is_empty(),
            Chunk::Piped(p) => p.is_empty(),
        }
    }

    pub(super) fn write(&mut self, io: &TcpStream) -> io::Result<usize> {
        match self {
            Chunk::Copied(b) => socket::write(io, b).inspect(|n| b.advance(*n)),
            Chunk::Piped(p) => io.try_io(Interest::WRITABLE, || p.drain(io)),
        }
    }
}

// === towards the link ===

impl Splicing {
    /// Payload that waits or is being written, bytes.
    pub(super) fn pending(&self) -> usize {
        self.out.as_ref().map_or(0, |o| o.pipe.len())
    }

    fn stage(&self) -> Option<Stage> {
        self.out.as_ref().map(|o| o.stage)
    }

    /// True if a frame is ready and none of it is written.
    pub(super) fn is_filled(&self) -> bool {
        self.stage() == Some(Stage::Filled)
    }

    /// True if the header of the frame is written and payload is not.
    pub(super) fn is_moving(&self) -> bool {
        self.stage() == Some(Stage::Moving)
    }

    /// True if the batch that is being written ends with the frame's header.
    pub(super) fn is_headed(&self) -> bool {
        self.stage() == Some(Stage::Headed)
    }

    /// The header of the frame that is ready, if one is: the end of the batch that is being made.
    pub(super) fn head(&mut self) -> Option<[u8; HEADER_LEN]> {
        let out = self.out.as_mut().filter(|o| o.stage == Stage::Filled)?;
        let len = u32::try_from(out.pipe.len()).unwrap_or(0);
        out.stage = Stage::Headed;
        Some(data_header(out.stream, len))
    }

    /// A batch is written. True if the frame's header was the end of it: its payload is next.
    pub(super) fn head_written(&mut self) -> bool {
        let Some(out) = self.out.as_mut().filter(|o| o.stage == Stage::Headed) else { return false };
        out.stage = Stage::Moving;
        true
    }

    /// The stream is over: a frame that has not begun is dropped, and true given; one that has is finished.
    pub(super) fn abandon(&mut self, stream: u32) -> bool {
        let idle = self.out.as_ref().is_some_and(|o| o.stream == stream && o.stage == Stage::Filled);
        if idle {
            self.out = None;
        }
        idle
    }

    /// Nothing will be written any more.
    pub(super) fn clear(&mut self) {
        self.out = None;
    }
}

impl Link {
    /// Moves payload to the socket. True if that was all of it.
    pub(super) fn move_out(&self) -> io::Result<bool> {
        let mut splice = self.splice.borrow_mut();
        let Some(out) = &mut splice.out else { return Ok(true) };
        let io = self.io.borrow();
        io.try_io(Interest::WRITABLE, || out.pipe.drain(&*io))?;
        if !out.pipe.is_empty() {
            return Ok(false);
        }
        splice.out = None;
        Ok(true)
    }

    /// Writes the batch; payload follows if the frame in the pipe is headed.
    pub(super) fn write_slices(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if !self.splice.borrow().is_headed() {
            let io = self.io.borrow();
            return if let [one] = slices { socket::write(&io, one) } else { io.try_write_vectored(slices) };
        }
        let flags = SendFlags::MORE | SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let io = self.io.borrow();
        io.try_io(Interest::WRITABLE, || {
            Ok(sendmsg(&*io, slices, &mut SendAncillaryBuffer::default(), flags)?)
        })
    }

    /// True if the stream may fill a pipe now; else it is woken when it may. Copied data goes first.
    fn may_fill(&self, stream: &Rc<Stream>) -> bool {
        let free = self.splice.borrow().out.is_none() && self.out.borrow().queued() == 0;
        if !free {
            self.wait(stream);
        }
        free
    }
}

impl Stream {
    /// Like a read of up to `want` bytes and their DATA frame. None if they are to be copied.
    pub(super) fn poll_splice_once(
        self: &Rc<Self>,
        cx: &mut Context<'_>,
        want: usize,
    ) -> Option<Poll<io::Result<usize>>> {
        {
            let flow = self.flow.borrow();
            if !flow.opened || !flow.outgoing.is_on() {
                return None;
            }
        }
        let io = self.io.borrow();
        let io = io.as_ref()?;
        loop {
            match io.poll_read_ready(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(e)) => return Some(Poll::Ready(Err(e))),
                Poll::Pending => return Some(Poll::Pending),
            }
            if !self.link.may_fill(self) {
                return Some(Poll::Pending);
            }
            let Some(mut pipe) = self.link.w.pipes.take() else {
                self.flow.borrow_mut().outgoing.refuse();
                return None;
            };
            match io.try_io(Interest::READABLE, || pipe.fill(io, want)) {
                Ok(n) if n > 0 => {
                    let out = Outgoing { pipe, stream: self.id, stage: Stage::Filled };
                    self.link.splice.borrow_mut().out = Some(out);
                    self.took(n);
                    return Some(Poll::Ready(Ok(n)));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                other => return Some(Poll::Ready(other)),
            }
        }
    }
}

// === from the link ===

impl Link {
    /// Most bytes of the next read: up to the next payload where that is to be moved.
    pub(super) fn read_most(&self, room: usize) -> usize {
        if !self.splice.borrow().incoming.is_on() {
            return room;
        }
        let left = self.decoder.borrow().data_remaining().map_or(0, |(_, left)| left as usize);
        (left + HEAD).min(room)
    }

    /// `n` bytes were read.
    pub(super) fn note_read(&self, n: usize) {
        if !self.conf.one_stream {
            return;
        }
        let incoming = &mut self.splice.borrow_mut().incoming;
        let ahead = self.decoder.borrow().data_remaining().map_or(0, |(_, left)| left as usize);
        let piece = if incoming.is_on() { n + ahead } else { n };
        incoming.piece(piece, usize::MAX);
    }

    /// As [`Link::move_in`]; the waker is registered where the socket is empty.
    pub(super) fn poll_move_in(self: &Rc<Self>, cx: &mut Context<'_>) -> Option<Poll<io::Result<usize>>> {
        loop {
            match self.move_in()? {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                other => return Some(Poll::Ready(other)),
            }
            match self.io.borrow().poll_read_ready(cx) {
                Poll::Pending => return Some(Poll::Pending),
                Poll::Ready(Err(e)) => return Some(Poll::Ready(Err(e))),
                Poll::Ready(Ok(())) => {}
            }
        }
    }

    /// Moves payload from the socket towards its application. None if the next bytes are to be read; else as a read:
    /// bytes, or 0 at the end.
    fn move_in(self: &Rc<Self>) -> Option<io::Result<usize>> {
        if !self.splice.borrow().incoming.is_on() {
            return None;
        }
        let (id, left) = self.decoder.borrow().data_remaining()?;
        // Where memory is used up, copying decides what that means.
        if left < WORTH || !self.may_buffer(left as usize) {
            return None;
        }
        let stream = self.streams.borrow().get(&id).cloned()?;
        let got = stream.pull(&self.io.borrow(), left as usize)?;
        if let Ok(n @ 1..) = got {
            let now = clock::now();
            self.decoder.borrow_mut().skip_data(u32::try_from(n).unwrap_or(left));
            self.heard(now);
            stream.pulled(n, now);
            self.got_data(n as u64, 0, now);
            self.settle(now);
        }
        Some(got)
    }
}

impl Stream {
    /// Moves up to `most` bytes from the link into a pipe, behind what waits already. None if there is no pipe or no
    /// application yet.
    fn pull(&self, link: &TcpStream, most: usize) -> Option<io::Result<usize>> {
        self.io.borrow().as_ref()?;
        let mut flow = self.flow.borrow_mut();
        if let Some(Chunk::Piped(last)) = flow.pending.back_mut() {
            match last.fill(link, most) {
                // This pipe may be full: only an empty one tells of the socket.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                other => return Some(other),
            }
        }
        let mut pipe = self.link.w.pipes.take()?;
        let got = link.try_io(Interest::READABLE, || pipe.fill(link, most));
        if !pipe.is_empty() {
            flow.pending.push_back(Chunk::Piped(pipe));
        }
        Some(got)
    }
}
