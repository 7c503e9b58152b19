//! Towards the application: DATA of the link to its socket, and what waits where it takes no more.

use std::collections::VecDeque;
use std::io;
use std::net::Shutdown;
use std::task::{Context, Poll};

use bytes::BytesMut;
use socket2::SockRef;
use tokio::net::TcpStream;

use super::socket;
use super::splice::Chunk;
use super::stream::{Ended, Flow, Stream};
use crate::clock;
use crate::stamp::Stamp;
use crate::wire::{Frame, ResetReason};

/// Least memory of a piece that waits for the application: DATA of single bytes must not cost an allocation each.
const PIECE: usize = 4 * 1024;

impl Stream {
    /// Bytes of a DATA frame. Written at once where nothing waits; the rest is kept under the window.
    pub(super) fn deliver(&self, bytes: &[u8], now: Stamp) {
        let mut flow = self.flow.borrow_mut();
        if flow.speaks_out_of_turn() || !flow.window.arrived(bytes.len()) {
            drop(flow);
            return self.broke_rule();
        }
        if flow.deaf {
            return;
        }
        let mut rest = bytes;
        if flow.pending.is_empty()
            && let Some(io) = &*self.io.borrow()
        {
            match socket::write(io, rest) {
                Ok(n) => {
                    self.drained(&mut flow, n, now, n == rest.len());
                    rest = &rest[n..];
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => {
                    drop(flow);
                    return self.write_failed(now);
                }
            }
        }
        if !rest.is_empty() {
            if !self.link.may_buffer(rest.len()) {
                drop(flow);
                self.link.reset_stream(self, ResetReason::Limit);
                return self.end(Ended::Limit);
            }
            keep(&mut flow.pending, rest);
            flow.pending_len += rest.len();
            self.link.buffer(rest.len());
            drop(flow);
            self.wake();
        }
    }

    fn broke_rule(&self) {
        self.link.reset_stream(self, ResetReason::Protocol);
        self.end(Ended::Protocol);
    }

    /// `n` bytes of a DATA frame are in a pipe, the last of what is pending.
    pub(super) fn pulled(&self, n: usize, now: Stamp) {
        let mut flow = self.flow.borrow_mut();
        flow.pending_len += n;
        self.link.buffer(n);
        if flow.speaks_out_of_turn() || !flow.window.arrived(n) {
            drop(flow);
            return self.broke_rule();
        }
        if flow.deaf {
            return self.drop_pending(&mut flow);
        }
        let io = self.io.borrow();
        let Some(app) = &*io else { return };
        let written = self.write_pending(&mut flow, app, now);
        let rest = !flow.pending.is_empty();
        drop((flow, io));
        if written.is_err() {
            self.write_failed(now);
        } else if rest {
            self.wake();
        }
    }

    /// The application's socket takes no more. It may have answered before: that is read first.
    fn write_failed(&self, now: Stamp) {
        let mut flow = self.flow.borrow_mut();
        if flow.fin_out {
            drop(flow);
            return self.app_failed(now);
        }
        flow.deaf = true;
        self.drop_pending(&mut flow);
        drop(flow);
        self.wake();
    }

    /// The peer will send no more.
    pub(super) fn fin(&self) {
        let mut flow = self.flow.borrow_mut();
        if !flow.opened {
            drop(flow);
            return self.broke_rule();
        }
        flow.fin_in = true;
        if flow.pending.is_empty() && self.io.borrow().is_some() {
            self.shut(&mut flow);
        }
        drop(flow);
        self.wake();
    }

    fn shut(&self, flow: &mut Flow) {
        flow.fin_delivered = true;
        if let Some(io) = &*self.io.borrow() {
            // Not connected any more: the read side will say so.
            let _ = SockRef::from(io).shutdown(Shutdown::Write);
        }
    }

    fn drained(&self, flow: &mut Flow, n: usize, now: Stamp, keeps_up: bool) {
        if let Some(m) = &*self.meter.borrow() {
            m.taken(now, n);
        }
        let max = self.link.window_max();
        if let Some(bytes) = flow.window.drained(n, now, self.link.rtt(), max, keeps_up) {
            self.link.send_control(&Frame::Credit { stream: self.id, bytes });
        }
    }

    pub(super) fn poll_to_app(&self, cx: &mut Context<'_>) {
        loop {
            let mut flow = self.flow.borrow_mut();
            if flow.pending.is_empty() {
                if flow.fin_in && !flow.fin_delivered {
                    self.shut(&mut flow);
                }
                return;
            }
            let io = self.io.borrow();
            let Some(io) = &*io else { return };
            let ready = match io.poll_write_ready(cx) {
                Poll::Pending => return,
                Poll::Ready(ready) => ready,
            };
            let now = clock::now();
            if ready.and_then(|()| self.write_pending(&mut flow, io, now)).is_err() {
                drop(flow);
                return self.write_failed(now);
            }
        }
    }

    /// Writes until nothing is pending or the application takes no more.
    fn write_pending(&self, flow: &mut Flow, io: &TcpStream, now: Stamp) -> io::Result<()> {
        while let Some(front) = flow.pending.front_mut() {
            let n = match front.write(io) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                other => other?,
            };
            if front.is_empty() {
                flow.pending.pop_front();
            }
            flow.pending_len -= n;
            self.link.unbuffer(n);
            self.drained(flow, n, now, flow.pending.is_empty());
        }
        Ok(())
    }
}

impl Flow {
    /// Nothing may come behind FIN; nor before OPENED: the connection may still go to another endpoint, and must not
    /// begin with bytes of this one.
    fn speaks_out_of_turn(&self) -> bool {
        self.fin_in || !self.opened
    }
}

/// Keeps bytes behind those that wait; small ones share their memory.
fn keep(pending: &mut VecDeque<Chunk>, bytes: &[u8]) {
    match pending.back_mut() {
        Some(Chunk::Copied(last)) if last.capacity() - last.len() >= bytes.len() => {
            last.extend_from_slice(bytes);
        }
        _ => {
            let mut piece = BytesMut::with_capacity(bytes.len().max(PIECE));
            piece.extend_from_slice(bytes);
            pending.push_back(Chunk::Copied(piece));
        }
    }
}
