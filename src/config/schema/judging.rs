//! How peers and the service are judged.
//!
//! Pure: no IO, no clock.

use super::super::kind::{TIMEOUT_MAX, TIMEOUT_MIN};
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
            "Links per node that hold this promise, the ones that were used last; the others promise 10 s. A sidecar has one \
             link per worker to each node. More than one finds a path that serves only some connections sooner, and beats for each.",
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
            Kind::Choice(DETECTORS),
            Default::Value("\"promise\""),
            "",
            "promise: promise, challenge and two laws; the others are there to be compared with it. huddm: estimates \
             from past gaps. phi: how unlikely the silence is by past gaps. chen: expected arrival and a margin. \
             timeout: a fixed time. p95: a time from the 95th percentile of past gaps.",
        ),
        key(
            "shadows",
            Kind::Shadows(SHADOWS),
            Default::Value("[]"),
            "",
            "Detectors that hear what the main one hears and judge beside it, without acting: see \
             `sidebeat_detector_shadow_transitions_total`. They take their parameters from the tables below; \
             huddm-tick, huddm-miss and a time-out with a time of its own bring theirs.",
        ),
    ],
};

const DETECTORS: &[Choice] = &[
    Choice::built("promise"),
    Choice::built("huddm"),
    Choice::built("phi"),
    Choice::built("chen"),
    Choice::built("timeout"),
    Choice::built("p95"),
];

const SHADOWS: &[Choice] = &[
    Choice::built("promise"),
    Choice::built("huddm"),
    Choice::built("huddm-tick"),
    Choice::built("huddm-miss"),
    Choice::built("phi"),
    Choice::built("chen"),
    Choice::built("timeout"),
    Choice::built("p95"),
];

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

pub(super) const DETECTOR_PHI: Section = Section {
    path: "detector.phi",
    list: false,
    about: "The `phi` detector: phi = -log10 of the chance that a gap is still longer. SUSPECT at phi 1.",
    keys: &[
        key(
            "threshold",
            Kind::Real { min: 1.0, max: 16.0 },
            Default::Value("8.0"),
            "",
            "phi that makes FAILED: 8 is one gap in 10^8, if gaps were normally distributed. Below 1 every tenth \
             gap would fail; beyond 16 nothing changes but the wait.",
        ),
        key(
            "window",
            WINDOW,
            Default::Value("1000"),
            "",
            "Gaps that mean and deviation are taken from, 8 bytes each and link; under 5 it waits one second.",
        ),
        key(
            "min_std",
            duration(ms(0), secs(10)),
            Default::Value("\"10ms\""),
            "",
            "The deviation is taken to be at least this, or even traffic would make a hair trigger.",
        ),
        key("pause", duration(ms(0), secs(60)), Default::Value("\"0ms\""), "", "Added to the mean gap."),
    ],
};

pub(super) const DETECTOR_CHEN: Section = Section {
    path: "detector.chen",
    list: false,
    about: "The `chen` detector: FAILED a margin after the arrival that promise and past lateness let expect.",
    keys: &[
        key(
            "alpha",
            duration(ms(1), secs(60)),
            Default::Value("\"50ms\""),
            "",
            "The margin. Shorter detects earlier and errs more often.",
        ),
        key(
            "window",
            WINDOW,
            Default::Value("1000"),
            "",
            "Arrivals that the mean lateness is taken from, 8 bytes each and link.",
        ),
    ],
};

pub(super) const DETECTOR_TIMEOUT: Section = Section {
    path: "detector.timeout",
    list: false,
    about: "The `timeout` detector: one fixed time, or in steps: SUSPECT at the first missed interval.",
    keys: &[
        key(
            "after",
            duration(TIMEOUT_MIN, TIMEOUT_MAX),
            Default::Value("\"3s\""),
            "",
            "Silence since the last arrival that is FAILED. Longer than `beat.idle`, or every idle link fails. \
             Not with `interval`.",
        ),
        key(
            "interval",
            duration(TIMEOUT_MIN, TIMEOUT_MAX),
            Default::Unset("one fixed time, `after`"),
            "\"1s\"",
            "Expected time between two arrivals: SUSPECT after one of them and `buffer`, FAILED after `misses` of \
             them and `buffer`. Not below `beat.idle`, or every idle link is doubted.",
        ),
        key(
            "misses",
            Kind::Int { min: 1, max: 100 },
            Default::Value("3"),
            "",
            "Intervals that must pass in silence. Only with `interval`.",
        ),
        key(
            "buffer",
            duration(ms(0), TIMEOUT_MAX),
            Default::Unset("measured"),
            "\"100ms\"",
            "Added to the intervals. Measured, it is twice the 99th percentile of how far the last 1000 gaps went \
             beyond `interval`, and one interval until there are five. Only with `interval`.",
        ),
    ],
};

pub(super) const DETECTOR_P95: Section = Section {
    path: "detector.p95",
    list: false,
    about: "The `p95` detector.",
    keys: &[
        key(
            "factor",
            Kind::Real { min: 1.0, max: 100.0 },
            Default::Value("1.8"),
            "",
            "The 95th percentile of past gaps times this is FAILED.",
        ),
        key(
            "window",
            Kind::Int { min: 5, max: 1000 },
            Default::Value("30"),
            "",
            "Gaps that the percentile is taken from; under 5 it waits one second.",
        ),
    ],
};

const WINDOW: Kind = Kind::Int { min: 5, max: 100_000 };

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
