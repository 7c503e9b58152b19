//! What arrives on a link, frame by frame. Peer input ends a stream or the link, never the process.

use std::rc::Rc;
use std::time::Duration;

use super::beats::Echo;
use super::stream::{Ended, Stream};
use super::{Link, Lost};
use crate::detector::Input;
use crate::stamp::Stamp;
use crate::wire::{self, Event, Frame, HEADER_LEN, Kind, METRIC_OTHER};
use crate::worker::{Dir, Odd};

/// Control frames a peer may send in each tenth of a second: far more than any honest peer, CREDIT and OPEN of
/// thousands of streams included.
const CONTROL_BUDGET: u32 = 50_000;
const BUDGET_TIME: Duration = Duration::from_millis(100);
/// An announced pause is believed for this long at most (detection.md section 2).
const MAINTENANCE_MAX: Duration = Duration::from_secs(30);
/// Longest promise that is believed: what links without duty promise.
const PROMISE_MAX: Duration = super::pace::OFF_DUTY;
/// No path has a longer round trip; what a peer makes us measure must not slow its own judgement for long.
pub const RTT_MAX: Duration = Duration::from_secs(1);

impl Link {
    /// Decodes and acts. Bytes of a frame that is not complete are kept by the decoder.
    pub(super) fn take_bytes(self: &Rc<Self>, bytes: &[u8], now: Stamp) -> Result<(), Lost> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.heard(now);
        self.decode(bytes, now)?;
        self.settle(now);
        Ok(())
    }

    pub(super) fn heard(&self, now: Stamp) {
        self.beats.borrow_mut().bytes_at = now;
        if let Some(j) = &mut *self.judge.borrow_mut() {
            j.heard(now);
        }
        self.side.heard(now);
    }

    fn decode(self: &Rc<Self>, bytes: &[u8], now: Stamp) -> Result<(), Lost> {
        let mut decoder = self.decoder.borrow_mut();
        let mut input = bytes;
        let (mut data, mut frames) = (0, 0);
        let result = loop {
            let before = input.len();
            // Matched in place: moving an event that was just written stalls the processor.
            let done = match decoder.next(&mut input) {
                Ok(Some(Event::Data { stream, bytes, first, .. })) => {
                    data += before - input.len();
                    frames += u64::from(first);
                    self.data(stream, bytes, now)
                }
                Ok(Some(Event::Frame(frame))) => {
                    self.count(Dir::In, frame.kind(), before - input.len());
                    self.within_budget(now).and_then(|()| self.frame(frame, now))
                }
                Ok(Some(Event::Skipped { .. })) => {
                    self.w.counters.frame(Dir::In, METRIC_OTHER, 1, (before - input.len()) as u64);
                    self.within_budget(now)
                }
                Ok(None) => break Ok(()),
                Err(e) => break Err(Lost::Protocol(e.label())),
            };
            if done.is_err() {
                break done;
            }
        };
        drop(decoder);
        if data > 0 {
            self.got_data(data as u64, frames, now);
        }
        result
    }

    /// `bytes` of DATA frames arrived, with `frames` headers among them.
    pub(super) fn got_data(&self, bytes: u64, frames: u64, now: Stamp) {
        self.w.counters.frame(Dir::In, Kind::Data.metric_index(), frames, bytes);
        let got = &self.w.counters.payload[Dir::In as usize];
        got.set(got.get() + bytes.saturating_sub(frames * HEADER_LEN as u64));
        self.pace.borrow_mut().bytes(now, !self.conf.dialer);
        self.side.used(self.id, now);
    }

    fn within_budget(&self, now: Stamp) -> Result<(), Lost> {
        let (since, used) = self.control_budget.get();
        if now.since(since) > BUDGET_TIME {
            self.control_budget.set((now, 1));
            return Ok(());
        }
        self.control_budget.set((since, used + 1));
        if used > CONTROL_BUDGET { Err(Lost::Limit("control_flood")) } else { Ok(()) }
    }

    fn stream(&self, id: u32) -> Result<Option<Rc<Stream>>, Lost> {
        let found = self.streams.borrow().get(&id).cloned();
        if found.is_none() {
            if id > self.last_stream.get() {
                return Err(Lost::Protocol("unknown_stream"));
            }
            self.w.counters.discarded.set(self.w.counters.discarded.get() + 1);
        }
        Ok(found)
    }

    fn data(&self, id: u32, bytes: &[u8], now: Stamp) -> Result<(), Lost> {
        if let Some(s) = self.stream(id)? {
            s.deliver(bytes, now);
        }
        Ok(())
    }

    fn frame(self: &Rc<Self>, frame: Frame, now: Stamp) -> Result<(), Lost> {
        match frame {
            Frame::Open { stream, service } => return self.on_open(stream, &service, now),
            Frame::Opened { stream } => {
                if let Some(s) = self.stream(stream)? {
                    s.opened();
                }
            }
            Frame::OpenFailed { stream, errno, .. } => {
                if let Some(s) = self.stream(stream)? {
                    self.forget_stream(stream);
                    s.end(Ended::OpenFailed(errno));
                }
            }
            Frame::Credit { stream, bytes } => {
                if let Some(s) = self.stream(stream)? {
                    self.pressure.borrow_mut().unblock(stream);
                    if !s.granted(bytes) {
                        return Err(Lost::Protocol("absurd_credit"));
                    }
                }
            }
            Frame::Fin { stream } => {
                if let Some(s) = self.stream(stream)? {
                    s.fin();
                }
            }
            Frame::Reset { stream, .. } => {
                if let Some(s) = self.stream(stream)? {
                    self.forget_stream(stream);
                    s.end(Ended::PeerReset);
                }
            }
            Frame::Beat(beat) => self.on_beat(&beat, now),
            Frame::Challenge { nonce } => self.answer(nonce, now),
            Frame::Answer { nonce, beat } => self.on_answer(nonce, &beat, now),
            Frame::Backpressure(b) => {
                self.promised(now, b.promise_ms);
                if let Some(j) = &mut *self.judge.borrow_mut() {
                    j.backpressure(now, b.active, ms(b.promise_ms));
                }
                self.side.backpressure(now, b.active);
            }
            Frame::Maintenance(m) => {
                self.promised(now, m.promise_ms);
                let pause = Duration::from_millis(u64::from(m.for_ms)).min(MAINTENANCE_MAX);
                if let Some(j) = &mut *self.judge.borrow_mut() {
                    j.tell_tap(Input::Maintenance { at: now, pause });
                }
                self.side.maintenance(now, pause);
            }
            Frame::Goaway { deadline_ms } => {
                // Said again it is no news: it would make a successor that was found since look as if it drained too.
                if self.goaway.replace(true) {
                    return Ok(());
                }
                self.side.goaway(self, now, Duration::from_millis(u64::from(deadline_ms)));
            }
            Frame::Hello(_) | Frame::Welcome(_) | Frame::Refuse { .. } => {
                return Err(Lost::Protocol("late_handshake"));
            }
        }
        Ok(())
    }

    fn on_open(self: &Rc<Self>, id: u32, service: &str, now: Stamp) -> Result<(), Lost> {
        if self.conf.dialer {
            return Err(Lost::Protocol("open_from_acceptor"));
        }
        if id <= self.last_stream.get() {
            return Err(Lost::Protocol("stream_reused"));
        }
        self.last_stream.set(id);
        let stream = Stream::new(id, self.clone(), None, false, now);
        if self.streams.borrow().len() >= self.conf.streams_max {
            self.side.full();
            stream.refuse(EMFILE, "too many streams on this link");
            return Ok(());
        }
        self.streams.borrow_mut().insert(id, stream.clone());
        if self.side.open(self, &stream, service) { Ok(()) } else { Err(Lost::Protocol("no_opens_here")) }
    }

    fn promised(&self, now: Stamp, promise_ms: u16) {
        if promise_ms == 0 {
            return self.w.counters.odd(Odd::PromiseZero);
        }
        if Duration::from_millis(u64::from(promise_ms)) > PROMISE_MAX {
            self.w.counters.odd(Odd::PromiseCapped);
        }
        if let Some(j) = &mut *self.judge.borrow_mut() {
            j.promised(now, ms(promise_ms));
        }
    }

    fn on_beat(self: &Rc<Self>, beat: &wire::Beat, now: Stamp) {
        let taken = self.beats.borrow_mut().take(beat, now, &mut |odd| self.w.counters.odd(odd));
        let Some(echo) = taken else { return };
        let age = Duration::from_micros(u64::from(beat.heard_age_us));
        if let Echo::Heard(Some(sent)) = echo {
            self.rtt_sample(sent, now.since(sent).saturating_sub(age));
        }
        if let Some(j) = &mut *self.judge.borrow_mut() {
            if beat.flags.own_stall {
                j.peer_stalled(now);
            }
            if let Some(late) = j.take_lateness() {
                self.side.late(late);
            }
            if let Echo::Heard(_) = echo {
                j.peer_view(now, age);
            }
            j.set_noise(now, Duration::from_millis(u64::from(beat.late_ms)));
        }
        self.promised(now, beat.promise_ms);
        self.side.beat(self, now, beat);
    }

    /// A round trip that began at `from`. One that we slept in says how long we slept.
    fn rtt_sample(&self, from: Stamp, d: Duration) {
        if self.w.last_stall.get().0 > from {
            return;
        }
        if d > RTT_MAX {
            self.w.counters.odd(Odd::RttCapped);
        }
        let d = d.min(RTT_MAX);
        if let Some(j) = &mut *self.judge.borrow_mut() {
            j.rtt_sample(d);
        }
        let mut b = self.beats.borrow_mut();
        b.rtt = if b.rtt.is_zero() || d < b.rtt { d } else { (b.rtt * 15 + d) / 16 };
    }

    fn answer(self: &Rc<Self>, nonce: u64, now: Stamp) {
        let beat = self.make_beat(now, false);
        self.send_control(&Frame::Answer { nonce, beat });
    }

    fn on_answer(self: &Rc<Self>, nonce: u64, beat: &wire::Beat, now: Stamp) {
        let (asked, at) = self.asked.get();
        if asked == nonce && at != Stamp::ZERO {
            self.rtt_sample(at, now.since(at));
            if let Some(j) = &mut *self.judge.borrow_mut() {
                j.challenge_answered(now);
            }
            self.asked.set((0, Stamp::ZERO));
        }
        self.on_beat(beat, now);
    }
}

/// errno of "no more streams".
const EMFILE: u16 = 24;

fn ms(n: u16) -> Duration {
    Duration::from_millis(u64::from(n)).min(PROMISE_MAX)
}
