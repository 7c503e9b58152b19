//! Every change of state, kept for a while and told to whoever follows.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use tokio::sync::mpsc;

use crate::clock;
use crate::stamp::Stamp;
use crate::verdict::{Cause, State};

/// Events kept for those who come later.
pub const RETAINED: usize = 1024;

/// Followers at once; each costs a connection and a queue.
pub const MAX_FOLLOWERS: usize = 16;

/// Events a follower may lag behind before it is dropped: a storm of some hundred endpoints at once.
const QUEUE: usize = 1024;

/// Time of day: since 1970-01-01T00:00:00Z. In JSON an RFC 3339 string with microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wall(pub Duration);

impl Serialize for Wall {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        // The year 9999 is the last that RFC 3339 can say.
        let at = UNIX_EPOCH + self.0.min(Duration::from_secs(253_402_300_799));
        s.collect_str(&humantime::format_rfc3339_micros(at))
    }
}

impl<'de> Deserialize<'de> for Wall {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Wall, D::Error> {
        let text = String::deserialize(d)?;
        let at = humantime::parse_rfc3339(&text).map_err(de::Error::custom)?;
        Ok(Wall(at.duration_since(UNIX_EPOCH).unwrap_or_default()))
    }
}

/// One change of state of one endpoint, with the numbers behind it. What is not known is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Number of the event, from 1, without holes; given by [`EventLog::push`].
    pub seq: u64,
    /// Time of day of `mono_ns`; given by [`EventLog::push`].
    pub wall: Wall,
    /// When it happened, nanoseconds of CLOCK_MONOTONIC: comparable between processes of one machine.
    pub mono_ns: u64,
    /// Name of the upstream.
    pub upstream: String,
    /// Address of the endpoint.
    pub endpoint: String,
    /// Node id of the endpoint.
    pub node: Option<String>,
    /// State before.
    pub from: State,
    /// State after.
    pub to: State,
    /// Why.
    pub cause: Cause,
    /// Health, 0-1.
    pub score: Option<f64>,
    /// Link score, 0-1.
    pub link_score: Option<f64>,
    /// Service score, 0-1.
    pub service_score: Option<f64>,
    /// Since the last sign of life, ms.
    pub silence_ms: Option<f64>,
    /// The promise that was broken or kept, ms.
    pub promise_ms: Option<f64>,
    /// Learned lateness, ms.
    pub peak_ms: Option<f64>,
    /// Lateness of its loop that the peer told, ms.
    pub noise_ms: Option<f64>,
    /// Round trip, ms.
    pub rtt_ms: Option<f64>,
    /// Whether it rests on proof and not on silence.
    pub by_proof: bool,
    /// Whether it takes back a FAILED that was wrong.
    pub mistake: bool,
    /// The shadow detector that said so, and on which link; absent for verdicts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detector: Option<String>,
    /// Number of the link, for shadows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<u64>,
}

impl Event {
    /// A change at `at` without numbers; fill in what is known.
    pub fn new(at: Stamp, upstream: &str, endpoint: &str, from: State, to: State, cause: Cause) -> Event {
        Event {
            seq: 0,
            wall: Wall::default(),
            mono_ns: at.as_nanos(),
            upstream: upstream.to_owned(),
            endpoint: endpoint.to_owned(),
            node: None,
            from,
            to,
            cause,
            score: None,
            link_score: None,
            service_score: None,
            silence_ms: None,
            promise_ms: None,
            peak_ms: None,
            noise_ms: None,
            rtt_ms: None,
            by_proof: false,
            mistake: false,
            detector: None,
            link: None,
        }
    }
}

/// Why a follower gets nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It read too slowly.
    SlowReader,
    /// The program stops.
    Shutdown,
}

impl Ended {
    /// Name in the last line of `/events`.
    pub const fn name(self) -> &'static str {
        match self {
            Ended::SlowReader => "slow_reader",
            Ended::Shutdown => "shutdown",
        }
    }
}

#[derive(Debug)]
struct Feed {
    queue: mpsc::Sender<Arc<Event>>,
    slow: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Inner {
    last_seq: u64,
    ring: VecDeque<Arc<Event>>,
    feeds: Vec<Feed>,
}

/// The last [`RETAINED`] events and those who follow. Any thread may push; the lock is held for a few pointer moves.
#[derive(Debug, Default)]
pub struct EventLog {
    inner: Mutex<Inner>,
    shadows: OnceLock<Arc<EventLog>>,
}

impl EventLog {
    /// An empty log.
    pub fn new() -> Arc<EventLog> {
        Arc::default()
    }

    /// What the shadow detectors say: a log of its own, because nobody acts on it (row H14).
    pub fn shadows(&self) -> &Arc<EventLog> {
        self.shadows.get_or_init(EventLog::new)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Numbers the event, dates it, keeps it and tells all followers. Never waits: a follower whose queue is full is
    /// dropped. Gives the number.
    pub fn push(&self, mut event: Event) -> u64 {
        event.wall = Wall(clock::wall().saturating_sub(clock::now().since(Stamp::from_nanos(event.mono_ns))));
        let mut inner = self.lock();
        inner.last_seq += 1;
        event.seq = inner.last_seq;
        let event = Arc::new(event);
        if inner.ring.len() == RETAINED {
            inner.ring.pop_front();
        }
        inner.ring.push_back(event.clone());
        inner.feeds.retain(|feed| match feed.queue.try_send(event.clone()) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Closed(_)) => false,
            Err(mpsc::error::TrySendError::Full(_)) => {
                feed.slow.store(true, Ordering::Release);
                false
            }
        });
        inner.last_seq
    }

