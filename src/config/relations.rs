//! Relations between keys: names, listeners, loops, the trust rule, ranges that depend on each other.
//!
//! Pure: no IO, no clock.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use super::checked::{Config, Shadow, ShadowLaw};

use super::problem::{At, Report};
use super::raw::{Document, Table};
use super::words::{duration_text, size_text};

pub(super) fn check(document: &Document, report: &mut Report<'_>) {
    something_to_do(document, report);
    for list in ["inbound", "outbound"] {
        names(document.list(list), report);
    }
    listeners(document, report);
    document.list("inbound").iter().for_each(|t| trust(t, report));
    document.list("outbound").iter().for_each(|t| endpoints(t, report));
    loops(document, report);
    orders(document, report);
    admin(document.table("admin"), report);
    timeout(document, report);
    probe(document, report);
    hook(document, report);
}

/// Warnings that depend on this machine: file descriptors against the caps.
pub(super) fn descriptors(config: &Config, may_open: u64) -> Option<String> {
    let wanted =
        (config.limits.connections as u64).saturating_mul(2).saturating_add(config.limits.links as u64);
    (may_open < wanted).then(|| {
        format!(
            "limits.connections and limits.links may need {wanted} file descriptors, this process may open \
             {may_open}: raise `ulimit -n` or lower the limits"
        )
    })
}

fn something_to_do(document: &Document, report: &mut Report<'_>) {
    if document.list("inbound").is_empty() && document.list("outbound").is_empty() && !report.has_errors() {
        report
            .error(&At::File, "", "nothing to do: there is neither an [[inbound]] nor an [[outbound]]")
            .hint("`sidebeat config defaults` prints a sample of both");
    }
}

/// Names go by the rules of the environment, so that each variable means one table.
fn names(tables: &[Table], report: &mut Report<'_>) {
    let mut seen: HashMap<&str, &Table> = HashMap::new();
    for table in tables {
        let Some(name) = table.text("name") else { continue };
        let first = *seen.entry(name).or_insert(table);
        if !std::ptr::eq(first, table) {
            let line = report.describe(&first.entry("name").at);
            let what = format!("the name \"{name}\" is used twice, first in {line}");
            report.error(&table.entry("name").at, table.key("name"), what).hint("give each its own name");
        }
    }
}

fn listeners(document: &Document, report: &mut Report<'_>) {
    let admin = document.table("admin");
    let mut all = vec![(admin, "listen"), (admin, "public")];
    all.extend(document.list("inbound").iter().map(|t| (t, "link_listen")));
    all.extend(document.list("outbound").iter().map(|t| (t, "listen")));
    let mut all: Vec<_> = all.into_iter().filter_map(|(t, k)| Some((t, k, t.address(k)?))).collect();
    // The later one is blamed, and never a default.
    all.sort_by_key(|(table, key, _)| match &table.entry(key).at {
        At::File => (0, 0),
        At::Span(span) => (1, span.start),
        At::Env(_) => (2, 0),
    });
    let mut taken = Taken::default();
    for (i, &(table, key, address)) in all.iter().enumerate() {
        let clash = taken.clash(address);
        taken.add(address, i);
        let Some((first, first_key, other)) = clash.map(|first| &all[first]) else { continue };
        let first = first.key(first_key);
        let what = match address == *other {
            true => format!("{address} is already used by {first}"),
            false => format!("{address} overlaps {first} ({other})"),
        };
        report.error(&table.entry(key).at, table.key(key), what).hint("choose another port");
    }
}

/// The first listener of each address and port, by what the kernel would not let live side by side with it: the same
/// address, or a wildcard. `[::]` takes the IPv4 wildcard too. Port 0 is never the same.
#[derive(Default)]
struct Taken {
    exact: HashMap<SocketAddr, usize>,
    canonical: HashMap<(IpAddr, u16), usize>,
    /// Any address with this port; any of IPv4.
    any: HashMap<u16, usize>,
    any_v4: HashMap<u16, usize>,
}

