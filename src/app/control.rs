//! What the admin port may ask and order, and the reload.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::data::Command;
use super::generation::{Generation, Process, Retired};
use super::{Hooks, RunError, probes, report};
use crate::admin::{self, Readiness};
use crate::clock;
use crate::config::Config;
use crate::seldom::Seldom;
use crate::stamp::{Stamp, nanos};
use crate::upstream::registry::enforce_named;

/// How long `/status` waits for the workers' fresh numbers.
const REFRESH: Duration = Duration::from_millis(100);
/// Generations that still serve what is open of them; the oldest ends where more would.
const RETIRED_MAX: usize = 4;
/// Why a reload in a drain is refused.
pub(super) const LEAVING: &str = "this sidecar is on its way out";

/// The running sidecar as the control thread sees it.
pub(super) struct App {
    pub(super) process: Process,
    pub(super) drain_asked: Notify,
    current: Mutex<Arc<Generation>>,
    retired: Mutex<Vec<Retired>>,
    hooks: Hooks,
    started: Stamp,
    /// Lines about announced pauses: a hook may announce 60 000 in a second.
    pauses: Mutex<Seldom>,
}

impl App {
    pub(super) fn new(process: Process, first: Arc<Generation>, hooks: Hooks) -> App {
        process.metrics.reloaded(true);
        App {
            process,
            drain_asked: Notify::new(),
            current: Mutex::new(first),
            retired: Mutex::default(),
            hooks,
            started: clock::now(),
            pauses: Mutex::new(Seldom::new(10, Duration::from_secs(1))),
        }
    }

    /// The generation that takes what is new.
    pub(super) fn current(&self) -> Arc<Generation> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads and validates the file again. It may take as long as the disk does: not for the control thread.
    pub(super) fn load(&self) -> Result<Config, String> {
        (self.hooks.load)()
    }

    /// Swaps the generations; where anything is wrong the old one stays.
    pub(super) fn reload(&self, loaded: Result<Config, String>) {
        let done = loaded.and_then(|config| self.swap(config));
        self.process.metrics.reloaded(done.is_ok());
        match done {
            Ok(()) => {
                tracing::info!("SIGHUP: the new configuration is at work; what is open goes on as it was")
            }
            Err(why) => tracing::warn!("SIGHUP: the old configuration stays: {why}"),
        }
    }

    fn swap(&self, config: Config) -> Result<(), String> {
        let old = self.current();
        if self.draining() {
            return Err(LEAVING.to_owned());
        }
        let fixed = needs_restart(&old.config, &config);
        if !fixed.is_empty() {
            return Err(format!("{} cannot change while running: restart", fixed.join(", ")));
        }
        let new = Generation::start(config, &self.process, Some(&old)).map_err(|e| e.to_string())?;
        // Only now: a level that is refused with the rest would hide the refusal.
        if let Err(why) = (self.hooks.set_level)(&new.config.log.level) {
            tracing::warn!(why, "the log level stays");
        }
        probes::start(&new);
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = new;
        self.retired.lock().unwrap_or_else(PoisonError::into_inner).push(Retired::new(old));
        // Reloads may come faster than anything that is done now and then.
        self.end_retired(|_| false);
        Ok(())
    }

    /// Ends old generations that serve nothing any more, and tells what was not logged. Called now and then.
    pub(super) fn sweep(&self) {
        let rest = self.pauses.lock().unwrap_or_else(PoisonError::into_inner).rest(clock::now());
        if let Some(suppressed) = rest {
            tracing::info!(suppressed, "more maintenance was announced or ended");
        }
        self.end_retired(Retired::is_over);
    }

    /// Ends those that are over, and the oldest where there are too many.
    fn end_retired(&self, is_over: impl Fn(&Retired) -> bool) {
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        let surplus = retired.len().saturating_sub(RETIRED_MAX);
        let mut n = 0;
        retired.retain(|r| {
            n += 1;
            let over = n <= surplus || is_over(r);
            if over {
                let cut = r.generation.open();
                let well = r.generation.stop().is_ok();
                tracing::info!(cut, well, "the workers of an earlier configuration have ended");
            }
            !over
        });
    }

    fn each(&self, act: impl Fn(&Generation)) {
        act(&self.current());
        let retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        retired.iter().for_each(|r| act(&r.generation));
    }

    /// Readiness off, GOAWAY to all observers; what is open goes on.
    pub(super) fn begin_drain(&self) {
        self.each(Generation::drain);
    }

    /// Application connections still open, both ways.
    pub(super) fn open_connections(&self) -> usize {
        let retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        self.current().open() + retired.iter().map(|r| r.generation.open()).sum::<usize>()
    }

