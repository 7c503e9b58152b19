//! What the proxy sees of one connection: for the evidence about a service, and of what our own service waits for.

use crate::evidence::ConnStats;
use crate::link::Meter;
use crate::stamp::Stamp;
use crate::upstream::asking::Asking;

/// E1: progress of one connection.
pub struct ServiceMeter(pub ConnStats);

impl Meter for ServiceMeter {
    fn taken(&self, now: Stamp, _n: usize) {
        self.0.sent(now);
    }

    fn sent(&self, now: Stamp, _n: usize) {
        self.0.received(now);
    }

    fn ended(&self, now: Stamp, rst: bool) {
        self.0.ended_by_service(now, rst);
    }
}

/// Towards an upstream: whoever spoke last waits for the other. Of a protocol without answers that is too much said.
pub struct AskingMeter(pub Asking);

impl Meter for AskingMeter {
    fn taken(&self, _now: Stamp, _n: usize) {
        self.0.set(false);
    }

    fn sent(&self, _now: Stamp, _n: usize) {
        self.0.set(true);
    }

    fn ended(&self, _now: Stamp, _rst: bool) {}
}
