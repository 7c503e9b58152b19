//! What the admin port may ask and order.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::sync::Notify;

use super::SetLevel;
use super::data::Command;
use super::params::Shared;
use super::report;
use crate::admin::events::EventLog;
use crate::admin::{self, Readiness};
use crate::clock;
use crate::config::Config;
use crate::metrics::Metrics;
use crate::stamp::{Stamp, nanos};
use crate::upstream::registry::enforce_named;

/// How long `/status` waits for the workers' fresh numbers.
const REFRESH: Duration = Duration::from_millis(100);

/// The running sidecar as the control thread sees it.
pub(super) struct App {
    pub(super) config: Config,
    pub(super) shared: Arc<Shared>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) events: Arc<EventLog>,
    pub(super) drain_asked: Notify,
    posts: Vec<tokio::sync::mpsc::UnboundedSender<Command>>,
    set_level: SetLevel,
    started: Stamp,
}

impl App {
    pub(super) fn new(
        config: Config,
        shared: Arc<Shared>,
        posts: Vec<tokio::sync::mpsc::UnboundedSender<Command>>,
        metrics: Arc<Metrics>,
        events: Arc<EventLog>,
        set_level: SetLevel,
    ) -> App {
        let started = clock::now();
        App { config, shared, metrics, events, drain_asked: Notify::new(), posts, set_level, started }
    }

    fn tell_all(&self, make: impl Fn() -> Command) {
        for p in &self.posts {
            // A worker that is gone needs no orders.
            drop(p.send(make()));
        }
    }

    /// Readiness off, GOAWAY to all observers; what is open goes on.
    pub(super) fn begin_drain(&self) {
        self.shared.common.draining.store(true, Relaxed);
        let deadline = self.config.drain_deadline;
        self.tell_all(|| Command::Drain(deadline));
    }

    /// Application connections still open, both ways.
    pub(super) fn open_connections(&self) -> u64 {
        let out = self.shared.up_metrics.iter().map(|m| m.connections.active());
        let inb = self.shared.inbounds.iter().map(|i| i.metrics.connections.active());
        out.chain(inb).sum()
    }

    pub(super) fn stop_workers(&self) {
        self.tell_all(|| Command::Stop);
    }

    fn refresh(&self) {
        let (tx, rx) = std::sync::mpsc::sync_channel(self.posts.len());
        self.tell_all(|| Command::Refresh(tx.clone()));
        let until = clock::now() + REFRESH;
        for _ in &self.posts {
            if rx.recv_timeout(until.since(clock::now())).is_err() {
                return;
            }
        }
    }

    /// Tells every observer, and the watch of each service, of a pause; zero ends one.
    fn announce(&self, duration: Duration, reason: &str) {
        let now = clock::now();
        self.shared.common.frozen_until.store(now.as_nanos().saturating_add(nanos(duration)), Relaxed);
        for inbound in &self.shared.inbounds {
            inbound.stats.notes.announced(now, now + duration, reason);
            inbound.stats.kick.notify_one();
        }
        self.tell_all(|| Command::Announce(duration, reason.to_owned()));
    }

    pub(super) fn draining(&self) -> bool {
        self.shared.common.draining.load(Relaxed)
    }
}

impl admin::Control for App {
    fn status(&self) -> admin::report::Status {
        self.refresh();
        report::status(self, clock::now().since(self.started))
    }

    fn config(&self) -> serde_json::Value {
        self.config.to_json()
    }

    fn readiness(&self) -> Readiness {
        let started = self.shared.started.load(Relaxed) == self.posts.len();
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
        self.posts.iter().all(|p| !p.is_closed())
    }

    fn drain(&self) {
        self.drain_asked.notify_one();
    }

    fn maintenance(&self, duration: Duration, reason: &str) -> Result<(), String> {
        if self.shared.inbounds.is_empty() {
            return Err("this sidecar has no [[inbound]] whose pause could be announced".to_owned());
        }
        self.announce(duration, reason);
        tracing::info!(duration_ms = duration.as_millis() as u64, reason, "maintenance announced");
        Ok(())
    }

    fn resume(&self) -> Result<(), String> {
        if self.shared.common.frozen_until.load(Relaxed) > clock::now().as_nanos() {
            self.announce(Duration::ZERO, "");
            tracing::info!("maintenance is over");
        }
        Ok(())
    }

    fn set_log_level(&self, level: &str) -> Result<(), String> {
        (self.set_level)(level)
    }

    fn set_enforce(&self, upstream: &str, mode: &str) -> Result<(), String> {
        let found = self.shared.ups.iter().find(|u| u.params.name == upstream);
        let Some(u) = found else {
            let names: Vec<_> = self.shared.ups.iter().map(|u| u.params.name.as_str()).collect();
            return Err(format!("no upstream `{upstream}`; there are: {}", names.join(", ")));
        };
        let mode = enforce_named(mode).ok_or_else(|| format!("`{mode}` is none of off, suspect, failed"))?;
        u.set_enforce(mode);
        tracing::info!(upstream, enforce = ?mode, "enforce changed");
        Ok(())
    }
}