    /// Ends all workers.
    ///
    /// # Errors
    /// One of them had panicked.
    pub(super) fn stop_workers(&self) -> Result<(), RunError> {
        let retired = std::mem::take(&mut *self.retired.lock().unwrap_or_else(PoisonError::into_inner));
        let old: Vec<_> = retired.iter().map(|r| r.generation.stop()).collect();
        self.current().stop()?;
        old.into_iter().collect()
    }

    fn refresh(&self) {
        let current = self.current();
        let (tx, rx) = std::sync::mpsc::sync_channel(current.workers());
        current.tell_all(|| Command::Refresh(tx.clone()));
        let until = clock::now() + REFRESH;
        for _ in 0..current.workers() {
            if rx.recv_timeout(until.since(clock::now())).is_err() {
                return;
            }
        }
    }

    /// Tells every observer, and the watch of each service, of a pause; zero ends one.
    fn announce(&self, duration: Duration, reason: &str) {
        let now = clock::now();
        let until = now.as_nanos().saturating_add(nanos(duration));
        self.each(|g| {
            g.shared.common.frozen_until.store(until, Relaxed);
            for inbound in &g.shared.inbounds {
                inbound.stats.notes.announced(now, now + duration, reason);
                inbound.stats.kick.notify_one();
            }
            g.tell_all(|| Command::Announce(duration, reason.to_owned()));
        });
    }

    fn pause_line(&self) -> Option<u64> {
        self.pauses.lock().unwrap_or_else(PoisonError::into_inner).line(clock::now())
    }

    pub(super) fn draining(&self) -> bool {
        self.current().shared.common.draining.load(Relaxed)
    }
}

/// Keys in which the two differ and which only a restart can change.
fn needs_restart(old: &Config, new: &Config) -> Vec<&'static str> {
    let mut keys = Vec::new();
    let mut differ = |key, differs| {
        if differs {
            keys.push(key);
        }
    };
    differ("node.id", old.node.id != new.node.id);
    differ("admin.listen", old.admin.listen != new.admin.listen);
    differ("admin.public", old.admin.public != new.admin.public);
    differ("log.format", old.log.format != new.log.format);
    differ("maintenance.socket", old.maintenance.socket != new.maintenance.socket);
    differ("maintenance.mode", old.maintenance.mode != new.maintenance.mode);
    keys
}

impl admin::Control for App {
    fn status(&self) -> admin::report::Status {
        self.refresh();
        report::status(self, clock::now().since(self.started))
    }

    fn config(&self) -> serde_json::Value {
        self.current().config.to_json()
    }

    fn readiness(&self) -> Readiness {
        let started = self.current().started();
        let mut reasons = Vec::new();
        if !started {
            reasons.push("workers are starting".to_owned());
        }
        if self.draining() {
            reasons.push("draining".to_owned());
        }
        Readiness { started, ready: reasons.is_empty(), reasons }
    }

    fn live(&self) -> bool {
        self.current().live()
    }

    fn drain(&self) {
        self.drain_asked.notify_one();
    }

    fn maintenance(&self, duration: Duration, reason: &str) -> Result<(), String> {
        if self.current().shared.inbounds.is_empty() {
            return Err("this sidecar has no [[inbound]] whose pause could be announced".to_owned());
        }
        self.announce(duration, reason);
        if let Some(suppressed) = self.pause_line() {
            let suppressed = (suppressed > 0).then_some(suppressed);
            let duration_ms = duration.as_millis() as u64;
            tracing::info!(duration_ms, reason, suppressed, "maintenance announced");
        }
        Ok(())
    }

    fn resume(&self) -> Result<(), String> {
        if self.current().shared.common.frozen_until.load(Relaxed) > clock::now().as_nanos() {
            self.announce(Duration::ZERO, "");
            if let Some(suppressed) = self.pause_line() {
                tracing::info!(suppressed = (suppressed > 0).then_some(suppressed), "maintenance is over");
            }
        }
        Ok(())
    }

    fn set_log_level(&self, level: &str) -> Result<(), String> {
        (self.hooks.set_level)(level)
    }

    fn set_enforce(&self, upstream: &str, mode: &str) -> Result<(), String> {
        let current = self.current();
        let found = current.shared.ups.iter().find(|u| u.params.name == upstream);
        let Some(u) = found else {
            let names: Vec<_> = current.shared.ups.iter().map(|u| u.params.name.as_str()).collect();
            return Err(format!("no upstream `{upstream}`; there are: {}", names.join(", ")));
        };
        let mode = enforce_named(mode).ok_or_else(|| format!("`{mode}` is none of off, suspect, failed"))?;
        u.set_enforce(mode);
        tracing::info!(upstream, enforce = ?mode, "enforce changed");
        Ok(())
    }
}
