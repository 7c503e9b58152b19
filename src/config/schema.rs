//! The one table of keys: name, type, default, range and meaning. Reading, checking, `sidebeat config
//! defaults`, `docs/configuration.md` and the hints in errors all come from it.
//!
//! Pure: no IO, no clock.

use std::time::Duration;

pub use super::kind::{Choice, Kind, Role};

/// What a key is when it is not written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Default {
    /// This value, as TOML.
    Value(&'static str),
    /// Found out at start, as the text says.
    Computed(&'static str),
    /// It must be written.
    Required,
    /// Nothing; the text says what that means.
    Unset(&'static str),
}

/// One key.
#[derive(Debug)]
pub struct Key {
    /// Name in the file.
    pub name: &'static str,
    /// Type and range.
    pub kind: Kind,
    /// When not written.
    pub default: Default,
    /// A value for the sample of a key without a fixed default, as TOML.
    pub sample: &'static str,
    /// Meaning, and why the range is what it is.
    pub about: &'static str,
}

/// A table or an array of tables.
#[derive(Debug)]
pub struct Section {
    /// Dotted path.
    pub path: &'static str,
    /// `[[path]]` rather than `[path]`.
    pub list: bool,
    /// Meaning.
    pub about: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
}

impl Section {
    /// The key of this name.
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|k| k.name == name)
    }

    /// The header as written in a file.
    pub fn header(&self) -> String {
        if self.list { format!("[[{}]]", self.path) } else { format!("[{}]", self.path) }
    }
}

/// The section of this path.
pub fn section(path: &str) -> Option<&'static Section> {
    SECTIONS.iter().find(|s| s.path == path)
}

/// The hint for a table that is planned but not built yet.
pub fn planned(path: &str) -> Option<&'static str> {
    PLANNED.iter().find(|(p, _)| *p == path).map(|(_, hint)| *hint)
}

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

const fn key(
    name: &'static str,
    kind: Kind,
    default: Default,
    sample: &'static str,
    about: &'static str,
) -> Key {
    Key { name, kind, default, sample, about }
}