impl Taken {
    /// The first one that is the same; if none is, the first one that overlaps.
    fn clash(&self, address: SocketAddr) -> Option<usize> {
        let (ip, port) = (address.ip().to_canonical(), address.port());
        let at = |ip: IpAddr| self.canonical.get(&(ip, port)).copied();
        let v4 = |found: Option<usize>| found.filter(|_| ip.is_ipv4());
        let all = [
            at(ip),
            at(Ipv6Addr::UNSPECIFIED.into()),
            v4(at(Ipv4Addr::UNSPECIFIED.into())),
            self.any.get(&port).copied().filter(|_| ip == IpAddr::from(Ipv6Addr::UNSPECIFIED)),
            self.any_v4.get(&port).copied().filter(|_| ip == IpAddr::from(Ipv4Addr::UNSPECIFIED)),
        ];
        self.exact.get(&address).copied().or_else(|| all.into_iter().flatten().min())
    }

    fn add(&mut self, address: SocketAddr, index: usize) {
        let (ip, port) = (address.ip().to_canonical(), address.port());
        if port == 0 {
            return;
        }
        self.exact.entry(address).or_insert(index);
        self.canonical.entry((ip, port)).or_insert(index);
        self.any.entry(port).or_insert(index);
        if ip.is_ipv4() {
            self.any_v4.entry(port).or_insert(index);
        }
    }
}

/// The trust rule of links: whoever reaches an address that is not loopback must be named.
fn trust(table: &Table, report: &mut Report<'_>) {
    let Some(address) = table.address("link_listen") else { return };
    if address.ip().to_canonical().is_loopback() {
        return;
    }
    let (allow, insecure) = (table.entry("allow"), table.entry("insecure"));
    let everyone = table.networks("allow").iter().find(|c| c.prefix == 0);
    match (table.networks("allow").is_empty(), table.flag("insecure")) {
        (true, false) if !allow.broken && !insecure.broken => {
            let what = format!("{address} is reachable from outside, and nothing says who may connect");
            report
                .error(&table.entry("link_listen").at, table.key("link_listen"), what)
                .allowed("a loopback address, or `allow` with networks, or `insecure = true`")
                .hint("add allow = [\"10.0.0.0/8\"] with the networks of your peers");
        }
        (true, true) => {
            let what = format!("anyone who reaches {address} may use this service");
            report.warn(&insecure.at, table.key("insecure"), what);
        }
        (false, true) => {
            report.warn(&insecure.at, table.key("insecure"), "adds nothing: `allow` says who may connect");
        }
        (false, false) if everyone.is_some() => {
            report.warn(&allow.at, table.key("allow"), "a network with prefix 0 admits anyone");
        }
        _ => {}
    }
}

fn endpoints(table: &Table, report: &mut Report<'_>) {
    // With `required` nothing is ever sent to the service's own port: it may be unknown here.
    let may_be_plain = table.text("link") == Some("auto");
    let list = table.endpoints("endpoints");
    let mut seen = std::collections::BTreeMap::new();
    for (i, endpoint) in list.iter().enumerate() {
        let key = format!("{}[{i}]", table.key("endpoints"));
        if let Some(first) = seen.insert(endpoint.address, i) {
            let what = format!("{} is already endpoint {first}", endpoint.address);
            report.error(&endpoint.at, key, what).hint("use `weight` to give an endpoint a larger share");
            continue;
        }
        let port = endpoint.link_port.map_or_else(|| table.int("link_port"), u64::from);
        if may_be_plain && port == u64::from(endpoint.address.port()) {
            let what = format!("port {port} is also its link port");
            report
                .error(&endpoint.at, key, what)
                .hint("write the service's own port here, the sidecar's in `link_port`; or link = \"off\"");
        }
    }
}

