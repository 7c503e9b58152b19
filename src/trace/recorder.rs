//! The worker's end: judges' inputs into a block, full blocks to the thread that writes. Never waits and never grows: what
//! the writer does not keep up with is counted, and the hole is written.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::sync::mpsc::Sender;

use super::format::{Builder, Event, LinkInfo, Record};
use crate::detector::{End, Input, Tap};
use crate::metrics::Metrics;
use crate::stamp::Stamp;

/// A block is handed over when it has so many bytes, or 200 ms after the last one.
const BLOCK: usize = 16 * 1024;
/// Blocks of one worker that may wait for the writer: a quarter of a MiB.
const WAITING: usize = 16;

/// A block on its way to the writer.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) worker: u16,
    /// Head and records; empty if only links went.
    pub(super) bytes: Vec<u8>,
    pub(super) count: u32,
    /// Links that came and went, for the writer's own list.
    pub(super) links: Vec<Change>,
    waiting: Arc<AtomicUsize>,
}

#[cfg(test)]
impl Chunk {
    /// A block as a worker would hand it over.
    pub(super) fn new(worker: u16, bytes: Vec<u8>, count: u32, links: Vec<Change>) -> Chunk {
        Chunk { worker, bytes, count, links, waiting: Arc::new(AtomicUsize::new(1)) }
    }
}

/// A link came or went.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Up(u32, Arc<LinkInfo>),
    Down(u32),
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.waiting.fetch_sub(1, Release);
    }
}

/// What a worker's recorder is made of; crosses to the worker's thread.
#[derive(Debug)]
pub struct Seed {
    pub(super) worker: u16,
    pub(super) to: Sender<Chunk>,
    pub(super) shared: Arc<Shared>,
}

/// Shared by the recorders of all workers.
#[derive(Debug)]
pub(super) struct Shared {
    /// Links recorded now, and the most there may be.
    pub(super) links: AtomicUsize,
    pub(super) links_max: usize,
    pub(super) next_link: AtomicU32,
    pub(super) metrics: Arc<Metrics>,
}

impl Seed {
    /// On the worker's thread.
    pub fn recorder(self) -> Rc<Recorder> {
        let state = State {
            block: Builder::new(),
            changes: Vec::new(),
            live: BTreeMap::new(),
            lost: 0,
            to: Some(self.to),
            waiting: Arc::default(),
        };
        Rc::new(Recorder { worker: self.worker, shared: self.shared, state: RefCell::new(state) })
    }
}

struct State {
    block: Builder,
    changes: Vec<Change>,
    live: BTreeMap<u32, Arc<LinkInfo>>,
    /// Records that were dropped since the last block left.
    lost: u64,
    /// None once closed.
    to: Option<Sender<Chunk>>,
    waiting: Arc<AtomicUsize>,
}

/// See the module.
pub struct Recorder {
    worker: u16,
    shared: Arc<Shared>,
    state: RefCell<State>,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recorder({})", self.worker)
    }
}

impl Recorder {
    /// A link begins: the tap for its judge, which begins at `now` too. None if as many links are recorded as may be.
    pub fn link(self: &Rc<Self>, now: Stamp, info: impl FnOnce(u16) -> LinkInfo) -> Option<Box<dyn Tap>> {
        let most = self.shared.links_max;
        let more = |n| (n < most).then_some(n + 1);
        if self.shared.links.fetch_update(Relaxed, Relaxed, more).is_err() {
            self.shared.metrics.trace.unrecorded_links.inc();
            return None;
        }
        let id = self.shared.next_link.fetch_add(1, Relaxed);
        let info = Arc::new(info(self.worker));
        let mut s = self.state.borrow_mut();
        s.live.insert(id, info.clone());
        s.changes.push(Change::Up(id, info.clone()));
        self.add(&mut s, &Record { link: id, at: now, event: Event::Begin(info) });
        Some(Box::new(LinkTap { id, recorder: self.clone(), ended: false }))
    }

    /// The worker ends: so do the links that are still there. Nothing is recorded from now on, and the writer may end.
    pub fn close(&self) {
        let mut s = self.state.borrow_mut();
        if s.to.is_none() {
            return;
        }
        let at = s.block.last();
        for link in s.live.keys().copied().collect::<Vec<_>>() {
            let event = Event::Input(Input::Ended { at, how: End::Unknown });
            self.add(&mut s, &Record { link, at, event });
        }
        drop(s);
        self.flush();
        self.state.borrow_mut().to = None;
    }

    /// What is in the block leaves now. Call it a few times a second.
    pub fn flush(&self) {
        let mut s = self.state.borrow_mut();
        if s.lost > 0 {
            let at = s.block.last();
            self.resume(&mut s, at);
        }
        self.hand_over(&mut s);
    }

