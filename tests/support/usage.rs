//! What a sidecar holds, before and after: descriptors, connections, streams, links, tasks and memory.

use std::time::Duration;

use super::eventually;
use super::pair::{Pair, Sidecar};

/// Long enough for everything that ends by itself, idle links that nobody needs included.
const REST: Duration = Duration::from_secs(90);
/// Looks in a row that must see the same before it counts as at rest.
const LOOKS: usize = 10;
/// A doubt leaves up to so many links per worker behind as witnesses, for a minute; each has a descriptor and a task.
const WITNESSES: u64 = 2;
/// What an allocator may keep for itself, and what a connection may cost for ever, bytes. Measured were up to 350 KiB,
/// after 500 connections and after 100 000 alike.
const SLACK: u64 = 512 * 1024;
const PER_CONNECTION: u64 = 128;

/// Of one sidecar.
#[derive(Clone, Debug)]
pub(crate) struct Usage {
    name: &'static str,
    /// Application connections.
    connections: u64,
    streams: u64,
    links: u64,
    workers: u64,
    fds: u64,
    tasks: u64,
    resident: u64,
}

impl Usage {
    fn of(sidecar: &Sidecar) -> Usage {
        let gauge = |name| sidecar.metric(name, &[]).unwrap_or(0.0) as u64;
        let status: serde_json::Value = serde_json::from_str(&sidecar.status()).expect("JSON");
        let tasks = status["tasks"].as_array().expect("one number per worker");
        Usage {
            name: sidecar.name,
            connections: gauge("sidebeat_connections_active"),
            streams: gauge("sidebeat_streams_active"),
            links: gauge("sidebeat_links_active"),
            workers: tasks.len() as u64,
            tasks: tasks.iter().map(|n| n.as_u64().expect("a number")).sum(),
            fds: sidecar.process().fds() as u64,
            resident: sidecar.process().rss(),
        }
    }

    /// Bytes.
    pub(crate) fn resident(&self) -> u64 {
        self.resident
    }

    fn counts(&self) -> [u64; 5] {
        [self.connections, self.streams, self.links, self.fds, self.tasks]
    }

    /// Nothing more than `before`, but for witnesses.
    fn within(&self, before: &Usage) -> bool {
        let links = self.links.saturating_sub(before.links);
        links <= WITNESSES * self.workers
            && self.connections <= before.connections
            && self.streams <= before.streams
            && self.fds <= before.fds + links
            && self.tasks <= before.tasks + links
    }
}

fn of(pair: &Pair) -> Vec<Usage> {
    pair.sidecars().map(Usage::of).collect()
}

/// What each sidecar of a pair holds when nothing goes on any more.
pub(crate) fn at_rest(pair: &Pair) -> Vec<Usage> {
    let mut same: Vec<Vec<[u64; 5]>> = Vec::new();
    eventually(REST, "nothing goes on any more", || {
        let now = of(pair);
        let counts: Vec<_> = now.iter().map(Usage::counts).collect();
        if same.last() != Some(&counts) {
            same.clear();
        }
        same.push(counts);
        if same.len() >= LOOKS { Ok(now) } else { Err(format!("{now:?}")) }
    })
}

/// Everything that came after `before` is gone again; gives what is left.
pub(crate) fn all_given_back(pair: &Pair, before: &[Usage]) -> Vec<Usage> {
    eventually(REST, "all is given back", || {
        let now = of(pair);
        let all = now.iter().zip(before).all(|(now, before)| now.within(before));
        if all { Ok(now) } else { Err(format!("{now:?}\nbefore: {before:?}")) }
    })
}

/// `count` connections after `before` have cost next to no memory; the first ones of their kind were before.
pub(crate) fn memory_given_back(pair: &Pair, before: &[Usage], count: usize) {
    for (now, before) in all_given_back(pair, before).iter().zip(before) {
        let grown = now.resident.saturating_sub(before.resident);
        println!(
            "{}: {} KiB more after {count} connections, {} bytes each; {now:?}",
            now.name,
            grown >> 10,
            grown / count as u64
        );
        let most = SLACK + PER_CONNECTION * count as u64;
        assert!(grown < most, "{count} connections cost {grown} bytes: {now:?}, before {before:?}");
    }
}