/// Connections that would come straight back.
fn loops(document: &Document, report: &mut Report<'_>) {
    let outbound = document.list("outbound");
    for table in outbound {
        let Some(listen) = table.address("listen") else { continue };
        for (i, endpoint) in table.endpoints("endpoints").iter().enumerate() {
            if reaches(endpoint.address, listen) {
                let key = format!("{}[{i}]", table.key("endpoints"));
                report.error(&endpoint.at, key, "is this outbound's own listener: a loop");
            }
        }
    }
    for table in document.list("inbound") {
        let (Some(link), Some(service)) = (table.address("link_listen"), table.address("service")) else {
            continue;
        };
        if reaches(service, link) {
            let what = "is this inbound's own link port: a loop";
            report.error(&table.entry("service").at, table.key("service"), what);
        }
    }
}

fn reaches(target: SocketAddr, listen: SocketAddr) -> bool {
    let local = target.ip().is_loopback() && listen.ip().is_unspecified();
    listen.port() != 0 && target.port() == listen.port() && (local || target.ip() == listen.ip())
}

/// Pairs of keys of one table of which the second must not exceed the first.
fn orders(document: &Document, report: &mut Report<'_>) {
    let pairs = [
        ("beat", "idle", "active", "an idle link cannot promise more than an active one"),
        ("detector.promise", "learn_max", "tau_min", "lateness below the time constant is never seen"),
        ("probe", "interval", "timeout", "a probe must be over when the next one is due"),
        ("limits", "memory", "link_queue", "one full queue must fit in the memory for all"),
        ("limits", "memory", "stream_window", "one full stream must fit in the memory for all"),
    ];
    for (path, larger, smaller, why) in pairs {
        let table = document.table(path);
        let (a, b) = (table.entry(larger), table.entry(smaller));
        let sizes = path == "limits";
        let wrong = match sizes {
            true => table.int(larger) < table.int(smaller),
            false => table.duration(larger) < table.duration(smaller),
        };
        if !wrong || a.broken || b.broken {
            continue;
        }
        let text = |key| if sizes { size_text(table.int(key)) } else { duration_text(table.duration(key)) };
        let (key, at) = if a.at == At::File { (smaller, &b.at) } else { (larger, &a.at) };
        let what = format!("{larger} ({}) is below {smaller} ({})", text(larger), text(smaller));
        report.error(at, table.key(key), what).hint(why);
    }
}

/// A time-out that judges must outlast the beats of an idle link.
fn timeout(document: &Document, report: &mut Report<'_>) {
    let (detector, beat, table) =
        (document.table("detector"), document.table("beat"), document.table("detector.timeout"));
    let idle = beat.duration("idle");
    if beat.entry("idle").broken {
        return;
    }
    let judges = detector.text("kind") == Some("timeout");
    let watches = detector.words("shadows").iter().any(|w| w == "timeout");
    let (key, after) = patience(table);
    if (judges || watches) && after <= idle && !table.entry(key).broken {
        let (entry, key) = match table.entry(key).at {
            At::File => (beat.entry("idle"), beat.key("idle")),
            _ => (table.entry(key), table.key(key)),
        };
        let what = format!(
            "an idle link beats each {} and the time-out is {}: it fails between two beats",
            duration_text(idle),
            duration_text(after)
        );
        report.warn(&entry.at, key, what).hint("make detector.timeout.after a few times beat.idle");
    }
    for name in detector.words("shadows") {
        let own = Shadow::from_name(name).map(|s| s.law);
        if matches!(own, Some(ShadowLaw::Timeout(after)) if after <= idle) {
            let what = format!(
                "an idle link beats each {}: \"{name}\" fails between two beats",
                duration_text(idle)
            );
            report.warn(&detector.entry("shadows").at, detector.key("shadows"), what);
        }
    }
    let buffer = table.entry("buffer");
    if buffer.at != At::File && !buffer.broken && table.duration_or_off("buffer").is_some() && key == "after"
    {
        report.warn(&buffer.at, table.key("buffer"), "does nothing without `interval`");
    }
}

/// The key that `[detector.timeout]` goes by, and the least silence that is death to it.
fn patience(table: &Table) -> (&'static str, Duration) {
    match table.duration_or_off("interval") {
        None => ("after", table.duration("after")),
        Some(interval) => {
            let misses = u32::try_from(table.int("misses")).unwrap_or(u32::MAX);
            ("interval", interval.saturating_mul(misses) + table.duration("buffer"))
        }
    }
}

