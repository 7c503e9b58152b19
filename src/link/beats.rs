//! The beat that ends each batch: what it promises, what it echoes.

use std::time::Duration;

use super::Link;
use crate::stamp::Stamp;
use crate::wire::Beat;
use crate::worker::Odd;

/// Sequence numbers of both directions, for the echo in beats.
pub(super) struct Beats {
    pub(super) seq: u32,
    sent: [Stamp; 64],
    pub(super) heard_seq: u32,
    /// When the beat of `heard_seq` was read: its echo measures the round trip.
    pub(super) heard_at: Stamp,
    /// When anything was read last. Bytes on their way may come long before the beat behind them: they say that the
    /// peer is heard, too.
    pub(super) bytes_at: Stamp,
    pub(super) rtt: Duration,
}

/// What a beat says of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Echo {
    /// Nothing that can be true.
    Nothing,
    /// One of ours was heard, written at this instant if that is still known.
    Heard(Option<Stamp>),
}

/// A beat that is not older than this says enough: no promise is shorter than that by much.
const FRESH_BEAT: Duration = Duration::from_millis(10);

impl Beats {
    pub(super) fn new(now: Stamp) -> Beats {
        Beats {
            seq: 0,
            sent: [Stamp::ZERO; 64],
            heard_seq: 0,
            heard_at: now,
            bytes_at: now,
            rtt: Duration::ZERO,
        }
    }

    /// Age of the last beat, or of the last byte where the beat is old: no round trip is measured by that then.
    fn heard_age(&self, now: Stamp) -> Duration {
        let beat = now.since(self.heard_at);
        if beat <= FRESH_BEAT { beat } else { now.since(self.bytes_at) }
    }

    fn next(&mut self, now: Stamp) -> u32 {
        self.seq = self.seq.wrapping_add(1);
        self.sent[self.seq as usize % 64] = now;
        self.seq
    }

    /// Takes the number and the echo of a beat read at `now`. None: it is not newer than one before. TCP keeps the
    /// order, so it was said before, by whomever: a sign of life and nothing more.
    pub(super) fn take(&mut self, beat: &Beat, now: Stamp, odd: &mut dyn FnMut(Odd)) -> Option<Echo> {
        let ahead = beat.seq.wrapping_sub(self.heard_seq) as i32;
        if ahead <= 0 {
            odd(Odd::Replayed);
            return None;
        }
        if ahead > 1 {
            odd(Odd::Gap);
        }
        self.heard_seq = beat.seq;
        self.heard_at = now;
        if beat.heard_seq.wrapping_sub(self.seq) as i32 > 0 {
            odd(Odd::Echo);
            return Some(Echo::Nothing);
        }
        Some(match beat.heard_seq {
            0 => Echo::Nothing,
            seq => Echo::Heard(self.sent_at(seq)),
        })
    }

    /// When beat `seq` was written, if that is still known.
    pub(super) fn sent_at(&self, seq: u32) -> Option<Stamp> {
        let known = self.seq.wrapping_sub(seq) < 64 && seq != 0;
        known.then(|| self.sent[seq as usize % 64]).filter(|t| *t != Stamp::ZERO)
    }
}

impl Link {
    /// The promise is made when the frame is handed to the kernel.
    pub(super) fn make_beat(&self, now: Stamp, with_data: bool) -> Beat {
        let facts = self.side.facts(now);
        let mut pace = self.pace.borrow_mut();
        pace.set_idle(self.side.idle_promise());
        let promise = pace.next_promise(now, self.side.on_duty(self.id));
        let saved = pace.wrote(now, promise, with_data);
        self.w.counters.saved.set(self.w.counters.saved.get() + saved);
        if let Some(j) = &mut *self.judge.borrow_mut() {
            j.we_promised(now, promise);
        }
        let mut flags = facts.flags;
        let (stalled_at, _) = self.w.last_stall.get();
        flags.own_stall = stalled_at != Stamp::ZERO && now.since(stalled_at) < Duration::from_millis(50);
        flags.draining |= self.goaway.get();
        let mut b = self.beats.borrow_mut();
        Beat {
            seq: b.next(now),
            promise_ms: millis16(promise),
            flags,
            vouch: facts.vouch,
            processing_us: facts.processing_us,
            utility: facts.utility,
            in_flight: facts.in_flight,
            oldest_ms: facts.oldest_ms,
            late_ms: millis8(self.w.noise(now)),
            heard_seq: b.heard_seq,
            heard_age_us: u32::try_from(b.heard_age(now).as_micros()).unwrap_or(u32::MAX),
        }
    }
}

/// Whole milliseconds, rounded up, saturating.
pub(crate) fn millis8(d: Duration) -> u8 {
    u8::try_from(d.as_micros().div_ceil(1000)).unwrap_or(u8::MAX)
}

/// Whole milliseconds, saturating.
pub(crate) fn millis16(d: Duration) -> u16 {
    u16::try_from(d.as_millis()).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Stamp = Stamp::from_millis(1000);

    /// What was odd about a beat with these numbers, and what it is worth.
    fn take(beats: &mut Beats, seq: u32, heard_seq: u32) -> (Option<Echo>, Vec<Odd>) {
        let mut odd = Vec::new();
        let beat = Beat { seq, heard_seq, ..Beat::default() };
        (beats.take(&beat, NOW, &mut |o| odd.push(o)), odd)
    }

    #[test]
    fn honest_numbers_are_never_odd() {
        let mut b = Beats::new(NOW);
        assert_eq!(take(&mut b, 1, 0), (Some(Echo::Nothing), vec![]));
        let mine = b.next(NOW);
        assert_eq!(take(&mut b, 2, mine), (Some(Echo::Heard(Some(NOW))), vec![]));
        b.heard_seq = u32::MAX;
        assert_eq!(take(&mut b, 0, mine), (Some(Echo::Heard(Some(NOW))), vec![]), "it wraps");
    }

    #[test]
    fn what_was_said_before_is_worth_nothing() {
        let mut b = Beats::new(NOW);
        take(&mut b, 7, 0);
        for seq in [7, 6, 1, 0, 7_u32.wrapping_sub(1 << 31)] {
            assert_eq!(take(&mut b, seq, 0), (None, vec![Odd::Replayed]), "{seq}");
            assert_eq!(b.heard_seq, 7);
        }
    }

    #[test]
    fn missing_numbers_and_false_echoes_are_counted() {
        let mut b = Beats::new(NOW);
        assert_eq!(take(&mut b, 3, 0), (Some(Echo::Nothing), vec![Odd::Gap]));
        assert_eq!(take(&mut b, 4, 9), (Some(Echo::Nothing), vec![Odd::Echo]), "none was sent");
        for _ in 0..70 {
            b.next(NOW);
        }
        assert_eq!(take(&mut b, 5, 2), (Some(Echo::Heard(None)), vec![]), "long ago");
    }
}
