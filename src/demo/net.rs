//! A network that can be cut, without privileges: a user and network namespace for the client, one network
//! namespace per pod (service and sidecar), and a router namespace between them.
//!
//! ```text
//! client c1 192.0.2.4/30 r1 router q1 198.51.100.4/30 p1 pod 1      (and so on for each pod)
//! ```
//!
//! The router stops forwarding what *arrives* on one of its interfaces: the kernel then drops silently, in the
//! middle, with no ICMP to either side. That is a black hole as a broken path makes it, and it needs no filter rules.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::child::{Program, Running};
use crate::clock;
use crate::stamp::Stamp;

/// Moves the calling thread into a network namespace (`/proc/PID/ns/net`).
pub fn enter(namespace: &File) -> io::Result<()> {
    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// How `unshare` may be called here.
pub fn possible() -> Result<&'static [&'static str], String> {
    const WAYS: [&[&str]; 2] = [&["-Urn"], &["-n"]];
    let mut last = String::new();
    for way in WAYS {
        // Bringing up loopback shows that the namespace is really ours; some systems give one without rights.
        match Command::new("unshare").args(way).args(["ip", "link", "set", "lo", "up"]).output() {
            Ok(out) if out.status.success() => return can_route(way).map(|()| way),
            Ok(out) => last = String::from_utf8_lossy(&out.stderr).trim().to_owned(),
            Err(e) => return Err(format!("unshare (util-linux): {e}")),
        }
    }
    Err(format!("no user and network namespaces here: {last}"))
}

/// Whether the router can delay what it forwards, from inside the namespace that [`possible`] gives.
///
/// # Errors
/// `tc` or the kernel's `netem` is missing; says which.
pub fn can_delay() -> Result<(), String> {
    let netem = ["-n", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"];
    let out =
        Command::new("unshare").args(netem).output().map_err(|e| format!("unshare (util-linux): {e}"))?;
    match out.status.success() {
        true => Ok(()),
        false => Err(format!("tc with netem: {}", String::from_utf8_lossy(&out.stderr).trim())),
    }
}

fn can_route(way: &[&str]) -> Result<(), String> {
    let script = "ip link add a0 type veth peer name b0 && echo 1 > /proc/sys/net/ipv4/ip_forward";
    let out =
        Command::new("unshare").args(way).args(["sh", "-c", script]).output().map_err(|e| e.to_string())?;
    match out.status.success() {
        true => Ok(()),
        false => {
            Err(format!("a namespace cannot route here: {}", String::from_utf8_lossy(&out.stderr).trim()))
        }
    }
}

/// Which directions are cut, seen from the client's sidecar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Both.
    Both,
    /// Towards the observer.
    In,
    /// Away from the observer.
    Out,
}

/// Addresses of pod `i` (from 0): client, router towards it, router towards the pod, pod.
pub fn addresses(i: usize) -> [Ipv4Addr; 4] {
    let base = 4 * (i as u8 + 1);
    let (net1, net2) = (|n| Ipv4Addr::new(192, 0, 2, n), |n| Ipv4Addr::new(198, 51, 100, n));
    [net1(base + 1), net1(base + 2), net2(base + 1), net2(base + 2)]
}

/// The namespaces of the scene; they end with it.
#[derive(Debug)]
pub struct Net {
    router: Running,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    pods: Vec<Running>,
}

impl Net {
    /// Makes router and pods; the calling process must already be in a namespace of its own.
    pub fn build(program: &Program, pods: usize) -> io::Result<Net> {
        let mut router = program.in_new_netns(&["demo-router"])?;
        let (commands, answers) = (router.take_stdin()?, router.take_stdout()?);
        let mut net = Net { router, commands, answers: BufReader::new(answers), pods: Vec::new() };
        net.answer()?;
        for _ in 0..pods {
            let mut pod = program.in_new_netns(&["demo-hold"])?;
            let mut line = String::new();
            BufReader::new(pod.take_stdout()?).read_line(&mut line)?;
            net.pods.push(pod);
        }
        net.connect(program)?;
        Ok(net)
    }

