//! Pure: no IO, no clock. Slow detectors: a FAILED that comes after its fault is over, and the next one may have begun.
//!
//! The demo goes on when the detector that acts is well again. One that needs seconds of silence speaks later, of a
//! silence that began in the fault: that is no mistake, and none of the next fault.

use std::time::Duration;

use super::events::Event;
use super::faults::{self, Expected, Seen, Span};
use crate::stamp::Stamp;
use crate::verdict::State;

/// No detector is slower than this after the end of a silence: the heartbeat of 1 s / 3 s needs 4 s after the last answer.
const LATE: Duration = Duration::from_secs(5);

/// What a detector that may be slow said, and the faults meanwhile.
#[derive(Clone, Debug)]
pub struct Past<'a> {
    spans: &'a [(Expected, Span)],
    events: &'a [Event],
    /// Of each event: the fault that it belongs to although it came after it.
    owners: Vec<Option<usize>>,
}

impl<'a> Past<'a> {
    /// Both in the order in which they happened.
    pub fn new(spans: &'a [(Expected, Span)], events: &'a [Event]) -> Past<'a> {
        let owners = events.iter().map(|e| owner(spans, e)).collect();
        Past { spans, events, owners }
    }

    /// As [`faults::mistakes`], with the index of the fault that each late one belongs to. What a fault explains that is
    /// over is no mistake either.
    pub fn mistakes(&self) -> Vec<(&'a Event, Option<usize>)> {
        let wrong = faults::mistakes(self.events, self.spans);
        let owned = wrong.into_iter().map(|e| (e, owner(self.spans, e)));
        owned.filter(|(e, owner)| owner.is_none_or(|i| self.wrong_within(e, i))).collect()
    }

    /// Whether fault `i` would not explain it either if it had come in time.
    fn wrong_within(&self, e: &Event, i: usize) -> bool {
        let in_time = Event { mono_ns: self.spans[i].1.settled.as_nanos(), ..e.clone() };
        !faults::mistakes(&[in_time], &self.spans[i..=i]).is_empty()
    }

    /// What was said of fault `i`: late FAILED of it too, and none of another fault.
    pub fn seen(&self, i: usize) -> Seen {
        let mut span = self.spans[i].1.clone();
        let owned = || self.events.iter().zip(&self.owners);
        for (late, _) in owned().filter(|(_, owner)| **owner == Some(i)) {
            let back =
                |e: &&Event| e.endpoint == late.endpoint && e.to == State::Active && e.at() > late.at();
            let end = self.events.iter().find(back).map_or(late.at(), Event::at);
            span.settled = span.settled.max(end);
        }
        let within = |e: &Event| e.at() >= span.at && e.at() <= span.settled;
        let mine = |(e, owner): &(&Event, &Option<usize>)| within(e) && owner.is_none_or(|o| o == i);
        let events: Vec<Event> = owned().filter(mine).map(|(e, _)| e.clone()).collect();
        faults::seen(&events, &span)
    }
}

/// The fault that a late FAILED belongs to: the first one that was over when it came, not longer than [`LATE`] ago and not
/// before the silence began. None: it is not late, or no FAILED.
fn owner(spans: &[(Expected, Span)], e: &Event) -> Option<usize> {
    if e.to != State::Failed || e.from == State::Failed {
        return None;
    }
    let began = e.silence_ms.map_or(Stamp::ZERO, |ms| e.at() - silence(ms));
    spans.iter().position(|(_, span)| {
        let same = span.endpoint.as_deref().is_none_or(|mine| mine == e.endpoint);
        same && e.at() > span.settled && e.at().since(span.settled) <= LATE && began <= span.settled
    })
}

fn silence(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(endpoint: &str, at: u64) -> Span {
        Span {
            endpoint: Some(endpoint.into()),
            at: Stamp::from_millis(at),
            end: Stamp::from_millis(at + 1200),
            settled: Stamp::from_millis(at + 1500),
        }
    }

    fn event(ms: u64, endpoint: &str, to: State, silence_ms: f64) -> Event {
        let from = if to == State::Active { State::Failed } else { State::Active };
        Event {
            mono_ns: ms * 1_000_000,
            endpoint: endpoint.into(),
            from,
            to,
            cause: "silent".into(),
            silence_ms: Some(silence_ms),
            ..Event::default()
        }
    }

    /// It was booked as a mistake of the fault after it.
    #[test]
    fn a_failed_that_comes_after_the_fault_is_the_faults() {
        let spans = [(Expected::Failed, span("a:1", 1000)), (Expected::Failed, span("b:1", 3000))];
        let events = [event(4500, "a:1", State::Failed, 4000.0), event(5200, "a:1", State::Active, 4700.0)];
        let past = Past::new(&spans, &events);
        assert!(past.mistakes().is_empty());
        let found = past.seen(0);
        assert_eq!((found.detected_ms, found.healed, found.healed_ms), (Some(3500.0), true, Some(3000.0)));
        assert_eq!(past.seen(1), Seen { healed: true, ..Seen::default() });
    }

    #[test]
    fn it_is_not_the_detection_of_the_next_fault_either() {
        let next = Span { endpoint: None, ..span("", 3000) };
        let spans = [(Expected::Failed, span("a:1", 1000)), (Expected::Failed, next)];
        let late = [event(4500, "a:1", State::Failed, 4000.0)];
        let past = Past::new(&spans, &late);
        assert_eq!((past.seen(0).detected_ms, past.seen(1).detected_ms), (Some(3500.0), None));
        let own = [event(4500, "a:1", State::Failed, 1400.0)];
        let past = Past::new(&spans, &own);
        assert_eq!((past.seen(0).detected_ms, past.seen(1).detected_ms), (None, Some(1500.0)));
    }

    #[test]
    fn a_silence_that_began_later_or_long_ago_is_a_mistake() {
        let spans = [(Expected::Failed, span("a:1", 1000))];
        for (at, endpoint, silence) in
            [(4500, "a:1", 1500.0), (7600, "a:1", 7000.0), (4500, "b:1", 4000.0), (900, "a:1", 800.0)]
        {
            let wrong = [event(at, endpoint, State::Failed, silence)];
            assert_eq!(Past::new(&spans, &wrong).mistakes(), [(&wrong[0], None)], "{at} {endpoint}");
        }
        assert_eq!(owner(&spans, &event(2400, "a:1", State::Failed, 1000.0)), None, "in time: not late");
    }

    #[test]
    fn a_late_failed_of_a_fault_that_must_not_fail_is_its_own_mistake() {
        let spans = [(Expected::NotFailed, span("a:1", 1000)), (Expected::Failed, span("b:1", 3000))];
        let wrong = [event(3500, "a:1", State::Failed, 3000.0)];
        assert_eq!(Past::new(&spans, &wrong).mistakes(), [(&wrong[0], Some(0))]);
    }

    #[test]
    fn of_two_faults_in_one_silence_the_first_began_it() {
        let spans = [(Expected::Failed, span("a:1", 1000)), (Expected::Failed, span("a:1", 2600))];
        assert_eq!(owner(&spans, &event(4300, "a:1", State::Failed, 3900.0)), Some(0));
        assert_eq!(owner(&spans, &event(4300, "a:1", State::Failed, 1700.0)), Some(1));
    }
}
