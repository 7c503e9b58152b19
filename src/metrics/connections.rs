//! Connections counted by guards: what is opened is closed on every path, also on errors and panics.

use std::sync::Arc;

use prometheus::{IntCounter, IntGauge};

use super::labels::{CloseReason, RejectReason};

/// Adds one to a gauge while it lives.
#[derive(Debug)]
pub struct Active(IntGauge);

impl Active {
    pub(super) fn new(gauge: IntGauge) -> Active {
        gauge.inc();
        Active(gauge)
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Handles of the connection metrics of one upstream or inbound.
#[derive(Debug)]
pub struct ConnectionMetrics {
    pub(super) active: IntGauge,
    pub(super) total: IntCounter,
    pub(super) closed: Vec<IntCounter>,
    pub(super) rejected: Vec<IntCounter>,
}

impl ConnectionMetrics {
    /// Counts a connection from now until the guard is dropped.
    pub fn open(self: &Arc<Self>) -> OpenConnection {
        self.total.inc();
        self.active.inc();
        OpenConnection { of: self.clone(), reason: CloseReason::Error }
    }

    /// Counts a connection that was turned away.
    pub fn reject(&self, reason: RejectReason) {
        self.rejected[reason.index()].inc();
    }

    /// Connections open now.
    pub fn active(&self) -> u64 {
        u64::try_from(self.active.get()).unwrap_or(0)
    }
}

/// A connection being served. Dropped without [`OpenConnection::close`] it counts as closed by `error`.
#[derive(Debug)]
pub struct OpenConnection {
    of: Arc<ConnectionMetrics>,
    reason: CloseReason,
}

impl OpenConnection {
    /// Ends it with that reason.
    pub fn close(mut self, reason: CloseReason) {
        self.reason = reason;
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.of.active.dec();
        self.of.closed[self.reason.index()].inc();
    }
}