    /// The kept events after number `since`, oldest first, and how many of those wanted are no longer kept.
    pub fn retained(&self, since: u64) -> (Vec<Arc<Event>>, u64) {
        self.lock().after(since)
    }

    /// The kept events after number `since` and then all that come, without a hole. `None` if [`MAX_FOLLOWERS`]
    /// follow already.
    pub fn follow(&self, since: u64) -> Option<Follower> {
        let mut inner = self.lock();
        inner.feeds.retain(|f| !f.queue.is_closed());
        if inner.feeds.len() >= MAX_FOLLOWERS {
            return None;
        }
        let (queue, live) = mpsc::channel(QUEUE);
        let slow = Arc::new(AtomicBool::new(false));
        inner.feeds.push(Feed { queue, slow: slow.clone() });
        let (kept, missed) = inner.after(since);
        Some(Follower { kept: kept.into(), missed, live, slow, last_seq: since })
    }

    /// Ends all followers, because the program stops.
    pub fn end_followers(&self) {
        self.lock().feeds.clear();
        if let Some(shadows) = self.shadows.get() {
            shadows.end_followers();
        }
    }

    /// Those who follow now.
    pub fn followers(&self) -> usize {
        self.lock().feeds.iter().filter(|f| !f.queue.is_closed()).count()
    }
}

impl Inner {
    fn after(&self, since: u64) -> (Vec<Arc<Event>>, u64) {
        let kept: Vec<_> = self.ring.iter().filter(|e| e.seq > since).cloned().collect();
        let wanted = self.last_seq.saturating_sub(since);
        let missed = wanted.saturating_sub(kept.len() as u64);
        (kept, missed)
    }
}

/// A stream of events. Dropping it ends it.
#[derive(Debug)]
pub struct Follower {
    kept: VecDeque<Arc<Event>>,
    missed: u64,
    live: mpsc::Receiver<Arc<Event>>,
    slow: Arc<AtomicBool>,
    last_seq: u64,
}

impl Follower {
    /// Events after the wanted number that were no longer kept when this began.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Number of the last event given out.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// The next event, or why there is none.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Arc<Event>, Ended>> {
        let next = match self.kept.pop_front() {
            Some(event) => Some(event),
            None => std::task::ready!(self.live.poll_recv(cx)),
        };
        Poll::Ready(match next {
            Some(event) => {
                self.last_seq = event.seq;
                Ok(event)
            }
            None if self.slow.load(Ordering::Acquire) => Err(Ended::SlowReader),
            None => Err(Ended::Shutdown),
        })
    }

    /// Waits for the next event.
    ///
    /// # Errors
    /// Why there will be none.
    pub async fn next(&mut self) -> Result<Arc<Event>, Ended> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(endpoint: &str) -> Event {
        Event::new(clock::now(), "orders", endpoint, State::Active, State::Failed, Cause::Crash)
    }

    #[test]
    fn json_has_the_promised_form() {
        let mut e = event("127.0.0.1:8080");
        e.seq = 1;
        e.wall = Wall(Duration::new(1_796_022_000, 123_456_789));
        e.mono_ns = 123;
        e.score = Some(0.0);
        let json = serde_json::to_string(&e).unwrap();
        let head = r#"{"seq":1,"wall":"2026-11-30T07:00:00.123456Z","mono_ns":123,"upstream":"orders","endpoint":"127.0.0.1:8080","node":null,"from":"active","to":"failed","cause":"crash","score":0.0,"#;
        assert!(json.starts_with(head), "{json}");
        let back: Event = serde_json::from_str(&json).unwrap();
        assert_eq!(back.wall.0, Duration::new(1_796_022_000, 123_456_000));
        assert_eq!(back.cause, Cause::Crash);
    }

    #[tokio::test]
    async fn a_follower_gets_the_kept_and_the_new_without_a_hole() {
        let log = EventLog::new();
        for _ in 0..3 {
            log.push(event("a"));
        }
        let mut f = log.follow(1).unwrap();
        log.push(event("b"));
        for want in 2..=4 {
            assert_eq!(f.next().await.unwrap().seq, want);
        }
        log.end_followers();
        assert_eq!(f.next().await.unwrap_err(), Ended::Shutdown);
    }

    #[tokio::test]
    async fn the_ring_is_bounded_and_says_what_it_lost() {
        let log = EventLog::new();
        for _ in 0..RETAINED + 10 {
            log.push(event("a"));
        }
        let (kept, missed) = log.retained(0);
        assert_eq!((kept.len(), missed, kept[0].seq), (RETAINED, 10, 11));
        assert_eq!(log.retained(u64::MAX).0.len(), 0);
        assert_eq!(log.follow(4).unwrap().missed(), 6);
    }

    #[tokio::test]
    async fn a_slow_reader_is_dropped_and_told() {
        let log = EventLog::new();
        let mut f = log.follow(0).unwrap();
        for _ in 0..QUEUE + 1 {
            log.push(event("a"));
        }
        assert_eq!(log.followers(), 0);
        let mut got = 0;
        let end = loop {
            match f.next().await {
                Ok(_) => got += 1,
                Err(e) => break e,
            }
        };
        assert_eq!((got, end), (QUEUE, Ended::SlowReader));
    }

    #[test]
    fn followers_are_bounded_and_the_gone_make_room() {
        let log = EventLog::new();
        let mut all: Vec<_> = (0..MAX_FOLLOWERS).map(|_| log.follow(0).unwrap()).collect();
        assert!(log.follow(0).is_none());
        all.pop();
        assert!(log.follow(0).is_some());
    }
}
