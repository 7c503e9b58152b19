//! Pure: no IO, no clock. The bytes of a trace: a header, then blocks of records, each with its checksum (docs/trace.md).
//! Numbers of fixed size are big endian, as on the wire.

mod crc;
mod record;
mod scan;
mod varint;

#[cfg(test)]
mod tests;

use crate::stamp::Stamp;
use crc::crc;

pub use record::{Event, LinkInfo, Record};
pub use scan::{Damage, Item, Scanner};
pub use varint::SPAN_MAX;

/// How a trace begins. The first byte begins no text; line end and ^Z show a path that is not 8-bit clean.
pub const MAGIC: [u8; 8] = [0xb3, b't', b'r', b'a', b'c', b'e', 0x0d, 0x1a];
/// Version that this program writes, and the latest it reads.
pub const VERSION: u16 = 1;
/// How a block begins: what a reader looks for behind damage.
pub const SYNC: [u8; 4] = [0xb3, b'b', b'l', b'k'];
/// Bytes before the records of a block.
pub const BLOCK_HEAD: usize = 32;
/// Most bytes of records in a block: what a reader has to hold.
pub const BLOCK_MAX: usize = 64 * 1024;
/// Most bytes of a header.
pub const HEADER_MAX: usize = 1024;
/// Fixed fields of the header before its body: magic, version, length of the body.
const HEADER_HEAD: usize = 12;
/// Latest time a trace can tell, 146 years after the machine's start.
const STAMP_MAX: u64 = 1 << 62;

/// What is wrong with a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Something else than a trace.
    #[error("not a trace of sidebeat")]
    NotATrace,
    /// Written by a later program.
    #[error("version {0} of the format; this program reads {VERSION}: use a later sidebeat")]
    LaterVersion(u16),
    /// The bytes are not what was written, or never were right.
    #[error("{0}")]
    Corrupt(&'static str),
}

/// What a trace begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Wall clock at the file's start, ns since 1970; for people.
    pub wall_ns: u64,
    /// CLOCK_MONOTONIC at the same instant: the clock of all records.
    pub base: Stamp,
    /// Random per start of the sidecar; files of one start belong together.
    pub incarnation: u64,
    /// Number of this file since then, from 0.
    pub sequence: u32,
    /// Node id of the sidecar that recorded.
    pub node: String,
}

impl Header {
    /// The bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend(self.wall_ns.to_be_bytes());
        body.extend(self.base.as_nanos().to_be_bytes());
        body.extend(self.incarnation.to_be_bytes());
        body.extend(self.sequence.to_be_bytes());
        varint::put_text(&mut body, &self.node);
        let mut out = MAGIC.to_vec();
        out.extend(VERSION.to_be_bytes());
        out.extend((body.len() as u16).to_be_bytes());
        out.extend(body);
        let sum = crc(&out);
        out.extend(sum.to_be_bytes());
        out
    }

    /// The header at the beginning of `bytes` and its length; None if there are too few of them. Fields of a later
    /// version behind the known ones are ignored.
    ///
    /// # Errors
    /// It is no trace, of a later version, or damaged.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Header, usize)>, FormatError> {
        let known = bytes.len().min(MAGIC.len());
        if bytes[..known] != MAGIC[..known] {
            return Err(FormatError::NotATrace);
        }
        let Some(head) = bytes.first_chunk::<HEADER_HEAD>() else { return Ok(None) };
        let version = u16::from_be_bytes([head[8], head[9]]);
        if version > VERSION {
            return Err(FormatError::LaterVersion(version));
        }
        let end = HEADER_HEAD + usize::from(u16::from_be_bytes([head[10], head[11]]));
        if end > HEADER_MAX {
            return Err(FormatError::Corrupt("the header claims to be too long"));
        }
        let Some(sum) = bytes.get(end..end + 4) else { return Ok(None) };
        if sum != crc(&bytes[..end]).to_be_bytes() {
            return Err(FormatError::Corrupt("the header's checksum is wrong"));
        }
        let mut body = &bytes[HEADER_HEAD..end];
        let wall_ns = take_u64(&mut body)?;
        let base = Stamp::from_nanos(take_u64(&mut body)?);
        let incarnation = take_u64(&mut body)?;
        let sequence = u32::from_be_bytes(take(&mut body)?);
        let node = varint::Rest(body).text()?.to_owned();
        Ok(Some((Header { wall_ns, base, incarnation, sequence, node }, end + 4)))
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], FormatError> {
    let (first, rest) =
        bytes.split_first_chunk::<N>().ok_or(FormatError::Corrupt("the header is too short"))?;
    *bytes = rest;
    Ok(*first)
}

