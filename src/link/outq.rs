//! Pure: no IO, no clock. The send queue of a link: control first, then data in order, then the beat; one vectored
//! write per batch (link.md rules 4 and 5).

use std::collections::VecDeque;
use std::io::IoSlice;
use std::rc::Rc;

use bytes::BytesMut;

use crate::wire::{self, HEADER_LEN};
use crate::worker::pool::{BLOCK, Block, Pool};

/// Most slices of one vectored write.
pub const MAX_SLICES: usize = 64;
/// A block with less room than this is not read into any more.
const WORTH: usize = 8 * 1024;
/// Room that each block keeps for the end of a batch, so that most batches are one piece of memory.
pub const TRAILER_MAX: usize = 64;
/// What a block takes of frames.
const USABLE: usize = BLOCK - TRAILER_MAX;

struct Seg {
    block: Block,
    end: usize,
}

/// A batch that is being written.
struct Batch {
    head: BytesMut,
    segs: usize,
    seg_bytes: usize,
    /// Bytes already written, over head and segs.
    done: usize,
}

impl Batch {
    fn len(&self) -> usize {
        self.head.len() + self.seg_bytes
    }
}

/// See the module.
pub struct OutQueue {
    pool: Rc<Pool>,
    control: BytesMut,
    segs: VecDeque<Seg>,
    queued: usize,
    batch: Option<Batch>,
}

impl OutQueue {
    /// An empty queue that takes its blocks from `pool`.
    pub fn new(pool: Rc<Pool>) -> OutQueue {
        OutQueue { pool, control: BytesMut::new(), segs: VecDeque::new(), queued: 0, batch: None }
    }

    /// Where control frames are encoded; they leave before any data that is not yet being written.
    pub fn control(&mut self) -> &mut BytesMut {
        &mut self.control
    }

    /// Bytes waiting, the batch in writing included.
    pub fn pending(&self) -> usize {
        self.queued + self.control.len() + self.batch.as_ref().map_or(0, |b| b.len() - b.done)
    }

    /// Data bytes that no batch holds yet.
    pub fn queued(&self) -> usize {
        self.queued
    }

    /// True if a batch is partly written.
    pub fn in_batch(&self) -> bool {
        self.batch.is_some()
    }

    /// True if something waits that is in no batch.
    pub fn has_new(&self) -> bool {
        self.queued > 0 || !self.control.is_empty()
    }

    fn free_segs(&self) -> usize {
        self.segs.len() - self.batch.as_ref().map_or(0, |b| b.segs)
    }

    fn tail(&mut self, need: usize) -> &mut Seg {
        let fits =
            self.free_segs() > 0 && self.segs.back().is_some_and(|s| USABLE.saturating_sub(s.end) >= need);
        if !fits {
            self.segs.push_back(Seg { block: self.pool.take(), end: 0 });
        }
        let last = self.segs.len() - 1;
        &mut self.segs[last]
    }

    /// Room for a DATA payload of at most `want` bytes, to be read into directly. Follow with [`OutQueue::commit_data`].
    pub fn room(&mut self, want: usize) -> &mut [u8] {
        let need = HEADER_LEN + want.min(WORTH);
        let seg = self.tail(need);
        let from = seg.end + HEADER_LEN;
        let to = (from + want).min(USABLE);
        &mut seg.block[from..to]
    }

    /// The first `n` bytes of the last room are the payload of a DATA frame.
    pub fn commit_data(&mut self, stream: u32, n: usize) {
        let Some(seg) = self.segs.back_mut() else { return };
        let header = wire::data_header(stream, u32::try_from(n).unwrap_or(0));
        seg.block[seg.end..seg.end + HEADER_LEN].copy_from_slice(&header);
        seg.end += HEADER_LEN + n;
        self.queued += HEADER_LEN + n;
    }

    /// Appends an encoded frame that must keep its order with data (OPEN, FIN, RESET).
    pub fn append(&mut self, frame: &[u8]) {
        let seg = self.tail(frame.len());
        let end = seg.end + frame.len();
        seg.block[seg.end..end].copy_from_slice(frame);
        seg.end = end;
        self.queued += frame.len();
    }

    /// Appends DATA with a payload that is already in memory.
    pub fn append_data(&mut self, stream: u32, mut payload: &[u8]) {
        while !payload.is_empty() {
            let room = self.room(payload.len());
            let n = room.len().min(payload.len());
            room[..n].copy_from_slice(&payload[..n]);
            self.commit_data(stream, n);
            payload = &payload[n..];
        }
    }

    /// Makes the next batch: all control, data up to about `max` bytes (0: none), then `trailer` of at most
    /// [`TRAILER_MAX`] bytes. Only when no batch is there.
    pub fn start_batch(&mut self, max: usize, trailer: &[u8]) {
        debug_assert!(self.batch.is_none() && trailer.len() <= TRAILER_MAX);
        let (mut segs, mut seg_bytes) = (0_usize, 0);
        for seg in self.segs.iter().take(MAX_SLICES - 2) {
            if max == 0 || (segs > 0 && seg_bytes + seg.end > max) {
                break;
            }
            segs += 1;
            seg_bytes += seg.end;
        }
        self.queued -= seg_bytes;
        match segs.checked_sub(1).and_then(|last| self.segs.get_mut(last)) {
            Some(last) => {
                let end = last.end + trailer.len();
                last.block[last.end..end].copy_from_slice(trailer);
                last.end = end;
                seg_bytes += trailer.len();
            }
            None => self.control.extend_from_slice(trailer),
        }
        let head = std::mem::take(&mut self.control);
        self.batch = Some(Batch { head, segs, seg_bytes, done: 0 });
    }

