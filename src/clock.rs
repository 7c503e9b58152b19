//! The one door to the clocks. Only shells may use it; the pure core takes `now` as an argument.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, Timespec, clock_gettime};
use tokio::time::Instant;

use crate::stamp::Stamp;

static BASE: OnceLock<(Instant, u64)> = OnceLock::new();

fn base() -> &'static (Instant, u64) {
    BASE.get_or_init(|| (Instant::now(), now().as_nanos()))
}

/// Now, on CLOCK_MONOTONIC. Does not follow tokio's paused clock.
pub fn now() -> Stamp {
    let t = clock_gettime(ClockId::Monotonic);
    Stamp::from_nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}

/// A stamp as the kernel's timers take it.
pub fn timespec(at: Stamp) -> Timespec {
    let ns = at.as_nanos();
    Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as _ }
}

/// The tokio instant of a stamp, for `sleep_until`. Stamps before the process began map to its begin.
pub fn instant(at: Stamp) -> Instant {
    let (start, ns) = base();
    let ahead =
        Duration::from_nanos(at.as_nanos().saturating_sub(*ns)).min(Duration::from_secs(86_400 * 365));
    *start + ahead
}

/// Wall clock, for logs and events only; never for judging.
pub fn wall() -> Duration {
    #[expect(clippy::disallowed_methods, reason = "this is the door")]
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
