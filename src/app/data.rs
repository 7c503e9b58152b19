//! A worker thread: its runtime, its share of the listeners, its mail.

use std::cell::RefCell;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::task::AbortHandle;

use super::params::{self, Shared};
use super::{RunError, listen};
use crate::clock;
use crate::config::Config;
use crate::evidence::ServiceWatch;
use crate::evidence::schedule::Recovery;
use crate::metrics::{Direction, FrameKind, Metrics, OddBeat, RejectReason};
use crate::proxy::accept::{Load, accept_loop};
use crate::proxy::inbound::{Acceptor, Inbound};
use crate::proxy::outbound::{self, Accepted};
use crate::proxy::quota::Permit;
use crate::stamp::Stamp;
use crate::trace::{self, Recorder};
use crate::upstream::hub::{Hub, Msg, Post};
use crate::verdict::Vouch;
use crate::worker::{Counters, Dir, Sink, Worker, processors};

/// How often the words behind the vouch are made anew.
const EXPLAIN_EVERY: Duration = Duration::from_secs(1);

/// What a worker is told.
pub(super) enum Command {
    /// Of another worker, about an endpoint.
    Upstream(Msg),
    /// A connection that another worker accepted.
    Serve(Handed),
    /// A peer that another worker accepted.
    Welcome(Stranger),
    /// The vouch of an inbound changed.
    Vouch(usize),
    /// Announce a pause.
    Announce(Duration, String),
    /// Planned end.
    Drain(Duration),
    /// Another generation takes what is new.
    Retire,
    /// Another generation records: this one's trace ends here.
    EndTrace,
    /// Publish fresh reports, then say so.
    Refresh(SyncSender<()>),
    /// End now.
    Stop,
}

/// An accepted connection between two workers.
pub(super) struct Handed {
    io: StdStream,
    up: usize,
    load: Load,
    permit: Permit,
}

/// One that knocked on a link port, between two workers.
pub(super) struct Stranger {
    io: StdStream,
    from: SocketAddr,
    served: Arc<Vec<usize>>,
    load: Load,
}

/// All data listeners, by the address that was asked for.
pub(super) struct Listeners {
    links: Vec<(SocketAddr, StdListener, Arc<Vec<usize>>)>,
    outbound: Vec<(SocketAddr, StdListener)>,
}

impl Listeners {
    /// Those of the configuration; what `before` listens on already is taken over, so that nobody is turned away.
    pub(super) fn bind(c: &Config, before: Option<&Listeners>) -> Result<Listeners, RunError> {
        let open = |addr, what: &str| match before.and_then(|b| b.at(addr)) {
            Some(known) => Ok(known.try_clone()?),
            None => listen(addr, what),
        };
        let mut links = Vec::new();
        for (addr, served) in params::link_ports(c) {
            links.push((addr, open(addr, "inbound link port")?, Arc::new(served)));
        }
        let outbound = c
            .outbound
            .iter()
            .map(|o| Ok((o.listen, open(o.listen, &format!("outbound {}", o.name))?)))
            .collect::<Result<_, RunError>>()?;
        Ok(Listeners { links, outbound })
    }

    /// The listener that was asked for with this address. A free port is chosen anew.
    fn at(&self, addr: SocketAddr) -> Option<&StdListener> {
        let links = self.links.iter().map(|(a, l, _)| (a, l));
        let mut all = links.chain(self.outbound.iter().map(|(a, l)| (a, l)));
        all.find(|(a, _)| **a == addr && addr.port() != 0).map(|(_, l)| l)
    }

    pub(super) fn for_worker(&self) -> io::Result<Listeners> {
        let links = self.links.iter().map(|(a, l, s)| Ok((*a, l.try_clone()?, s.clone())));
        let outbound = self.outbound.iter().map(|(a, l)| Ok((*a, l.try_clone()?)));
        Ok(Listeners {
            links: links.collect::<io::Result<_>>()?,
            outbound: outbound.collect::<io::Result<_>>()?,
        })
    }

