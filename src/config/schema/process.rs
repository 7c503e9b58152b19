//! The process itself: node, admin, drain, limits, log.
//!
//! Pure: no IO, no clock.

use super::{Choice, Default, Kind, Role, Section, duration, key, ms, secs};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

pub(super) const NODE: Section = Section {
    path: "node",
    list: false,
    about: "This sidecar.",
    keys: &[
        key(
            "id",
            Kind::Text { max: 255 },
            Default::Computed("the host name"),
            "\"orders-1\"",
            "Name of this node in links, metrics and events. Give each sidecar its own: it tells pods behind one address apart.",
        ),
        key(
            "workers",
            Kind::Int { min: 0, max: 64 },
            Default::Value("0"),
            "",
            "Threads of the data path; 0: one per core, at most 64.",
        ),
        key(
            "pin",
            Kind::Bool,
            Default::Value("false"),
            "",
            "Bind each worker to a processor of its own. For virtual machines whose host takes single processors away now and then: the links of \
             the other workers still speak. Not for many sidecars on one machine with few workers each: all would choose the same processors; nor under a CPU limit below 5 ms per worker and period of 100 ms (50m each): the kernel hands it out in pieces of 5 ms, and a worker without one waits.",
        ),
    ],
};

pub(super) const ADMIN: Section = Section {
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
};

pub(super) const DRAIN: Section = Section {
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
};

pub(super) const LIMITS: Section = Section {
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
};

pub(super) const TRACE: Section = Section {
    path: "trace",
    list: false,
    about: "Recording of what links told their judges, for `sidebeat replay`. No payload is recorded.",
    keys: &[
        key(
            "path",
            Kind::Text { max: 4096 },
            Default::Unset("nothing is recorded"),
            "\"/var/lib/sidebeat/trace\"",
            "Directory of the files; it must exist and be writable. Two sidecars may share it under different node ids.",
        ),
        key(
            "max_size",
            Kind::Size { min: 256 * KIB, max: 16 * GIB },
            Default::Value("\"16MiB\""),
            "",
            "Most bytes of one file; then the next one begins. Below 256KiB files would hold little but names.",
        ),
        key(
            "files",
            Kind::Int { min: 1, max: 1000 },
            Default::Value("4"),
            "",
            "Files that are kept, the one being written and those of earlier runs included; the oldest go.",
        ),
        key(
            "links",
            Kind::Int { min: 1, max: 1000 },
            Default::Value("200"),
            "",
            "Most links recorded at once; further ones are counted and not recorded.",
        ),
    ],
};

pub(super) const LOG: Section = Section {
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
};
