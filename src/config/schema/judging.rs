//! How peers and the service are judged.
//!
//! Pure: no IO, no clock.

use super::{Choice, Default, Kind, Section, duration, key, ms, secs};

pub(super) const BEAT: Section = Section {
    path: "beat",
    list: false,
    about: "How often a link promises to speak.",
    keys: &[
        key(
            "idle",
            duration(ms(5), secs(10)),
            Default::Value("\"100ms\""),
            "",
            "Promise of an idle link; not below `active`. Longer saves beats and detects later.",
        ),
        key(
            "active",
            duration(ms(5), secs(1)),
            Default::Value("\"20ms\""),
            "",
            "Promise of a link in use. Below 5ms the timers' own rounding would break promises.",
        ),
        key(
            "duty",
            Kind::Int { min: 1, max: 16 },
            Default::Value("1"),
            "",
            "Links per node that hold this promise; the others promise 10 s.",
        ),
    ],
};

pub(super) const DETECTOR: Section = Section {
    path: "detector",
    list: false,
    about: "Who judges silence.",
    keys: &[
        key(
            "kind",
            Kind::Choice(&[
                Choice::built("promise"),
                Choice::built("huddm"),
                Choice::planned("phi"),
                Choice::planned("chen"),
                Choice::planned("timeout"),
                Choice::planned("p95"),
            ]),
            Default::Value("\"promise\""),
            "",
            "promise: promise, challenge and two laws. huddm: estimates from past gaps.",
        ),
        key(
            "shadows",
            Kind::Empty("shadow detectors are not built yet: leave it out or write `shadows = []`"),
            Default::Value("[]"),
            "",
            "Detectors that judge without acting. Not built yet: must be empty.",
        ),
    ],
};

pub(super) const DETECTOR_PROMISE: Section = Section {
    path: "detector.promise",
    list: false,
    about: "The `promise` detector.",
    keys: &[
        key(
            "tau_min",
            duration(ms(1), secs(1)),
            Default::Value("\"6ms\""),
            "",
            "Least time constant of the decay past a broken promise; SUSPECT after 0.69 of it. Below 1ms \
             scheduling noise alone would make suspects.",
        ),
        key(
            "learn_max",
            duration(ms(10), secs(10)),
            Default::Value("\"500ms\""),
            "",
            "A silence that heals within this was a mistake and is learned, so FAILED waits longer next \
             time; longer ones were outages. Not below `tau_min`.",
        ),
        key(
            "half_life",
            duration(secs(1), secs(86_400)),
            Default::Value("\"10m\""),
            "",
            "How fast a learned lateness is forgotten.",
        ),
    ],
};

pub(super) const DETECTOR_HUDDM: Section = Section {
    path: "detector.huddm",
    list: false,
    about: "The `huddm` detector.",
    keys: &[key(
        "decay",
        Kind::Choice(&[Choice::built("miss"), Choice::built("tick")]),
        Default::Value("\"miss\""),
        "",
        "miss: after a whole missed interval. tick: each millisecond past the expected arrival.",
    )],
};

pub(super) const BACKPRESSURE: Section = Section {
    path: "backpressure",
    list: false,
    about: "When this sidecar says that it is full.",
    keys: &[key(
        "threshold",
        Kind::Real { min: 0.05, max: 1.0 },
        Default::Value("0.75"),
        "",
        "Share of a link's send queue. Near 0 every batch would count as pressure.",
    )],
};

pub(super) const SERVICE: Section = Section {
    path: "service",
    list: false,
    about: "Judging the local service.",
    keys: &[
        key(
            "stall_patience",
            duration(ms(50), secs(60)),
            Default::Value("\"1s\""),
            "",
            "A stall that two connections or a growing accept queue show for this long is FAILED.",
        ),
        key(
            "busy_patience",
            duration(ms(50), secs(600)),
            Default::Value("\"2s\""),
            "",
            "A service that burns CPU without progress counts as stalled after this.",
        ),
    ],
};
