//! A dead-locked service beside a sidecar with an upstream that is down: the upstream excuses it for a while, not for ever.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod support;

use std::io::{Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use support::pair::Setup;
use support::service::{Service, connect};
use support::{Port, eventually};

/// Longer than any excuse of an upstream that nobody waits for, and the stall patience.
const PATIENCE: Duration = Duration::from_secs(60);

/// A bug of an earlier version: any upstream that was down kept a service that did nothing at all at SUSPECT.
#[test]
fn a_dead_upstream_that_nobody_asks_does_not_excuse_a_dead_lock_for_ever() {
    let lock = Arc::new(Mutex::new(()));
    let turns = lock.clone();
    let service = Service::start(move |mut s| {
        let mut buf = [0; 32];
        while s.read_exact(&mut buf).is_ok() && s.write_all(&buf).is_ok() {
            drop(turns.lock().unwrap_or_else(PoisonError::into_inner));
        }
    });
    let (link, entry) = (Port::pick(), Port::pick());
    let optional = format!(
        "[[outbound]]\nname = \"optional\"\nlisten = \"{}\"\nlink = \"required\"\n\
         endpoints = [{{ address = \"{}\", link_port = {} }}]\n",
        entry.addr(),
        link.addr(),
        link.number
    );
    let pair = Setup::new(service.addr).far_extra(&optional).start();
    eventually(PATIENCE, "the optional upstream is FAILED", || {
        let labels = [("upstream", "optional"), ("state", "failed")];
        let failed = pair.far().metric("sidebeat_upstream_state", &labels);
        if failed == Some(1.0) { Ok(()) } else { Err(pair.far().status()) }
    });
    let mut clients = [connect(pair.addr), connect(pair.addr)];
    let ask = |client: &mut std::net::TcpStream| client.write_all(&[b'q'; 32]).unwrap();
    for client in &mut clients {
        ask(client);
        client.read_exact(&mut [0; 32]).unwrap();
    }
    let dead = lock.lock().unwrap_or_else(PoisonError::into_inner);
    for client in &mut clients {
        // It was in a read: that one it still answers.
        ask(client);
        client.read_exact(&mut [0; 32]).unwrap();
        ask(client);
    }
    let endpoint = || {
        let status: serde_json::Value = serde_json::from_str(&pair.near.status()).unwrap();
        status["upstreams"][0]["endpoints"][0].clone()
    };
    let failed = eventually(PATIENCE, "it is FAILED for its stall", || {
        let e = endpoint();
        if e["state"] == "failed" && e["cause"] == "stall" { Ok(e) } else { Err(e.to_string()) }
    });
    assert_eq!(failed["facets"]["degraded"], "yes", "that its upstream is down is still told: {failed}");
    drop(dead);
    eventually(PATIENCE, "it works again", || {
        let e = endpoint();
        if e["state"] == "active" { Ok(()) } else { Err(e.to_string()) }
    });
    drop(clients);
    pair.finish();
}
