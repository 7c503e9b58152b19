//! A scripted acceptor against an outbound sidecar: what it is taken for.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use sidebeat::clock;
use sidebeat::verdict::{Cause, State, Vouch};
use sidebeat::wire::{Backpressure, Beat, Frame, Maintenance};

use crate::far::{At, Far, Outbound};
use crate::peer::Auto;
use crate::support::rng::Rng;
use crate::support::service::{HANG, connect, round_trip};
use crate::support::{eventually, pause};

/// For a scripted sidecar whose kernel still accepts, and that says nothing more.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(3600);

pub(crate) fn echoing() -> Auto {
    Auto { echo: true, ..Auto::default() }
}

fn silence(far: &Far) {
    far.manner(|m| m.delay = FOR_EVER);
    far.pilot.set(|a| (a.every, a.answers) = (None, false));
}

fn speak(far: &Far) {
    far.manner(|m| m.delay = Duration::ZERO);
    far.pilot.set(|a| (a.every, a.answers) = (Some(Duration::from_millis(20)), true));
}

pub(crate) fn looks(what: &str, time: Duration, mut each: impl FnMut()) {
    let end = clock::now() + time;
    println!("{what} for {time:?}");
    while clock::now() < end {
        each();
        pause();
    }
}

#[test]
fn silence_is_asked_then_suspected_then_failed_and_healed() {
    let far = Far::start(echoing());
    let outbound = Outbound::to(&[&far]);
    outbound.wait_state(0, State::Active);
    let before = outbound.events().len();
    silence(&far);
    far.hears("CHALLENGE", |f| matches!(f, Frame::Challenge { .. }));
    outbound.change(before, State::Suspect, &[]);
    outbound.change(before, State::Failed, &[Cause::HangPeer]);
    speak(&far);
    outbound.change(before + 2, State::Active, &[]);
    round_trip(&mut connect(outbound.addr), &mut Rng::new(1)).expect("work again");
}

#[test]
fn silence_and_a_refused_port_is_a_crash() {
    let far = Far::start(echoing());
    let outbound = Outbound::to(&[&far]);
    far.stop_listening();
    far.live_links().iter().for_each(crate::peer::Peer::rst);
    outbound.change(0, State::Failed, &[Cause::Crash]);
    far.listen_again();
    outbound.wait_state(0, State::Active);
    round_trip(&mut connect(outbound.addr), &mut Rng::new(1)).expect("work again");
}

#[test]
fn a_vouch_for_a_dead_service_fails_at_once() {
    for (vouch, cause) in [(Vouch::Stopped, Cause::Hang), (Vouch::Gone, Cause::Crash)] {
        let far = Far::start(echoing());
        let outbound = Outbound::to(&[&far]);
        far.pilot.set(|a| a.vouch = vouch);
        outbound.change(0, State::Failed, &[cause]);
        far.pilot.set(|a| a.vouch = Vouch::Running);
        outbound.change(1, State::Active, &[]);
        far.pilot.set(|a| a.vouch = Vouch::Idle);
        round_trip(&mut connect(outbound.addr), &mut Rng::new(1)).expect("work again");
    }
}

/// The time of detection counts from the last beat that vouched for the service, not from the last change.
#[test]
fn detection_counts_from_the_last_good_beat() {
    let far = Far::start(echoing());
    let outbound = Outbound::to(&[&far]);
    looks("idle", Duration::from_secs(5), || {});
    far.pilot.set(|a| a.vouch = Vouch::Gone);
    outbound.change(0, State::Failed, &[Cause::Crash]);
    let sum = outbound.sidecar.metric("sidebeat_upstream_detection_seconds_sum", &[]);
    assert!(sum < Some(3.0), "{sum:?} seconds to notice a change that came with the next beat");
}

