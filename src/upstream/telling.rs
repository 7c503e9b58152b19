//! What the owner of an endpoint tells: events, log lines, metrics, and the report behind `/status`.

use std::rc::Rc;
use std::time::Duration;

use super::facts::{Mode, Transition};
use super::hub::Hub;
use super::owner::Owner;
use super::registry::Report;
use crate::admin::events::Event;
use crate::link::Link;
use crate::stamp::Stamp;
use crate::verdict::{Cause, State};

impl Owner {
    pub(super) fn transition(&self, now: Stamp, t: &Transition) {
        self.metrics.transitions(t.to, t.cause).inc();
        if t.mistake {
            self.metrics.mistakes.inc();
        }
        if t.outage_healed {
            self.metrics.outages_healed.inc();
        }
        if let Some(d) = t.detection {
            self.metrics.detected(d);
        }
        self.tell(now, t.from, t.to, t.cause, Some(t));
    }

    pub(super) fn refined(&self, now: Stamp, cause: Cause) {
        let state = self.ep.borrow().state();
        if state != State::Active {
            self.tell(now, state, state, cause, None);
        }
    }

    fn tell(&self, now: Stamp, from: State, to: State, cause: Cause, t: Option<&Transition>) {
        let Some(hub) = self.hub.upgrade() else { return };
        if from != to {
            self.changed.set(now);
        }
        let r = self.make_report(&hub, now);
        let name = self.upstream(&hub);
        let mut e = Event::new(now, name, &self.shared.address.to_string(), from, to, cause);
        e.node.clone_from(&r.node);
        (e.score, e.link_score, e.service_score) = (r.score, r.link_score, r.service_score);
        (e.silence_ms, e.promise_ms, e.peak_ms, e.rtt_ms) = (r.silence_ms, r.promise_ms, r.peak_ms, r.rtt_ms);
        e.noise_ms = r.noise_ms;
        e.by_proof = t.is_some_and(|t| t.by_proof);
        e.mistake = t.is_some_and(|t| t.mistake);
        self.log(now, &e, &r, t.map(|t| t.silence));
        self.events.push(e);
        self.shared.set_report(r);
    }

    /// One line per transition; a flood of them is cut, not the events.
    fn log(&self, now: Stamp, e: &Event, r: &Report, silence: Option<Duration>) {
        let mut lines = self.lines.get();
        let written = lines.line(now);
        self.lines.set(lines);
        let Some(suppressed) = written else { return };
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(
                    upstream = e.upstream,
                    endpoint = %self.shared.address,
                    node = r.node.as_deref().unwrap_or("-"),
                    from = e.from.name(),
                    to = e.to.name(),
                    cause = e.cause.name(),
                    score = short(r.score),
                    silence_ms = short(silence.map(|d| d.as_secs_f64() * 1e3)),
                    since_last_ms = short(r.silence_ms),
                    promise_ms = short(r.promise_ms),
                    peak_ms = short(r.peak_ms),
                    noise_ms = short(r.noise_ms),
                    rtt_ms = short(r.rtt_ms),
                    by_proof = e.by_proof,
                    suppressed = (suppressed > 0).then_some(suppressed),
                    "state"
                )
            };
        }
        match e.to {
            State::Failed => line!(warn),
            State::Active | State::Suspect => line!(info),
        }
    }

    /// Publishes a fresh report for `/status`.
    pub(super) fn report(&self, now: Stamp) {
        if let Some(hub) = self.hub.upgrade() {
            self.publish(now);
            self.shared.set_report(self.make_report(&hub, now));
        }
    }

    fn make_report(&self, hub: &Hub, now: Stamp) -> Report {
        let links = hub.links(self.key);
        let main = hub.main(self.key).or_else(|| links.first().cloned());
        if let Some(l) = &main
            && let Some(score) = l.with_judge(|j| j.score(now))
        {
            self.ep.borrow_mut().link_scored(l.id, score);
        }
        let ep = self.ep.borrow();
        let known = main.is_some() || ep.state() != State::Active || ep.mode() == Mode::Framed;
        let mut r = Report {
            incarnation: ep.incarnation(),
            links: ep.links(),
            node: self.node.borrow().clone(),
            state: ep.state(),
            score: known.then(|| ep.score(now)),
            link_score: known.then(|| ep.link_score(now)),
            service_score: known.then(|| ep.service_score(now)),
            cause: ep.cause(),
            vouch: ep.last_vouch(),
            facets: self.shared.work.read().complete(ep.facets(now), ep.state(), ep.last_vouch(), now),
            mistakes: ep.mistakes(),
            outages_healed: ep.outages_healed(),
            streams: links.iter().map(|l| l.stream_count()).sum(),
            backpressure: self.pressed.get(),
            nodes: ep.nodes(),
            last_evidence: self.evidence.get().map(|(at, w)| (w.join(" "), now.millis_since(at).max(0.0))),
            own_stall: own_stall(hub, now),
            since_ms: now.millis_since(self.changed.get()).max(0.0),
            ..Report::default()
        };
        if let Some(l) = judged(&links, r.state, now).or(main.as_ref()) {
            fill(&mut r, l, now);
        }
        let heard = self.shared.heard_anywhere();
        if heard != Stamp::ZERO {
            r.last_frame = Some(heard);
            r.silence_ms = Some(now.millis_since(heard).max(0.0));
        }
        r
    }
}

/// For a log line: three digits behind the point.
fn short(x: Option<f64>) -> Option<f64> {
    x.map(|x| (x * 1e3).round() / 1e3)
}

/// The last lateness of this worker's loop and its age, ms.
fn own_stall(hub: &Hub, now: Stamp) -> Option<(f64, f64)> {
    let (at, late) = hub.w.last_stall.get();
    (at != Stamp::ZERO).then(|| (late.as_secs_f64() * 1e3, now.millis_since(at).max(0.0)))
}

/// The link whose deadline is next, or was missed first where the endpoint is in doubt: the one its state hangs on. Links
/// that are not on duty promise little and would only hide it.
fn judged(links: &[Rc<Link>], state: State, now: Stamp) -> Option<&Rc<Link>> {
    let deadline = |l: &Rc<Link>| l.with_judge(|j| j.deadline());
    let counts = |d: &Stamp| state != State::Active || *d >= now;
    links
        .iter()
        .filter_map(|l| deadline(l).filter(counts).map(|d| (d, l)))
        .min_by_key(|(d, _)| *d)
        .map(|(_, l)| l)
}

fn fill(r: &mut Report, l: &Link, now: Stamp) {
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    r.node = Some(l.peer_node.clone());
    r.queue_ratio = Some(l.queue_ratio());
    r.last_seq = Some(l.last_seq());
    l.with_judge(|j| {
        r.promise_ms = Some(ms(j.promise()));
        r.rtt_ms = j.rtt().map(ms);
        r.peak_ms = Some(ms(j.peak(now)));
        r.noise_ms = Some(ms(j.noise()));
        r.expected = Some(j.deadline());
        r.deadline_ms = Some(j.deadline().millis_since(now));
    });
}
