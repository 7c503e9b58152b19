//! The links of one endpoint on one worker: which of them takes a stream, and which are too many.

use std::rc::Rc;

use super::side::OutboundSide;
use crate::link::Link;
use crate::verdict::State;
use crate::worker::IdMap;

/// Links of one endpoint on this worker.
#[derive(Default)]
pub(super) struct Slot {
    /// New streams go here.
    pub(super) main: Option<Rc<Link>>,
    /// Every live link: witnesses and per-connection links too.
    pub(super) all: IdMap<u64, Held>,
    /// Dials for a main link under way.
    pub(super) dialing: usize,
}

/// A live link.
pub(super) struct Held {
    pub(super) link: Rc<Link>,
    /// Not the link of a single connection.
    pub(super) shared: bool,
    pub(super) side: Rc<OutboundSide>,
}

/// Links of an endpoint and worker that are kept beside the main one although no stream is on them: witnesses.
const WITNESSES: usize = 2;

impl Slot {
    /// Shared links beside the main one that carry nothing, oldest first.
    pub(super) fn idle(&self) -> Vec<Rc<Link>> {
        let main = self.main.as_ref().map(|l| l.id);
        let idle = |h: &&Held| h.shared && Some(h.link.id) != main && h.link.stream_count() == 0;
        let mut idle: Vec<_> = self.all.values().filter(idle).map(|h| h.link.clone()).collect();
        idle.sort_unstable_by_key(|l| l.id);
        idle
    }

    /// Idle links beyond what is needed as witness. A peer that welcomes every dial and then falls silent would
    /// collect them.
    pub(super) fn surplus(&self) -> Vec<Rc<Link>> {
        let mut idle = self.idle();
        idle.truncate(idle.len().saturating_sub(WITNESSES));
        idle
    }

    /// A link that takes another stream: the main one, or one beside it that has room again.
    pub(super) fn open_link(&self) -> Option<Rc<Link>> {
        let fit = |h: &&Held| h.shared && !h.side.shunned.get() && !h.link.is_draining();
        let beside = || self.all.values().filter(fit).map(|h| &h.link);
        let well = |l: &&Rc<Link>| l.with_judge(|j| j.state() == State::Active).unwrap_or(true);
        self.main
            .iter()
            .filter(|l| self.all.get(&l.id).is_none_or(|h| !h.side.shunned.get()))
            .find(|l| l.takes_streams())
            .or_else(|| beside().filter(well).find(|l| l.takes_streams()))
            .cloned()
    }
}