    /// The rest of the batch as slices.
    pub fn slices<'a>(&'a self, out: &mut [IoSlice<'a>; MAX_SLICES]) -> usize {
        let Some(b) = &self.batch else { return 0 };
        let mut skip = b.done;
        let mut n = 0;
        let parts =
            std::iter::once(&b.head[..]).chain(self.segs.iter().take(b.segs).map(|s| &s.block[..s.end]));
        for part in parts {
            let rest = &part[skip.min(part.len())..];
            skip -= part.len() - rest.len();
            if !rest.is_empty() {
                out[n] = IoSlice::new(rest);
                n += 1;
            }
        }
        n
    }

    /// `n` bytes of the batch were written. True if that was all of it.
    pub fn advance(&mut self, n: usize) -> bool {
        let Some(b) = &mut self.batch else { return true };
        b.done += n;
        if b.done < b.len() {
            return false;
        }
        let Some(mut b) = self.batch.take() else { return true };
        self.segs.drain(..b.segs);
        if self.control.is_empty() && b.head.capacity() <= 4096 {
            b.head.clear();
            self.control = b.head;
        }
        true
    }

    /// Nothing will be written any more.
    pub fn clear(&mut self) {
        self.segs.clear();
        self.control = BytesMut::new();
        self.batch = None;
        self.queued = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(q: &OutQueue) -> Vec<u8> {
        let mut iov = [IoSlice::new(&[]); MAX_SLICES];
        let n = q.slices(&mut iov);
        iov[..n].iter().flat_map(|s| s.to_vec()).collect()
    }

    #[test]
    fn control_leaves_first_and_the_trailer_last() {
        let mut q = OutQueue::new(Pool::new());
        q.append_data(3, b"hello");
        q.control().extend_from_slice(b"CTL");
        q.start_batch(1 << 16, b"BEAT");
        let all = written(&q);
        assert!(all.starts_with(b"CTL") && all.ends_with(b"helloBEAT"), "{all:?}");
        assert_eq!(all.len(), 3 + 8 + 5 + 4);
    }

    #[test]
    fn any_partial_write_continues_exactly_and_new_frames_wait_for_the_next_batch() {
        for step in 1..40 {
            let mut q = OutQueue::new(Pool::new());
            q.append_data(1, b"abcdefghij");
            q.control().extend_from_slice(b"C");
            q.start_batch(1 << 16, b"T");
            let want = written(&q);
            q.append_data(1, b"later");
            let mut got = Vec::new();
            loop {
                let rest = written(&q);
                let n = rest.len().min(step);
                got.extend_from_slice(&rest[..n]);
                if q.advance(n) {
                    break;
                }
            }
            assert_eq!(got, want);
            assert_eq!(q.pending(), 8 + 5);
            q.start_batch(1 << 16, b"");
            assert!(written(&q).ends_with(b"later"));
        }
    }

    #[test]
    fn a_batch_is_bounded_and_keeps_order_over_blocks() {
        let mut q = OutQueue::new(Pool::new());
        let data: Vec<u8> = (0..300_000u32).map(|i| i as u8).collect();
        q.append_data(9, &data);
        let mut got = Vec::new();
        while q.has_new() {
            let trailer = [b'T'; TRAILER_MAX];
            q.start_batch(64 * 1024, &trailer);
            let part = written(&q);
            assert!(part.len() <= 2 * BLOCK);
            got.extend_from_slice(part.strip_suffix(&trailer).unwrap());
            assert!(q.advance(part.len()));
        }
        let mut payload = Vec::new();
        let mut rest = &got[..];
        while !rest.is_empty() {
            let h = wire::Header::decode(rest[..8].try_into().unwrap());
            payload.extend_from_slice(&rest[8..8 + h.len as usize]);
            rest = &rest[8 + h.len as usize..];
        }
        assert_eq!(payload, data);
        assert_eq!(q.pending(), 0);
    }

    #[test]
    fn data_and_its_trailer_are_one_piece_and_a_trailer_alone_too() {
        let mut q = OutQueue::new(Pool::new());
        let mut iov = [IoSlice::new(&[]); MAX_SLICES];
        q.start_batch(1 << 16, b"T");
        assert_eq!(q.slices(&mut iov), 1);
        assert!(q.advance(1));
        q.append_data(1, &vec![7; 3 * BLOCK]);
        while q.has_new() {
            q.start_batch(16 * 1024, &[b'T'; TRAILER_MAX]);
            assert_eq!(q.slices(&mut [IoSlice::new(&[]); MAX_SLICES]), 1, "however full the block is");
            let n = q.pending() - q.queued();
            assert!(q.advance(n));
        }
    }
}
