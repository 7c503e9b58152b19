//! What the inbound proxy tells the evidence about one connection to the service.

use crate::evidence::ConnStats;
use crate::link::Meter;
use crate::stamp::Stamp;

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