    pub(super) fn addresses(&self, c: &Config) -> Vec<(String, SocketAddr)> {
        let mut all = Vec::new();
        for (_, l, served) in &self.links {
            let names: Vec<_> = served.iter().map(|i| c.inbound[*i].name.as_str()).collect();
            all.extend(l.local_addr().ok().map(|a| (format!("link {}", names.join(",")), a)));
        }
        for ((_, l), o) in self.outbound.iter().zip(&c.outbound) {
            all.extend(l.local_addr().ok().map(|a| (format!("outbound {}", o.name), a)));
        }
        all
    }
}

/// What a worker thread begins with.
pub(super) struct WorkerSeed {
    pub(super) index: usize,
    pub(super) seed: u64,
    pub(super) listeners: Listeners,
    pub(super) shared: Arc<Shared>,
    pub(super) posts: Vec<UnboundedSender<Command>>,
    pub(super) mail: UnboundedReceiver<Command>,
    pub(super) recorder: Option<trace::Seed>,
}

/// The thread's body.
pub(super) fn run(seed: WorkerSeed) {
    // Tasks that never leave their thread, without the second queue and the wake-ups of a LocalSet.
    let local = tokio::runtime::LocalOptions::default();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_io().build_local(local) {
        Ok(r) => r,
        Err(e) => return tracing::error!(error = %e, "a worker has no runtime"),
    };
    runtime.block_on(data_path(seed));
}

struct Place {
    hub: Rc<Hub>,
    acceptor: Rc<Acceptor>,
    shared: Arc<Shared>,
    posts: Vec<UnboundedSender<Command>>,
    index: usize,
    recorder: Option<Rc<Recorder>>,
    /// The tasks that accept.
    accepting: RefCell<Vec<AbortHandle>>,
}

async fn data_path(seed: WorkerSeed) {
    let WorkerSeed { index, seed, listeners, shared, posts, mail, recorder } = seed;
    if shared.pin {
        processors::pin(index);
    }
    let w = match Worker::new(index, seed, shared.noise.clone()) {
        Ok(w) => w,
        Err(e) => return tracing::error!(error = %e, "a worker has no timer"),
    };
    w.memory_max.set(shared.memory / posts.len());
    let mail_to = |p: &UnboundedSender<Command>| -> Post {
        let p = p.clone();
        // A worker that is gone needs no news.
        Box::new(move |m| drop(p.send(Command::Upstream(m))))
    };
    let hub = Hub::new(
        w.clone(),
        shared.ups.clone(),
        shared.dialer.clone(),
        shared.up_metrics.clone(),
        shared.metrics.clone(),
        shared.events.clone(),
        posts.iter().map(mail_to).collect(),
    );
    let recorder = recorder.map(trace::Seed::recorder);
    hub.record_with(recorder.clone());
    let acceptor = Acceptor::new(w.clone(), shared.common.clone(), shared.inbounds.clone());
    let place = Rc::new(Place {
        hub: hub.clone(),
        acceptor,
        shared: shared.clone(),
        posts,
        index,
        recorder: recorder.clone(),
        accepting: RefCell::default(),
    });
    let flushed = Rc::new(Flushed { metrics: shared.metrics.clone(), recorder });
    tokio::task::spawn_local(w.clone().tick(flushed.clone()));
    tokio::task::spawn_local(hub.w.clone().send());
    tokio::task::spawn_local(hub.clone().sweep());
    hub.start();
    place.listen(listeners);
    place.watch_services();
    shared.started.fetch_add(1, Relaxed);
    place.read_mail(mail).await;
    flushed.end(&w.counters);
    if let Some(recorder) = &place.recorder {
        recorder.close();
    }
}

impl Place {
    fn listen(self: &Rc<Self>, listeners: Listeners) {
        for (_, l, served) in listeners.links {
            let me = self.clone();
            self.accept(l, "link port", move |io, from| me.receive(io, from, served.clone()));
        }
        for (up, (_, l)) in listeners.outbound.into_iter().enumerate() {
            let me = self.clone();
            self.accept(l, "outbound", move |io, _| me.take(io, up));
        }
    }

