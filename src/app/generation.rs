//! One configuration at work: its listeners, its workers, and what they share. A reload starts the next one beside it and
//! lets the old one serve what is open to its end.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::RunError;
use super::data::{self, Command, Listeners, WorkerSeed};
use super::params::Shared;
use crate::admin::events::EventLog;
use crate::clock;
use crate::config::Config;
use crate::metrics::Metrics;
use crate::stamp::Stamp;
use crate::trace;

/// What outlives a reload.
pub(super) struct Process {
    /// Incarnation, and seed of the workers' random numbers.
    pub(super) seed: u64,
    /// Recordings begun. Each is a run of its own to whoever reads the traces: its links are numbered anew.
    pub(super) recordings: AtomicU64,
    pub(super) metrics: Arc<Metrics>,
    pub(super) events: Arc<EventLog>,
}

/// See the module.
pub(super) struct Generation {
    pub(super) config: Config,
    pub(super) shared: Arc<Shared>,
    listeners: Listeners,
    posts: Vec<UnboundedSender<Command>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    tracer: Mutex<Option<trace::Tracer>>,
}

impl Generation {
    /// Takes over the listeners that `before` has already, binds the others, starts the workers.
    ///
    /// # Errors
    /// A listener cannot be bound, or no threads are to be had: nothing is left running.
    pub(super) fn start(
        config: Config,
        process: &Process,
        before: Option<&Generation>,
    ) -> Result<Arc<Generation>, RunError> {
        let listeners = Listeners::bind(&config, before.map(|b| &b.listeners))?;
        let shared = Shared::build(&config, process.seed, &process.metrics, &process.events);
        shared.note_addresses(listeners.addresses(&config));
        if let Some(before) = before {
            let frozen = before.shared.common.frozen_until.load(Relaxed);
            shared.common.frozen_until.store(frozen, Relaxed);
            let pause = before.shared.inbounds.first().map(|i| i.stats.notes.pause()).unwrap_or_default();
            for inbound in &shared.inbounds {
                inbound.stats.notes.announced(pause.at, pause.until, &pause.reason);
            }
        }
        let held = before.and_then(Generation::trace_hold);
        let (prepared, recorders) = prepare_trace(&config, process, held.as_ref())?;
        let (posts, threads) = start_workers(&config, process.seed, &listeners, &shared, recorders)?;
        // Nothing can fail any more: the recording of a generation that stays must go on. One writer at a time.
        drop(held);
        if let Some(before) = before {
            before.end_trace();
        }
        let tracer = prepared.and_then(trace::Prepared::start);
        let (threads, tracer) = (Mutex::new(threads), Mutex::new(tracer));
        Ok(Arc::new(Generation { config, shared, listeners, posts, threads, tracer }))
    }

    pub(super) fn tell_all(&self, make: impl Fn() -> Command) {
        for p in &self.posts {
            // A worker that is gone needs no orders.
            drop(p.send(make()));
        }
    }

    pub(super) fn workers(&self) -> usize {
        self.posts.len()
    }

    /// All workers are at work.
    pub(super) fn started(&self) -> bool {
        self.shared.started.load(Relaxed) == self.posts.len()
    }

    /// No worker has ended.
    pub(super) fn live(&self) -> bool {
        self.posts.iter().all(|p| !p.is_closed())
    }

    /// Readiness off, GOAWAY to all observers; what is open goes on.
    pub(super) fn drain(&self) {
        self.shared.common.draining.store(true, Relaxed);
        self.tell_all(|| Command::Drain(self.config.drain_deadline));
    }

    /// Another generation takes what is new: it accepts no more, says GOAWAY and judges in silence.
    pub(super) fn retire(&self) {
        self.tell_all(|| Command::Retire);
        self.drain();
    }

    /// Application connections that this generation still serves, both ways.
    pub(super) fn open(&self) -> usize {
        let inbound: usize = self.shared.inbounds.iter().map(|i| i.stats.open_conns()).sum();
        self.shared.connections.used() + inbound
    }

    fn trace_hold(&self) -> Option<trace::Hold> {
        self.tracer.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(trace::Tracer::hold)
    }

    fn join_tracer(&self) {
        let tracer = self.tracer.lock().unwrap_or_else(PoisonError::into_inner).take();
        tracer.into_iter().for_each(trace::Tracer::join);
    }