#[test]
fn stalled_is_suspect_and_no_more() {
    let far = Far::start(echoing());
    let outbound = Outbound::to(&[&far]);
    far.pilot.set(|a| a.vouch = Vouch::Stalled);
    outbound.change(0, State::Suspect, &[Cause::Stall]);
    looks("stalled", Duration::from_secs(3), || {});
    assert!(!outbound.ever_failed(), "{:?}", outbound.events());
    far.pilot.set(|a| a.vouch = Vouch::Working);
    outbound.wait_state(0, State::Active);
}

#[test]
fn not_being_heard_is_one_way() {
    let far = Far::start(echoing());
    let outbound = Outbound::to(&[&far]);
    eventually(HANG, "our beats are acknowledged", || {
        if far.links()[0].count(|f| matches!(f, Frame::Beat(_))) > 3 {
            Ok(())
        } else {
            Err("no beats".to_owned())
        }
    });
    far.manner(|m| m.delay = FOR_EVER);
    far.pilot.set(|a| (a.answers, a.acknowledges) = (false, false));
    outbound.change(0, State::Failed, &[Cause::OneWay]);
    far.manner(|m| m.delay = Duration::ZERO);
    far.pilot.set(|a| (a.answers, a.acknowledges) = (true, true));
    outbound.wait_state(0, State::Active);
}

#[test]
fn a_full_peer_is_not_a_dead_one() {
    let far = Far::start(echoing());
    let outbound = Outbound::to(&[&far]);
    silence(&far);
    let full = Backpressure { active: true, occupancy: 990, queued: 1 << 20, since_ms: 10, promise_ms: 1500 };
    looks("full", Duration::from_secs(6), || far.say(&Frame::Backpressure(full)));
    assert!(!outbound.ever_failed(), "{:?}", outbound.events());
    assert_eq!(outbound.endpoint(0)["facets"]["saturated"], "yes");
    // It stops coming: decay goes on.
    outbound.change(0, State::Failed, &[]);
}

#[test]
fn a_planned_end_is_never_a_failure() {
    let far = Far::start(echoing());
    let outbound = Outbound::to(&[&far]);
    let mut client = connect(outbound.addr);
    round_trip(&mut client, &mut Rng::new(2)).unwrap();
    far.say(&Frame::Goaway { deadline_ms: 5000 });
    eventually(HANG, "draining", || {
        let e = outbound.endpoint(0);
        if e["cause"] == "draining" { Ok(()) } else { Err(e.to_string()) }
    });
    round_trip(&mut client, &mut Rng::new(3)).expect("streams go on");
    far.stop_listening();
    far.live_links().iter().for_each(crate::peer::Peer::fin);
    looks("gone", Duration::from_secs(3), || {});
    assert!(!outbound.ever_failed(), "{:?}", outbound.events());
    far.listen_again();
    eventually(HANG, "it is back", || {
        round_trip(&mut connect(outbound.addr), &mut Rng::new(4)).map_err(|e| e.to_string())
    });
}

#[test]
fn another_incarnation_is_a_restart() {
    let far = Far::start(echoing());
    let outbound = Outbound::to(&[&far]);
    far.manner(|m| m.incarnation = 78);
    far.live_links().iter().for_each(crate::peer::Peer::rst);
    outbound.change(0, State::Active, &[Cause::Restart]);
    round_trip(&mut connect(outbound.addr), &mut Rng::new(4)).expect("work");
}

#[test]
fn an_announced_pause_excuses_the_service() {
    let far = Far::start(echoing());
    let outbound = Outbound::to(&[&far]);
    far.say(&Frame::Maintenance(Maintenance { for_ms: 4000, promise_ms: 1500, reason: "gc".to_owned() }));
    far.pilot.set(|a| a.vouch = Vouch::Stopped);
    looks("paused", Duration::from_secs(2), || {});
    assert!(!outbound.ever_failed(), "{:?}", outbound.events());
    // The pause was not the whole truth.
    outbound.change(0, State::Failed, &[Cause::Hang]);
}

