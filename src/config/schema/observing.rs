//! What is asked of the local service, and what it may announce.
//!
//! Pure: no IO, no clock.

use super::{Choice, Default, Kind, Section, duration, key, ms, secs};

pub(super) const PROBE: Section = Section {
    path: "probe",
    list: false,
    about: "Asking the local service while nobody else does. Every [[inbound]] is probed by itself, at its `service`.",
    keys: &[
        key(
            "kind",
            Kind::Choice(&[
                Choice::built("off"),
                Choice::built("http"),
                Choice::built("tcp"),
                Choice::built("exec"),
            ]),
            Default::Value("\"off\""),
            "",
            "off: passive evidence only. http: GET `path`. tcp: a connection that the process accepts. exec: \
             `command` ends with 0.",
        ),
        key(
            "inbounds",
            Kind::Strings { most: 256, max: 64 },
            Default::Value("[]"),
            "",
            "Names of the [[inbound]] to probe; empty: all.",
        ),
        key("path", Kind::UrlPath, Default::Value("\"/\""), "", "Path and query of the http probe."),
        key(
            "status",
            Kind::Statuses,
            Default::Value("\"200-399\""),
            "",
            "Statuses of an http answer that are well.",
        ),
        key(
            "command",
            Kind::Strings { most: 64, max: 4096 },
            Default::Value("[]"),
            "",
            "Program and arguments of the exec probe, as they are: no shell. SIDEBEAT_INBOUND and \
             SIDEBEAT_SERVICE are in its environment.",
        ),
        key(
            "idle",
            duration(ms(50), secs(3600)),
            Default::Value("\"1s\""),
            "",
            "Only when nothing was asked or answered for this long: traffic proves more than a probe.",
        ),
        key(
            "interval",
            duration(ms(50), secs(3600)),
            Default::Value("\"2s\""),
            "",
            "From the begin of a probe to the begin of the next; one at a time.",
        ),
        key(
            "timeout",
            duration(ms(10), secs(60)),
            Default::Value("\"1s\""),
            "",
            "A probe without an answer in this time failed; a program is killed. Not above `interval`.",
        ),
        key(
            "healthy",
            Kind::Int { min: 1, max: 100 },
            Default::Value("1"),
            "",
            "Successes in a row that prove life.",
        ),
        key(
            "unhealthy",
            Kind::Int { min: 1, max: 100 },
            Default::Value("3"),
            "",
            "Failures in a row that make the service SUSPECT. Never FAILED, and work that it answers ends it.",
        ),
    ],
};

pub(super) const MAINTENANCE: Section = Section {
    path: "maintenance",
    list: false,
    about: "How the service announces a pause, beside POST /maintenance (see docs/hooks.md).",
    keys: &[
        key(
            "socket",
            Kind::SocketPath,
            Default::Unset("no such socket"),
            "\"/run/sidebeat/hook.sock\"",
            "Unix socket that takes lines such as `pause 500ms full gc` and `resume`. Its folder must exist.",
        ),
        key(
            "mode",
            Kind::Mode,
            Default::Value("\"0660\""),
            "",
            "Its permissions: whoever may write may silence this node's detector for 30 s at a time.",
        ),
    ],
};