    fn accept(&self, l: StdListener, what: &'static str, take: impl FnMut(TcpStream, SocketAddr) + 'static) {
        match TcpListener::from_std(l) {
            Ok(l) => {
                let w = self.hub.w.clone();
                let task = tokio::task::spawn_local(async move { accept_loop(&w, l, what, take).await });
                self.accepting.borrow_mut().push(task.abort_handle());
            }
            Err(e) => tracing::error!(listener = what, error = %e, "a worker cannot listen"),
        }
    }

    fn retire(&self) {
        self.accepting.borrow_mut().drain(..).for_each(|task| task.abort());
        self.hub.retire();
    }

    /// A connection of the local service.
    fn take(&self, io: TcpStream, up: usize) {
        let Some(permit) = self.shared.connections.take() else {
            self.shared.up_metrics[up].connections.reject(RejectReason::Limit);
            return outbound::abort(io);
        };
        let (to, load) = self.shared.loads.place(self.index);
        if to == self.index {
            return self.serve(Accepted { io, up, load, permit });
        }
        // A socket that cannot move is closed: the client sees what it would see of a dead server.
        let Ok(io) = io.into_std() else { return };
        drop(self.posts[to].send(Command::Serve(Handed { io, up, load, permit })));
    }

    /// A connection of a peer.
    fn receive(&self, io: TcpStream, from: SocketAddr, served: Arc<Vec<usize>>) {
        let (to, load) = self.shared.links.place(self.index);
        if to == self.index {
            return self.welcome(io, from, served, load);
        }
        // As above: a peer sees a reset, and dials again.
        let Ok(io) = io.into_std() else { return };
        drop(self.posts[to].send(Command::Welcome(Stranger { io, from, served, load })));
    }

    fn welcome(&self, io: TcpStream, from: SocketAddr, served: Arc<Vec<usize>>, load: Load) {
        let link = self.acceptor.clone().serve(io, from, served);
        tokio::task::spawn_local(async move {
            link.await;
            drop(load);
        });
    }

    fn serve(&self, conn: Accepted) {
        tokio::task::spawn_local(outbound::serve(self.hub.clone(), self.shared.metrics.clone(), conn));
    }

    /// Evidence of the services whose watch lives here.
    fn watch_services(self: &Rc<Self>) {
        let workers = self.posts.len();
        for (i, inbound) in self.shared.inbounds.iter().enumerate().filter(|(i, _)| i % workers == self.index)
        {
            let watch = ServiceWatch::new(inbound.stats.clone(), self.shared.watch);
            let w = self.hub.w.clone();
            tokio::task::spawn_local(watch_service(w, i, watch, inbound.clone(), self.posts.clone()));
        }
    }

    async fn read_mail(&self, mut mail: UnboundedReceiver<Command>) {
        while let Some(command) = mail.recv().await {
            match command {
                Command::Upstream(msg) => self.hub.receive(clock::now(), msg),
                Command::Serve(h) => {
                    if let Ok(io) = TcpStream::from_std(h.io) {
                        self.serve(Accepted { io, up: h.up, load: h.load, permit: h.permit });
                    }
                }
                Command::Welcome(s) => {
                    if let Ok(io) = TcpStream::from_std(s.io) {
                        self.welcome(io, s.from, s.served, s.load);
                    }
                }
                Command::Vouch(i) => self.acceptor.vouch_changed(i),
                Command::Announce(d, reason) => self.acceptor.announce(d, &reason),
                Command::Drain(deadline) => self.acceptor.drain(deadline),
                Command::Retire => self.retire(),
                Command::EndTrace => {
                    if let Some(recorder) = &self.recorder {
                        recorder.close();
                    }
                }
                Command::Refresh(done) => {
                    self.hub.refresh(clock::now());
                    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
                    self.shared.tasks[self.index].store(tasks, Relaxed);
                    // Nobody waits any more: nobody is told.
                    let _ = done.try_send(());
                }
                Command::Stop => return self.hub.w.ending.set(true),
            }
        }
    }
}