#[test]
fn absurd_beats_change_nothing() {
    let far = Far::start(echoing());
    let outbound = Outbound::to(&[&far]);
    let mut client = connect(outbound.addr);
    let beats = [
        Beat { seq: 0, promise_ms: 0, ..Beat::default() },
        Beat { seq: u32::MAX, promise_ms: 0, heard_seq: 0, ..Beat::default() },
        Beat { seq: 1 << 31, promise_ms: u16::MAX, heard_seq: u32::MAX, ..Beat::default() },
        Beat {
            seq: 7,
            promise_ms: 1500,
            utility: u32::MAX,
            in_flight: u16::MAX,
            late_ms: 255,
            ..Beat::default()
        },
    ];
    for n in 0..200 {
        far.say(&Frame::Beat(beats[n % beats.len()]));
        round_trip(&mut client, &mut Rng::new(n as u64)).expect("work goes on");
    }
    assert!(!outbound.ever_failed(), "{:?}", outbound.events());
    outbound.wait_state(0, State::Active);
}

/// Whoever promises to be heard of in a minute is not believed for that long.
#[test]
fn an_absurd_promise_does_not_blind() {
    let far = Far::start(echoing());
    let outbound = Outbound::to(&[&far]);
    far.pilot.set(|a| a.promise_ms = u16::MAX);
    far.hears("a few beats", |f| matches!(f, Frame::Beat(_)));
    looks("promises much", Duration::from_millis(500), || {});
    silence(&far);
    outbound.change(0, State::Failed, &[]);
}

#[test]
fn an_absurd_promise_of_a_full_peer_does_not_blind() {
    let far = Far::start(echoing());
    let outbound = Outbound::to(&[&far]);
    silence(&far);
    let full = Backpressure { active: true, occupancy: 999, queued: 1, since_ms: 1, promise_ms: u16::MAX };
    far.say(&Frame::Backpressure(full));
    outbound.change(0, State::Failed, &[]);
}

/// A stream that was cut must not live on at the far side when the link comes back.
#[test]
fn a_cut_is_told_to_the_far_side() {
    let far = Far::start(echoing());
    let outbound = Outbound::to(&[&far]);
    let mut client = connect(outbound.addr);
    round_trip(&mut client, &mut Rng::new(5)).unwrap();
    let (link, stream) = far.opened();
    silence(&far);
    outbound.change(0, State::Failed, &[]);
    assert_eq!(crate::near::read_all(&mut client).1, Some(std::io::ErrorKind::ConnectionReset));
    speak(&far);
    link.wait_reset(stream);
}

/// Its own upstream is gone: however long it does nothing, it is not the one to blame.
#[test]
fn a_starved_service_is_suspect_and_no_more() {
    let far = Far::start(echoing());
    let outbound = Outbound::to(&[&far]);
    far.pilot.set(|a| (a.vouch, a.flags.starved) = (Vouch::Stuck, true));
    outbound.change(0, State::Suspect, &[Cause::Starved]);
    looks("starved", Duration::from_secs(2), || {});
    assert!(!outbound.ever_failed(), "{:?}", outbound.events());
    assert_eq!(outbound.endpoint(0)["facets"]["degraded"], "yes");
    far.pilot.set(|a| a.flags.starved = false);
    outbound.change(1, State::Failed, &[Cause::Stall]);
}

/// A port that leads each connection to the next of `fars`, as a virtual IP does.
fn virtual_ip(fars: &[&Far]) -> SocketAddr {
    let to: Vec<SocketAddr> = fars.iter().map(|f| f.addr).collect();
    let listener = TcpListener::bind("127.0.0.1:0").expect("listener");
    let addr = listener.local_addr().expect("address");
    std::thread::spawn(move || {
        for (n, near) in listener.incoming().flatten().enumerate() {
            let Ok(far) = TcpStream::connect(to[n % to.len()]) else { continue };
            for (mut from, mut to) in [(near.try_clone(), far.try_clone()), (Ok(far), Ok(near))]
                .map(|(a, b)| (a.expect("from"), b.expect("to")))
            {
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Write);
                });
            }
        }
    });
    addr
}

