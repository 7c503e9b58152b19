//! Frames and their bytes, by direction and kind.

use prometheus::{IntCounter, Registry};

use super::labels::{Direction, FrameKind};

const KINDS: usize = FrameKind::ALL.len();

/// Handles of `sidebeat_frames_total` and `sidebeat_frame_bytes_total`, resolved once: an `add` is two atomic adds.
#[derive(Debug)]
pub struct FrameCounters {
    frames: [[IntCounter; KINDS]; 2],
    bytes: [[IntCounter; KINDS]; 2],
}

impl FrameCounters {
    pub(super) fn new(r: &Registry) -> FrameCounters {
        FrameCounters {
            frames: table(r, "sidebeat_frames_total", "Frames on links."),
            bytes: table(r, "sidebeat_frame_bytes_total", "Bytes of frames on links, headers included."),
        }
    }

    /// Counts frames of one kind with their bytes, headers included. Call it once per batch, not per frame.
    pub fn add(&self, direction: Direction, kind: FrameKind, frames: u64, bytes: u64) {
        self.frames[direction.index()][kind.index()].inc_by(frames);
        self.bytes[direction.index()][kind.index()].inc_by(bytes);
    }

    /// Frames counted so far.
    pub fn frames(&self, direction: Direction, kind: FrameKind) -> u64 {
        self.frames[direction.index()][kind.index()].get()
    }
}

fn table(r: &Registry, name: &str, help: &str) -> [[IntCounter; KINDS]; 2] {
    let vec = super::counters(r, name, help, &["direction", "kind"]);
    [Direction::In, Direction::Out]
        .map(|d| std::array::from_fn(|i| vec.with_label_values(&[d.name(), FrameKind::ALL[i].name()])))
}
