//! Pure: no IO, no clock. Many weak signs of a service, one vouch (the table of detection.md section 4).

use std::time::Duration;

use serde::Serialize;

use crate::stamp::Stamp;
use crate::verdict::Vouch;

/// Unread bytes younger than this are never a stall.
const STALL_MIN: Duration = Duration::from_millis(10);
/// Unread bytes are a stall when older than this many times the learned read delay.
const STALL_FACTOR: u32 = 3;
/// Read delays above this were outages and are not learned. Three times it stays below the usual patience of 1 s.
const LEARN_MAX: Duration = Duration::from_millis(300);
/// The learned delay shrinks to this share with each read that was faster.
const LEARN_DECAY: f64 = 0.98;
/// A request that was read and not answered counts as a long computation after this.
const BUSY_AFTER: Duration = Duration::from_millis(50);
/// CPU time that E3 calls burning may be this old.
const CPU_LOOKS_BACK: Duration = Duration::from_millis(200);
/// Progress keeps the vouch at `working` for this long, so that each request does not change it twice.
const WORKING_HOLD: Duration = Duration::from_millis(100);
/// Most time one observation may add to a stall: the planned interval is 5 ms, the rest was our own pause.
const STEP_MAX: Duration = Duration::from_millis(50);

/// What /proc says of the processes that own the listener (E3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProcessOpinion {
    /// At least one owner (or candidate) was found and read.
    pub known: bool,
    /// All of them are stopped, traced to a halt, or zombies.
    pub stopped: bool,
    /// There were some, and all have exited.
    pub gone: bool,
    /// Together they burn CPU.
    pub cpu_advancing: bool,
    /// One waits in the kernel and cannot be interrupted (state D).
    pub blocked: bool,
}

/// What sock_diag says of the listener (E4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ListenerView {
    /// Something listens.
    pub listening: bool,
    /// Connections waiting to be accepted, over all members of a SO_REUSEPORT group.
    pub queue: u32,
    /// Room for them.
    pub backlog: u32,
}

/// What the probes of a quiet service come to (E5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeOpinion {
    /// No probe, or traffic came since.
    #[default]
    Unknown,
    /// It answers.
    Alive,
    /// It failed so often in a row that it is doubted.
    Failing,
}

/// A connection with bytes the service has not read (E2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Which connection.
    pub key: u64,
    /// How many.
    pub bytes: u32,
    /// Since when it has read nothing of them.
    pub since: Stamp,
}

/// Everything seen at one instant.
#[derive(Clone, Copy, Debug, Default)]
pub struct Observation<'a> {
    /// The instant.
    pub now: Stamp,
    /// How much later than planned it is: our own pause, not the service's.
    pub late: Duration,
    /// Bytes were read from or taken by the service, or a connection was accepted, since the observation before (E1).
    pub progress: bool,
    /// Connections with a request that has no answer byte yet.
    pub unanswered: usize,
    /// Age of the oldest of them.
    pub oldest_unanswered: Duration,
    /// Of the sampled connections those with unread bytes.
    pub unread: &'a [Unread],
    /// How long bytes lay unread that were read since the observation before.
    pub finished_reads: &'a [Duration],
    /// `None`: cannot be seen.
    pub listener: Option<ListenerView>,
    /// `None`: cannot be seen.
    pub process: Option<ProcessOpinion>,
    /// The last connect was refused and none succeeded since.
    pub refused: bool,
    /// A question waits longer than this service ever makes one wait, and nobody is answered (E6).
    pub slow: bool,
    /// Said since the last progress (E5).
    pub probe: ProbeOpinion,
}

/// Patience of the fusion, from `[service]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// A stall seen on two connections, or with a growing accept queue, is `stuck` after this.
    pub stall: Duration,
    /// No progress with CPU burning counts as a stall after this.
    pub busy: Duration,
}

/// State of the fusion for one service.
#[derive(Clone, Debug)]
pub struct Fusion {
    patience: Patience,
    vouch: Vouch,
    last: Option<Stamp>,
    last_progress: Option<Stamp>,
    /// Stopped or gone was left at this instant and no progress came since.
    running_since: Option<Stamp>,
    read_delay: Duration,
    stalled_for: Duration,
    busy_for: Duration,
    slow_for: Duration,
    queue: Option<u32>,
    queue_at_stall: Option<u32>,
    /// Progress was seen although E3 said `stopped`: E3 looks at the wrong processes.
    distrust_stopped: bool,
}

impl Fusion {
    /// Nothing known yet.
    pub fn new(patience: Patience) -> Fusion {
        Fusion {
            patience,
            vouch: Vouch::Unknown,
            last: None,
            last_progress: None,
            running_since: None,
            read_delay: Duration::ZERO,
            stalled_for: Duration::ZERO,
            busy_for: Duration::ZERO,
            slow_for: Duration::ZERO,
            queue: None,
            queue_at_stall: None,
            distrust_stopped: false,
        }
    }

    /// The vouch after the last observation.
    pub fn vouch(&self) -> Vouch {
        self.vouch
    }

    /// How long this service usually leaves bytes unread.
    pub fn read_delay(&self) -> Duration {
        self.read_delay
    }

    /// Unread bytes older than this, without any progress meanwhile, are a stall.
    pub fn stall_limit(&self) -> Duration {
        STALL_MIN.max(self.read_delay * STALL_FACTOR)
    }