    fn add(&self, s: &mut State, record: &Record) {
        if s.to.is_none() {
            return;
        }
        if s.lost > 0 && !self.resume(s, record.at) {
            return self.lose(s, 1);
        }
        s.block.push(record);
        if s.block.len() >= BLOCK {
            self.hand_over(s);
        }
    }

    fn lose(&self, s: &mut State, n: u64) {
        s.lost += n;
        self.shared.metrics.trace.dropped.inc_by(n);
    }

    fn hand_over(&self, s: &mut State) {
        if s.to.is_none() || s.block.is_empty() && s.changes.is_empty() {
            return;
        }
        if s.waiting.load(Acquire) >= WAITING {
            let n = s.block.count();
            s.block.clear();
            // What links came and went is kept: the writer must know which ones are there.
            return self.lose(s, u64::from(n));
        }
        let count = s.block.count();
        let bytes = if count > 0 { s.block.finish(self.worker) } else { Vec::new() };
        s.waiting.fetch_add(1, Relaxed);
        let links = std::mem::take(&mut s.changes);
        let chunk = Chunk { worker: self.worker, bytes, count, links, waiting: s.waiting.clone() };
        let sent = s.to.as_ref().is_some_and(|to| to.send(chunk).is_ok());
        if !sent {
            // The writer is gone: a defect of its own, told in the log. Nothing is recorded any more.
            self.lose(s, u64::from(count));
        }
    }

    /// Goes on behind a hole, if there is room again: tells the hole, and which links are there.
    fn resume(&self, s: &mut State, at: Stamp) -> bool {
        if s.waiting.load(Acquire) >= WAITING {
            return false;
        }
        let lost = std::mem::take(&mut s.lost);
        s.block.push(&Record { link: 0, at, event: Event::Gap(lost) });
        let live: Vec<_> = s.live.iter().map(|(id, info)| (*id, info.clone())).collect();
        for (link, info) in live {
            s.block.push(&Record { link, at, event: Event::Known(info) });
            if s.block.len() >= BLOCK {
                self.hand_over(s);
                if s.lost > 0 {
                    s.lost += lost;
                    return false;
                }
            }
        }
        true
    }