async fn watch_service(
    w: Rc<Worker>,
    index: usize,
    mut watch: ServiceWatch,
    inbound: Arc<Inbound>,
    posts: Vec<UnboundedSender<Command>>,
) {
    let tell = |posts: &[UnboundedSender<Command>]| {
        for p in posts {
            drop(p.send(Command::Vouch(index)));
        }
    };
    let mut explained = Stamp::ZERO;
    let (mut recovery, mut before) = (Recovery::default(), Vouch::Unknown);
    loop {
        let due = watch.next_due(clock::now()).min(recovery.due());
        tokio::select! {
            () = inbound.stats.kick.notified() => {}
            () = w.sleep_until(due) => {}
        }
        let now = clock::now();
        let changed = watch.sample(now);
        if changed.is_some() || now.since(explained) > EXPLAIN_EVERY {
            explained = now;
            let explain = watch.explain(now);
            *inbound.explain.lock().unwrap_or_else(PoisonError::into_inner) = Some(explain);
        }
        if let Some(vouch) = changed {
            if is_quiet(before, vouch) {
                tracing::debug!(inbound = inbound.params.name, vouch = vouch.name(), "vouch");
            } else {
                tracing::info!(
                    inbound = inbound.params.name,
                    vouch = vouch.name(),
                    seen = seen(&watch, now),
                    "vouch"
                );
            }
            tell(&posts);
            recovery.changed(now, std::mem::replace(&mut before, vouch), vouch);
        } else if recovery.beat(now) {
            tell(&posts);
        }
    }
}

/// Everyday changes: work comes and goes, and a probe answers in between.
fn is_quiet(before: Vouch, after: Vouch) -> bool {
    let dead = matches!(before, Vouch::Stopped | Vouch::Gone);
    matches!(after, Vouch::Working | Vouch::Idle | Vouch::Unknown) || (after == Vouch::Running && !dead)
}

/// The evidence behind a vouch, as JSON.
fn seen(watch: &ServiceWatch, now: Stamp) -> String {
    serde_json::to_string(&watch.explain(now)).unwrap_or_default()
}

/// Adds a worker's cells to the shared metrics, and hands over what was recorded.
struct Flushed {
    metrics: Arc<Metrics>,
    recorder: Option<Rc<Recorder>>,
}

impl Flushed {
    /// The last time: what is still buffered goes with its thread.
    fn end(&self, c: &Counters) {
        self.flush(c, 0);
    }
}

impl Sink for Flushed {
    fn flush(&self, c: &Counters, buffered: usize) {
        if let Some(recorder) = &self.recorder {
            recorder.flush();
        }
        for (dir, direction) in [(Dir::In, Direction::In), (Dir::Out, Direction::Out)] {
            for (k, kind) in FrameKind::ALL.iter().enumerate() {
                let frames = c.frames[dir as usize][k].take();
                let bytes = c.bytes[dir as usize][k].take();
                if frames > 0 || bytes > 0 {
                    self.metrics.frames.add(direction, *kind, frames, bytes);
                }
            }
            self.metrics.payload(direction, c.payload[dir as usize].take());
        }
        self.metrics.beats_saved.inc_by(c.saved.take());
        self.metrics.discarded_frames.inc_by(c.discarded.take());
        for kind in OddBeat::ALL {
            self.metrics.odd_beats[kind.index()].inc_by(c.odd[kind.index()].take());
        }
        let before = c.buffered.replace(buffered);
        self.metrics.buffered_bytes.add(buffered as i64 - before as i64);
    }

    fn lateness(&self, late: Duration) {
        self.metrics.own_stalled(late);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::BuildInfo;

    #[test]
    fn a_worker_that_ends_leaves_its_counts_and_takes_back_what_it_had_buffered() {
        let metrics = Metrics::new(BuildInfo::current());
        let (stays, ends) = (Counters::default(), Counters::default());
        let sink = Flushed { metrics: metrics.clone(), recorder: None };
        sink.flush(&stays, 300);
        sink.flush(&ends, 5000);
        assert_eq!(metrics.buffered_bytes.get(), 5300);
        ends.saved.set(7);
        sink.end(&ends);
        assert_eq!(metrics.buffered_bytes.get(), 300);
        assert_eq!(metrics.beats_saved.get(), 7, "counted since the last flush");
    }
}
