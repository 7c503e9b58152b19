//! The shell of the evidence: asks the kernel, feeds the fusion, publishes the vouch. One [`ServiceWatch`] per inbound
//! service; all of a process live on one thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::answers::{Answers, Waiting};
use super::explain::{AnswersView, Explain, HookView, ProbeView, whole_ms};
use super::fuse::{Fusion, ListenerView, Observation, Patience, ProcessOpinion, Unread};
use super::listener::{ListenerWatch, reachable};
use super::process::ProcessWatch;
use super::reads::{ReadSample, ReadTracker};
use super::redial::Redial;
use super::schedule::{FAST, LATELY_WITHIN, Schedule, Situation};
use super::stats::{Asked, Question, ServiceStats, Walk};
use crate::config::checked::Service;
use crate::stamp::Stamp;
use crate::sys::sock_diag::SockDiag;
use crate::verdict::Vouch;

/// Connections sampled for unread bytes (E2): the oldest questions.
const OLDEST: usize = 4;
/// Further ones, in turn, while a stall is near: one of them may show progress.
const OTHERS: usize = 16;
/// Connections that are followed at once.
const MAX_FOLLOWED: usize = 256;
/// A sample this much later than planned was held up by ourselves.
const LATE: Duration = Duration::from_millis(20);

/// `[service]` of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// A stall seen on two connections, or with a growing accept queue, is `stuck` after this.
    pub stall_patience: Duration,
    /// `busy` counts as a stall after this.
    pub busy_patience: Duration,
}

impl From<&Service> for Params {
    fn from(s: &Service) -> Params {
        Params { stall_patience: s.stall_patience, busy_patience: s.busy_patience }
    }
}

/// Watches one service.
#[derive(Debug)]
pub struct ServiceWatch {
    stats: Arc<ServiceStats>,
    service: SocketAddr,
    fusion: Fusion,
    schedule: Schedule,
    listener: ListenerWatch,
    process: ProcessWatch,
    redial: Redial,
    answers: Answers,
    followed: HashMap<u64, (Question, ReadTracker)>,
    published: Vouch,
    walk: Walk,
    turn: usize,
    unread: Vec<Unread>,
    finished: Vec<Duration>,
    progress_seen: Stamp,
    last_listener: Option<ListenerView>,
    last_process: ProcessOpinion,
}

impl ServiceWatch {
    /// A watch of the service that `stats` is about; it looks at once.
    pub fn new(stats: Arc<ServiceStats>, params: Params) -> ServiceWatch {
        let patience = Patience { stall: params.stall_patience, busy: params.busy_patience };
        ServiceWatch {
            service: reachable(stats.service()),
            listener: ListenerWatch::new(stats.service()),
            stats,
            fusion: Fusion::new(patience),
            schedule: Schedule::new(),
            process: ProcessWatch::new(),
            redial: Redial::default(),
            answers: Answers::new(),
            followed: HashMap::new(),
            published: Vouch::Unknown,
            walk: Walk::default(),
            turn: 0,
            unread: Vec::new(),
            finished: Vec::new(),
            progress_seen: Stamp::ZERO,
            last_listener: None,
            last_process: ProcessOpinion::default(),
        }
    }

    /// The facts this watch is about.
    pub fn stats(&self) -> &Arc<ServiceStats> {
        &self.stats
    }

    /// When [`ServiceWatch::sample`] is to be called, at the earliest `now`. Ask again after `kick` fired.
    pub fn next_due(&self, now: Stamp) -> Stamp {
        self.schedule.next_due(self.stats.oldest_since(), self.stats.has_ended()).max(now)
    }

