//! Connections on the link port that have not said hello: how many wait at once, and who gives way.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::stamp::Stamp;

/// From so many on the slow ones give way.
const MANY: usize = 256;
/// At so many the oldest does.
const MOST: usize = 4096;
/// Honest peers need milliseconds for their hello; one that took longer than this is slow.
const GRACE: Duration = Duration::from_millis(500);

/// Those of one worker, oldest first.
#[derive(Default)]
pub struct Strangers(RefCell<VecDeque<(Stamp, Rc<Notify>)>>);

impl Strangers {
    /// What the handshake `work` of a stranger that came at `now` comes to; None if it has to give way to a later one.
    pub async fn admit<T>(&self, now: Stamp, work: impl Future<Output = T>) -> Option<T> {
        let gives_way = Rc::new(Notify::new());
        self.make_room(now, gives_way.clone());
        let got = tokio::select! {
            biased;
            got = work => Some(got),
            () = gives_way.notified() => None,
        };
        self.0.borrow_mut().retain(|(_, s)| !Rc::ptr_eq(s, &gives_way));
        got
    }

    fn make_room(&self, now: Stamp, newest: Rc<Notify>) {
        let mut all = self.0.borrow_mut();
        let slow = all.front().is_some_and(|(since, _)| now.since(*since) > GRACE);
        if (all.len() >= MANY && slow) || all.len() >= MOST {
            all.pop_front().iter().for_each(|(_, oldest)| oldest.notify_one());
        }
        all.push_back((now, newest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `count` that never say hello, one each `gap`, had to give way.
    fn given_way(count: u64, gap: Duration) -> usize {
        let strangers = Strangers::default();
        let all: Vec<_> = (0..count)
            .map(|n| {
                let notify = Rc::new(Notify::new());
                strangers.make_room(Stamp::from_millis(1000) + gap * n as u32, notify);
            })
            .collect();
        all.len() - strangers.0.borrow().len()
    }

    #[test]
    fn a_burst_waits_and_the_slow_and_the_far_too_many_give_way() {
        assert_eq!(given_way(MOST as u64, Duration::ZERO), 0, "a burst of honest peers");
        assert_eq!(given_way(MOST as u64 + 7, Duration::ZERO), 7);
        assert_eq!(given_way(MANY as u64, Duration::from_secs(1)), 0);
        assert_eq!(given_way(MANY as u64 + 7, Duration::from_secs(1)), 7);
    }

    #[tokio::test]
    async fn who_is_done_makes_room_and_is_given_its_outcome() {
        let strangers = Strangers::default();
        assert_eq!(strangers.admit(Stamp::ZERO, async { 7 }).await, Some(7));
        assert!(strangers.0.borrow().is_empty());
        let slow = strangers.admit(Stamp::ZERO, std::future::pending::<()>());
        let later = async {
            for _ in 0..MANY {
                strangers.make_room(Stamp::from_millis(1000), Rc::new(Notify::new()));
            }
        };
        assert_eq!(tokio::join!(slow, later).0, None);
    }
}
