//! Checked configuration: every value is in its range, every relation holds.

use std::net::SocketAddr;
use std::time::Duration;

use super::kind::{MAX_NAME, OWN_TIMEOUT, TIMEOUT_MAX, TIMEOUT_MIN};

/// The whole configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `[node]`.
    pub node: Node,
    /// `[admin]`.
    pub admin: Admin,
    /// `[[inbound]]`.
    pub inbound: Vec<Inbound>,
    /// `[[outbound]]`.
    pub outbound: Vec<Outbound>,
    /// `[beat]`.
    pub beat: Beat,
    /// `[detector]`.
    pub detector: Detector,
    /// `[backpressure] threshold`, 0-1 of the send queue's cap.
    pub backpressure_threshold: f64,
    /// `[drain] deadline`.
    pub drain_deadline: Duration,
    /// `[service]`.
    pub service: Service,
    /// `[probe]`.
    pub probe: Probe,
    /// `[maintenance]`.
    pub maintenance: Maintenance,
    /// `[limits]`.
    pub limits: Limits,
    /// `[trace]`.
    pub trace: Trace,
    /// `[log]`.
    pub log: Log,
}

/// `[node]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Node id, 1-255 bytes; default: host name.
    pub id: String,
    /// Threads of the data path, 1-64; 0 in the file means one per core and is resolved here.
    pub workers: usize,
    /// Each on a processor of its own.
    pub pin: bool,
}

/// `[admin]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Admin {
    /// Everything; default 127.0.0.1:7421.
    pub listen: SocketAddr,
    /// Read-only listener.
    pub public: Option<SocketAddr>,
}

/// A CIDR block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// Network address.
    pub addr: std::net::IpAddr,
    /// Prefix length.
    pub prefix: u8,
}

/// `tcp` or `http`; `http` acts as tcp with a warning until HTTP mode exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Byte-transparent.
    Tcp,
    /// HTTP-aware (later).
    Http,
}

/// `[[inbound]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Inbound {
    /// Name other sidecars ask for.
    pub name: String,
    /// Link port.
    pub link_listen: SocketAddr,
    /// Who may connect; empty: anyone the trust rule admits.
    pub allow: Vec<Cidr>,
    /// The local service.
    pub service: SocketAddr,
    /// Protocol of the service.
    pub protocol: Protocol,
}

/// `link` of an outbound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkPolicy {
    /// Framed where the peer speaks it, else plain.
    Auto,
    /// Framed or nothing.
    Required,
    /// Plain.
    Off,
}

/// `link_mode` of an outbound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkMode {
    /// Shared until a stream can move.
    Auto,
    /// Many streams per link.
    Shared,
    /// One stream per link.
    PerConnection,
}

/// `enforce` of an outbound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enforce {
    /// Judge, never act.
    Off,
    /// Avoid SUSPECT, never take out.
    Suspect,
    /// Take FAILED out.
    Failed,
}

/// One endpoint of an outbound.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointConf {
    /// The service's own address (plain).
    pub address: SocketAddr,
    /// Where its sidecar listens.
    pub link: SocketAddr,
    /// Relative share, 1-1000.
    pub weight: u32,
}

/// `[[outbound]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Outbound {
    /// Name in metrics and `/status`.
    pub name: String,
    /// Name of the far inbound.
    pub remote: String,
    /// Where the local service connects.
    pub listen: SocketAddr,
    /// Protocol.
    pub protocol: Protocol,
    /// At least one.
    pub endpoints: Vec<EndpointConf>,
    /// Framed or plain.
    pub link: LinkPolicy,
    /// Shared or per connection.
    pub link_mode: LinkMode,
    /// What a verdict may do.
    pub enforce: Enforce,
    /// Cut established streams of an endpoint failed by silence after this; None: never.
    pub cut_after: Option<Duration>,
    /// Share of the set that silence may take out, 0-1.
    pub max_failed: f64,
    /// A new connection to an endpoint must be made within this.
    pub connect_timeout: Duration,
}

/// `[beat]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Beat {
    /// Promise while idle.
    pub idle: Duration,
    /// Promise while active.
    pub active: Duration,
    /// Links per node that hold it.
    pub duty: usize,
}

/// `[detector] kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DetectorKind {
    /// Promise, challenge, two laws.
    Promise,
    /// The source's algorithm.
    Huddm,
    /// Phi accrual.
    Phi,
    /// Expected arrival and a margin.
    Chen,
    /// A fixed time-out.
    Timeout,
    /// A time-out from the 95th percentile.
    P95,
}

impl DetectorKind {
    /// All of them, in the order of the documentation.
    pub const ALL: [DetectorKind; 6] = [
        DetectorKind::Promise,
        DetectorKind::Huddm,
        DetectorKind::Phi,
        DetectorKind::Chen,
        DetectorKind::Timeout,
        DetectorKind::P95,
    ];

    /// Name in the file and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            DetectorKind::Promise => "promise",
            DetectorKind::Huddm => "huddm",
            DetectorKind::Phi => "phi",
            DetectorKind::Chen => "chen",
            DetectorKind::Timeout => "timeout",
            DetectorKind::P95 => "p95",
        }
    }

    /// Inverse of [`DetectorKind::name`].
    pub fn from_name(name: &str) -> Option<DetectorKind> {
        DetectorKind::ALL.into_iter().find(|k| k.name() == name)
    }
}

/// `[detector.huddm] decay`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decay {
    /// Per 1 ms tick past the expected arrival (H8).
    Tick,
    /// Only after a whole missed interval (H10).
    Miss,
}

