//! The deadlines of a link: beats that fall due, judgement, backpressure. One entry in the worker's wheel at a time.

use std::rc::Rc;

use super::beats::millis16;
use super::pressure::Tell;
use super::stream::Stream;
use super::{Link, Lost};
use crate::clock;
use crate::detector::{Facts, LinkJudge, Output};
use crate::stamp::Stamp;
use crate::sys;
use crate::verdict::State;
use crate::wire::{Backpressure, Frame};
use crate::worker::Timed;

impl Timed for Link {
    fn on_timer(self: Rc<Self>, now: Stamp) {
        if self.is_lost() {
            return;
        }
        if now >= self.close_by.get() {
            return self.close(Lost::Done);
        }
        self.expire_opening(now);
        self.judge_now(now);
        let due = self.pace.borrow().beat_due();
        if now >= due.min(self.pressure.borrow().next_due()) {
            self.tell_pressure(now);
        }
        // A socket that takes nothing gets no second beat on top of the first.
        if now >= due && !self.want_beat.replace(true) {
            self.wake();
        }
        self.reschedule();
    }

    fn own_stall(&self, from: Stamp, to: Stamp) {
        if let Some(j) = &mut *self.judge.borrow_mut() {
            j.own_stall(from, to);
        }
        if to.since(from) > std::time::Duration::from_millis(100) {
            self.beat_now();
        }
    }
}

impl Link {
    /// Tells the worker's timer the earliest deadline.
    pub(super) fn reschedule(&self) {
        if self.is_lost() {
            return;
        }
        let beat = if self.want_beat.get() { Stamp::NEVER } else { self.pace.borrow().beat_due() };
        let judge = self.judge.borrow().as_ref().map_or(Stamp::NEVER, |j| j.next_due().0);
        let opening = self.opening.borrow().front().map_or(Stamp::NEVER, |(due, _)| *due);
        let due =
            beat.min(judge).min(self.pressure.borrow().next_due()).min(opening).min(self.close_by.get());
        self.w.schedule(self.timer, due);
    }

    /// The service has to accept `stream` by `due`.
    pub(super) fn await_opened(&self, stream: &Rc<Stream>, due: Stamp) {
        let mut opening = self.opening.borrow_mut();
        // Those that were accepted meanwhile stand first, as a rule.
        while opening.front().is_some_and(|(_, s)| s.upgrade().is_none_or(|s| !s.is_opening())) {
            opening.pop_front();
        }
        opening.push_back((due, Rc::downgrade(stream)));
        let first = opening.len() == 1;
        drop(opening);
        if first {
            self.reschedule();
        }
    }

    fn expire_opening(&self, now: Stamp) {
        loop {
            let due = self.opening.borrow().front().is_some_and(|(due, _)| now >= *due);
            if !due {
                return;
            }
            let stream = self.opening.borrow_mut().pop_front().and_then(|(_, s)| s.upgrade());
            if let Some(s) = stream {
                s.expire();
            }
        }
    }

    /// The judge shall ask the peer now: healing must not wait for idle beats.
    pub fn probe(self: &Rc<Self>, now: Stamp) {
        if let Some(j) = &mut *self.judge.borrow_mut() {
            j.probe(now);
        }
        self.ask_judge(now);
        self.reschedule();
    }

    /// Asks the peer once: another link to it is doubted, and this one may be silent for long by its promise. A judge in doubt
    /// asks by itself.
    pub fn ask(self: &Rc<Self>, now: Stamp) {
        if self.with_judge(LinkJudge::state) == Some(State::Active) && !self.is_lost() {
            self.challenge(now);
        }
    }

    /// After bytes arrived: a judge in doubt may see life at once.
    pub(super) fn settle(self: &Rc<Self>, now: Stamp) {
        let doubt = self.judge.borrow().as_ref().is_some_and(|j| j.state() != State::Active);
        if doubt {
            self.ask_judge(now);
        }
    }

