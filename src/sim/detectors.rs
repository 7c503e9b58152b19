//! Pure: no IO, no clock. Who is compared: the detectors of the contract with their parameters, and what each listens to.

use std::time::Duration;

use super::sender::{Beats, Relaxing};
use crate::detector::{Params, catalog};
use crate::link::pace::PaceParams;

const IDLE: Duration = Duration::from_millis(100);
const ACTIVE: Duration = Duration::from_millis(20);
const ACTIVE_10: Duration = Duration::from_millis(10);

/// One detector with its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contestant {
    /// Name on the command line and in reports.
    pub name: &'static str,
    /// Its law.
    pub params: Params,
}

/// Names in the order of reports.
pub const NAMES: [&str; 9] = [
    "promise-20",
    "promise-10",
    "huddm-tick",
    "huddm-miss",
    "phi",
    "chen",
    "timeout-3s",
    "timeout-27ms",
    "p95",
];

/// The detector of that name.
pub fn by_name(name: &str) -> Option<Contestant> {
    let name = *NAMES.iter().find(|n| **n == name)?;
    let params = match name {
        "promise-20" => catalog::by_name("promise")?,
        "promise-10" => Params { tau_min: Duration::from_millis(4), ..catalog::by_name("promise")? },
        "timeout-3s" => Params { timeout: Duration::from_secs(3), ..catalog::by_name("timeout")? },
        "timeout-27ms" => Params { timeout: Duration::from_millis(27), ..catalog::by_name("timeout")? },
        other => catalog::by_name(other)?,
    };
    Some(Contestant { name, params })
}

/// Whether it asks the peer, and so cannot merely listen to what another one hears.
fn asks(name: &str) -> bool {
    name.starts_with("promise")
}

/// What the published detectors listen to, and how they count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Rhythm {
    /// The beats of the sidecar, as links with states hear them.
    #[default]
    Sidecar,
    /// The beats of the reference simulation: each silence beyond a law's limit is a mistake, and each frame an arrival.
    Reference,
}

/// The reference's "same beats": relaxed at once.
const RELAXING: Relaxing =
    Relaxing { promises: &[ACTIVE, Duration::from_millis(40), Duration::from_millis(80), IDLE], percent: 80 };
/// The reference's other peer: a beat 100 ms after its last frame.
const ALONE: Relaxing = Relaxing { promises: &[IDLE], percent: 100 };

/// One run: how the peer beats, who asks it, and who listens beside.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The peer's beats.
    pub beats: Beats,
    /// The detector whose challenges are sent and answered, and whether it hears another one's beats.
    pub asker: Option<(Contestant, bool)>,
    /// Those that hear the very same frames and ask nobody, as the published detectors do.
    pub listeners: Vec<Contestant>,
    /// As those, but by their bare laws, without states.
    pub laws: Vec<Contestant>,
    /// The rows of both are "same beats".
    pub same_beats: bool,
}

/// The runs that the wanted detectors need, each with its own beats and with those of `promise-20`. Those that ask beat as
/// the sidecar does in any rhythm.
pub fn setups(wanted: &[&str], rhythm: Rhythm) -> Vec<Setup> {
    let paced = |active| Beats::Paced(PaceParams { active, idle: IDLE });
    let listeners: Vec<Contestant> =
        NAMES.iter().filter(|n| wanted.contains(n) && !asks(n)).filter_map(|n| by_name(n)).collect();
    let promise = |name: &str| by_name(name).filter(|c| wanted.contains(&c.name));
    let bare = rhythm == Rhythm::Reference;
    let (listeners, laws) = if bare { (Vec::new(), listeners) } else { (listeners, Vec::new()) };
    let asked = |active, asker| Setup {
        beats: paced(active),
        asker: Some(asker),
        listeners: Vec::new(),
        laws: Vec::new(),
        same_beats: true,
    };
    let mut out = Vec::new();
    // The beats of `promise-20` are wanted by everybody.
    let leader = promise("promise-20").or_else(|| by_name("promise-20").filter(|_| !listeners.is_empty()));
    if let Some(leader) = leader {
        out.push(Setup { listeners: listeners.clone(), ..asked(ACTIVE, (leader, false)) });
    }
    if let Some(fast) = promise("promise-10") {
        out.push(asked(ACTIVE_10, (fast, false)));
        out.push(asked(ACTIVE, (fast, true)));
    }
    if !listeners.is_empty() {
        let beats = Beats::Every(IDLE);
        out.push(Setup { beats, asker: None, listeners, laws: Vec::new(), same_beats: false });
    }
    if !laws.is_empty() {
        for (relaxing, same_beats) in [(RELAXING, true), (ALONE, false)] {
            let (beats, laws) = (Beats::Relaxing(relaxing), laws.clone());
            out.push(Setup { beats, asker: None, listeners: Vec::new(), laws, same_beats });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detector::Kind;

    #[test]
    fn every_name_has_its_law() {
        for name in NAMES {
            let c = by_name(name).unwrap();
            assert_eq!(c.name, name);
            assert_eq!(c.params.kind == Kind::Promise, asks(name), "{name}");
        }
        assert_eq!(by_name("promise"), None);
        assert_eq!(by_name("timeout-27ms").unwrap().params.timeout, Duration::from_millis(27));
        assert_eq!(by_name("promise-10").unwrap().params.tau_min, Duration::from_millis(4));
    }

    #[test]
    fn a_listener_needs_two_runs_and_promise_10_its_own() {
        let setups = |wanted: &[&str]| setups(wanted, Rhythm::Sidecar);
        assert_eq!(setups(&NAMES).len(), 4);
        assert_eq!(setups(&["promise-20"]).len(), 1);
        let phi = setups(&["phi"]);
        assert_eq!(
            phi.iter().map(|s| (s.same_beats, s.listeners.len())).collect::<Vec<_>>(),
            [(true, 1), (false, 1)]
        );
        assert_eq!(setups(&["promise-10"]).len(), 2);
        assert_eq!(setups(&[]).len(), 0);
    }

    #[test]
    fn the_reference_rhythm_is_for_bare_laws_and_asks_nobody() {
        let all = setups(&NAMES, Rhythm::Reference);
        let bare: Vec<_> = all.iter().filter(|s| !s.laws.is_empty()).collect();
        assert_eq!(bare.iter().map(|s| s.same_beats).collect::<Vec<_>>(), [true, false]);
        assert!(bare.iter().all(|s| s.asker.is_none() && s.laws.len() == NAMES.len() - 2));
        assert!(all.iter().all(|s| s.listeners.is_empty()));
        assert_eq!(all.len(), 2 + 3);
        assert_eq!(setups(&["phi"], Rhythm::Reference).len(), 2);
    }
}
