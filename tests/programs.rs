//! Real programs, unmodified, through a pair of sidecars, and through one sidecar alone where the far side has none.
//! Every program runs for a second or two on loopback, in a folder of its own, and ends with its test.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod support;

#[path = "programs/servers.rs"]
mod servers;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use servers::{Running, mariadb, nginx, postgres, redis};
use support::child::{command, finish, run};
use support::pair::Setup;
use support::{Port, TempDir, eventually, have, skip};

/// Runs `client` against `service` through a pair whose link is up, and then with no sidecar on the far side.
/// `SIDEBEAT_DIRECT=1` leaves the sidecars out: what fails then is not their fault.
fn with_and_without_far(service: SocketAddr, client: impl Fn(SocketAddr)) {
    through(|| Setup::new(service), service, client);
}

/// The same with one link for all connections, and with one for each.
fn in_every_mode(service: SocketAddr, client: impl Fn(SocketAddr)) {
    let shared = through(|| Setup::new(service), service, &client);
    let own = through(|| Setup::new(service).per_connection(), service, &client);
    println!("{shared} links for all connections, {own} where each has its own");
    assert!(own >= 10.0 || direct(), "{own} links: connections shared them");
}

fn direct() -> bool {
    std::env::var_os("SIDEBEAT_DIRECT").is_some()
}