    fn judge_now(self: &Rc<Self>, now: Stamp) {
        let due = self.judge.borrow().as_ref().map_or(Stamp::NEVER, |j| j.next_due().0);
        if now < due {
            return;
        }
        // The time before the last empty poll of this very socket: what the kernel holds is heard first.
        let before = clock::now();
        self.drain_now();
        if !self.is_lost() {
            self.ask_judge(before);
        }
    }

    fn ask_judge(self: &Rc<Self>, now: Stamp) {
        // Bounded: a judge that never rests is a defect, not a reason to hang the worker.
        for _ in 0..16 {
            let output = {
                let mut judge = self.judge.borrow_mut();
                let Some(j) = judge.as_mut() else { return };
                j.poll(now, &mut || self.judge_facts())
            };
            let Some(output) = output else { break };
            if matches!(output, Output::Challenge) {
                self.challenge(now);
            }
            self.side.judged(self, now, &output);
        }
        self.tell_shifts();
    }

    fn tell_shifts(&self) {
        loop {
            let shift = self.judge.borrow_mut().as_mut().and_then(LinkJudge::take_shift);
            let Some(shift) = shift else { return };
            self.side.shadowed(self, &shift);
        }
    }

    fn judge_facts(&self) -> Facts {
        let bytes = rustix::io::ioctl_fionread(&*self.io.borrow()).unwrap_or(0);
        let segments = self.data_segments();
        Facts {
            unread: bytes > 0 || segments > self.segments_at_doubt.get(),
            others_heard: self.side.others_heard(self),
            others_hear: self.side.others_hear(self),
            others_asked: self.side.others_asked(self),
        }
    }

    /// Data the kernel saw, in order or not. Pure ACKs do not count: the kernel of a stopped peer sends them.
    fn data_segments(&self) -> u64 {
        use std::os::fd::AsFd;
        sys::tcp::tcp_info(self.io.borrow().as_fd())
            .map_or(0, |i| i.bytes_received + u64::from(i.rcv_ooopack.unwrap_or(0)))
    }

    fn challenge(self: &Rc<Self>, now: Stamp) {
        self.segments_at_doubt.set(self.data_segments());
        if let Some(j) = &mut *self.judge.borrow_mut() {
            j.challenge_sent(now);
        }
        // One question at a time in the queue: a full socket must not pile them up.
        if self.is_writing() && self.out.borrow().has_new() {
            return;
        }
        let nonce = self.w.random();
        self.asked.set((nonce, now));
        self.send_control(&Frame::Challenge { nonce });
    }

    fn look_at_blocked(&self, now: Stamp) {
        let ids = self.pressure.borrow().blocked();
        let streams: Vec<_> = ids.iter().filter_map(|id| self.streams.borrow().get(id).cloned()).collect();
        streams.iter().for_each(|s| s.look_at_app(now));
    }

    fn tell_pressure(self: &Rc<Self>, now: Stamp) {
        let occupancy = self.queue_ratio();
        let told = self.pressure.borrow_mut().evaluate(now, occupancy, self.conf.threshold);
        let (active, since) = match told {
            None => return,
            Some(Tell::Full(since)) => (true, since),
            Some(Tell::Over(since)) => (false, since),
        };
        let promise = self.pace.borrow().next_promise(now, self.side.on_duty(self.id));
        if active {
            self.look_at_blocked(now);
        }
        self.pressure.borrow_mut().told(now, promise);
        let frame = Frame::Backpressure(Backpressure {
            active,
            occupancy: (occupancy.min(60.0) * 1000.0) as u16,
            queued: u32::try_from(self.queued()).unwrap_or(u32::MAX),
            since_ms: u32::try_from(now.since(since).as_millis()).unwrap_or(u32::MAX),
            promise_ms: millis16(promise),
        });
        if self.out.borrow().has_new() && self.is_writing() && active && self.pressure_told.get() {
            return;
        }
        self.pressure_told.set(active);
        self.send_control(&frame);
    }
}
