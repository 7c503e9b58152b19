//! Pure: no IO, no clock. Which records of which link follow each other without a hole.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::detector::Input;
use crate::stamp::Stamp;
use crate::trace::format::{Event, LinkInfo, Record};
use crate::trace::reader::Step;

/// Links followed at once. A sidecar records at most a thousand; more are an invention and are passed over.
const LINKS_MAX: usize = 20_000;
/// A link of which nothing was recorded for so long is one that a hole hides: every link writes beats.
const SILENT_MAX: Duration = Duration::from_secs(24 * 3600);

/// A link: which run of which sidecar, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Number of the run.
    pub run: u32,
    /// Number of the link in it.
    pub link: u32,
}

/// What happens to a link.
#[derive(Debug)]
pub enum Seen<'a> {
    /// Its records begin here.
    Start {
        /// The link.
        key: Key,
        /// What is known of it.
        info: &'a Arc<LinkInfo>,
        /// Time of the first record.
        at: Stamp,
        /// The link itself begins: its judge was new.
        begun: bool,
    },
    /// Its judge was told this.
    Input {
        /// The link.
        key: Key,
        /// What.
        input: &'a Input,
    },
    /// A hole, or the end of the link.
    Stop {
        /// The link.
        key: Key,
    },
}

struct Link {
    info: Arc<LinkInfo>,
    /// Time of the latest record since the last hole.
    last: Option<Stamp>,
}

/// Follows the links of a set of files.
#[derive(Default)]
pub struct Tracks {
    run: u32,
    links: BTreeMap<u32, Link>,
    /// Records of links whose beginning is missing.
    pub unknown: u64,
    /// Holes: records that the recorder could not keep, missing files, damage.
    pub holes: u64,
    /// Records that the recorder says it could not keep.
    pub lost: u64,
}

impl Tracks {
    /// Nothing read yet.
    pub fn new() -> Tracks {
        Tracks::default()
    }

    /// Takes what the reader brought.
    pub fn step(&mut self, step: &Step<'_>, sink: &mut dyn FnMut(Seen<'_>)) {
        match step {
            Step::Run(_) => {
                self.stop(|_| true, sink);
                self.links.clear();
                self.run += 1;
            }
            Step::Hole => {
                self.holes += 1;
                self.stop(|_| true, sink);
            }
            Step::Record { worker, record } => self.record(*worker, record, sink),
        }
    }

    /// There is no more.
    pub fn finish(&mut self, sink: &mut dyn FnMut(Seen<'_>)) {
        self.stop(|_| true, sink);
    }

    fn stop(&mut self, of: impl Fn(&LinkInfo) -> bool, sink: &mut dyn FnMut(Seen<'_>)) {
        for (link, l) in self.links.iter_mut().filter(|(_, l)| of(&l.info)) {
            if l.last.take().is_some() {
                sink(Seen::Stop { key: Key { run: self.run, link: *link } });
            }
        }
    }

    fn record(&mut self, worker: u16, record: &Record, sink: &mut dyn FnMut(Seen<'_>)) {
        let key = Key { run: self.run, link: record.link };
        match &record.event {
            Event::Gap(lost) => {
                self.holes += 1;
                self.lost = self.lost.saturating_add(*lost);
                self.stop(|i| i.worker == worker, sink);
                // Some may have ended in the hole; those that are still there are told anew.
                self.links.retain(|_, l| l.info.worker != worker);
            }
            Event::Begin(info) => {
                if self.links.get(&record.link).is_some_and(|l| l.last.is_some()) {
                    sink(Seen::Stop { key });
                }
                if self.add(record.link, info, Some(record.at)) {
                    sink(Seen::Start { key, info, at: record.at, begun: true });
                }
            }
            Event::Known(info) => {
                if !self.links.contains_key(&record.link) {
                    self.add(record.link, info, None);
                }
            }
            Event::Input(input) => self.input(key, input, sink),
        }
    }

    fn add(&mut self, link: u32, info: &Arc<LinkInfo>, last: Option<Stamp>) -> bool {
        if self.links.len() >= LINKS_MAX && !self.links.contains_key(&link) {
            return false;
        }
        self.links.insert(link, Link { info: info.clone(), last });
        true
    }

    fn input(&mut self, key: Key, input: &Input, sink: &mut dyn FnMut(Seen<'_>)) {
        let at = input.at();
        let Some(link) = self.links.get_mut(&key.link) else {
            self.unknown += 1;
            return;
        };
        if link.last.is_some_and(|last| at.since(last) > SILENT_MAX) {
            self.holes += 1;
            link.last = None;
            sink(Seen::Stop { key });
        }
        if link.last.is_none() {
            sink(Seen::Start { key, info: &link.info, at, begun: false });
        }
        link.last = Some(at.max(link.last.unwrap_or_default()));
        sink(Seen::Input { key, input });
        if matches!(input, Input::Ended { .. }) {
            sink(Seen::Stop { key });
            self.links.remove(&key.link);
        }
    }
}
