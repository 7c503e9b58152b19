//! Real programs, unmodified, through a pair of sidecars, and through one sidecar alone where the far side has none.
//! Every program runs for a second or two on loopback, in a folder of its own, and ends with its test.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod support;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use support::child::{Process, command, finish, root, run};
use support::pair::Setup;
use support::{Port, TempDir, eventually, have};

/// Runs `client` against `service` through a pair whose link is up, and then with no sidecar on the far side.
/// `SIDEBEAT_DIRECT=1` leaves the sidecars out: what fails then is not their fault.
fn with_and_without_far(service: SocketAddr, client: impl Fn(SocketAddr)) {
    if std::env::var_os("SIDEBEAT_DIRECT").is_some() {
        return client(service);
    }
    let pair = Setup::new(service).start();
    client(pair.addr);
    // Workers hand their counts over now and then.
    eventually(Duration::from_secs(5), "the link carried it", || {
        let data = pair.near.metric("sidebeat_frames_total", &[("direction", "out"), ("kind", "data")]);
        if data.is_some_and(|n| n > 0.0) { Ok(()) } else { Err(format!("data frames: {data:?}")) }
    });
    pair.finish();

    let alone = Setup::new(service).without_far().start();
    client(alone.addr);
    alone.finish();
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

fn python(name: &str) -> Command {
    let mut command = command("python3", None);
    command.arg(script(name));
    command
}

/// A started service: its folder, its process, its port.
struct Running {
    process: Process,
    port: Port,
    dir: TempDir,
}

impl Running {
    fn start(command: &mut Command, port: Port, dir: TempDir) -> Running {
        let mut process = Process::start(command, &dir.join("service.log"));
        process.wait_port(port.addr());
        Running { process, port, dir }
    }

    fn addr(&self) -> SocketAddr {
        self.port.addr()
    }
}

const BIG_FILE: usize = 20 << 20;

fn nginx() -> Running {
    let (dir, port) = (TempDir::new(), Port::pick());
    std::fs::write(dir.join("big"), support::rng::Rng::new(1).bytes(BIG_FILE)).unwrap();
    let at = dir.path().display();
    let paths: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|p| format!("{p}_temp_path {at}/{p};\n"))
        .collect();
    let conf = format!(
        "daemon off;\nmaster_process off;\npid {at}/pid;\nerror_log stderr;\nevents {{ worker_connections 512; }}\n\
         http {{ access_log off; {paths} keepalive_requests 1000000; client_max_body_size 64m;\n\
         server {{ listen {}; root {at}; location = / {{ return 200 'hello'; }} \
         location = /put {{ proxy_pass http://{}/sink; }} location = /sink {{ return 204; }} }} }}\n",
        port.addr(),
        port.addr()
    );
    std::fs::write(dir.join("nginx.conf"), conf).unwrap();
    let mut start = command("nginx", None);
    start.arg("-p").arg(dir.path()).arg("-c").arg(dir.join("nginx.conf")).args(["-e", "stderr"]);
    Running::start(&mut start, port, dir)
}

#[test]
fn curl_and_wrk_against_nginx() {
    if !have(&["nginx", "curl", "wrk"]) {
        return;
    }
    let nginx = nginx();
    with_and_without_far(nginx.addr(), |addr| {
        let got = nginx.dir.join("got");
        let url = format!("http://{addr}");
        let fail = ["-sS", "--fail", "--max-time", "30"];
        assert_eq!(run(command("curl", None).args(fail).arg(&url)), "hello");
        run(command("curl", None).args(fail).arg("-o").arg(&got).arg(format!("{url}/big")));
        assert!(
            std::fs::read(&got).unwrap() == std::fs::read(nginx.dir.join("big")).unwrap(),
            "download differs"
        );
        let upload = format!("@{}", got.display());
        run(command("curl", None).args(fail).args(["--data-binary", &upload]).arg(format!("{url}/put")));
        let report = run(command("wrk", None).args(["-t1", "-c32", "-d2s"]).arg(&url));
        assert!(report.contains("Requests/sec"), "{report}");
        assert!(!report.contains("Socket errors") && !report.contains("Non-2xx"), "{report}");
    });
}

fn redis() -> Running {
    let (dir, port) = (TempDir::new(), Port::pick());
    let mut start = command("redis-server", None);
    start.args([
        "--bind",
        "127.0.0.1",
        "--protected-mode",
        "no",
        "--save",
        "",
        "--appendonly",
        "no",
        "--port",
        &port.number.to_string(),
    ]);
    start.arg("--dir").arg(dir.path());
    Running::start(&mut start, port, dir)
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
    with_and_without_far(redis.addr(), |addr| {
        redis_benchmark(addr, &["-n", "5000", "-c", "20"]);
        redis_benchmark(addr, &["-n", "30000", "-c", "20", "-P", "16"]);
        let mut cli = command("redis-cli", None);
        let pong = run(cli.args(["-h", "127.0.0.1", "-p", &addr.port().to_string(), "PING"]));
        assert_eq!(pong.trim(), "PONG");
    });
}

