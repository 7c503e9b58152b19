//! The one kernel timer of a worker. A timer of the runtime would be set and cleared around every wait for sockets,
//! whatever the wait ends with; this one is touched only when a deadline comes earlier, or has come.
#![expect(unsafe_code, reason = "the runtime has to be told that a descriptor stays open")]

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::clock;
use crate::stamp::Stamp;

/// See the module.
pub struct Alarm {
    fd: AsyncFd<OwnedFd>,
    set: Cell<Stamp>,
}

impl Alarm {
    /// An alarm that is not set.
    ///
    /// # Errors
    /// No descriptor to be had, or called outside of a runtime.
    pub fn new() -> io::Result<Alarm> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // SAFETY: an OwnedFd is open until it is dropped, and always the same descriptor; the AsyncFd owns it, and nothing
        // here takes it out.
        let fd = unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE) }?;
        Ok(Alarm { fd, set: Cell::new(Stamp::NEVER) })
    }

    /// When it goes off; [`Stamp::NEVER`] if it is not set.
    pub fn at(&self) -> Stamp {
        self.set.get()
    }

    /// Goes off at `at` and not before, whatever it was set to.
    pub fn set(&self, at: Stamp) {
        self.set.set(at);
        // Zero would switch it off: a stamp in the past goes off at once, and so does the first nanosecond.
        let value = if at == Stamp::NEVER { Stamp::ZERO } else { at.max(Stamp::from_nanos(1)) };
        let once = Itimerspec { it_interval: clock::timespec(Stamp::ZERO), it_value: clock::timespec(value) };
        // Setting also forgets that it went off before, so nobody has to read it.
        let done = timerfd_settime(self.fd.get_ref(), TimerfdTimerFlags::ABSTIME, &once);
        debug_assert!(done.is_ok(), "{done:?}");
    }

    /// Waits until it went off. A call may also end early, when it was set again after it went off.
    pub async fn rings(&self) {
        match self.fd.readable().await {
            Ok(mut guard) => guard.clear_ready(),
            // The runtime is shutting down.
            Err(_) => std::future::pending().await,
        }
    }
}

/// Deadlines of many are met together, on a grid of this width, so that they share a wake-up.
const GRID: Duration = Duration::from_millis(1);

/// The next point of the grid at or after `at`.
pub fn on_grid(at: Stamp) -> Stamp {
    let (ns, grid) = (at.as_nanos(), GRID.as_nanos() as u64);
    if at == Stamp::NEVER { at } else { Stamp::from_nanos(ns.div_ceil(grid).saturating_mul(grid)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_goes_off_at_its_time_and_can_be_set_again() {
        let alarm = Alarm::new().unwrap();
        for ms in [3, 1] {
            let at = clock::now() + Duration::from_millis(ms);
            alarm.set(at);
            assert_eq!(alarm.at(), at);
            alarm.rings().await;
            assert!(clock::now() >= at);
        }
        alarm.set(Stamp::ZERO);
        alarm.rings().await;
    }

    #[tokio::test]
    async fn moved_earlier_it_goes_off_earlier_and_off_means_off() {
        let alarm = Alarm::new().unwrap();
        let far = clock::now() + Duration::from_secs(3600);
        alarm.set(far);
        alarm.set(clock::now() + Duration::from_millis(1));
        alarm.rings().await;
        assert!(clock::now() < far);
        alarm.set(clock::now() + Duration::from_millis(1));
        alarm.set(Stamp::NEVER);
        let waited = tokio::time::timeout(Duration::from_millis(20), alarm.rings()).await;
        assert!(waited.is_err());
    }

    #[test]
    fn the_grid_never_makes_it_earlier() {
        for ns in [0, 1, 999_999, 1_000_000, 1_000_001, u64::MAX - 1] {
            assert!(on_grid(Stamp::from_nanos(ns)) >= Stamp::from_nanos(ns), "{ns}");
        }
        assert_eq!(on_grid(Stamp::from_nanos(1_000_001)), Stamp::from_millis(2));
        assert_eq!(on_grid(Stamp::NEVER), Stamp::NEVER);
    }
}
