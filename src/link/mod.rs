//! The link between two sidecars: many streams, one send queue, one promise (link.md).
//!
//! [`driver`] owns the socket and moves frames; [`stream`] is one application connection on it; [`handshake`] begins
//! it. What differs between the two ends (who judges, who vouches, who opens) is behind [`Side`]. [`pace`],
//! [`credit`], [`bulk`] and [`outq`] are pure.

pub mod beats;
pub mod bulk;
pub mod credit;
mod deliver;
pub mod driver;
pub mod duty;
mod handle;
pub mod handshake;
pub mod outq;
pub mod pace;
pub mod pressure;
pub mod receive;
mod send;
mod socket;
mod splice;
pub mod stream;
pub mod timer;
pub mod tune;

use std::rc::Rc;
use std::time::Duration;

use crate::detector;
use crate::metrics::LinkError;
use crate::stamp::Stamp;
use crate::verdict::Vouch;
use crate::wire::{self, BeatFlags};

pub use driver::{Link, LinkConf};
pub use stream::{Ended, Stream};

/// How a link ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The peer closed it without GOAWAY.
    Fin,
    /// The peer reset it.
    Rst,
    /// The kernel gave up on it.
    TimedOut,
    /// After GOAWAY.
    Goaway,
    /// We ended it in order, or the peer did that with the link of a single connection: nothing needs it any more.
    Done,
    /// A verdict cut it.
    Cut,
    /// The socket failed in another way.
    Io,
    /// The peer broke the protocol.
    Protocol(&'static str),
    /// The peer went over a cap.
    Limit(&'static str),
}

impl Lost {
    /// Short name for logs.
    pub fn label(&self) -> &'static str {
        match self {
            Lost::Fin => "fin",
            Lost::Rst => "rst",
            Lost::TimedOut => "timeout",
            Lost::Goaway => "goaway",
            Lost::Done => "done",
            Lost::Cut => "cut",
            Lost::Io => "io",
            Lost::Protocol(what) | Lost::Limit(what) => what,
        }
    }

    /// As it is counted; None for an end that was planned.
    pub fn error(&self) -> Option<LinkError> {
        match self {
            Lost::Fin => Some(LinkError::Eof),
            Lost::Rst => Some(LinkError::Reset),
            Lost::TimedOut => Some(LinkError::Timeout),
            Lost::Goaway | Lost::Done => None,
            Lost::Cut => Some(LinkError::Failed),
            Lost::Io => Some(LinkError::Io),
            Lost::Protocol(_) => Some(LinkError::Protocol),
            Lost::Limit(_) => Some(LinkError::Limit),
        }
    }

    /// The end was in order on both sides: what we still owe may leave.
    fn is_orderly(&self) -> bool {
        matches!(self, Lost::Fin | Lost::Goaway | Lost::Done)
    }

    /// As a trace tells it.
    fn end(&self) -> detector::End {
        match self {
            Lost::Fin => detector::End::Fin,
            Lost::Rst => detector::End::Rst,
            Lost::TimedOut => detector::End::TimedOut,
            Lost::Goaway => detector::End::Goaway,
            Lost::Done | Lost::Cut | Lost::Io => detector::End::Cut,
            Lost::Protocol(_) | Lost::Limit(_) => detector::End::Protocol,
        }
    }
}

/// What the beats of this side say.
#[derive(Clone, Copy, Debug, Default)]
pub struct BeatFacts {
    /// Of the service beside us.
    pub vouch: Vouch,
    /// Flags; `own_stall` is added by the link.
    pub flags: BeatFlags,
    /// Last batch, us.
    pub processing_us: u32,
    /// Turn-arounds.
    pub utility: u32,
    /// Requests in flight.
    pub in_flight: u16,
    /// Age of the oldest.
    pub oldest_ms: u16,
}

/// What the link's owner decides and is told. Calls come from the link's own worker; they must not block.
pub trait Side {
    /// Bytes arrived.
    fn heard(&self, now: Stamp);
    /// Latest arrival on any other link to the same node.
    fn others_heard(&self, link: &Link) -> Stamp;
    /// Latest moment at which the node had heard us on any other link, as far as this worker knows.
    fn others_hear(&self, link: &Link) -> Stamp;
    /// When other workers had asked on their links to the node after this one was doubted, as [`detector::Facts`] has it.
    fn others_asked(&self, _link: &Link) -> Stamp {
        Stamp::ZERO
    }
    /// The judge of the link said something (only where one judges).
    fn judged(&self, link: &Rc<Link>, now: Stamp, output: &detector::Output);
    /// A shadow beside that judge changed its mind.
    fn shadowed(&self, _link: &Link, _shift: &detector::Shift) {}
    /// A beat arrived.
    fn beat(&self, link: &Link, now: Stamp, beat: &wire::Beat);
    /// A silence past the deadline ended in life.
    fn late(&self, late: Duration);
    /// The peer is full, or no longer.
    fn backpressure(&self, now: Stamp, active: bool);
    /// The peer announced a pause.
    fn maintenance(&self, now: Stamp, duration: Duration);
    /// The peer is going away.
    fn goaway(&self, link: &Rc<Link>, now: Stamp, deadline: Duration);
    /// The link ended. Its streams are already told.
    fn lost(&self, link: &Rc<Link>, now: Stamp, how: &Lost);
    /// A stream was turned away: the link has as many as it may.
    fn full(&self) {}
    /// The peer opens a stream. False: streams may not be opened from there.
    fn open(&self, link: &Rc<Link>, stream: &Rc<Stream>, service: &str) -> bool;
    /// For the next beat.
    fn facts(&self, now: Stamp) -> BeatFacts;
    /// True if this link holds the node's short promise.
    fn on_duty(&self, link: u64) -> bool;
    /// Business bytes passed on this link.
    fn used(&self, link: u64, now: Stamp);
    /// The idle promise of this side now (it may grow with the number of links).
    fn idle_promise(&self) -> Duration;
}

/// Sees the bytes of one application connection; [`crate::evidence`] learns from it.
pub trait Meter {
    /// The application took `n` bytes.
    fn taken(&self, now: Stamp, n: usize);
    /// The application sent `n` bytes.
    fn sent(&self, now: Stamp, n: usize);
    /// The application ended the connection.
    fn ended(&self, now: Stamp, rst: bool);
}