/// One of `[detector] shadows`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shadow {
    /// As written; its label in metrics and events.
    pub name: String,
    /// What judges.
    pub law: ShadowLaw,
}

/// What a shadow is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShadowLaw {
    /// With the parameters of its table.
    Configured(DetectorKind),
    /// `huddm` with this decay, whatever its table says.
    Huddm(Decay),
    /// A fixed time-out of its own.
    Timeout(Duration),
}

impl Shadow {
    /// The shadow of this name: that of a kind, `huddm-tick`, `huddm-miss`, or `timeout-27ms` with any time from 5 ms to 1 h.
    pub fn from_name(name: &str) -> Option<Shadow> {
        let law = match name {
            "huddm-tick" => ShadowLaw::Huddm(Decay::Tick),
            "huddm-miss" => ShadowLaw::Huddm(Decay::Miss),
            _ => match name.strip_prefix(OWN_TIMEOUT) {
                Some(time) => ShadowLaw::Timeout(own_timeout(time)?),
                None => ShadowLaw::Configured(DetectorKind::from_name(name)?),
            },
        };
        Some(Shadow { name: name.to_owned(), law })
    }
}

/// A time that is also part of a label: letters, digits and a point.
fn own_timeout(text: &str) -> Option<Duration> {
    let plain = text.len() <= MAX_NAME && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.');
    let time = humantime::parse_duration(text).ok().filter(|_| plain)?;
    (TIMEOUT_MIN..=TIMEOUT_MAX).contains(&time).then_some(time)
}

/// `[detector]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Detector {
    /// Who judges.
    pub kind: DetectorKind,
    /// `[detector.promise] tau_min`.
    pub tau_min: Duration,
    /// `[detector.promise] learn_max`.
    pub learn_max: Duration,
    /// `[detector.promise] half_life`.
    pub half_life: Duration,
    /// `[detector.huddm] decay`.
    pub decay: Decay,
    /// Who judges beside it without acting; each once.
    pub shadows: Vec<Shadow>,
    /// `[detector.phi]`.
    pub phi: Phi,
    /// `[detector.chen]`.
    pub chen: Chen,
    /// `[detector.timeout] after`.
    pub timeout_after: Duration,
    /// `[detector.timeout]` `interval`, `misses`, `buffer`.
    pub steps: Steps,
    /// `[detector.p95]`.
    pub p95: P95,
}

/// `[detector.phi]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phi {
    /// phi that makes FAILED.
    pub threshold: f64,
    /// Gaps that are remembered.
    pub window: u32,
    /// Least deviation of the gaps.
    pub min_std: Duration,
    /// Added to the mean gap.
    pub pause: Duration,
}

/// `[detector.chen]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chen {
    /// Margin past the expected arrival.
    pub alpha: Duration,
    /// Arrivals that are remembered.
    pub window: u32,
}

/// `[detector.timeout]` in steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steps {
    /// Expected time between two arrivals; None: one fixed time-out instead.
    pub interval: Option<Duration>,
    /// Intervals that make FAILED.
    pub misses: u32,
    /// Added to them; None: measured.
    pub buffer: Option<Duration>,
}

/// `[detector.p95]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct P95 {
    /// The percentile times this makes FAILED.
    pub factor: f64,
    /// Gaps that are remembered.
    pub window: u32,
}

/// `[service]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// A stall seen twice for this long is FAILED.
    pub stall_patience: Duration,
    /// A busy service stays SUSPECT at most for this long before it counts as stalled.
    pub busy_patience: Duration,
}

/// `[probe] kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    /// Not at all.
    Off,
    /// GET.
    Http,
    /// Connect.
    Tcp,
    /// A program.
    Exec,
}

/// `[probe]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// How.
    pub kind: ProbeKind,
    /// Names of the inbounds to probe; empty: all.
    pub inbounds: Vec<String>,
    /// Path and query of GET.
    pub path: String,
    /// Ranges of statuses that are well, both ends included.
    pub status: Vec<(u16, u16)>,
    /// Program and arguments; not empty with [`ProbeKind::Exec`].
    pub command: Vec<String>,
    /// Only after so much silence.
    pub idle: Duration,
    /// Begin to begin.
    pub interval: Duration,
    /// Longest wait for an answer.
    pub timeout: Duration,
    /// Successes in a row that prove life, at least 1.
    pub healthy: u32,
    /// Failures in a row that make doubt, at least 1.
    pub unhealthy: u32,
}

/// `[maintenance]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Maintenance {
    /// Unix socket of the hook.
    pub socket: Option<std::path::PathBuf>,
    /// Its permissions.
    pub mode: u32,
}

/// `[limits]`: hard caps.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Application connections at once.
    pub connections: usize,
    /// Links accepted at once per link port.
    pub links: usize,
    /// Streams per link.
    pub streams_per_link: usize,
    /// Most credit of one stream, bytes.
    pub stream_window: u32,
    /// Send queue of one link, bytes.
    pub link_queue: usize,
    /// Buffered bytes in all, per process.
    pub memory: usize,
    /// A hello must be complete within this.
    pub hello_timeout: Duration,
}

/// `[trace]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// Directory of the files; None: nothing is recorded.
    pub path: Option<std::path::PathBuf>,
    /// Most bytes of one file.
    pub max_size: u64,
    /// Files that are kept.
    pub files: usize,
    /// Most links recorded at once.
    pub links: usize,
}

/// `[log] format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// `[log]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Log {
    /// Text or JSON.
    pub format: LogFormat,
    /// Filter such as `info` or `sidebeat::link=debug`.
    pub level: String,
}