    fn gone(&self, id: u32) {
        let mut s = self.state.borrow_mut();
        if s.live.remove(&id).is_none() {
            return;
        }
        self.shared.links.fetch_sub(1, Relaxed);
        // A link that comes and goes between two blocks is none of the writer's list; so the changes that wait stay few.
        let before = s.changes.len();
        s.changes.retain(|c| !matches!(c, Change::Up(up, _) if *up == id));
        if s.changes.len() == before {
            s.changes.push(Change::Down(id));
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.close();
    }
}

/// The tap of one link's judge.
#[derive(Debug)]
struct LinkTap {
    id: u32,
    recorder: Rc<Recorder>,
    ended: bool,
}

impl Tap for LinkTap {
    fn note(&mut self, input: &Input) {
        if self.ended {
            return;
        }
        self.ended = matches!(input, Input::Ended { .. });
        let record = Record { link: self.id, at: input.at(), event: Event::Input(*input) };
        self.recorder.add(&mut self.recorder.state.borrow_mut(), &record);
        if self.ended {
            self.recorder.gone(self.id);
        }
    }
}

impl Drop for LinkTap {
    fn drop(&mut self) {
        let at = self.recorder.state.borrow().block.last();
        self.note(&Input::Ended { at, how: End::Unknown });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    use super::*;
    use crate::metrics::BuildInfo;
    use crate::trace::format::{Header, Item, Scanner};

    fn info(worker: u16) -> LinkInfo {
        LinkInfo {
            worker,
            upstream: "u".to_owned(),
            endpoint: "e".to_owned(),
            node: "n".to_owned(),
            law: "promise".to_owned(),
            settings: String::new(),
            first_promise: Duration::from_millis(100),
        }
    }

    fn bench(links_max: usize) -> (Rc<Recorder>, Receiver<Chunk>, Arc<Metrics>) {
        let (to, chunks) = channel();
        let metrics = Metrics::new(BuildInfo::current());
        let shared = Shared {
            links: AtomicUsize::new(0),
            links_max,
            next_link: AtomicU32::new(1),
            metrics: metrics.clone(),
        };
        (Seed { worker: 2, to, shared: Arc::new(shared) }.recorder(), chunks, metrics)
    }

    fn at(ns: u64) -> Stamp {
        Stamp::from_nanos(ns)
    }

    fn records(chunks: impl Iterator<Item = Chunk>) -> Vec<Record> {
        let mut scanner = Scanner::new();
        let header =
            Header { wall_ns: 0, base: Stamp::ZERO, incarnation: 1, sequence: 0, node: String::new() };
        scanner.feed(&header.encode());
        let mut all = Vec::new();
        for chunk in chunks {
            scanner.feed(&chunk.bytes);
            while let Some(item) = scanner.next_item().unwrap() {
                match item {
                    Item::Block { worker, records } => {
                        assert_eq!((worker, records.len()), (2, chunk.count as usize));
                        all.extend(records);
                    }
                    Item::Header(_) => {}
                    Item::Damage(d) => panic!("{d:?}"),
                }
            }
        }
        all
    }

    #[test]
    fn what_a_judge_is_told_is_what_is_recorded() {
        let (recorder, chunks, metrics) = bench(10);
        let mut tap = recorder.link(at(100), info).unwrap();
        let told = [
            Input::Heard { at: at(200) },
            Input::Promised { at: at(200), promise: Duration::from_millis(20) },
            Input::Ended { at: at(300), how: End::Fin },
        ];
        told.iter().for_each(|i| tap.note(i));
        tap.note(&Input::Heard { at: at(400) });
        drop(tap);
        drop(recorder);
        let all: Vec<_> = chunks.iter().collect();
        assert!(all.iter().all(|c| c.links.is_empty()), "came and went at once: {all:?}");
        let got = records(all.into_iter());
        assert_eq!(got[0], Record { link: 1, at: at(100), event: Event::Begin(Arc::new(info(2))) });
        let inputs = told.map(|i| Record { link: 1, at: i.at(), event: Event::Input(i) });
        assert_eq!(got[1..], inputs, "nothing after the end");
        assert_eq!(metrics.trace.dropped.get(), 0);
    }

    #[test]
    fn a_tap_that_is_dropped_ends_its_link() {
        let (recorder, chunks, _) = bench(10);
        let mut tap = recorder.link(at(100), info).unwrap();
        recorder.flush();
        tap.note(&Input::Heard { at: at(250) });
        drop(tap);
        drop(recorder);
        let all: Vec<_> = chunks.iter().collect();
        let changes: Vec<_> = all.iter().flat_map(|c| &c.links).collect();
        assert!(matches!(changes[..], [Change::Up(1, _), Change::Down(1)]), "{changes:?}");
        let last = records(all.into_iter()).pop().unwrap();
        assert_eq!(last.event, Event::Input(Input::Ended { at: at(250), how: End::Unknown }));
    }

    /// Links that are never dropped (streams and their link hold each other) must not keep the writer waiting.
    #[test]
    fn a_closed_recorder_lets_the_writer_go() {
        let (recorder, chunks, _) = bench(10);
        let mut tap = recorder.link(at(100), info).unwrap();
        tap.note(&Input::Heard { at: at(300) });
        recorder.close();
        tap.note(&Input::Heard { at: at(400) });
        let got = records(chunks.iter());
        let ended = Event::Input(Input::Ended { at: at(300), how: End::Unknown });
        assert_eq!(got.last().map(|r| &r.event), Some(&ended));
        assert_eq!(got.len(), 3);
        drop(tap);
    }

    #[test]
    fn only_so_many_links_are_recorded() {
        let (recorder, _chunks, metrics) = bench(2);
        let first = recorder.link(at(1), info);
        let _second = recorder.link(at(2), info).unwrap();
        assert!(recorder.link(at(3), info).is_none());
        assert_eq!(metrics.trace.unrecorded_links.get(), 1);
        drop(first);
        assert!(recorder.link(at(4), info).is_some());
    }

    #[test]
    fn what_the_writer_does_not_take_is_counted_and_the_hole_is_written() {
        let (recorder, chunks, metrics) = bench(10);
        let mut tap = recorder.link(at(100), info).unwrap();
        let mut told = 0u64;
        while metrics.trace.dropped.get() < 1000 {
            told += 1;
            assert!(told < 1_000_000, "the buffer has no bound");
            tap.note(&Input::Heard { at: at(1000 + told * 1_000_000) });
        }
        let mut waiting: Vec<Chunk> = Vec::new();
        while let Ok(chunk) = chunks.try_recv() {
            waiting.push(chunk);
        }
        assert_eq!(waiting.len(), WAITING);
        assert!(waiting.iter().all(|c| c.bytes.len() < 2 * BLOCK));
        // A link that begins within the hole is known behind it; one that ended there is not.
        let mut within = recorder.link(at(2_000_000_000_000), info).unwrap();
        drop(tap);
        let kept = records(waiting.into_iter());
        let dropped = metrics.trace.dropped.get();
        within.note(&Input::Heard { at: at(3_000_000_000_000) });
        assert_eq!(metrics.trace.dropped.get(), dropped, "there is room again");
        drop(within);
        drop(recorder);
        let rest = records(chunks.iter());
        assert_eq!(rest[0].event, Event::Gap(dropped));
        assert_eq!(rest[1].event, Event::Known(Arc::new(info(2))));
        assert_eq!((rest[1].link, rest[2].link), (2, 2));
        assert_eq!(rest[2].event, Event::Input(Input::Heard { at: at(3_000_000_000_000) }));
        // Told: both begins, every input, and the end of the first link.
        assert_eq!(kept.len() as u64 + dropped, told + 3);
    }
}
