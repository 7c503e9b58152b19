use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::disk::Disk;
use super::*;
use crate::detector::Input;
use crate::metrics::BuildInfo;
use crate::stamp::Stamp;
use crate::trace::format::{Builder, Event, Item, LinkInfo, Record, Scanner};
use crate::trace::recorder::Change;

/// A disk in memory with so much room.
#[derive(Clone)]
struct Memory(Arc<Mutex<Inner>>);

struct Inner {
    files: BTreeMap<String, Vec<u8>>,
    room: usize,
}

impl Memory {
    fn new(room: usize) -> Memory {
        Memory(Arc::new(Mutex::new(Inner { files: BTreeMap::new(), room })))
    }

    fn with<T>(&self, f: impl FnOnce(&mut Inner) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn items(&self, name: &str) -> Vec<Item> {
        let bytes = self.with(|d| d.files[name].clone());
        let (mut scanner, mut items) = (Scanner::new(), Vec::new());
        scanner.feed(&bytes);
        scanner.end();
        while let Some(item) = scanner.next_item().unwrap() {
            items.push(item);
        }
        items
    }

    fn list(&self) -> Vec<String> {
        self.with(|d| d.files.keys().cloned().collect())
    }
}

struct Handle(Memory, String);

impl Write for Handle {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.with(|d| {
            if d.room == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let n = bytes.len().min(d.room);
            d.room -= n;
            d.files.get_mut(&self.1).expect("it is open").extend(&bytes[..n]);
            Ok(n)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Disk for Memory {
    fn create(&mut self, name: &str) -> io::Result<Box<dyn Write + Send>> {
        let old = self.with(|d| d.files.insert(name.to_owned(), Vec::new()));
        assert!(old.is_none(), "{name} is written twice");
        Ok(Box::new(Handle(self.clone(), name.to_owned())))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.list())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.with(|d| {
            let gone = d.files.remove(name).expect("only what is there is removed");
            d.room = d.room.saturating_add(gone.len());
        });
        Ok(())
    }
}

fn ms(n: u64) -> Stamp {
    Stamp::from_millis(n)
}

fn info(worker: u16, upstream: &str) -> Arc<LinkInfo> {
    Arc::new(LinkInfo {
        worker,
        upstream: upstream.to_owned(),
        endpoint: "e".to_owned(),
        node: "n".to_owned(),
        law: "promise".to_owned(),
        settings: String::new(),
        first_promise: Duration::from_millis(100),
    })
}

fn identity(node: &str) -> Identity {
    Identity { node: node.to_owned(), incarnation: 77, start_ms: 1_700_000_000_000 }
}

struct Bench {
    disk: Memory,
    files: Files<Memory>,
    metrics: Arc<Metrics>,
    now: u64,
}

impl Bench {
    fn new(room: usize, max_size: u64, keep: usize) -> Bench {
        let (disk, metrics) = (Memory::new(room), Metrics::new(BuildInfo::current()));
        let files = Files::new(disk.clone(), max_size, keep, identity("a/b"), metrics.clone());
        Bench { disk, files, metrics, now: 1000 }
    }

    fn begin(&mut self) -> io::Result<()> {
        self.files.begin(ms(self.now), Duration::from_secs(5), false)
    }

    /// A block of `n` arrivals on `link` of `worker`.
    fn arrivals(&mut self, worker: u16, link: u32, n: u32, links: Vec<Change>) {
        let mut block = Builder::new();
        for _ in 0..n {
            self.now += 1;
            let at = ms(self.now);
            block.push(&Record { link, at, event: Event::Input(Input::Heard { at }) });
        }
        let bytes = if n > 0 { block.finish(worker) } else { Vec::new() };
        let chunk = Chunk::new(worker, bytes, n, links);
        self.files.take(chunk, ms(self.now), Duration::from_secs(5));
    }

    fn records(&self, name: &str) -> Vec<(u16, Record)> {
        let items = self.disk.items(name);
        let blocks = items.into_iter().filter_map(|i| match i {
            Item::Block { worker, records } => Some((worker, records)),
            Item::Header(_) | Item::Damage(_) => None,
        });
        blocks.flat_map(|(worker, records)| records.into_iter().map(move |r| (worker, r))).collect()
    }
}

#[test]
fn files_are_rotated_and_the_oldest_go() {
    let mut b = Bench::new(usize::MAX, 4000, 3);
    b.disk.with(|d| {
        for foreign in ["notes.txt", "sidebeat-other-1600000000000-000000.trace", "sidebeat-a_b.lock"] {
            d.files.insert(foreign.to_owned(), vec![1]);
        }
        d.files.insert("sidebeat-a_b-1600000000000-000007.trace".to_owned(), vec![1]);
    });
    b.begin().unwrap();
    b.arrivals(0, 1, 10, vec![Change::Up(1, info(0, "u"))]);
    for _ in 0..30 {
        b.arrivals(0, 1, 100, vec![]);
    }
    let ours: Vec<_> = b.disk.list().into_iter().filter(|n| n.starts_with("sidebeat-a_b-")).collect();
    assert_eq!(ours.len(), 3, "{ours:?}");
    assert_eq!(b.disk.list().len(), 6, "what is not ours stays: {:?}", b.disk.list());
    let files = b.metrics.trace.files.get();
    assert!(files > 3, "{files}");
    assert_eq!(ours[2], format!("sidebeat-a_b-1700000000000-{:06}.trace", files - 1));
    for name in &ours {
        assert!(b.disk.with(|d| d.files[name].len()) <= 4000);
        let records = b.records(name);
        let known = Record { link: 1, at: records[0].1.at, event: Event::Known(info(0, "u")) };
        assert_eq!(records[0], (crate::trace::format::NO_WORKER, known), "{name} says who is there");
        let Item::Header(header) = &b.disk.items(name)[0] else { panic!("no header") };
        assert_eq!((header.incarnation, header.node.as_str()), (77, "a/b"));
        assert!(name.ends_with(&format!("{:06}.trace", header.sequence)));
    }
}

#[test]
fn a_full_disk_loses_records_and_says_so() {
    let mut b = Bench::new(1500, 1 << 20, 4);
    b.begin().unwrap();
    b.arrivals(0, 1, 10, vec![Change::Up(1, info(0, "u")), Change::Up(2, info(1, "v"))]);
    b.arrivals(1, 2, 1000, vec![]);
    assert_eq!((b.metrics.trace.errors.get(), b.metrics.trace.dropped.get()), (1, 1000));
    // The disk is left alone for a while, also by what would fit.
    b.arrivals(0, 1, 5, vec![]);
    b.arrivals(0, 1, 0, vec![Change::Up(3, info(0, "w")), Change::Down(1)]);
    assert_eq!((b.metrics.trace.errors.get(), b.metrics.trace.dropped.get()), (1, 1005));
    b.now += 10_001;
    b.arrivals(1, 2, 7, vec![]);
    assert_eq!(b.metrics.trace.errors.get(), 2, "it is still full");
    b.disk.with(|d| d.room = usize::MAX);
    b.now += 10_001;
    b.arrivals(0, 3, 8, vec![]);
    assert_eq!((b.metrics.trace.errors.get(), b.metrics.trace.dropped.get()), (2, 1012));
    let last = b.disk.list().pop().unwrap();
    let records = b.records(&last);
    let said: Vec<_> = records.iter().map(|(w, r)| (*w, r.link, &r.event)).collect();
    let (u, v) = (info(1, "v"), info(0, "w"));
    assert_eq!(said[..2], [(u16::MAX, 2, &Event::Known(u.clone())), (u16::MAX, 3, &Event::Known(v.clone()))]);
    assert_eq!(said[2..4], [(0, 0, &Event::Gap(5)), (0, 3, &Event::Known(v))]);
    assert_eq!(said[4..6], [(1, 0, &Event::Gap(1007)), (1, 2, &Event::Known(u))]);
    assert_eq!(said.len(), 6 + 8);
}

#[test]
fn a_disk_that_is_full_at_the_start_is_an_error() {
    assert!(Bench::new(10, 1 << 20, 4).begin().is_err());
}

#[test]
fn who_is_there_is_told_again_within_a_long_file() {
    let mut b = Bench::new(usize::MAX, 64 << 20, 2);
    b.begin().unwrap();
    b.arrivals(0, 1, 1, vec![Change::Up(1, info(0, "u"))]);
    let mut n = 0;
    while b.metrics.trace.bytes.get() < (3 << 20) + 200_000 {
        b.arrivals(0, 1, 3000, vec![]);
        n += 1;
        assert!(n < 1000, "nothing is written");
    }
    let name = b.disk.list().pop().unwrap();
    let known = b.records(&name).iter().filter(|(_, r)| matches!(r.event, Event::Known(_))).count();
    assert_eq!(known, 3);
}

#[test]
fn names_of_others_are_not_ours() {
    let id = identity("a");
    assert!(id.is_ours(&id.name(3)));
    assert!(id.is_ours("sidebeat-a-1600000000000-1234567.trace"));
    for other in [
        "sidebeat-a-1-1600000000000-000001.trace",
        "sidebeat-ab-1600000000000-000001.trace",
        "sidebeat-a-1600000000000-000001.trace.bak",
        "sidebeat-a-16000000000xx-000001.trace",
        "sidebeat-a-1600000000000.trace",
        "sidebeat-a.lock",
        "",
    ] {
        assert!(!id.is_ours(other), "{other}");
    }
    assert_eq!(identity("..//x y\u{e9}").prefix(), "sidebeat-..__x_y_");
}

#[test]
fn a_directory_is_checked_before_anything_is_made() {
    let dir = std::env::temp_dir().join(format!("sidebeat-trace-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    check_dir(&dir).unwrap();
    let none = check_dir(&dir.join("none")).unwrap_err().to_string();
    assert!(none.contains("does not exist") && none.contains("trace.path"), "{none}");
    let file = dir.join("file");
    std::fs::write(&file, b"x").unwrap();
    assert!(check_dir(&file).unwrap_err().to_string().contains("is not a directory"));
    let conf = Conf { path: dir.clone(), max_size: 1 << 20, files: 2, links: 5 };
    let metrics = Metrics::new(BuildInfo::current());
    let (prepared, seeds) = prepare(&conf, "n", 1, 2, &metrics, None).unwrap();
    let tracer = prepared.start().unwrap();
    assert_eq!(seeds.len(), 2);
    let second = prepare(&conf, "n", 2, 1, &metrics, None).unwrap_err().to_string();
    assert!(second.contains("another sidecar"), "{second}");
    drop(seeds);
    tracer.join();
    // The lock goes with the thread.
    let (prepared, seeds) = prepare(&conf, "n", 3, 1, &metrics, None).unwrap();
    drop(seeds);
    prepared.start().unwrap().join();
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A reload prepares the next recorder while the one before still writes; a reload that fails leaves nothing behind.
#[test]
fn the_next_recorder_may_share_the_directory_and_takes_no_file_before_it_starts() {
    let dir = std::env::temp_dir().join(format!("sidebeat-trace-shared-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let conf = Conf { path: dir.clone(), max_size: 1 << 20, files: 1, links: 5 };
    let metrics = Metrics::new(BuildInfo::current());
    let names = || {
        let all = std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut traces: Vec<_> = all.filter(|n| n.ends_with(".trace")).collect();
        traces.sort();
        traces
    };
    let (first, seeds) = prepare(&conf, "n", 1, 1, &metrics, None).unwrap();
    let first = first.start().unwrap();
    let old = names();
    assert_eq!(old.len(), 1);
    let (next, unused) = prepare(&conf, "n", 2, 1, &metrics, Some(&first.hold())).unwrap();
    assert_eq!(names().len(), 2, "the old file stays, although one is kept");
    drop((next, unused));
    assert_eq!(names(), old, "a recorder that never started leaves nothing");
    let (next, later) = prepare(&conf, "n", 3, 1, &metrics, Some(&first.hold())).unwrap();
    drop(seeds);
    first.join();
    let next = next.start().unwrap();
    assert!(prepare(&conf, "n", 4, 1, &metrics, None).is_err(), "the directory is still held");
    drop(later);
    next.join();
    let kept = names();
    assert!(kept.len() == 1 && kept != old, "{kept:?}, {old:?}");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_first_file_that_cannot_be_written_is_removed() {
    let mut b = Bench::new(10, 1 << 20, 4);
    assert!(b.begin().is_err());
    assert_eq!(b.disk.list(), Vec::<String>::new());
}