    fn connect(&self, program: &Program) -> io::Result<()> {
        let router = self.router.pid();
        let mut here = String::from("link set lo up\n");
        let mut there = here.clone();
        for (i, pod) in self.pods.iter().enumerate() {
            let (n, pod) = (i + 1, pod.pid());
            let [client_ip, r_ip, q_ip, pod_ip] = addresses(i);
            here += &format!("link add c{n} type veth peer name r{n} netns {router}\n");
            here += &format!("link add q{n} netns {router} type veth peer name p{n} netns {pod}\n");
            here += &format!("addr add {client_ip}/30 dev c{n}\nlink set c{n} up\n");
            here += &format!("route add {pod_ip}/32 via {r_ip}\n");
            there += &format!("addr add {r_ip}/30 dev r{n}\naddr add {q_ip}/30 dev q{n}\n");
            there += &format!("link set r{n} up\nlink set q{n} up\n");
        }
        batch(Command::new("ip"), &here)?;
        batch(program.command(Some(&ns_path(router)), &["ip"]), &there)?;
        for i in 0..self.pods.len() {
            let [_, _, q_ip, pod_ip] = addresses(i);
            let n = i + 1;
            let script = format!(
                "link set lo up\naddr add {pod_ip}/30 dev p{n}\nlink set p{n} up\nroute add default via {q_ip}\n"
            );
            batch(program.command(Some(&self.pod(i)), &["ip"]), &script)?;
        }
        Ok(())
    }

    /// Path of pod `i`'s network namespace.
    pub fn pod(&self, i: usize) -> PathBuf {
        self.pods.get(i).map(|p| ns_path(p.pid())).unwrap_or_default()
    }

    /// Address of pod `i`.
    pub fn address(&self, i: usize) -> IpAddr {
        addresses(i)[3].into()
    }

    /// Cuts or joins one TCP connection to pod `i`, the one from `port` of the client, both ways; the others go on. Gives
    /// the instants right before and after the change, which takes milliseconds.
    pub fn switch_connection(&mut self, i: usize, port: u16, join: bool) -> io::Result<(Stamp, Stamp)> {
        let n = i + 1;
        let verb = if join { "del" } else { "add" };
        let script = [
            format!("rule {verb} iif r{n} ipproto tcp sport {port} blackhole"),
            format!("rule {verb} iif q{n} ipproto tcp dport {port} blackhole"),
        ];
        self.tool("ip", &script)
    }

    /// Packets from pod `i` to the client take `by` longer, or no longer so.
    pub fn delay(&mut self, i: usize, by: Option<Duration>) -> io::Result<(Stamp, Stamp)> {
        let n = i + 1;
        let script = match by {
            Some(by) => format!("qdisc add dev r{n} root netem delay {}ms", by.as_millis()),
            None => format!("qdisc del dev r{n} root"),
        };
        self.tool("tc", &[script])
    }

    /// Has the router run lines of a batch of `ip` or `tc`.
    fn tool(&mut self, program: &str, script: &[String]) -> io::Result<(Stamp, Stamp)> {
        writeln!(self.commands, "{program} {}", script.join(";"))?;
        self.answer()
    }

    /// Cuts or joins the path to pod `i`; gives the instants right before and after the change.
    pub fn switch(&mut self, i: usize, side: Side, join: bool) -> io::Result<(Stamp, Stamp)> {
        let n = i + 1;
        let interfaces = match side {
            Side::Both => format!("r{n} q{n}"),
            Side::In => format!("q{n}"),
            Side::Out => format!("r{n}"),
        };
        writeln!(self.commands, "{} {interfaces}", u8::from(join))?;
        self.answer()
    }

    fn answer(&mut self) -> io::Result<(Stamp, Stamp)> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        parse_answer(&line).ok_or_else(|| io::Error::other(format!("router: {}", line.trim())))
    }
}

fn parse_answer(line: &str) -> Option<(Stamp, Stamp)> {
    let (before, after) = line.trim().strip_prefix("ok ")?.split_once(' ')?;
    Some((Stamp::from_nanos(before.parse().ok()?), Stamp::from_nanos(after.parse().ok()?)))
}

fn ns_path(pid: u32) -> PathBuf {
    format!("/proc/{pid}/ns/net").into()
}

/// Of `ip` or `tc`, which read their lines alike.
fn batch(mut tool: Command, script: &str) -> io::Result<()> {
    let mut child = tool
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(script.as_bytes())?;
    }
    let out = child.wait_with_output()?;
    match out.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&out.stderr);
            let said = said.lines().map(str::trim).collect::<Vec<_>>().join(" ");
            Err(io::Error::other(format!("{}: {said}", tool.get_program().display())))
        }
    }
}