/// Gives how many links it took.
fn through(setup: impl Fn() -> Setup, service: SocketAddr, client: impl Fn(SocketAddr)) -> f64 {
    if direct() {
        client(service);
        return 0.0;
    }
    let pair = setup().start();
    client(pair.addr);
    // Workers hand their counts over now and then.
    eventually(Duration::from_secs(5), "the link carried it", || {
        let data = pair.near.metric("sidebeat_frames_total", &[("direction", "out"), ("kind", "data")]);
        if data.is_some_and(|n| n > 0.0) { Ok(()) } else { Err(format!("data frames: {data:?}")) }
    });
    let made = [("direction", "in"), ("result", "ok")];
    let links = pair.far().metric("sidebeat_handshakes_total", &made).unwrap_or(0.0);
    pair.finish();

    let alone = setup().without_far().start();
    client(alone.addr);
    alone.finish();
    links
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

/// The one that Debian's packages of modules belong to.
const PYTHON: &str = "/usr/bin/python3";

fn python(name: &str) -> Command {
    let mut command = command(PYTHON, None);
    command.arg(script(name));
    command
}

/// False, and a notice, unless Debian's Python has that module.
fn have_module(name: &str) -> bool {
    if !have(&[PYTHON]) {
        return false;
    }
    let mut import = command(PYTHON, None);
    import.args(["-c", &format!("import {name}")]);
    let there = finish(&mut import, Duration::from_secs(30)).status.success();
    if !there {
        skip(&format!("missing: Debian's python3-{name}"));
    }
    there
}

const FAIL: [&str; 4] = ["-sS", "--fail", "--max-time", "30"];

#[test]
fn curl_and_wrk_against_nginx() {
    if !have(&["nginx", "curl", "wrk"]) {
        return;
    }
    let nginx = nginx();
    in_every_mode(nginx.addr(), |addr| {
        let got = nginx.dir.join("got");
        let url = format!("http://{addr}");
        assert_eq!(run(command("curl", None).args(FAIL).arg(&url)), "hello");
        run(command("curl", None).args(FAIL).arg("-o").arg(&got).arg(format!("{url}/big")));
        assert!(
            std::fs::read(&got).unwrap() == std::fs::read(nginx.dir.join("big")).unwrap(),
            "download differs"
        );
        let upload = format!("@{}", got.display());
        run(command("curl", None).args(FAIL).args(["--data-binary", &upload]).arg(format!("{url}/put")));
        let report = run(command("wrk", None).args(["-t1", "-c32", "-d2s"]).arg(&url));
        assert!(report.contains("Requests/sec"), "{report}");
        assert!(!report.contains("Socket errors") && !report.contains("Non-2xx"), "{report}");
    });
}

fn redis_benchmark(addr: SocketAddr, more: &[&str]) {
    let mut bench = command("redis-benchmark", None);
    bench
        .args(["-h", "127.0.0.1", "-p", &addr.port().to_string(), "--csv", "-t", "set,get,lrange_300"])
        .args(more);
    let report = run(&mut bench);
    assert!(report.contains("\"SET\"") && report.contains("\"GET\""), "{report}");
}

#[test]
fn redis_benchmark_against_redis() {
    if !have(&["redis-server", "redis-benchmark", "redis-cli"]) {
        return;
    }
    let redis = redis();
    in_every_mode(redis.addr(), |addr| {
        redis_benchmark(addr, &["-n", "5000", "-c", "20"]);
        redis_benchmark(addr, &["-n", "30000", "-c", "20", "-P", "16"]);
        let mut cli = command("redis-cli", None);
        let pong = run(cli.args(["-h", "127.0.0.1", "-p", &addr.port().to_string(), "PING"]));
        assert_eq!(pong.trim(), "PONG");
    });
}

#[test]
fn psql_and_pgbench_against_postgresql() {
    if !have(&["initdb", "postgres", "psql", "pgbench"]) {
        return;
    }
    let postgres = postgres();
    in_every_mode(postgres.addr(), |addr| {
        let (port, user) = (addr.port().to_string(), ["-h", "127.0.0.1", "-U", "postgres", "-p"]);
        // Starting up still refuses with a message of its own for a moment.
        let psql = |sql: &str| {
            let mut psql = command("psql", None);
            psql.args(user).arg(&port).args(["-X", "-At", "-c", sql, "postgres"]);
            finish(&mut psql, Duration::from_secs(30))
        };
        eventually(Duration::from_secs(20), "psql connects", || match psql("select 1") {
            out if out.status.success() => Ok(()),
            out => Err(String::from_utf8_lossy(&out.stderr).into_owned()),
        });
        let sum =
            psql("select sum(length(x)) from (select repeat('x', 1000) x from generate_series(1, 20000)) s");
        assert_eq!(String::from_utf8_lossy(&sum.stdout).trim(), "20000000");
        let rows = psql("select repeat(md5(n::text), 10) from generate_series(1, 20000) n");
        assert_eq!(String::from_utf8_lossy(&rows.stdout).lines().count(), 20_000);
        let from = psql("select inet_client_addr()");
        println!("the service sees {}", String::from_utf8_lossy(&from.stdout).trim());
        run(command("pgbench", None).args(user).arg(&port).args(["-i", "-s", "1", "-q", "postgres"]));
        let report = run(command("pgbench", None)
            .args(user)
            .arg(&port)
            .args(["-c", "4", "-T", "2", "-n", "postgres"]));
        assert!(report.contains("number of failed transactions: 0 "), "{report}");
    });
}

#[test]
fn mariadb_client_against_mariadb_which_speaks_first() {
    if !have(&["mariadb-install-db", "mariadbd", "mariadb"]) {
        return;
    }
    let mariadb = mariadb();
    with_and_without_far(mariadb.addr(), |addr| {
        let ask = |sql: &str| {
            let mut client = command("mariadb", None);
            client.args([
                "--no-defaults",
                "--protocol=tcp",
                "-h",
                "127.0.0.1",
                "-u",
                "root",
                "-N",
                "-B",
                "mysql",
            ]);
            run(client.arg("-P").arg(addr.port().to_string()).args(["-e", sql]))
        };
        assert_eq!(ask("select 6 * 7").trim(), "42");
        assert_eq!(ask("select repeat('x', 1000) from seq_1_to_20000").lines().count(), 20_000);
        for n in 0..20 {
            assert_eq!(ask(&format!("select {n}")).trim(), n.to_string());
        }
    });
}

/// aiosmtpd as it is; curl and Python's smtplib send.
#[test]
fn smtp_which_speaks_first() {
    if !have(&["curl"]) || !have_module("aiosmtpd") {
        return;
    }
    let port = Port::pick();
    let mut start = command(PYTHON, None);
    start.args(["-u", "-m", "aiosmtpd", "-n", "-l", &port.addr().to_string()]);
    // It prints each mail that it took.
    start.args(["-c", "aiosmtpd.handlers.Debugging", "stdout"]);
    let smtp = Running::start(&mut start, port, TempDir::new());
    let mail = smtp.dir.join("mail");
    let lines: String = (0..20_000).map(|n| format!("line {n}\r\n")).collect();
    std::fs::write(&mail, format!("Subject: test\r\n\r\n{lines}")).unwrap();
    let taken = || smtp.process.log().lines().filter(|l| l.trim_end() == "line 19999").count();
    with_and_without_far(smtp.addr(), |addr| {
        let before = taken();
        let mut curl = command("curl", None);
        curl.args(FAIL).arg(format!("smtp://{addr}/test")).arg("--upload-file").arg(&mail);
        run(curl.args(["--mail-from", "a@example.org", "--mail-rcpt", "b@example.org"]));
        assert_eq!(run(python("smtp.py").arg(addr.port().to_string()).arg(&mail)).trim(), "sent");
        eventually(Duration::from_secs(10), "both mails are there, to their last lines", || match taken() {
            n if n == before + 2 => Ok(()),
            n => Err(format!("{} of 2", n - before)),
        });
    });
}

/// The server is Debian's python3-websockets; so is one client, the other one speaks RFC 6455 over a raw socket.
#[test]
fn websocket_echo() {
    if !have_module("websockets") {
        return;
    }
    let port = Port::pick();
    let mut start = python("ws_library.py");
    start.arg("serve").arg(port.number.to_string());
    let echo = Running::start(&mut start, port, TempDir::new());
    with_and_without_far(echo.addr(), |addr| {
        let port = addr.port().to_string();
        assert_eq!(run(python("ws.py").arg(&port)).trim(), "echoed 303");
        assert_eq!(run(python("ws_library.py").arg("ask").arg(&port)).trim(), "echoed 303");
    });
}

fn iperf_bytes(addr: SocketAddr, more: &[&str]) -> f64 {
    let mut client = command("iperf3", None);
    client.args(["-J", "-t", "1", "-c", "127.0.0.1", "-p", &addr.port().to_string()]).args(more);
    let report = run(&mut client);
    let json: serde_json::Value = serde_json::from_str(&report).unwrap();
    json["end"]["sum_received"]["bytes"].as_f64().unwrap_or(0.0)
}

#[test]
fn iperf3_both_ways() {
    if !have(&["iperf3"]) {
        return;
    }
    let port = Port::pick();
    let mut start = command("iperf3", None);
    start.args(["-s", "-B", "127.0.0.1", "-p", &port.number.to_string()]);
    let server = Running::start(&mut start, port, TempDir::new());
    with_and_without_far(server.addr(), |addr| {
        for way in [&[][..], &["-R"], &["-P", "4"]] {
            let bytes = iperf_bytes(addr, way);
            println!("iperf3 {way:?}: {:.0} MB", bytes / 1e6);
            assert!(bytes > 10e6, "iperf3 {way:?} moved {bytes} bytes");
        }
    });
}

/// The sidecar beside the service dies, the service lives: with `link = "auto"` clients go on in plain.
fn goes_on_without_its_sidecar(service: SocketAddr, client: impl Fn(SocketAddr)) {
    let mut pair = Setup::new(service).start();
    client(pair.addr);
    pair.far.as_mut().unwrap().kill();
    eventually(Duration::from_secs(10), "the near sidecar goes on in plain", || {
        let plain = pair.near.metric("sidebeat_upstream_link_mode", &[("mode", "plain")]);
        if plain == Some(1.0) { Ok(()) } else { Err(pair.near.status()) }
    });
    client(pair.addr);
    let failed = pair.near.metric("sidebeat_upstream_state", &[("state", "failed")]);
    assert_eq!(failed, Some(0.0), "the service lives: {}", pair.near.status());
    let status: serde_json::Value = serde_json::from_str(&pair.near.status()).unwrap();
    assert_eq!(status["upstreams"][0]["endpoints"][0]["cause"], "sidecar_lost", "{status}");
}

#[test]
fn a_killed_far_sidecar_does_not_take_redis_along() {
    if !have(&["redis-server", "redis-benchmark"]) {
        return;
    }
    let redis = redis();
    goes_on_without_its_sidecar(redis.addr(), |addr| redis_benchmark(addr, &["-n", "2000", "-c", "10"]));
}

#[test]
fn a_killed_far_sidecar_does_not_take_nginx_along() {
    if !have(&["nginx", "curl"]) {
        return;
    }
    let nginx = nginx();
    goes_on_without_its_sidecar(nginx.addr(), |addr| {
        for _ in 0..20 {
            assert_eq!(run(command("curl", None).args(FAIL).arg(format!("http://{addr}"))), "hello");
        }
        let size = ["-o", "/dev/null", "-w", "%{size_download}"];
        let got = run(command("curl", None).args(FAIL).args(size).arg(format!("http://{addr}/big")));
        assert_eq!(got, servers::BIG_FILE.to_string());
    });
}
