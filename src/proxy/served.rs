//! A connection that is counted for as long as it is served.

use std::rc::Rc;
use std::sync::Arc;

use crate::metrics::{CloseReason, ConnectionMetrics, OpenConnection};
use crate::worker::Worker;

/// Counts a connection. One that is dropped together with its worker was cut: by the drain deadline, as a rule.
pub struct Served {
    w: Rc<Worker>,
    open: Option<OpenConnection>,
}

impl Served {
    /// A connection that begins now.
    pub fn begin(w: &Rc<Worker>, of: &Arc<ConnectionMetrics>) -> Served {
        Served { w: w.clone(), open: Some(of.open()) }
    }

    /// It ended like this.
    pub fn close(mut self, reason: CloseReason) {
        if let Some(open) = self.open.take() {
            open.close(reason);
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if self.w.ending.get()
            && let Some(open) = self.open.take()
        {
            open.close(CloseReason::Drain);
        }
    }
}