#[test]
fn behind_a_virtual_ip_each_pod_has_its_own_health() {
    let (a, b) = (Far::start(echoing()), Far::start(echoing()));
    b.manner(|m| m.incarnation = 88);
    let vip = virtual_ip(&[&a, &b]);
    let outbound = Outbound::raw(&[At(vip, vip)], "link = \"required\"\ncut_after = \"off\"", "");
    if std::thread::available_parallelism().is_ok_and(|n| n.get() < 2) {
        return crate::support::skip("one worker has one link");
    }
    // Each worker makes a link of its own once a connection comes to it: one link to each pod.
    let mut clients = Vec::new();
    eventually(HANG, "a link to each pod", || {
        clients.push(connect(outbound.addr));
        let links = [&a, &b].map(|f| f.live_links().len());
        if links.contains(&0) { Err(format!("{links:?}")) } else { Ok(()) }
    });
    eventually(HANG, "both pods are known and well", || {
        let e = outbound.endpoint(0);
        if e["state"] == "active" && e["nodes"] == 2 { Ok(()) } else { Err(e.to_string()) }
    });
    for (dead, well) in [(&a, &b), (&b, &a)] {
        well.pilot.set(|x| x.vouch = Vouch::Working);
        outbound.wait_state(0, State::Active);
        let before = outbound.events().len();
        dead.pilot.set(|x| x.vouch = Vouch::Gone);
        looks("one pod is dead", Duration::from_millis(300), || {});
        let failed = outbound.events().iter().skip(before).any(|c| c.to == State::Failed);
        assert!(!failed, "the other pod works: {:?}", outbound.events());
        eventually(HANG, "new work reaches the pod that works", || {
            let opens = |f: &Far| {
                f.links().iter().map(|l| l.count(|x| matches!(x, Frame::Open { .. }))).sum::<usize>()
            };
            let n = opens(well);
            round_trip(&mut connect(outbound.addr), &mut Rng::new(9)).map_err(|e| e.to_string())?;
            if opens(well) > n { Ok(()) } else { Err("it went to the dead one".to_owned()) }
        });
        dead.pilot.set(|x| x.vouch = Vouch::Working);
        looks("it recovers", Duration::from_millis(500), || {});
    }
}

/// Two workers, two links: the one that is off duty has promised ten seconds, and would say nothing by itself.
#[test]
fn a_link_off_duty_is_asked_before_its_node_is_failed() {
    let far = Far::start(echoing());
    let outbound = Outbound::with(&[&far], "", "[detector]\npromise.tau_min = \"300ms\"\n");
    let mut clients = Vec::new();
    let links = eventually(HANG, "a link of each worker", || {
        clients.push(connect(outbound.addr));
        let links = far.live_links();
        if links.len() > 1 { Ok(links) } else { Err(format!("{} clients", clients.len())) }
    });
    outbound.wait_state(0, State::Active);
    let before = outbound.events().len();
    // No fresh connection tells that the node lives.
    far.manner(|m| m.delay = FOR_EVER);
    far.pilot.set(|a| a.every = None);
    let (silent, off_duty) = (&links[0], &links[1]);
    far.pilot.set(|a| a.promise_ms = 10_000);
    off_duty.beat_now();
    far.pilot.set(|a| a.promise_ms = 100);
    silent.beat_now();
    silent.mute();
    far.pilot.set(|a| a.promise_ms = 10_000);
    outbound.change(before, State::Suspect, &[]);
    eventually(HANG, "the other link is asked", || {
        let asked = off_duty.count(|f| matches!(f, Frame::Challenge { .. }));
        if asked > 0 { Ok(()) } else { Err(outbound.sidecar.status()) }
    });
    looks("one link of two is silent", Duration::from_millis(1500), || {
        assert!(!outbound.ever_failed(), "{:#?}", outbound.events());
    });
}