    /// Looks at the service; `Some` if the vouch changed. 5-50 us.
    pub fn sample(&mut self, now: Stamp) -> Option<Vouch> {
        let due = self.schedule.next_due(self.stats.oldest_since(), self.stats.has_ended());
        let late = if due == Stamp::ZERO { Duration::ZERO } else { now.since(due) };
        let late = if late > LATE { late } else { Duration::ZERO };
        let ended = self.stats.take_ended();
        self.walk.fresh_from = self.answers.fresh_from();
        let read = with_diag(|diag| self.ask_kernel(diag, now, late)).unwrap_or_else(|| {
            self.last_listener = None;
            self.unread.clear();
            self.stats.walk(OLDEST, 0, 0, &mut self.walk);
            false
        });
        self.last_process = self.process.sample(now, self.listener.owner());
        self.check_refusal(now);
        let answered = self.stats.last_progress();
        let progress = read || answered > self.progress_seen;
        self.progress_seen = answered;
        self.judge_answers(now, late, answered);
        let vouch = self.fuse(now, late, progress);
        self.stats.publish(vouch, now);
        self.reschedule(now, ended, vouch);
        let changed = vouch != self.published;
        self.published = vouch;
        changed.then_some(vouch)
    }

    /// What this watch sees now.
    pub fn explain(&self, now: Stamp) -> Explain {
        let (fins, resets) = self.stats.ended_by_service();
        let ms = |d: Duration| d.as_secs_f64() * 1000.0;
        let progress = self.stats.last_progress();
        let notes = &self.stats.notes;
        Explain {
            service: self.stats.service(),
            vouch: self.stats.vouch(),
            connections: self.stats.open_conns(),
            unanswered: usize::from(self.stats.in_flight()),
            oldest_unanswered_ms: whole_ms(self.stats.oldest_unanswered(now)),
            last_progress_ms: (progress != Stamp::ZERO).then(|| whole_ms(now.since(progress))),
            unread_bytes: self.unread.iter().map(|u| u.bytes).max().unwrap_or(0),
            read_delay_ms: ms(self.fusion.read_delay()),
            stall_limit_ms: ms(self.fusion.stall_limit()),
            listener: self.last_listener,
            process: self.last_process,
            pids: self.process.pids(),
            fins,
            resets,
            refused: self.stats.is_refused(),
            probe: ProbeView::new(notes.probe(), notes.opinion(progress), now),
            answers: AnswersView {
                samples: self.answers.samples(),
                usual_ms: self.answers.usual().map(ms),
                limit_ms: self.answers.limit().map(ms),
                slow: self.answers.slow(),
            },
            hook: HookView::new(notes.pause(), now),
        }
    }

    /// E6. What another evidence explains is no answer time to be learned.
    fn judge_answers(&mut self, now: Stamp, late: Duration, last_answer: Stamp) {
        let limit = self.fusion.stall_limit();
        let unread = self.unread.iter().any(|u| now.since(u.since) > limit);
        let paused = self.stats.notes.paused_until() > now;
        let trouble = matches!(self.published, Vouch::Stopped | Vouch::Gone | Vouch::Busy | Vouch::Stuck);
        let waiting = Waiting {
            now,
            late: !late.is_zero(),
            last_answer,
            fresh: self.walk.fresh,
            fresh_count: self.walk.fresh_count,
            explained: unread || paused || trouble,
        };
        self.answers.observe(&self.stats.times, waiting);
    }

    /// E2 and E4; true if the service read something.
    fn ask_kernel(&mut self, diag: &mut SockDiag, now: Stamp, late: Duration) -> io::Result<bool> {
        let others = if self.unread.is_empty() { 0 } else { OTHERS };
        self.unread.clear();
        self.finished.clear();
        self.stats.walk(OLDEST, others, self.turn, &mut self.walk);
        self.turn = if self.walk.conns == 0 { 0 } else { (self.turn + others) % self.walk.conns };
        let progress = self.read_queues(diag, now, late)?;
        self.last_listener = self.listener.look(diag, now, self.stats.opened())?;
        Ok(progress)
    }

