//! Pure: no IO, no clock. The scenarios: the ten of detection.md section 1 with its parameters, and those of section 8.

use super::gaps::{Every, Spec};
use super::path::PathSpec;
use super::traffic::Traffic;

/// What happens at the instant of the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing passes any more in either direction.
    BlackHole,
    /// Our direction is cut: we hear the peer, it does not hear us.
    CutOut,
}

/// One world: traffic, path, and who is disturbed how. Times in ms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scenario {
    /// Name on the command line and in reports.
    pub name: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// What the peer has to say.
    pub traffic: Traffic,
    /// Both directions.
    pub path: PathSpec,
    /// Lateness of timers: mean of the exponential, and most.
    pub late: (f64, f64),
    /// The peer's sidecar is asleep.
    pub stall: Option<Spec>,
    /// Its beats tell of its stalls, as those of the real sidecar do. The ten of section 1 are stated without.
    pub tells: bool,
    /// The service's process is stopped, its sidecar is not: traffic waits for the end, and beats vouch for what is seen.
    pub quiet: Option<Spec>,
    /// Somebody tells the sidecar of each such pause when it begins, and it sends a maintenance frame.
    pub notice: bool,
    /// The observer's loop is asleep or busy.
    pub own: Option<Spec>,
    /// So many links of one observer share the time of a run: each is new, and short. They see the same naps of its loop.
    pub links: u32,
    /// What the fault is.
    pub fault: Fault,
}

const fn mean(every: f64, min: f64, max: f64) -> Option<Spec> {
    Some(Spec { every: Every::Mean(every), min, max })
}

const fn fixed(every: f64, min: f64, max: f64) -> Option<Spec> {
    Some(Spec { every: Every::Fixed(every), min, max })
}

const LAN: PathSpec = PathSpec { delay: 0.25, jitter: 0.1, loss: 0.0, blocked: None, bursts: None };
/// The loss of a LAN under traffic.
const FEW: PathSpec = PathSpec { loss: 0.0001, ..LAN };
const MORE: PathSpec = PathSpec { loss: 0.001, ..LAN };

const STEADY: Scenario = Scenario {
    name: "steady",
    about: "frames each 5-20 ms, the source's own",
    traffic: Traffic::Steady,
    path: LAN,
    // No cap in effect: the mean is 0.3 ms.
    late: (0.3, 1000.0),
    stall: None,
    tells: false,
    quiet: None,
    notice: false,
    own: None,
    links: 1,
    fault: Fault::BlackHole,
};
const BURSTS: Scenario = Scenario {
    name: "bursts",
    about: "bursts of 5-200 frames, silences of 50 ms to 3 s",
    traffic: Traffic::Bursts,
    path: FEW,
    ..STEADY
};
const POISSON: Scenario = Scenario {
    name: "poisson",
    about: "independent frames, mean gap 40 ms",
    traffic: Traffic::Poisson,
    path: FEW,
    ..STEADY
};
const IDLE: Scenario = Scenario {
    name: "idle-loss",
    about: "a frame each 5-20 s, 0.1 % loss",
    traffic: Traffic::Idle,
    path: MORE,
    ..STEADY
};
const SATURATED: Scenario = Scenario {
    name: "saturated",
    about: "bursts, timers late by up to 16 ms",
    path: PathSpec { jitter: 1.0, ..FEW },
    late: (1.2, 16.0),
    ..BURSTS
};
const THROTTLED: Scenario = Scenario {
    name: "throttled-sender",
    about: "the sender sleeps 5-80 ms of each 105-180 ms",
    stall: fixed(100.0, 5.0, 80.0),
    ..STEADY
};
const PAUSES: Scenario = Scenario {
    name: "vm-pauses",
    about: "the sender's machine pauses 10-60 ms each 30 s",
    stall: mean(30_000.0, 10.0, 60.0),
    ..BURSTS
};

/// How many of [`ALL`] are those of section 1.
pub const TABLE: usize = 10;

