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

/// Asks `service` for ever, past all sidecars, and tells `log` as if it were a shadow.
pub async fn watch(service: SocketAddr, log: Rc<Log>) {
    let mut last = clock::now();
    let mut state = State::Active;
    let mut next = last;
    loop {
        let limit = if state == State::Active { last + GIVEN_UP } else { next + INTERVAL };
        let asked = answered(service, next, limit).await;
        let now = clock::now();
        let to = match asked {
            true => State::Active,
            false if now.since(last) >= GIVEN_UP => State::Failed,
            false => state,
        };
        if asked {
            last = now;
        }
        if to != state {
            log.add_shadow(event(now, service, state, to));
            state = to;
        }
        next = (next + INTERVAL).max(now);
    }
}

/// Waits until `from`, asks; false if no answer came before `limit`.
async fn answered(service: SocketAddr, from: Stamp, limit: Stamp) -> bool {
    tokio::time::sleep_until(clock::instant(from.min(limit))).await;
    let left = limit.since(clock::now());
    if left.is_zero() {
        return false;
    }
    let asked = http::ask(None, service, "GET", "/", left.min(INTERVAL)).await;
    if asked.is_ok_and(|(code, _)| code == 200) {
        return true;
    }
    // The next question is due a second after this one, or it is given up before.
    tokio::time::sleep_until(clock::instant((from + INTERVAL).min(limit))).await;
    false
}

fn event(at: Stamp, service: SocketAddr, from: State, to: State) -> Event {
    Event {
        mono_ns: at.as_nanos(),
        endpoint: service.to_string(),
        from,
        to,
        cause: "silent".into(),
        detector: Some(NAME.into()),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn who_answers_is_active_and_who_does_not_is_given_up_after_three_seconds() {
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
                assert!(first.at().since(begin) >= GIVEN_UP);
            })
            .await;
    }
}
