//! Pure: no IO, no clock. From the bytes of a file to blocks, over torn and damaged parts.

use super::crc::crc;
use super::varint::Rest;
use super::{BLOCK_HEAD, BlockHead, FormatError, HEADER_MAX, Header, Record, SYNC, record};
use crate::stamp::Stamp;

/// A part of a file that is not what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where it begins, bytes from the file's start.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
    /// What was seen there first.
    pub what: FormatError,
}

/// What a file says.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// Its beginning.
    Header(Header),
    /// The records of one worker, whole and in order.
    Block {
        /// The worker.
        worker: u16,
        /// Its records.
        records: Vec<Record>,
    },
    /// Something is missing here.
    Damage(Damage),
}

/// Takes bytes in pieces of any size, gives what they say. Holds at most one block and the piece fed last, if it is asked
/// until it says None before it is fed again.
#[derive(Debug, Default)]
pub struct Scanner {
    buf: Vec<u8>,
    start: usize,
    /// Of `buf[start]` in the file.
    offset: u64,
    begun: bool,
    ended: bool,
    damage: Option<(u64, FormatError)>,
}

/// What stands at the head of the buffer.
enum Head {
    /// More bytes are needed to tell.
    Short,
    /// A block that is whole, of this length with its head.
    Whole(BlockHead, usize),
    /// Nothing: so many bytes are skipped.
    Bad(usize, FormatError),
}

impl Scanner {
    /// At the beginning of a file.
    pub fn new() -> Scanner {
        Scanner::default()
    }

    /// More bytes of the file.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buf.drain(..self.start);
        self.start = 0;
        self.buf.extend_from_slice(bytes);
    }

    /// There are no more bytes.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// What comes next; None: feed more, or, after [`Scanner::end`], that was all.
    ///
    /// # Errors
    /// The header is not one; nothing follows.
    pub fn next_item(&mut self) -> Result<Option<Item>, FormatError> {
        if !self.begun {
            return self.header();
        }
        loop {
            match self.head() {
                Head::Short if !self.ended => return Ok(None),
                Head::Short if self.rest().is_empty() => return Ok(self.damaged()),
                // A torn block; behind its head there may be whole ones, if the head itself is a lie.
                Head::Short => self.skip(1, FormatError::Corrupt("the file ends within a block")),
                Head::Bad(n, what) => self.skip(n, what),
                Head::Whole(head, len) => match self.records(&head, len) {
                    Ok(records) => {
                        // What was damaged before is told first; the block is still there for the next call.
                        if let Some(damage) = self.damaged() {
                            return Ok(Some(damage));
                        }
                        self.advance(len);
                        return Ok(Some(Item::Block { worker: head.worker, records }));
                    }
                    Err(what) => self.skip(len, what),
                },
            }
        }
    }

    fn header(&mut self) -> Result<Option<Item>, FormatError> {
        match Header::decode(self.rest())? {
            Some((header, len)) => {
                self.advance(len);
                self.begun = true;
                Ok(Some(Item::Header(header)))
            }
            None if self.ended => Err(FormatError::Corrupt("the file ends within its header")),
            None => {
                debug_assert!(self.rest().len() <= HEADER_MAX + 4, "a header that never ends");
                Ok(None)
            }
        }
    }

    fn rest(&self) -> &[u8] {
        &self.buf[self.start..]
    }

    fn advance(&mut self, n: usize) {
        self.start += n;
        self.offset += n as u64;
    }

    fn head(&self) -> Head {
        let rest = self.rest();
        let Some(head) = rest.first_chunk::<BLOCK_HEAD>() else { return Head::Short };
        let Some(head) = BlockHead::decode(head) else {
            // The next place where a block could begin; its first byte at least is not here.
            let next = rest[1..].windows(SYNC.len()).position(|w| w == SYNC);
            let n = next.map_or(rest.len() - SYNC.len() + 1, |n| n + 1);
            return Head::Bad(n, FormatError::Corrupt("no block begins here"));
        };
        let len = BLOCK_HEAD + head.len as usize;
        match rest.get(BLOCK_HEAD..len) {
            None => Head::Short,
            Some(records) if crc(records) != head.sum => {
                Head::Bad(len, FormatError::Corrupt("a block's checksum is wrong"))
            }
            Some(_) => Head::Whole(head, len),
        }
    }

    fn records(&self, head: &BlockHead, len: usize) -> Result<Vec<Record>, FormatError> {
        let mut rest = Rest(&self.rest()[BLOCK_HEAD..len]);
        let (mut link, mut last): (u32, Stamp) = (0, head.base);
        // A record takes a byte at least: what a head claims costs no memory before that is sure.
        if head.count as usize > rest.0.len() {
            return Err(FormatError::Corrupt("a block with more records than bytes"));
        }
        let mut records = Vec::with_capacity(head.count as usize);
        for _ in 0..head.count {
            let record = record::take(&mut rest, link, last)?;
            (link, last) = (record.link, record.at);
            records.push(record);
        }
        if rest.0.is_empty() {
            Ok(records)
        } else {
            Err(FormatError::Corrupt("a block with bytes behind its records"))
        }
    }

    fn skip(&mut self, n: usize, what: FormatError) {
        let n = n.min(self.rest().len());
        self.damage.get_or_insert((self.offset, what));
        self.advance(n);
    }

    fn damaged(&mut self) -> Option<Item> {
        let (offset, what) = self.damage.take()?;
        Some(Item::Damage(Damage { offset, len: self.offset - offset, what }))
    }
}