    fn read_queues(&mut self, diag: &mut SockDiag, now: Stamp, late: Duration) -> io::Result<bool> {
        let mut before = std::mem::take(&mut self.followed);
        let mut progress = false;
        for Asked { conn, since } in &self.walk.asked {
            if now.since(*since) < FAST {
                continue;
            }
            let Some(s) = diag.connection(self.service, conn.local())? else { continue };
            let mut tracker = before.remove(&conn.key()).map(|(_, t)| t).unwrap_or_default();
            tracker.forgive(late, now);
            let received = s.info.map(|i| i.bytes_received);
            let change =
                tracker.update(now, ReadSample { unread: s.rqueue, received, accepted: s.inode != 0 });
            progress |= change.progress;
            self.finished.extend(change.finished);
            if let Some((bytes, since)) = tracker.unread() {
                self.unread.push(Unread { key: conn.key(), bytes, since });
            }
            self.followed.insert(conn.key(), (conn.clone(), tracker));
        }
        for (key, (conn, tracker)) in before {
            if conn.answered() {
                // Read and answered between two samples.
                self.finished.extend(tracker.unread().map(|(_, since)| now.since(since)));
            } else if conn.open() && self.followed.len() < MAX_FOLLOWED {
                self.followed.insert(key, (conn, tracker));
            }
        }
        Ok(progress)
    }

    fn fuse(&mut self, now: Stamp, late: Duration, progress: bool) -> Vouch {
        let oldest = self.walk.asked.first().map_or(Duration::ZERO, |a| now.since(a.since));
        let vouch = self.fusion.observe(&Observation {
            now,
            late,
            progress,
            unanswered: self.walk.unanswered,
            oldest_unanswered: oldest,
            unread: &self.unread,
            finished_reads: &self.finished,
            listener: self.last_listener,
            process: Some(self.last_process),
            refused: self.stats.is_refused(),
            slow: self.answers.slow(),
            probe: self.stats.notes.opinion(self.progress_seen),
        });
        if self.last_process.stopped && vouch == Vouch::Working {
            self.process.distrust();
        }
        vouch
    }

    /// A refusal counts until the listener is seen or, where it cannot be seen, a connect of our own succeeds.
    fn check_refusal(&mut self, now: Stamp) {
        if !self.stats.is_refused() {
            return;
        }
        let back = match self.last_listener {
            Some(l) => l.listening,
            None => self.redial.poll(now, self.service),
        };
        if back {
            self.stats.clear_refusal();
        }
    }

    fn reschedule(&mut self, now: Stamp, ended: bool, vouch: Vouch) {
        let oldest = self.walk.asked.first().map_or(Duration::ZERO, |a| now.since(a.since));
        let situation = Situation {
            vouch,
            unanswered: self.walk.unanswered,
            oldest,
            conns: self.walk.conns,
            searching: self.process.searching(),
            lately: now.since(self.stats.last_progress()) < LATELY_WITHIN,
        };
        self.schedule.looked(now, ended, situation);
        if self.walk.unanswered == 0 && !self.stats.sleep() {
            self.schedule.hasten(now);
        }
    }
}

thread_local! {
    /// One netlink socket per thread; `Some(None)`: look-ups do not work here.
    static DIAG: RefCell<Option<Option<SockDiag>>> = const { RefCell::new(None) };
}

/// Runs `ask` with this thread's socket; `None` if look-ups are impossible or failed.
fn with_diag<T>(ask: impl FnOnce(&mut SockDiag) -> io::Result<T>) -> Option<T> {
    DIAG.with_borrow_mut(|cell| {
        let diag = cell.get_or_insert_with(|| match SockDiag::open() {
            Ok(diag) => Some(diag),
            Err(error) => {
                tracing::warn!(%error, "no sock_diag here: unread bytes and the listener cannot be seen");
                None
            }
        });
        match ask(diag.as_mut()?) {
            Ok(value) => Some(value),
            Err(error) => {
                tracing::debug!(%error, "sock_diag look-up failed");
                None
            }
        }
    })
}