fn admin(table: &Table, report: &mut Report<'_>) {
    let entry = table.entry("listen");
    if table.address("listen").is_some_and(|a| !a.ip().to_canonical().is_loopback()) {
        report
            .warn(
                &entry.at,
                table.key("listen"),
                "anyone who reaches this address may drain or change this sidecar",
            )
            .hint("keep `listen` on loopback and give others `public`, which is read-only");
    }
}

/// Keys that belong to another kind of probe do nothing, and an exec probe needs its program.
fn probe(document: &Document, report: &mut Report<'_>) {
    let table = document.table("probe");
    let kind = table.text("kind").unwrap_or("off");
    for (key, of) in [("path", "http"), ("status", "http"), ("command", "exec")] {
        let entry = table.entry(key);
        if entry.at != At::File && !entry.broken && kind != of && !table.entry("kind").broken {
            report.warn(&entry.at, table.key(key), format!("does nothing: kind is \"{kind}\", not \"{of}\""));
        }
    }
    let command = table.entry("command");
    if kind == "exec" && table.words("command").is_empty() && !command.broken {
        let at = if command.at == At::File { &table.entry("kind").at } else { &command.at };
        report
            .error(at, table.key("command"), "is needed with kind = \"exec\"")
            .hint("write the program and its arguments, such as command = [\"pg_isready\", \"-q\"]");
    }
    let names: Vec<_> = document.list("inbound").iter().filter_map(|t| t.text("name")).collect();
    for (i, name) in table.words("inbounds").iter().enumerate().filter(|(_, n)| !names.contains(&n.as_str()))
    {
        let key = format!("{}[{i}]", table.key("inbounds"));
        let what = format!("there is no [[inbound]] \"{name}\"");
        let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        report.error(&table.entry("inbounds").at, key, what).allowed(format!("names in the file: {known}"));
    }
}

fn hook(document: &Document, report: &mut Report<'_>) {
    let table = document.table("maintenance");
    let mode = table.entry("mode");
    if table.text("socket").is_some() && table.int("mode") & 0o002 != 0 {
        let what = "any user of this machine may announce pauses, and so hide failures of this service";
        report
            .warn(&mode.at, table.key("mode"), what)
            .hint("give the service's user a group in common: \"0660\"");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_overlap_as_the_kernel_sees_it() {
        let case = |a: &str, b: &str| {
            let mut taken = Taken::default();
            taken.add(a.parse().unwrap(), 7);
            taken.clash(b.parse().unwrap()) == Some(7)
        };
        for (a, b) in [
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("0.0.0.0:1", "127.0.0.1:1"),
            ("127.0.0.1:1", "[::]:1"),
            ("[::]:1", "[::1]:1"),
            ("[::ffff:127.0.0.1]:1", "127.0.0.1:1"),
        ] {
            assert!(case(a, b) && case(b, a), "{a} {b}");
        }
        for (a, b) in [("127.0.0.1:1", "127.0.0.2:1"), ("0.0.0.0:0", "0.0.0.0:0"), ("0.0.0.0:1", "[::1]:1")] {
            assert!(!case(a, b) && !case(b, a), "{a} {b}");
        }
    }

    #[test]
    fn of_several_the_same_address_is_named_before_one_that_overlaps() {
        let mut taken = Taken::default();
        for (i, a) in ["10.0.0.1:1", "0.0.0.0:1", "[fd00::1]:1", "[::]:1"].into_iter().enumerate() {
            taken.add(a.parse().unwrap(), i);
        }
        let clash = |a: &str| taken.clash(a.parse().unwrap());
        assert_eq!(
            (clash("10.0.0.1:1"), clash("10.0.0.2:1"), clash("[fd00::2]:1")),
            (Some(0), Some(1), Some(3))
        );
        assert_eq!((clash("0.0.0.0:1"), clash("[::]:1"), clash("[::]:2")), (Some(1), Some(3), None));
        assert_eq!(clash("[::ffff:0.0.0.0]:1"), Some(0));
    }
}