/// All scenarios: the ten of section 1 first.
pub const ALL: [Scenario; 24] = [
    STEADY,
    Scenario { name: "steady-loss", about: "the same, 0.1 % loss", path: MORE, ..STEADY },
    BURSTS,
    POISSON,
    IDLE,
    SATURATED,
    Scenario {
        name: "path-stalls",
        about: "cross-site, the path stands still for 300-350 ms each 20 s",
        path: PathSpec {
            delay: 2.0,
            jitter: 0.5,
            loss: 0.0005,
            blocked: mean(20_000.0, 300.0, 350.0),
            bursts: None,
        },
        ..STEADY
    },
    Scenario {
        name: "burst-loss",
        about: "all is lost for 5-120 ms each minute",
        path: PathSpec { loss: 0.0005, bursts: mean(60_000.0, 5.0, 120.0), ..LAN },
        ..POISSON
    },
    THROTTLED,
    PAUSES,
    Scenario { name: "saturated-tells", about: "saturated, and its beats tell so", tells: true, ..SATURATED },
    Scenario { name: "throttled-tells", about: "throttled, and its beats tell so", tells: true, ..THROTTLED },
    Scenario { name: "vm-pauses-tells", about: "pauses, and its beats tell so", tells: true, ..PAUSES },
    Scenario {
        name: "gc-pauses",
        about: "the peer, sidecar and all, sleeps 500 ms each 30 s, unannounced",
        stall: mean(30_000.0, 500.0, 500.0),
        tells: true,
        ..STEADY
    },
    Scenario {
        name: "gc-notice",
        about: "the service is stopped for 500 ms each 30 s, and its sidecar was told so",
        quiet: mean(30_000.0, 500.0, 500.0),
        notice: true,
        ..STEADY
    },
    Scenario {
        name: "one-way",
        about: "the fault cuts our direction only: we still hear the peer",
        fault: Fault::CutOut,
        ..POISSON
    },
    Scenario { name: "loss-1", about: "1 % loss", path: PathSpec { loss: 0.01, ..LAN }, ..POISSON },
    Scenario { name: "loss-5", about: "5 % loss", path: PathSpec { loss: 0.05, ..LAN }, ..POISSON },
    Scenario {
        name: "rtt-20ms",
        about: "20 ms of round trip, 0.05 % loss",
        path: PathSpec { delay: 9.5, jitter: 0.5, loss: 0.0005, ..LAN },
        ..POISSON
    },
    Scenario {
        name: "clock-jumps",
        about: "the observer's machine stands still for 1-10 s each minute, its clock does not",
        own: mean(60_000.0, 1000.0, 10_000.0),
        ..POISSON
    },
    Scenario {
        name: "frame-bursts",
        about: "the path holds everything back for 20-250 ms each 10 s, then gives it at once",
        path: PathSpec { blocked: mean(10_000.0, 20.0, 250.0), ..FEW },
        ..BURSTS
    },
    Scenario {
        name: "observer-stalls",
        about: "the observer's loop sleeps 5-90 ms of each 155-240 ms",
        own: fixed(150.0, 5.0, 90.0),
        ..STEADY
    },
    Scenario {
        name: "observer-pauses",
        about: "the observer's loop sleeps 110 ms to 2 s each 2.5 s",
        own: mean(2500.0, 110.0, 2000.0),
        ..STEADY
    },
    Scenario {
        name: "thousand-endpoints",
        about: "1 000 idle links of one loop that is busy for up to 3 of each 10 ms, 0.1 % loss",
        own: fixed(7.0, 0.0, 3.0),
        links: 1000,
        ..IDLE
    },
];

/// The scenario of that name.
pub fn by_name(name: &str) -> Option<&'static Scenario> {
    ALL.iter().find(|s| s.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_the_ten_of_the_contract_come_first() {
        let names: Vec<_> = ALL.iter().map(|s| s.name).collect();
        let ten = [
            "steady",
            "steady-loss",
            "bursts",
            "poisson",
            "idle-loss",
            "saturated",
            "path-stalls",
            "burst-loss",
            "throttled-sender",
            "vm-pauses",
        ];
        assert_eq!(names[..TABLE], ten);
        let unique: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(unique.len(), names.len());
        assert_eq!(by_name("loss-5").map(|s| s.path.loss), Some(0.05));
        assert_eq!(by_name("nothing"), None);
    }

    #[test]
    fn every_scenario_has_a_range_that_can_be_drawn_from() {
        for s in &ALL {
            for spec in [s.stall, s.quiet, s.own, s.path.blocked, s.path.bursts].into_iter().flatten() {
                assert!(spec.min <= spec.max, "{}", s.name);
            }
            assert!(s.links > 0 && s.path.delay > 0.0 && (0.0..0.5).contains(&s.path.loss), "{}", s.name);
            assert!(!s.about.is_empty());
        }
    }
}