const fn duration(min: Duration, max: Duration) -> Kind {
    Kind::Duration { min, max, off: false }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

const PROTOCOL: Kind = Kind::Choice(&[
    Choice::built("tcp"),
    Choice::warned("http", "HTTP mode is not built yet: the bytes are passed on as with \"tcp\""),
]);

/// Every section, in the order of the documentation.
pub const SECTIONS: &[Section] = &[
    Section {
        path: "node",
        list: false,
        about: "This sidecar.",
        keys: &[
            key(
                "id",
                Kind::Text { max: 255 },
                Default::Computed("the host name"),
                "\"orders-1\"",
                "Name of this node in links, metrics and events. Peers refuse a link to their own id (a loop).",
            ),
            key(
                "workers",
                Kind::Int { min: 0, max: 64 },
                Default::Value("0"),
                "",
                "Threads of the data path; 0: one per core, at most 64.",
            ),
        ],
    },
    Section {
        path: "admin",
        list: false,
        about: "The admin server.",
        keys: &[
            key(
                "listen",
                Kind::Address(Role::Listen),
                Default::Value("\"127.0.0.1:7421\""),
                "",
                "Everything, also calls that change something (they check Host and Origin). Keep it on loopback.",
            ),
            key(
                "public",
                Kind::Address(Role::Listen),
                Default::Unset("no such listener"),
                "\"0.0.0.0:7422\"",
                "Optional read-only listener for kubelet and Prometheus: /metrics, /startup, /ready, /live.",
            ),
        ],
    },
    Section {
        path: "inbound",
        list: true,
        about: "What other sidecars may reach here. One table per local service.",
        keys: &[
            key(
                "name",
                Kind::Name,
                Default::Required,
                "\"orders\"",
                "The name other sidecars ask for. They can ask for names only, never for ports.",
            ),
            key(
                "link_listen",
                Kind::Address(Role::Listen),
                Default::Required,
                "\"0.0.0.0:7420\"",
                "Where peers' links arrive; port 0 picks a free one and logs it. An address that is not loopback \
                 needs `allow` or `insecure = true`.",
            ),
            key(
                "allow",
                Kind::Networks,
                Default::Value("[]"),
                "[\"10.0.0.0/8\"]",
                "Networks that may connect; empty: anyone the rule above admits.",
            ),
            key(
                "insecure",
                Kind::Bool,
                Default::Value("false"),
                "",
                "Admit anyone on an address that is not loopback.",
            ),
            key(
                "service",
                Kind::Address(Role::Dial),
                Default::Required,
                "\"127.0.0.1:8080\"",
                "The local service. Its port stays as it is.",
            ),
            key("protocol", PROTOCOL, Default::Value("\"tcp\""), "", "What the service speaks."),
        ],
    },
    Section {
        path: "outbound",
        list: true,
        about: "What the local service reaches through this sidecar. One table per upstream.",
        keys: &[
            key(
                "name",
                Kind::Name,
                Default::Required,
                "\"inventory\"",
                "Name in metrics, events and /status.",
            ),
            key(
                "remote",
                Kind::Name,
                Default::Computed("`name`"),
                "\"inventory\"",
                "Name of the far `[[inbound]]`.",
            ),
            key(
                "listen",
                Kind::Address(Role::Listen),
                Default::Required,
                "\"127.0.0.1:7501\"",
                "Where the local service connects; port 0 picks a free one and logs it.",
            ),
            key("protocol", PROTOCOL, Default::Value("\"tcp\""), "", "What the service speaks."),
            key(
                "endpoints",
                Kind::Endpoints,
                Default::Required,
                "[\"10.1.0.4:8080\", { address = \"10.1.0.5:8080\", weight = 2, link_port = 7430 }]",
                "The upstream's addresses, each as \"IP:port\" of the service or as a table (see below).",
            ),
            key(
                "link_port",
                Kind::Int { min: 1, max: 65_535 },
                Default::Value("7420"),
                "",
                "Where the endpoints' sidecars listen for links.",
            ),
            key(
                "link",
                Kind::Choice(&[Choice::built("auto"), Choice::built("required"), Choice::built("off")]),
                Default::Value("\"auto\""),
                "",
                "auto: framed where the peer speaks it, else plain. required: framed or nothing. off: plain.",
            ),
            key(
                "link_mode",
                Kind::Choice(&[
                    Choice::built("auto"),
                    Choice::built("shared"),
                    Choice::built("per-connection"),
                ]),
                Default::Value("\"auto\""),
                "",
                "shared: few links carry many connections. per-connection: one link each. auto: shared for now.",
            ),
            key(
                "enforce",
                Kind::Choice(&[Choice::built("off"), Choice::built("suspect"), Choice::built("failed")]),
                Default::Value("\"failed\""),
                "",
                "What a verdict may do. off: judge only. suspect: avoid SUSPECT endpoints. failed: also take \
                 FAILED ones out.",
            ),
            key(
                "cut_after",
                Kind::Duration { min: ms(10), max: secs(3600), off: true },
                Default::Value("\"1s\""),
                "",
                "Established streams of an endpoint that failed by silence are reset after this; \"off\": never. \
                 Shorter cuts streams that TCP would have carried over.",
            ),
            key(
                "max_failed",
                Kind::Real { min: 0.0, max: 1.0 },
                Default::Value("0.5"),
                "",
                "Share of the endpoints that silence alone may take out. Silence never takes the last one.",
            ),
            key(
                "connect_timeout",
                duration(ms(10), secs(60)),
                Default::Value("\"2s\""),
                "",
                "A new connection to an endpoint must be made within this.",
            ),
        ],
    },
    Section {
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
    },
    Section {
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
    },
    Section {
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
    },
    Section {
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
    },
    Section {
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
    },
    Section {
        path: "drain",
        list: false,
        about: "Clean stop.",
        keys: &[key(
            "deadline",
            duration(ms(0), secs(3600)),
            Default::Value("\"30s\""),
            "",
            "After SIGTERM open streams may end by themselves for this long; \"0s\": not at all.",
        )],
    },
    Section {
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
    },
    Section {
        path: "limits",
        list: false,
        about: "Hard caps: memory and sockets stay bounded whatever peers do.",
        keys: &[
            key(
                "connections",
                Kind::Int { min: 1, max: 1_000_000 },
                Default::Value("20000"),
                "",
                "Application connections at once. Each needs up to two file descriptors: see `ulimit -n`.",
            ),
            key(
                "links",
                Kind::Int { min: 1, max: 1_000_000 },
                Default::Value("10000"),
                "",
                "Links accepted at once per link port.",
            ),
            key(
                "streams_per_link",
                Kind::Int { min: 1, max: 1_048_576 },
                Default::Value("65536"),
                "",
                "Streams at once on one link.",
            ),
            key(
                "stream_window",
                Kind::Size { min: 64 * KIB, max: 64 * MIB },
                Default::Value("\"4MiB\""),
                "",
                "Most bytes one stream may have under way. Below 64KiB a stream could not fill a plain LAN.",
            ),
            key(
                "link_queue",
                Kind::Size { min: 64 * KIB, max: 256 * MIB },
                Default::Value("\"1MiB\""),
                "",
                "Send queue of one link. Below 64KiB one batch would already be backpressure.",
            ),
            key(
                "memory",
                Kind::Size { min: MIB, max: 1024 * GIB },
                Default::Value("\"256MiB\""),
                "",
                "Buffered bytes in all; not below `link_queue` or `stream_window`.",
            ),
            key(
                "hello_timeout",
                duration(ms(10), secs(60)),
                Default::Value("\"2s\""),
                "",
                "A peer's hello must be complete within this.",
            ),
        ],
    },
    Section {
        path: "log",
        list: false,
        about: "Logs, on stderr.",
        keys: &[
            key(
                "format",
                Kind::Choice(&[Choice::built("text"), Choice::built("json")]),
                Default::Value("\"text\""),
                "",
                "text for people, json: one object per line.",
            ),
            key(
                "level",
                Kind::Filter,
                Default::Value("\"info\""),
                "",
                "A level, or levels per module such as \"info,sidebeat::link=debug\". POST /log?level= changes it.",
            ),
        ],
    },
];

/// An endpoint written as a table.
pub const ENDPOINT: Section = Section {
    path: "outbound.endpoints",
    list: false,
    about: "An endpoint as a table: `{ address = \"10.1.0.5:8080\", weight = 2, link_port = 7430 }`.",
    keys: &[
        key(
            "address",
            Kind::Address(Role::Dial),
            Default::Required,
            "\"10.1.0.5:8080\"",
            "The service itself, as IP:port.",
        ),
        key(
            "weight",
            Kind::Int { min: 1, max: 1000 },
            Default::Value("1"),
            "",
            "Relative share of new connections. To take an endpoint out, remove it.",
        ),
        key(
            "link_port",
            Kind::Int { min: 1, max: 65_535 },
            Default::Computed("`link_port` of the outbound"),
            "7430",
            "Where this endpoint's sidecar listens.",
        ),
    ],
};

const BALANCE: &str = "endpoints are chosen by weight and health without it: remove the table";
const TLS: &str = "TLS comes with a later release: limit who may connect with `allow`";

/// Tables that are planned: refused with a hint, so that nobody believes they act.
pub const PLANNED: &[(&str, &str)] = &[
    ("inbound.tls", TLS),
    ("outbound.tls", "TLS comes with a later release: remove the table"),
    ("outbound.balance", BALANCE),
    ("outbound.retry", "nothing is retried yet: remove the table"),
    ("outbound.timeouts", "only `connect_timeout` exists: remove the table"),
    ("outbound.bulkhead", "`[limits]` holds the caps that exist: remove the table"),
    ("outbound.fallback", "nothing falls back yet: remove the table"),
    ("outbound.discovery", "write the addresses in `endpoints`: remove the table"),
    ("probe", "the service is judged by passive evidence only: remove the table"),
    ("trace", "traces are not recorded yet: remove the table"),
    ("detector.phi", "only `promise` and `huddm` exist: remove the table"),
    ("detector.chen", "only `promise` and `huddm` exist: remove the table"),
    ("detector.timeout", "only `promise` and `huddm` exist: remove the table"),
    ("detector.p95", "only `promise` and `huddm` exist: remove the table"),
];
