//! The heartbeat that the source compares itself with (row H16): a question each second, given up after three.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use crate::clock;
use crate::demo::events::{Event, Log};
use crate::demo::http;
use crate::stamp::Stamp;
use crate::verdict::State;

/// Its name in reports.
pub const NAME: &str = "heartbeat 1s/3s";
const INTERVAL: Duration = Duration::from_secs(1);
const GIVEN_UP: Duration = Duration::from_secs(3);
/// Questions that fall within [`GIVEN_UP`]. Each has a whole interval for its answer: "period 1 s and timeout 3 s means at
/// least 4 s to detect" (row H16).
const MISSES: u32 = 3;

/// What is known of a service that is asked once an interval.
#[derive(Debug)]
struct Heart {
    /// The last answer; the start if none.
    last: Stamp,
    /// Questions since then whose time is over.
    missed: u32,
    state: State,
}

impl Heart {
    fn new(now: Stamp) -> Heart {
        Heart { last: now, missed: 0, state: State::Active }
    }

    /// A question was answered at `now`, or its time was over then. Gives the state of before if it changed.
    fn turn(&mut self, answered: bool, now: Stamp) -> Option<State> {
        if answered {
            (self.last, self.missed) = (now, 0);
            return self.turn_to(State::Active);
        }
        self.missed += 1;
        let over = self.missed >= MISSES && now.since(self.last) >= GIVEN_UP;
        if over { self.turn_to(State::Failed) } else { None }
    }

    fn turn_to(&mut self, to: State) -> Option<State> {
        let from = std::mem::replace(&mut self.state, to);
        (from != to).then_some(from)
    }
}

/// Asks `service` for ever, past all sidecars, and tells `log` as if it were a shadow.
pub async fn watch(service: SocketAddr, log: Rc<Log>) {
    let mut heart = Heart::new(clock::now());
    let mut due = heart.last;
    loop {
        tokio::time::sleep_until(clock::instant(due)).await;
        let asked = http::ask(None, service, "GET", "/", INTERVAL).await;
        let answered = asked.is_ok_and(|(code, _)| code == 200);
        if !answered {
            // A refusal comes at once; the question still has its time, and so has the next one.
            tokio::time::sleep_until(clock::instant(due + INTERVAL)).await;
        }
        let now = clock::now();
        let silent_since = heart.last;
        if let Some(from) = heart.turn(answered, now) {
            log.add_shadow(event(now, service, from, &heart, silent_since));
        }
        due = (due + INTERVAL).max(now);
    }
}

fn event(at: Stamp, service: SocketAddr, from: State, heart: &Heart, silent_since: Stamp) -> Event {
    Event {
        mono_ns: at.as_nanos(),
        endpoint: service.to_string(),
        from,
        to: heart.state,
        cause: "silent".into(),
        silence_ms: Some(at.millis_since(silent_since)),
        detector: Some(NAME.into()),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    fn ms(x: u64) -> Stamp {
        Stamp::from_millis(x)
    }

    /// The third question was asked when the three seconds were over and got no time at all: two misses were FAILED.
    #[test]
    fn the_third_question_gets_its_time() {
        let mut heart = Heart::new(ms(10_000));
        assert_eq!(heart.turn(false, ms(12_000)), None);
        assert_eq!(
            heart.turn(false, ms(13_000)),
            None,
            "3 s are over, and the third question is being asked"
        );
        assert_eq!(heart.turn(false, ms(14_000)), Some(State::Active));
        assert_eq!(heart.state, State::Failed);
        assert_eq!(heart.turn(false, ms(15_000)), None, "told once");
        assert_eq!(heart.turn(true, ms(15_001)), Some(State::Failed));
        assert_eq!((heart.state, heart.last, heart.missed), (State::Active, ms(15_001), 0));
    }

    #[test]
    fn an_answer_between_two_misses_begins_anew() {
        let mut heart = Heart::new(ms(10_000));
        for second in (12..40).step_by(3) {
            assert_eq!(heart.turn(false, ms(second * 1000)), None, "{second}");
            assert_eq!(heart.turn(false, ms(second * 1000 + 1000)), None, "{second}");
            assert_eq!(heart.turn(true, ms(second * 1000 + 1001)), None, "{second}");
        }
        assert_eq!(heart.state, State::Active);
    }

    #[test]
    fn three_hasty_misses_are_not_three_seconds() {
        let mut heart = Heart::new(ms(10_000));
        for at in [10_100, 10_200, 12_999] {
            assert_eq!(heart.turn(false, ms(at)), None);
        }
        assert_eq!(heart.turn(false, ms(13_000)), Some(State::Active));
    }

    #[tokio::test]
    async fn who_answers_is_active_and_who_does_not_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let service = listener.local_addr().unwrap();
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async move {
                let log = Rc::new(Log::default());
                let begin = clock::now();
                tokio::task::spawn_local(watch(service, log.clone()));
                let (mut io, _) = listener.accept().await.unwrap();
                let _ = io.read(&mut [0; 512]).await.unwrap();
                io.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
                let deadline = begin + Duration::from_secs(20);
                assert!(log.wait(deadline, |l| !l.shadows().is_empty()).await);
                let first = log.shadows()[0].clone();
                assert_eq!((first.to, first.detector.as_deref()), (State::Failed, Some(NAME)));
                assert!(first.at().since(begin) >= GIVEN_UP + INTERVAL);
                assert!(first.silence_ms >= Some(3000.0), "{first:?}");
            })
            .await;
    }
}
