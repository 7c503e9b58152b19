//! What a worker counts: plain cells, added to the shared metrics a few times a second.

use std::cell::Cell;

/// Index of a direction in counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dir {
    /// Received.
    In = 0,
    /// Sent.
    Out = 1,
}

/// Counters of one worker, plain cells: flushed to the shared metrics a few times a second.
#[derive(Default)]
pub struct Counters {
    /// Frames by direction and metric kind.
    pub frames: [[Cell<u64>; 12]; 2],
    /// Bytes, headers included.
    pub bytes: [[Cell<u64>; 12]; 2],
    /// Payload bytes.
    pub payload: [Cell<u64>; 2],
    /// Bytes in blocks, as last told.
    pub buffered: Cell<usize>,
    /// Idle beats that traffic made unnecessary.
    pub saved: Cell<u64>,
    /// Frames for ended streams.
    pub discarded: Cell<u64>,
    /// What beats said that no honest peer says, by [`Odd`].
    pub odd: [Cell<u64>; Odd::COUNT],
}

/// Something in a beat that no honest peer says over TCP. What it can do is bounded; that it was said is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Odd {
    /// A number that is not newer than one before: said twice, late, or replayed.
    Replayed,
    /// Numbers are missing.
    Gap,
    /// The echo of a beat that was never sent.
    Echo,
    /// A promise of nothing.
    PromiseZero,
    /// A promise that is longer than anybody is believed.
    PromiseCapped,
    /// A round trip that no path has.
    RttCapped,
}

impl Odd {
    /// How many there are.
    pub const COUNT: usize = 6;
}

impl Counters {
    /// Counts what no honest peer says.
    pub fn odd(&self, what: Odd) {
        let n = &self.odd[what as usize];
        n.set(n.get() + 1);
    }

    /// Counts a frame.
    pub fn frame(&self, dir: Dir, kind: usize, frames: u64, bytes: u64) {
        let (d, k) = (dir as usize, kind.min(11));
        self.frames[d][k].set(self.frames[d][k].get() + frames);
        self.bytes[d][k].set(self.bytes[d][k].get() + bytes);
    }
}
