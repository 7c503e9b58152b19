//! What the owner of a link may ask of it.

use std::rc::Rc;
use std::time::Duration;

use tokio::net::TcpStream;

use super::stream::{Ended, Stream};
use super::{Link, Lost};
use crate::clock;
use crate::detector::LinkJudge;
use crate::stamp::Stamp;
use crate::wire::{Frame, ResetReason};

impl Link {
    /// Opens a stream for an application connection; the service has to accept it `within` that time. `first`: bytes
    /// already read from it. Gives the socket back if the link takes no more streams.
    pub fn open(
        self: &Rc<Self>,
        service: &str,
        io: TcpStream,
        first: &[u8],
        within: Duration,
    ) -> Result<Rc<Stream>, TcpStream> {
        if !self.takes_streams() {
            return Err(io);
        }
        let id = self.last_stream.get() + 1;
        self.last_stream.set(id);
        let now = clock::now();
        let stream = Stream::new(id, self.clone(), Some(io), true, now);
        self.streams.borrow_mut().insert(id, stream.clone());
        self.await_opened(&stream, now + within);
        self.send_ordered(&Frame::Open { stream: id, service: service.to_owned() });
        if !first.is_empty() {
            stream.send_first(first, now);
        }
        Ok(stream)
    }

    /// True if another stream can be opened: there is room, and a number that was never used.
    pub fn takes_streams(&self) -> bool {
        let room = self.streams.borrow().len() < self.conf.streams_max && self.last_stream.get() < u32::MAX;
        room && !self.is_lost()
    }

    /// A beat leaves now (a vouch changed, healing is watched).
    pub fn beat_now(&self) {
        self.want_beat.set(true);
        self.wake();
    }

    /// Announces a pause to the peer.
    pub fn announce(&self, frame: &Frame) {
        self.send_control(frame);
    }

    /// Planned end: the peer opens no more, what is open goes on.
    pub fn go_away(&self, deadline: Duration) {
        self.goaway.set(true);
        let ms = u32::try_from(deadline.as_millis()).unwrap_or(u32::MAX);
        self.send_control(&Frame::Goaway { deadline_ms: ms });
    }

    /// Ends all streams with RST towards the applications. Where the link stays, as a witness, the peer is told: its
    /// halves of the streams must not outlive a mistake.
    pub fn end_streams(&self, why: Ended) {
        let all: Vec<_> = self.streams.borrow_mut().drain().map(|(_, s)| s).collect();
        for s in all {
            self.splice.borrow_mut().abandon(s.id);
            self.send_ordered(&Frame::Reset { stream: s.id, reason: ResetReason::Rst });
            if why != Ended::LinkLost || !s.all_said() {
                s.end(why);
            }
        }
        self.waiting.borrow_mut().clear();
        self.pressure.borrow_mut().clear();
        self.pace.borrow_mut().no_streams();
    }

    /// Ends the link.
    pub fn close(&self, how: Lost) {
        let mut lost = self.lost.borrow_mut();
        if lost.is_none() {
            *lost = Some(how);
        }
        drop(lost);
        self.wake();
    }

    /// Nothing needs this link any more: it says so, and ends.
    pub fn part(&self, patience: Duration) {
        self.go_away(Duration::ZERO);
        self.close_when_written(patience);
    }

    /// Ends the link once what it holds is written, and after `patience` in any case: it had one stream, and that is over.
    pub fn close_when_written(&self, patience: Duration) {
        self.closing.set(true);
        self.close_by.set(clock::now() + patience);
        self.reschedule();
        self.wake();
    }

    /// True once the link ended.
    pub fn is_lost(&self) -> bool {
        self.lost.borrow().is_some()
    }

    /// True after GOAWAY, from either side.
    pub fn is_draining(&self) -> bool {
        self.goaway.get()
    }

    /// Open streams.
    pub fn stream_count(&self) -> usize {
        self.streams.borrow().len()
    }

    /// Share of the send queue's cap that is in use, 0 to about 1.
    pub fn queue_ratio(&self) -> f64 {
        self.queued() as f64 / self.conf.queue_max as f64
    }

    /// Bytes waiting to be written.
    pub(super) fn queued(&self) -> usize {
        self.out.borrow().pending() + self.splice.borrow().pending()
    }

    /// Sequence number of the last beat heard.
    pub fn last_seq(&self) -> u32 {
        self.beats.borrow().heard_seq
    }

    /// Round trip as measured by own frames; a guess of 1 ms before the first measurement.
    pub fn rtt(&self) -> Duration {
        let rtt = self.beats.borrow().rtt;
        if rtt.is_zero() { Duration::from_millis(1) } else { rtt }
    }

    /// When bytes last passed, or since when the link is there.
    pub fn used(&self) -> Stamp {
        self.pace.borrow().used()
    }

    /// Looks at the judge.
    pub fn with_judge<T>(&self, f: impl FnOnce(&LinkJudge) -> T) -> Option<T> {
        self.judge.borrow().as_ref().map(f)
    }
}
