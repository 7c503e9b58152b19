//! Pure: no IO, no clock. The configuration files of the demo's sidecars.

use std::fmt::Write;
use std::net::SocketAddr;

use super::args::Args;
use super::scene::Pod;

/// Name of the upstream in all of them.
pub const UPSTREAM: &str = "orders";

/// Of a pod's sidecar.
pub fn of_pod(pod: &Pod, args: &Args) -> String {
    let mut out = head(&pod.name, args, pod.admin);
    let (link_listen, service_ip, allow) = match pod.netns {
        Some(_) => {
            (format!("0.0.0.0:{}", pod.link_port), "127.0.0.1".to_owned(), "allow = [\"192.0.2.0/24\"]\n")
        }
        None => (SocketAddr::new(pod.ip(), pod.link_port).to_string(), pod.ip().to_string(), ""),
    };
    let _ = write!(
        out,
        "[[inbound]]\nname = \"{UPSTREAM}\"\nlink_listen = \"{link_listen}\"\n{allow}service = \"{service_ip}:{}\"\n\
         protocol = \"tcp\"\n",
        pod.endpoint.port()
    );
    beat(&mut out, args);
    out
}

/// Of the client's sidecar.
pub fn of_client(listen: SocketAddr, admin: SocketAddr, pods: &[Pod], args: &Args) -> String {
    let mut out = head("client", args, admin);
    let _ = write!(
        out,
        "[[outbound]]\nname = \"{UPSTREAM}\"\nlisten = \"{listen}\"\nprotocol = \"tcp\"\nlink = \"auto\"\n"
    );
    out += "endpoints = [\n";
    for pod in pods {
        let _ = writeln!(out, "  {{ address = \"{}\", link_port = {} }},", pod.endpoint, pod.link_port);
    }
    out += "]\n";
    beat(&mut out, args);
    if let Some(dir) = &args.trace {
        let _ = writeln!(out, "[trace]\npath = {}", toml::Value::from(dir.to_string_lossy().as_ref()));
    }
    if !args.detector.is_empty() || !args.shadows.is_empty() {
        let _ = writeln!(out, "[detector]\nshadows = {:?}", args.shadows);
        for (key, value) in &args.detector {
            let _ = writeln!(out, "{key} = {}", toml_value(value));
        }
    }
    out
}

/// The kernel hands a quota out in pieces this large, percent of a period of 100 ms, to each processor by itself.
const QUOTA_PIECE: u32 = 5;

fn head(id: &str, args: &Args, admin: SocketAddr) -> String {
    let workers = args.workers;
    // All are on this machine: a processor that is taken away must not silence all links of a sidecar. Where a quota is too
    // small for each worker to have a piece of it, one that is bound to its processor waits for whole periods.
    let pieces = args.cpu_quota.is_none_or(|quota| quota >= QUOTA_PIECE * u32::from(workers));
    let pin = workers > 1 && pieces;
    format!("[node]\nid = \"{id}\"\nworkers = {workers}\npin = {pin}\n[admin]\nlisten = \"{admin}\"\n")
}

fn beat(out: &mut String, args: &Args) {
    if let Some(active) = args.beat_active {
        let _ = write!(out, "[beat]\nactive = \"{}\"\n", humantime::format_duration(active));
    }
}

/// Numbers and booleans as they are, all else as a string; [`super::args`] lets no quotes through.
fn toml_value(text: &str) -> String {
    let bare = matches!(text, "true" | "false") || text.parse::<i64>().is_ok() || text.parse::<f64>().is_ok();
    if bare { text.to_owned() } else { format!("\"{text}\"") }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::time::Duration;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn pod(netns: bool) -> Pod {
        Pod {
            name: "orders-1".into(),
            endpoint: if netns {
                "198.51.100.6:8080".parse().unwrap()
            } else {
                "127.0.0.1:9001".parse().unwrap()
            },
            link_port: 7420,
            admin: "127.0.0.1:7421".parse().unwrap(),
            netns: netns.then(|| "/proc/1/ns/net".into()),
            service: RefCell::new(None),
            sidecar: RefCell::new(None),
        }
    }

    #[test]
    fn the_files_are_toml_and_say_what_was_asked() {
        let line =
            ["demo", "--detector", "promise.tau_min=4ms", "--detector", "kind=huddm", "--detector", "x.n=2"];
        let mut args = Cli::try_parse_from(line).unwrap().args;
        args.beat_active = Some(Duration::from_millis(10));
        args.workers = 2;
        args.trace = Some("/var/\"a\" b".into());
        let addr = "127.0.0.1:5000".parse().unwrap();
        let client: toml::Value = toml::from_str(&of_client(addr, addr, &[pod(false)], &args)).unwrap();
        assert_eq!(client["detector"]["promise"]["tau_min"].as_str(), Some("4ms"));
        assert_eq!(client["node"]["workers"].as_integer(), Some(2));
        assert_eq!(client["detector"]["kind"].as_str(), Some("huddm"));
        assert_eq!(client["detector"]["x"]["n"].as_integer(), Some(2));
        assert_eq!(client["trace"]["path"].as_str(), Some("/var/\"a\" b"));
        assert_eq!(client["beat"]["active"].as_str(), Some("10ms"));
        assert_eq!(client["outbound"][0]["endpoints"][0]["link_port"].as_integer(), Some(7420));
        let near: toml::Value = toml::from_str(&of_pod(&pod(false), &args)).unwrap();
        assert_eq!(near["node"]["workers"].as_integer(), Some(2));
        let pinned = |args: &Args| {
            let near: toml::Value = toml::from_str(&of_pod(&pod(false), args)).unwrap();
            near["node"]["pin"].as_bool().unwrap()
        };
        assert!(pinned(&args));
        args.cpu_quota = Some(9);
        assert!(!pinned(&args), "not a piece for each");
        args.cpu_quota = Some(10);
        assert!(pinned(&args));
        assert_eq!(near["inbound"][0]["link_listen"].as_str(), Some("127.0.0.1:7420"));
        let far: toml::Value = toml::from_str(&of_pod(&pod(true), &args)).unwrap();
        assert_eq!(far["inbound"][0]["service"].as_str(), Some("127.0.0.1:8080"));
        assert_eq!(far["inbound"][0]["allow"][0].as_str(), Some("192.0.2.0/24"));
    }
}