/// The router's process: each line "0|1 INTERFACE..." sets whether what arrives there is forwarded, "ip LINE;LINE" and
/// "tc LINE" run these tools, and each is answered with the CLOCK_MONOTONIC ns before and after the change. Ends with its
/// input.
pub fn router() -> io::Result<()> {
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
    let mut out = io::stdout();
    let now = clock::now().as_nanos();
    writeln!(out, "ok {now} {now}")?;
    for line in io::stdin().lock().lines() {
        match obey(&line?) {
            Ok((before, after)) => writeln!(out, "ok {} {}", before.as_nanos(), after.as_nanos())?,
            Err(e) => writeln!(out, "error {e}")?,
        }
    }
    Ok(())
}

fn obey(line: &str) -> io::Result<(Stamp, Stamp)> {
    match line.split_once(' ') {
        Some((tool @ ("ip" | "tc"), script)) => {
            let before = clock::now();
            batch(Command::new(tool), &script.replace(';', "\n"))?;
            Ok((before, clock::now()))
        }
        _ => forward(line),
    }
}

fn forward(line: &str) -> io::Result<(Stamp, Stamp)> {
    let mut words = line.split_whitespace();
    let value = words.next().unwrap_or_default();
    let mut files = Vec::new();
    for interface in words {
        let path = format!("/proc/sys/net/ipv4/conf/{interface}/forwarding");
        files.push(File::options().write(true).open(path)?);
    }
    let before = clock::now();
    for file in &mut files {
        file.write_all(value.as_bytes())?;
    }
    Ok((before, clock::now()))
}

/// Port of the client's connection to `to` that sent something last: of several links the one in use.
pub fn connection_in_use(to: SocketAddr) -> io::Result<u16> {
    let dst = to.to_string();
    let out = Command::new("ss").args(["-tinH", "state", "established", "dst", &dst]).output()?;
    let text = String::from_utf8_lossy(&out.stdout);
    in_use(&text, to).ok_or_else(|| io::Error::other(format!("ss: no connection to {to}")))
}

/// Reads it from the output of `ss -ti`, which leaves out a `lastsnd` of 0 ms.
fn in_use(text: &str, to: SocketAddr) -> Option<u16> {
    let mut found: Vec<(u64, u16)> = Vec::new();
    let mut before: Option<SocketAddr> = None;
    let mut ours = false;
    for word in text.split_whitespace() {
        if let Ok(address) = word.parse::<SocketAddr>() {
            ours = before.is_some() && address == to;
            found.extend(before.filter(|_| ours).map(|local| (0, local.port())));
            before = Some(address);
            continue;
        }
        before = None;
        let sent = word.strip_prefix("lastsnd:").and_then(|ms| ms.parse().ok());
        if let (Some(last), Some(ms), true) = (found.last_mut(), sent, ours) {
            last.0 = ms;
        }
    }
    found.into_iter().min().map(|(_, port)| port)
}

/// A pod's namespace is kept by this process until its input ends.
pub fn hold() -> io::Result<()> {
    println!("ready");
    io::copy(&mut io::stdin(), &mut io::sink()).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_apart_and_for_documentation_only() {
        let mut all: Vec<_> = (0..9).flat_map(addresses).collect();
        assert!(all.iter().all(Ipv4Addr::is_documentation));
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 36);
    }

    #[test]
    fn answers_of_the_router_are_read() {
        let (a, b) = parse_answer("ok 5 7\n").unwrap();
        assert_eq!((a.as_nanos(), b.as_nanos()), (5, 7));
        for bad in ["", "ok", "ok 5", "ok 5 x", "error no such interface"] {
            assert!(parse_answer(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn an_unknown_interface_is_an_error() {
        assert!(obey("0 no-such-interface").is_err());
    }

    #[test]
    fn the_connection_in_use_is_the_one_that_sent_last() {
        let text = "0 0 192.0.2.5:40002 198.51.100.6:7420 cubic wscale:7,7 rto:204 lastsnd:9000 lastrcv:8996\n\
                    0 0 192.0.2.5:40004 198.51.100.6:7420\n\t cubic rto:204 lastsnd:12 lastrcv:3 lastack:3\n\
                    0 0 192.0.2.9:40006 198.51.100.10:7420 cubic lastrcv:1\n";
        let to = |ip: &str| format!("{ip}:7420").parse().unwrap();
        assert_eq!(in_use(text, to("198.51.100.6")), Some(40004));
        assert_eq!(in_use(text, to("198.51.100.10")), Some(40006), "none is told of what was sent just now");
        assert_eq!(in_use(text, to("198.51.100.14")), None);
        assert_eq!(in_use("", to("198.51.100.6")), None);
    }
}