    /// Nothing is recorded of this generation from now on.
    fn end_trace(&self) {
        self.tell_all(|| Command::EndTrace);
        self.join_tracer();
    }

    /// Ends the workers and waits for them.
    ///
    /// # Errors
    /// One of them had panicked.
    pub(super) fn stop(&self) -> Result<(), RunError> {
        self.tell_all(|| Command::Stop);
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        let ended: Vec<_> = threads.into_iter().map(JoinHandle::join).collect();
        // The workers' last records are on their way.
        self.join_tracer();
        if ended.iter().all(Result::is_ok) { Ok(()) } else { Err(RunError::Worker) }
    }
}

type Recording = (Option<trace::Prepared>, Vec<Option<trace::Seed>>);

/// The recorder, if one is configured, and what each worker needs of it.
fn prepare_trace(
    config: &Config,
    process: &Process,
    before: Option<&trace::Hold>,
) -> Result<Recording, RunError> {
    let (t, workers) = (&config.trace, config.node.workers);
    let Some(path) = t.path.clone() else { return Ok((None, (0..workers).map(|_| None).collect())) };
    let conf = trace::Conf { path, max_size: t.max_size, files: t.files, links: t.links };
    let run = process.seed.wrapping_add(process.recordings.fetch_add(1, Relaxed));
    let (prepared, seeds) = trace::prepare(&conf, &config.node.id, run, workers, &process.metrics, before)?;
    Ok((Some(prepared), seeds.into_iter().map(Some).collect()))
}

type Started = (Vec<UnboundedSender<Command>>, Vec<JoinHandle<()>>);

fn start_workers(
    config: &Config,
    seed: u64,
    listeners: &Listeners,
    shared: &Arc<Shared>,
    recorders: Vec<Option<trace::Seed>>,
) -> Result<Started, RunError> {
    let n = config.node.workers;
    let (posts, boxes): (Vec<_>, Vec<_>) = (0..n).map(|_| tokio::sync::mpsc::unbounded_channel()).unzip();
    let mut threads = Vec::new();
    let started = spawn_workers(seed, listeners, shared, recorders, (&posts, boxes), &mut threads);
    if let Err(e) = started {
        // Those that run already hold the listeners and each other's mail.
        posts.iter().for_each(|p: &UnboundedSender<Command>| drop(p.send(Command::Stop)));
        threads.into_iter().for_each(|t: JoinHandle<()>| drop(t.join()));
        return Err(e);
    }
    Ok((posts, threads))
}

type Mail<'a> = (&'a [UnboundedSender<Command>], Vec<UnboundedReceiver<Command>>);

fn spawn_workers(
    seed: u64,
    listeners: &Listeners,
    shared: &Arc<Shared>,
    recorders: Vec<Option<trace::Seed>>,
    (posts, boxes): Mail<'_>,
    threads: &mut Vec<JoinHandle<()>>,
) -> Result<(), RunError> {
    for ((index, mail), recorder) in boxes.into_iter().enumerate().zip(recorders) {
        let worker = WorkerSeed {
            index,
            seed: seed.rotate_left(index as u32) ^ 0x9e37_79b9_7f4a_7c15,
            listeners: listeners.for_worker()?,
            shared: shared.clone(),
            posts: posts.to_vec(),
            mail,
            recorder,
        };
        let name = format!("sb-worker-{index}");
        threads.push(std::thread::Builder::new().name(name).spawn(move || data::run(worker))?);
    }
    Ok(())
}

/// For so long a retired generation stays although nothing is open: its last words have to leave.
const LINGER: Duration = Duration::from_secs(1);

/// A generation that serves what is left of it, until then at most.
pub(super) struct Retired {
    pub(super) generation: Arc<Generation>,
    since: Stamp,
}

impl Retired {
    pub(super) fn new(generation: Arc<Generation>) -> Retired {
        generation.retire();
        Retired { generation, since: clock::now() }
    }

    /// Nothing is left, or its time is up.
    pub(super) fn is_over(&self) -> bool {
        let age = clock::now().since(self.since);
        age >= LINGER && self.generation.open() == 0 || age >= self.generation.config.drain_deadline
    }
}
