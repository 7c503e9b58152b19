//! Servers of the real-program tests: each on a port and in a folder of its own, ended with its value.

use std::net::SocketAddr;
use std::process::Command;

use crate::support::child::{Process, command, root, run};
use crate::support::{Port, TempDir};

/// A started service: its folder, its process, its port.
pub(crate) struct Running {
    pub(crate) process: Process,
    port: Port,
    pub(crate) dir: TempDir,
}

impl Running {
    pub(crate) fn start(command: &mut Command, port: Port, dir: TempDir) -> Running {
        let mut process = Process::start(command, &dir.join("service.log"));
        process.wait_port(port.addr());
        Running { process, port, dir }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.port.addr()
    }
}

/// Length of `/big` on nginx.
pub(crate) const BIG_FILE: usize = 20 << 20;

pub(crate) fn nginx() -> Running {
    let (dir, port) = (TempDir::new(), Port::pick());
    std::fs::write(dir.join("big"), crate::support::rng::Rng::new(1).bytes(BIG_FILE)).unwrap();
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

pub(crate) fn redis() -> Running {
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

/// A cluster of its own, run by an unprivileged user: PostgreSQL refuses root.
pub(crate) fn postgres() -> Running {
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

/// The server speaks first.
pub(crate) fn mariadb() -> Running {
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