fn take_u64(bytes: &mut &[u8]) -> Result<u64, FormatError> {
    take(bytes).map(u64::from_be_bytes)
}

/// The fixed part of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlockHead {
    /// Bytes of records.
    len: u32,
    /// Number of records.
    count: u32,
    /// The worker whose records these are; [`NO_WORKER`] for the writer's own.
    worker: u16,
    /// The first record's time is told from here.
    base: Stamp,
    /// Checksum of the records.
    sum: u32,
}

/// In place of a worker: what the writer says itself.
pub const NO_WORKER: u16 = u16::MAX;

impl BlockHead {
    fn encode(&self) -> [u8; BLOCK_HEAD] {
        let mut out = [0; BLOCK_HEAD];
        out[..4].copy_from_slice(&SYNC);
        out[4..8].copy_from_slice(&self.len.to_be_bytes());
        out[8..12].copy_from_slice(&self.count.to_be_bytes());
        out[12..14].copy_from_slice(&self.worker.to_be_bytes());
        out[16..24].copy_from_slice(&self.base.as_nanos().to_be_bytes());
        out[24..28].copy_from_slice(&self.sum.to_be_bytes());
        let sum = crc(&out[..28]);
        out[28..].copy_from_slice(&sum.to_be_bytes());
        out
    }

    /// None if these bytes are no head of a block.
    fn decode(bytes: &[u8; BLOCK_HEAD]) -> Option<BlockHead> {
        let at = |i: usize| u32::from_be_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]);
        let head = BlockHead {
            len: at(4),
            count: at(8),
            worker: u16::from_be_bytes([bytes[12], bytes[13]]),
            base: Stamp::from_nanos(u64::from(at(16)) << 32 | u64::from(at(20))),
            sum: at(24),
        };
        let right = bytes[..4] == SYNC && at(28) == crc(&bytes[..28]);
        (right && head.len as usize <= BLOCK_MAX).then_some(head)
    }
}

/// A block being filled: nothing but one growing buffer.
#[derive(Debug)]
pub struct Builder {
    bytes: Vec<u8>,
    base: Stamp,
    last: Stamp,
    link: u32,
    count: u32,
}

impl Default for Builder {
    fn default() -> Self {
        Builder::new()
    }
}

impl Builder {
    /// An empty block.
    pub fn new() -> Builder {
        Builder { bytes: Vec::new(), base: Stamp::ZERO, last: Stamp::ZERO, link: 0, count: 0 }
    }

    /// Adds a record. A block that holds less than half of [`BLOCK_MAX`] has room for any.
    pub fn push(&mut self, record: &Record) {
        if self.count == 0 {
            self.bytes.resize(BLOCK_HEAD, 0);
            (self.base, self.last) = (record.at, record.at);
        }
        record::put(&mut self.bytes, record, self.link, self.last);
        (self.link, self.last) = (record.link, record.at);
        self.count += 1;
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True if there is no record in it.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Records so far.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Time of the last record; of the one before the first, if there is none.
    pub fn last(&self) -> Stamp {
        self.last
    }

    /// The bytes of the block, head included; the builder is empty again.
    pub fn finish(&mut self, worker: u16) -> Vec<u8> {
        let capacity = self.bytes.capacity();
        let mut bytes = std::mem::replace(&mut self.bytes, Vec::with_capacity(capacity));
        let records = &bytes[BLOCK_HEAD.min(bytes.len())..];
        let head = BlockHead {
            len: records.len() as u32,
            count: self.count,
            worker,
            base: self.base,
            sum: crc(records),
        };
        bytes.resize(bytes.len().max(BLOCK_HEAD), 0);
        bytes[..BLOCK_HEAD].copy_from_slice(&head.encode());
        (self.count, self.link) = (0, 0);
        bytes
    }

    /// Forgets what is in it.
    pub fn clear(&mut self) {
        self.bytes.clear();
        (self.count, self.link) = (0, 0);
    }
}
