//! Pure: no IO, no clock. From the report to the gauges of a scrape.

use std::time::Duration;

use super::Readiness;
use super::report::{Endpoint, LinkKind, Status};
use crate::metrics::{EndpointSample, Mode, Scrape, VouchSample};

/// The gauges of `status`, taken at `wall` (since the Unix epoch).
pub(super) fn of(status: &Status, readiness: &Readiness, wall: Duration) -> Scrape {
    let endpoints = status
        .upstreams
        .iter()
        .flat_map(|u| u.endpoints.iter().map(move |e| sample(&u.name, e, wall.as_secs_f64())))
        .collect();
    let vouches =
        status.inbounds.iter().map(|i| VouchSample { service: i.name.clone(), vouch: i.vouch }).collect();
    Scrape { endpoints, vouches, draining: status.draining, ready: readiness.ready }
}

fn sample(upstream: &str, e: &Endpoint, now: f64) -> EndpointSample {
    let last = e.silence_ms.map(|ms| now - ms / 1e3);
    EndpointSample {
        upstream: upstream.to_owned(),
        endpoint: e.address.clone(),
        health: e.score,
        link: e.link_score,
        service: e.service_score,
        state: e.state,
        mode: match e.link {
            LinkKind::Framed => Some(Mode::Framed),
            LinkKind::Plain => Some(Mode::Plain),
            LinkKind::Down => None,
        },
        expected_arrival: last.zip(e.promise_ms).map(|(last, promise)| last + promise / 1e3),
        last_frame: last,
        backpressure: e.backpressure,
        send_queue: e.queue_ratio,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_absolute_and_absent_where_unknown() {
        let mut e = Endpoint::unknown("a:1");
        assert_eq!(sample("u", &e, 1000.0).expected_arrival, None);
        e.silence_ms = Some(15.0);
        e.promise_ms = Some(20.0);
        let s = sample("u", &e, 1000.0);
        assert!((s.last_frame.unwrap() - 999.985).abs() < 1e-9);
        assert!((s.expected_arrival.unwrap() - 1000.005).abs() < 1e-9);
    }
}
