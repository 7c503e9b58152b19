//! Which file a block goes to: rotation, what is kept, and what happens when the disk says no.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use super::disk::Disk;
use crate::metrics::Metrics;
use crate::stamp::{Stamp, nanos};
use crate::trace::format::{Builder, Event, Header, LinkInfo, NO_WORKER, Record};
use crate::trace::recorder::{Change, Chunk};

/// After an error the disk is left alone for this long.
const RETRY: Duration = Duration::from_secs(10);
/// The links that are there are told anew after so many bytes, so that damage costs no more than these.
const TELL_EVERY: u64 = 1 << 20;
/// The writer's own blocks are ended at this length.
const BLOCK: usize = 16 * 1024;

/// Whose files.
pub(super) struct Identity {
    pub(super) node: String,
    pub(super) incarnation: u64,
    /// Wall clock of the start, ms since 1970: names sort by it.
    pub(super) start_ms: u64,
}

impl Identity {
    /// What the names of this node's files begin with.
    pub(super) fn prefix(&self) -> String {
        let fine = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
        let node: String = self.node.chars().take(64).map(fine).collect();
        format!("sidebeat-{node}")
    }

    pub(super) fn name(&self, sequence: u32) -> String {
        format!("{}-{:013}-{sequence:06}.trace", self.prefix(), self.start_ms)
    }

    /// True for a file that this node wrote, in this run or an earlier one.
    pub(super) fn is_ours(&self, name: &str) -> bool {
        let middle = name.strip_prefix(&self.prefix()).and_then(|n| n.strip_suffix(".trace"));
        let number =
            |text: &str, least: usize| text.len() >= least && text.bytes().all(|b| b.is_ascii_digit());
        match middle.map(|m| m.split('-').collect::<Vec<_>>()).as_deref() {
            Some(["", start, sequence]) => number(start, 13) && number(sequence, 6),
            _ => false,
        }
    }
}

struct Open {
    file: Box<dyn Write + Send>,
    size: u64,
    /// Size at which the links are told anew.
    tell_at: u64,
}

/// The files of one run.
pub(super) struct Files<D> {
    disk: D,
    max_size: u64,
    keep: usize,
    id: Identity,
    metrics: Arc<Metrics>,
    sequence: u32,
    open: Option<Open>,
    retry_at: Stamp,
    failing: bool,
    live: BTreeMap<u32, Arc<LinkInfo>>,
    /// Records of each worker that were lost here since its last block.
    lost: BTreeMap<u16, u64>,
}

impl<D: Disk> Files<D> {
    pub(super) fn new(disk: D, max_size: u64, keep: usize, id: Identity, metrics: Arc<Metrics>) -> Files<D> {
        Files {
            disk,
            max_size,
            keep: keep.max(1),
            id,
            metrics,
            sequence: 0,
            open: None,
            retry_at: Stamp::ZERO,
            failing: false,
            live: BTreeMap::new(),
            lost: BTreeMap::new(),
        }
    }

    /// The first file. Where another recorder of this process still writes, `shared`, its files stay until [`Files::settle`].
    pub(super) fn begin(&mut self, now: Stamp, wall: Duration, shared: bool) -> io::Result<()> {
        let names = self.disk.names()?;
        // After a step of the wall clock an earlier run may have begun in the same millisecond.
        while names.contains(&self.id.name(0)) {
            self.id.start_ms += 1;
        }
        if !shared {
            self.prune()?;
        }
        // Half a header is no file that anybody could read.
        self.create(now, wall).inspect_err(|_| self.withdraw())
    }

    /// The first file goes again: nothing will be recorded.
    pub(super) fn withdraw(&mut self) {
        self.open = None;
        let first = self.sequence.saturating_sub(1);
        // What cannot be removed is a header without records: no harm.
        let _ = self.disk.remove(&self.id.name(first));
    }

    /// This recorder is the only one from here on.
    pub(super) fn settle(&mut self) {
        if let Err(error) = self.prune() {
            self.metrics.trace.errors.inc();
            tracing::warn!(error = %error, "old traces cannot be removed");
        }
    }

    /// A block of a worker. What cannot be written is counted; it never fails.
    pub(super) fn take(&mut self, chunk: Chunk, now: Stamp, wall: Duration) {
        let written = if self.open.is_none() && now < self.retry_at {
            Err(None)
        } else {
            self.write(&chunk, now, wall).map_err(Some)
        };
        match written {
            Ok(()) if self.failing => {
                self.failing = false;
                tracing::info!("the trace goes on");
            }
            Ok(()) => {}
            Err(error) => self.failed(&chunk, now, error),
        }
        for change in &chunk.links {
            match change {
                Change::Up(id, info) => drop(self.live.insert(*id, info.clone())),
                Change::Down(id) => drop(self.live.remove(id)),
            }
        }
    }

