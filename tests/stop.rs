//! How the program ends, with a connection that is still open: SIGTERM once and twice, SIGINT, `POST /drain`, the
//! deadline of a drain. And SIGUSR1, which ends nothing.

mod support;

use std::io::{ErrorKind, Read as _};
use std::net::TcpStream;
use std::time::Duration;

use rustix::process::Signal;
use support::eventually;
use support::pair::{Mode, Pair, Setup, Sidecar};
use support::rng::Rng;
use support::service::{Service, connect, round_trip};

const SOON: Duration = Duration::from_secs(20);
/// Longer than any test waits: what ends before did not wait for it.
const PATIENT: &str = "[drain]\ndeadline = \"1h\"\n";
const HASTY: &str = "[drain]\ndeadline = \"500ms\"\n";
const MODES: [Mode; 2] = [Mode::Shared, Mode::Plain];

/// A pair with one connection through it that its client holds open.
struct Held {
    pair: Pair,
    client: TcpStream,
    _service: Service,
}

impl Held {
    fn start(mode: Mode, drain: &str) -> Held {
        let service = Service::echo();
        let pair = Setup::mode(service.addr, mode).near_extra(drain).far_extra(drain).start();
        let mut held = Held { client: connect(pair.addr), pair, _service: service };
        held.lives();
        held
    }

    fn lives(&mut self) {
        round_trip(&mut self.client, &mut Rng::new(1)).expect("what is open goes on");
    }

    fn near(&self) -> &Sidecar {
        &self.pair.near
    }

    fn signal(&self, signal: Signal) {
        self.near().process().signal(signal);
    }

    /// It began to drain, and the connection does not suffer from it.
    fn drains(&mut self) {
        not_ready(self.near());
        assert_eq!(self.near().metric("sidebeat_draining", &[]), Some(1.0));
        self.lives();
    }

    /// The near sidecar ended in order and said why; the client knows that its connection was cut.
    fn cut_by_the_end(mut self, why: &str) {
        ended(&mut self.pair.near, why);
        self.cut();
    }

    /// By RST: a FIN would make half an answer look like a whole one.
    fn cut(&mut self) {
        let got = self.client.read(&mut [0]).map_err(|e| e.kind());
        assert_eq!(got, Err(ErrorKind::ConnectionReset), "how a connection that is cut ends");
    }
}

fn not_ready(sidecar: &Sidecar) {
    eventually(SOON, "it is not ready any more", || match support::admin::get(sidecar.admin, "/ready") {
        Ok((503, why)) if why.contains("draining") => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

fn ended(sidecar: &mut Sidecar, why: &str) {
    let status = sidecar.ends();
    let log = sidecar.log();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(log.contains(why), "{why:?} is not in {log}");
}

fn wait_logged(sidecar: &Sidecar, text: &str) {
    eventually(SOON, &format!("{text:?} is logged"), || {
        let log = sidecar.log();
        if log.contains(text) { Ok(()) } else { Err(log) }
    });
}

#[test]
fn a_second_sigterm_does_not_wait_for_what_is_open() {
    for mode in MODES {
        let mut held = Held::start(mode, PATIENT);
        held.signal(Signal::TERM);
        held.drains();
        held.signal(Signal::TERM);
        held.cut_by_the_end("second SIGTERM: stops now");
    }
}

#[test]
fn sigint_does_not_wait_for_what_is_open() {
    for mode in MODES {
        let held = Held::start(mode, PATIENT);
        held.signal(Signal::INT);
        held.cut_by_the_end("SIGINT: stops now");
    }
}

#[test]
fn sigint_ends_a_drain() {
    let mut held = Held::start(Mode::Shared, PATIENT);
    held.signal(Signal::TERM);
    held.drains();
    held.signal(Signal::INT);
    held.cut_by_the_end("SIGINT: stops now");
}

#[test]
fn the_deadline_of_a_drain_cuts_what_is_open() {
    for mode in MODES {
        let held = Held::start(mode, HASTY);
        held.signal(Signal::TERM);
        held.cut_by_the_end("drain deadline: what is open is cut open=1");
    }
}

/// The same on the side of the service: its clients are on another machine.
#[test]
fn the_deadline_of_a_far_drain_cuts_what_is_open() {
    let mut held = Held::start(Mode::Shared, HASTY);
    held.pair.far().process().signal(Signal::TERM);
    ended(held.pair.far.as_mut().expect("a far sidecar"), "drain deadline: what is open is cut open=1");
    held.cut();
    let events = held.near().events();
    assert!(
        events.iter().all(|e| !e.contains("\"to\":\"failed\"")),
        "a planned end is no failure: {events:?}"
    );
}

#[test]
fn a_drain_that_is_asked_for_lasts_as_long_as_what_is_open() {
    for mode in MODES {
        let mut held = Held::start(mode, PATIENT);
        assert_eq!(held.near().post("/drain"), (200, "draining\n".to_owned()));
        held.drains();
        // The local service finishes its work over new connections too.
        let mut late = connect(held.pair.addr);
        round_trip(&mut late, &mut Rng::new(2)).expect("new connections out are served");
        assert_eq!(held.near().post("/drain").0, 200, "a second one changes nothing");
        held.lives();
        drop(late);
        held.lives();
        let Held { mut pair, client, .. } = held;
        drop(client);
        ended(&mut pair.near, " drained");
        if let Some(far) = &mut pair.far {
            assert!(far.stop().success());
        }
    }
}

#[test]
fn a_drain_with_nothing_open_ends_at_once() {
    let service = Service::echo();
    let mut pair = Setup::new(service.addr).near_extra(PATIENT).far_extra(PATIENT).start();
    for sidecar in std::iter::once(&mut pair.near).chain(&mut pair.far) {
        assert_eq!(sidecar.post("/drain").0, 200);
        ended(sidecar, " drained");
    }
}

/// The state in the last `state` line of the log.
fn logged_state(log: &str) -> Option<serde_json::Value> {
    let line = log.lines().rfind(|l| l.contains(" state status="))?;
    // Quoted as a string of Rust, which for this text is one of JSON.
    let text: String = serde_json::from_str(line.split_once("status=")?.1).expect("a quoted string");
    Some(serde_json::from_str(&text).expect("JSON in it"))
}

#[test]
fn sigusr1_puts_the_state_into_the_log_and_ends_nothing() {
    let mut held = Held::start(Mode::Shared, PATIENT);
    assert!(logged_state(&held.near().log()).is_none(), "nobody asked");
    for draining in [false, true] {
        held.signal(Signal::USR1);
        let state = eventually(SOON, "the state is logged", || {
            let state = logged_state(&held.near().log());
            state.filter(|s| s["draining"] == draining).ok_or_else(|| held.near().log())
        });
        assert_eq!(state["node"], "near");
        assert_eq!(state["upstreams"][0]["connections"], 1, "{state}");
        assert_eq!(state["upstreams"][0]["endpoints"][0]["state"], "active", "{state}");
        held.lives();
        if !draining {
            held.signal(Signal::TERM);
            held.drains();
        }
    }
}

/// There is no way back from a drain, and whoever tries is told.
#[test]
fn a_reload_in_a_drain_is_refused() {
    let mut held = Held::start(Mode::Shared, PATIENT);
    held.signal(Signal::TERM);
    held.drains();
    held.signal(Signal::HUP);
    wait_logged(held.near(), "SIGHUP: the old configuration stays: this sidecar is on its way out");
    assert_eq!(held.near().metric("sidebeat_config_last_reload_successful", &[]), Some(0.0));
    held.lives();
}