    /// Takes an observation. Their instants never go back.
    pub fn observe(&mut self, o: &Observation<'_>) -> Vouch {
        let step = self.last.map_or(Duration::ZERO, |l| o.now.since(l)).saturating_sub(o.late).min(STEP_MAX);
        self.last = Some(o.now);
        self.learn(o);
        let progress = self.note_progress(o);
        self.vouch = match self.proof(o, progress) {
            Some(bad) => {
                self.forget_stall();
                self.running_since = None;
                self.queue = None;
                bad
            }
            None => self.judge_running(o, progress, step),
        };
        self.vouch
    }

    fn learn(&mut self, o: &Observation<'_>) {
        for &delay in o.finished_reads.iter().filter(|d| **d <= LEARN_MAX) {
            self.read_delay = self.read_delay.mul_f64(LEARN_DECAY).max(delay);
        }
    }

    /// Progress by bytes or by a shorter accept queue; else our own pause moves the marks.
    fn note_progress(&mut self, o: &Observation<'_>) -> bool {
        let queue = o.listener.filter(|l| l.listening).map(|l| l.queue);
        let accepted = matches!((self.queue, queue), (Some(before), Some(after)) if after < before);
        self.queue = queue;
        let progress = o.progress || accepted;
        if progress {
            self.last_progress = Some(o.now);
        } else {
            let shift = |s: Stamp| (s + o.late).min(o.now);
            self.last_progress = self.last_progress.map(shift);
            self.running_since = self.running_since.map(shift);
        }
        progress
    }

    /// `gone` and `stopped` need no wait.
    fn proof(&mut self, o: &Observation<'_>, progress: bool) -> Option<Vouch> {
        let process = o.process.unwrap_or_default();
        let gone = match o.listener {
            Some(l) => !l.listening,
            None => o.refused || process.gone,
        };
        if gone {
            return Some(Vouch::Gone);
        }
        if !process.stopped {
            self.distrust_stopped = false;
            return None;
        }
        self.distrust_stopped |= progress && self.vouch == Vouch::Stopped;
        (!(progress && self.distrust_stopped)).then_some(Vouch::Stopped)
    }

    fn judge_running(&mut self, o: &Observation<'_>, progress: bool, step: Duration) -> Vouch {
        if matches!(self.vouch, Vouch::Stopped | Vouch::Gone) {
            self.running_since = Some(o.now);
        }
        self.slow_for = if o.slow { self.slow_for + step } else { Duration::ZERO };
        if progress {
            self.running_since = None;
            // Reads and accepts are no progress where answers are due and none comes: the accept loop may live on alone.
            if !o.slow {
                self.forget_stall();
                return Vouch::Working;
            }
        }
        if let Some(trouble) = self.trouble(o, step) {
            return trouble;
        }
        if self.running_since.is_some() {
            return Vouch::Running;
        }
        let seen = o.listener.is_some() || o.process.is_some_and(|p| p.known);
        match self.last_progress {
            Some(p) if o.now.since(p) < WORKING_HOLD => Vouch::Working,
            _ if o.probe == ProbeOpinion::Alive => Vouch::Running,
            _ if o.unanswered == 0 && (seen || self.last_progress.is_some()) => Vouch::Idle,
            _ => Vouch::Unknown,
        }
    }

    /// Busy, stalled or stuck: by unread bytes, CPU time, late answers, failing probes. A stall that goes away without
    /// progress (the client gave up) is forgotten.
    fn trouble(&mut self, o: &Observation<'_>, step: Duration) -> Option<Vouch> {
        let limit = self.stall_limit();
        let stalled = self.unread_longer_than(o, limit);
        let quiet = o.oldest_unanswered.min(self.quiet(o.now));
        let burning = o.process.is_some_and(|p| p.cpu_advancing);
        let computing = o.unanswered > 0 && (o.slow || quiet > limit.max(BUSY_AFTER));
        // CPU time of before the silence is no excuse for it: a dead-lock stops a service that was busy until then.
        let burning = burning && (!o.slow || self.slow_for >= CPU_LOOKS_BACK);
        let exhausted = self.busy_for >= self.patience.busy;
        if burning && (stalled > 0 || computing) && !exhausted {
            self.busy_for += step;
            return Some(Vouch::Busy);
        }
        if stalled == 0 && !(exhausted && o.unanswered > 0) {
            if o.unanswered == 0 {
                self.forget_stall();
            }
            // Slow answers and failing probes are doubted, and no more: neither ever becomes `stuck`.
            let doubted = o.slow || o.probe == ProbeOpinion::Failing;
            return doubted.then_some(Vouch::Stalled);
        }
        let queue = o.listener.map_or(0, |l| l.queue);
        let first = *self.queue_at_stall.get_or_insert(queue);
        self.stalled_for += step;
        let not_accepting = queue > first || o.listener.is_some_and(|l| l.backlog > 0 && l.queue > l.backlog);
        let patient = self.stalled_for >= self.patience.stall;
        if patient && (not_accepting || self.unread_longer_than(o, self.patience.stall) >= 2) {
            return Some(Vouch::Stuck);
        }
        Some(Vouch::Stalled)
    }

    /// Connections unread for longer than `limit` while nothing at all moved.
    fn unread_longer_than(&self, o: &Observation<'_>, limit: Duration) -> usize {
        let quiet = self.quiet(o.now);
        o.unread.iter().filter(|u| o.now.since(u.since).min(quiet) > limit).count()
    }

    /// Time without progress on any connection, at most since the service runs again.
    fn quiet(&self, now: Stamp) -> Duration {
        self.last_progress.max(self.running_since).map_or(Duration::MAX, |s| now.since(s))
    }

    fn forget_stall(&mut self) {
        self.stalled_for = Duration::ZERO;
        self.busy_for = Duration::ZERO;
        self.queue_at_stall = None;
    }
}

#[cfg(test)]
mod tests;