    fn failed(&mut self, chunk: &Chunk, now: Stamp, error: Option<io::Error>) {
        if let Some(error) = error {
            self.metrics.trace.errors.inc();
            if !self.failing {
                tracing::warn!(error = %error, "the trace cannot be written; traffic goes on, it is tried again each 10 s");
            }
            // What is half written is never continued: the next try begins a file.
            (self.open, self.failing, self.retry_at) = (None, true, now + RETRY);
        }
        *self.lost.entry(chunk.worker).or_default() += u64::from(chunk.count);
        self.metrics.trace.dropped.inc_by(u64::from(chunk.count));
    }

    fn write(&mut self, chunk: &Chunk, now: Stamp, wall: Duration) -> io::Result<()> {
        let fits = |o: &Open| o.size + chunk.bytes.len() as u64 <= self.max_size;
        if !self.open.as_ref().is_some_and(fits) {
            self.rotate(now, wall)?;
        } else if self.open.as_ref().is_some_and(|o| o.size >= o.tell_at) {
            self.tell_links(now)?;
        }
        self.tell_holes(now)?;
        self.append(&chunk.bytes)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let open = self.open.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        open.file.write_all(bytes)?;
        open.size += bytes.len() as u64;
        self.metrics.trace.bytes.inc_by(bytes.len() as u64);
        Ok(())
    }

    /// Begins the next file; the oldest go, so that there are never more than are kept.
    fn rotate(&mut self, now: Stamp, wall: Duration) -> io::Result<()> {
        self.open = None;
        self.prune()?;
        self.create(now, wall)
    }

    /// Leaves room for one file: for the open one, or for the one that will be. Files that sort behind the open one are
    /// those of a recorder that is about to take over.
    fn prune(&mut self) -> io::Result<()> {
        let mine = self.open.is_some().then(|| self.id.name(self.sequence.saturating_sub(1)));
        let ours = |n: &String| self.id.is_ours(n) && mine.as_ref().is_none_or(|m| n < m);
        let mut ours: Vec<_> = self.disk.names()?.into_iter().filter(ours).collect();
        ours.sort();
        let surplus = (ours.len() + 1).saturating_sub(self.keep);
        for name in ours.iter().take(surplus) {
            self.disk.remove(name)?;
        }
        Ok(())
    }

    fn create(&mut self, now: Stamp, wall: Duration) -> io::Result<()> {
        let sequence = self.sequence;
        // Its number is used up, whatever becomes of it.
        self.sequence += 1;
        let file = self.disk.create(&self.id.name(sequence))?;
        self.metrics.trace.files.inc();
        self.open = Some(Open { file, size: 0, tell_at: TELL_EVERY });
        let header = Header {
            wall_ns: nanos(wall),
            base: now,
            incarnation: self.id.incarnation,
            sequence,
            node: self.id.node.clone(),
        };
        self.append(&header.encode())?;
        self.tell_links(now)
    }

    /// The links that are there, for whoever reads from here on.
    fn tell_links(&mut self, now: Stamp) -> io::Result<()> {
        let links = self.live.iter().map(|(link, info)| Record {
            link: *link,
            at: now,
            event: Event::Known(info.clone()),
        });
        let bytes = blocks(links, NO_WORKER);
        self.append(&bytes)?;
        if let Some(open) = &mut self.open {
            open.tell_at = open.size + TELL_EVERY.max(bytes.len() as u64 * 8);
        }
        Ok(())
    }

    /// What was lost here, so that nobody takes it for silence.
    fn tell_holes(&mut self, now: Stamp) -> io::Result<()> {
        while let Some((&worker, &lost)) = self.lost.first_key_value() {
            let gap = Record { link: 0, at: now, event: Event::Gap(lost) };
            let mine = self.live.iter().filter(|(_, i)| i.worker == worker);
            let known = mine.map(|(link, i)| Record { link: *link, at: now, event: Event::Known(i.clone()) });
            let bytes = blocks(std::iter::once(gap).chain(known), worker);
            self.append(&bytes)?;
            self.lost.remove(&worker);
        }
        Ok(())
    }
}

/// Records of the writer itself, in blocks.
fn blocks(records: impl Iterator<Item = Record>, worker: u16) -> Vec<u8> {
    let (mut block, mut bytes) = (Builder::new(), Vec::new());
    for record in records {
        block.push(&record);
        if block.len() >= BLOCK {
            bytes.extend(block.finish(worker));
        }
    }
    if !block.is_empty() {
        bytes.extend(block.finish(worker));
    }
    bytes
}
