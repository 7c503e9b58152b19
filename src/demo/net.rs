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
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

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
        ip_batch(Command::new("ip"), &here)?;
        ip_batch(program.command(Some(&ns_path(router)), &["ip"]), &there)?;
        for i in 0..self.pods.len() {
            let [_, _, q_ip, pod_ip] = addresses(i);
            let n = i + 1;
            let script = format!(
                "link set lo up\naddr add {pod_ip}/30 dev p{n}\nlink set p{n} up\nroute add default via {q_ip}\n"
            );
            ip_batch(program.command(Some(&self.pod(i)), &["ip"]), &script)?;
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

fn ip_batch(mut ip: Command, script: &str) -> io::Result<()> {
    let mut child = ip
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
        false => Err(io::Error::other(format!("ip: {}", String::from_utf8_lossy(&out.stderr).trim()))),
    }
}

/// The router's process: each line "0|1 INTERFACE..." sets whether what arrives there is forwarded, and is answered
/// with the CLOCK_MONOTONIC ns before and after the writes. Ends with its input.
pub fn router() -> io::Result<()> {
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
    let mut out = io::stdout();
    let now = clock::now().as_nanos();
    writeln!(out, "ok {now} {now}")?;
    for line in io::stdin().lock().lines() {
        match forward(&line?) {
            Ok((before, after)) => writeln!(out, "ok {} {}", before.as_nanos(), after.as_nanos())?,
            Err(e) => writeln!(out, "error {e}")?,
        }
    }
    Ok(())
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
        assert!(forward("0 no-such-interface").is_err());
    }
}