/// A cluster of its own, run by an unprivileged user: PostgreSQL refuses root.
fn postgres() -> Running {
    let (dir, port) = (TempDir::new(), Port::pick());
    let user = Some("postgres");
    let data = dir.join("data");
    std::fs::create_dir(&data).unwrap();
    if root() {
        run(command("chown", None).args(["-R", "postgres:postgres"]).arg(dir.path()));
    }
    let mut init = command("initdb", user);
    run(init.arg("-D").arg(&data).args([
        "-U",
        "postgres",
        "-A",
        "trust",
        "--no-sync",
        "--locale=C",
        "-E",
        "UTF8",
    ]));
    // The far sidecar connects from 127.0.0.6, which "127.0.0.1/32 trust" does not cover, on purpose.
    std::fs::write(data.join("pg_hba.conf"), "local all all trust\nhost all all 127.0.0.0/8 trust\n")
        .unwrap();
    let mut start = command("postgres", user);
    start.arg("-D").arg(&data).arg("-k").arg(dir.path());
    start.args([
        "-h",
        "127.0.0.1",
        "-p",
        &port.number.to_string(),
        "-c",
        "fsync=off",
        "-c",
        "shared_buffers=16MB",
    ]);
    Running::start(&mut start, port, dir)
}

#[test]
fn psql_and_pgbench_against_postgresql() {
    if !have(&["initdb", "postgres", "psql", "pgbench"]) {
        return;
    }
    let postgres = postgres();
    with_and_without_far(postgres.addr(), |addr| {
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

/// The server speaks first.
fn mariadb() -> Running {
    let (dir, port) = (TempDir::new(), Port::pick());
    let user = root().then_some("--user=root");
    let data = format!("--datadir={}", dir.join("data").display());
    let mut install = command("mariadb-install-db", None);
    install
        .args(["--no-defaults", "--skip-test-db", "--auth-root-authentication-method=normal", &data])
        .args(user);
    run(&mut install);
    let mut start = command("mariadbd", None);
    start.args([
        "--no-defaults",
        &data,
        "--bind-address=127.0.0.1",
        "--skip-grant-tables",
        "--skip-name-resolve",
    ]);
    start
        .args(user)
        .arg(format!("--port={}", port.number))
        .arg(format!("--socket={}", dir.join("s").display()));
    start.args([
        "--innodb-flush-log-at-trx-commit=0",
        "--innodb-log-file-size=8M",
        "--innodb-buffer-pool-size=16M",
    ]);
    Running::start(&mut start, port, dir)
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

#[test]
fn smtp_which_speaks_first() {
    if !have(&["python3"]) {
        return;
    }
    let port = Port::pick();
    let mut start = python("smtp.py");
    start.arg(port.number.to_string());
    let smtp = Running::start(&mut start, port, TempDir::new());
    with_and_without_far(smtp.addr(), |addr| {
        assert_eq!(run(python("smtp.py").arg("send").arg(addr.port().to_string())).trim(), "sent");
    });
}

#[test]
fn websocket_echo() {
    if !have(&["python3"]) {
        return;
    }
    let port = Port::pick();
    let mut start = python("ws.py");
    start.arg("serve").arg(port.number.to_string());
    let echo = Running::start(&mut start, port, TempDir::new());
    with_and_without_far(echo.addr(), |addr| {
        assert_eq!(run(python("ws.py").arg("ask").arg(addr.port().to_string())).trim(), "echoed 303");
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
#[test]
fn a_killed_far_sidecar_does_not_take_its_service_along() {
    if !have(&["redis-server", "redis-benchmark"]) {
        return;
    }
    let redis = redis();
    let mut pair = Setup::new(redis.addr()).start();
    redis_benchmark(pair.addr, &["-n", "2000", "-c", "10"]);
    pair.far.as_mut().unwrap().kill();
    eventually(Duration::from_secs(10), "the near sidecar goes on in plain", || {
        let plain = pair.near.metric("sidebeat_upstream_link_mode", &[("mode", "plain")]);
        if plain == Some(1.0) { Ok(()) } else { Err(pair.near.status()) }
    });
    redis_benchmark(pair.addr, &["-n", "2000", "-c", "10"]);
    let failed = pair.near.metric("sidebeat_upstream_state", &[("state", "failed")]);
    assert_eq!(failed, Some(0.0), "the service lives: {}", pair.near.status());
    drop(redis.process);
}
