//! What passes: `[[inbound]]` and `[[outbound]]`.
//!
//! Pure: no IO, no clock.

use super::{Choice, Default, Kind, Role, Section, duration, key, ms, secs};

const PROTOCOL: Kind = Kind::Choice(&[
    Choice::built("tcp"),
    Choice::warned("http", "HTTP mode is not built yet: the bytes are passed on as with \"tcp\""),
]);

pub(super) const INBOUND: Section = Section {
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
        key(
            "protocol",
            PROTOCOL,
            Default::Value("\"tcp\""),
            "",
            "What the service speaks. http acts as tcp until HTTP mode exists.",
        ),
    ],
};

pub(super) const OUTBOUND: Section = Section {
    path: "outbound",
    list: true,
    about: "What the local service reaches through this sidecar. One table per upstream.",
    keys: &[
        key("name", Kind::Name, Default::Required, "\"inventory\"", "Name in metrics, events and /status."),
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
        key(
            "protocol",
            PROTOCOL,
            Default::Value("\"tcp\""),
            "",
            "What the service speaks. http acts as tcp until HTTP mode exists.",
        ),
        key(
            "endpoints",
            Kind::Endpoints,
            Default::Required,
            "[\"10.1.0.4:8080\", { address = \"10.1.0.5:8080\", weight = 2, link_port = 7430 }]",
            "The upstream's addresses, each as \"IP:port\" of the service, or as a table with `weight` and `link_port`.",
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
            Kind::Choice(&[Choice::built("auto"), Choice::built("shared"), Choice::built("per-connection")]),
            Default::Value("\"auto\""),
            "",
            "shared: few links carry many connections. per-connection: one link each. auto: shared for now.",
        ),
        key(
            "enforce",
            Kind::Choice(&[Choice::built("off"), Choice::built("suspect"), Choice::built("failed")]),
            Default::Value("\"failed\""),
            "",
            "What a verdict may do. off: judge only. suspect: new connections avoid SUSPECT and FAILED \
             endpoints. failed: FAILED ones also get none even if no other is left, and what is open on them \
             is cut.",
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
};

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
