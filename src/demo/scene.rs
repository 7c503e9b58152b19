//! The scene: services, each behind its own sidecar, and the client's sidecar; all of them real processes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::args::Args;
use super::child::{Program, Running};
use super::net::Net;
use super::quota::{Group, Throttled};
use super::{config, events, http};
use crate::clock;

/// Everything must be up within this.
const START_LIMIT: Duration = Duration::from_secs(15);
/// A link that was refused once is tried again after up to 30 s.
const LINK_LIMIT: Duration = Duration::from_secs(45);

/// One service and its sidecar.
#[derive(Debug)]
pub struct Pod {
    /// "orders-1".
    pub name: String,
    /// The service as the client's sidecar knows it; also its name in events.
    pub endpoint: SocketAddr,
    /// Port where the sidecar takes links.
    pub link_port: u16,
    /// The sidecar's admin server, inside `netns`.
    pub admin: SocketAddr,
    /// Network namespace; None on loopback.
    pub netns: Option<PathBuf>,
    /// The service; None while it is down.
    pub service: RefCell<Option<Running>>,
    /// The sidecar; None while it is down.
    pub sidecar: RefCell<Option<Running>>,
}

/// All processes of the demo.
#[derive(Debug)]
pub struct Scene {
    /// Services, in order.
    pub pods: Vec<Pod>,
    /// The client's sidecar.
    pub client: RefCell<Option<Running>>,
    /// Where the client's sidecar listens.
    pub listen: SocketAddr,
    /// Its admin server.
    pub admin: SocketAddr,
    /// The network, where it can be cut.
    pub net: RefCell<Option<Net>>,
    /// The sidecars can see their services' processes.
    pub pid_seen: bool,
    program: Program,
    dir: TempDir,
    unshare_pid: Option<Vec<&'static str>>,
    /// Control groups of the sidecars by name, below the processes: they go when those are gone.
    quotas: BTreeMap<String, Group>,
}

impl Scene {
    /// Starts all processes and waits until they are ready. `notes` gets lines about what could not be had.
    pub async fn start(
        args: &Args,
        net: Option<Net>,
        program: Program,
        notes: &mut Vec<String>,
    ) -> io::Result<Scene> {
        let dir = TempDir::new()?;
        let unshare_pid = match args.no_pid {
            true => pid_namespace()
                .inspect_err(|e| notes.push(format!("--no-pid is not possible here: {e}")))
                .ok(),
            false => None,
        };
        let pods: Vec<Pod> =
            (0..usize::from(args.services)).map(|i| Pod::new(i, net.as_ref())).collect::<io::Result<_>>()?;
        let quotas = quotas(args, &pods)
            .inspect_err(|e| notes.push(format!("--cpu-quota is not possible here: {e}")))
            .unwrap_or_default();
        let scene = Scene {
            pods,
            client: RefCell::new(None),
            listen: free_port(Ipv4Addr::LOCALHOST)?,
            admin: free_port(Ipv4Addr::LOCALHOST)?,
            net: RefCell::new(net),
            pid_seen: unshare_pid.is_none(),
            program,
            dir,
            unshare_pid,
            quotas,
        };
        scene.write_configs(args)?;
        for i in 0..scene.pods.len() {
            scene.start_service(i)?;
            scene.start_sidecar(i).await?;
        }
        // A client's sidecar that finds no link port remembers that for half a minute.
        let deadline = clock::now() + START_LIMIT;
        for pod in &scene.pods {
            scene.until(&pod.name, pod.netns.as_deref(), pod.admin, deadline, &pod.sidecar).await?;
        }
        let client = scene.program.command(None, &["", "run", "-c", &scene.config_path("client")]);
        let client = scene.spawn(client, "client")?;
        scene.limit("client", &client)?;
        scene.client.replace(Some(client));
        scene.until_linked().await?;
        Ok(scene)
    }

    fn write_configs(&self, args: &Args) -> io::Result<()> {
        for pod in &self.pods {
            std::fs::write(self.config_path(&pod.name), config::of_pod(pod, args))?;
        }
        std::fs::write(
            self.config_path("client"),
            config::of_client(self.listen, self.admin, &self.pods, args),
        )
    }

    fn config_path(&self, name: &str) -> String {
        self.dir.0.join(format!("{name}.toml")).display().to_string()
    }

    fn spawn(&self, mut command: Command, name: &str) -> io::Result<Running> {
        let log = File::options().create(true).append(true).open(self.dir.0.join(format!("{name}.log")))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Running::start(command)
    }

    /// Starts the service of pod `i`.
    pub fn start_service(&self, i: usize) -> io::Result<()> {
        let pod = &self.pods[i];
        let host = match pod.netns {
            Some(_) => Ipv4Addr::UNSPECIFIED.into(),
            None => pod.ip(),
        };
        let listen = SocketAddr::new(host, pod.endpoint.port()).to_string();
        let argv = ["", "demo-service", "--listen", &listen, "--name", &pod.name];
        let command = self.program.command(pod.netns.as_deref(), &argv);
        pod.service.replace(Some(self.spawn(command, &format!("{}-service", pod.name))?));
        Ok(())
    }

    /// Starts the sidecar of pod `i`.
    pub async fn start_sidecar(&self, i: usize) -> io::Result<()> {
        let pod = &self.pods[i];
        let path = self.config_path(&pod.name);
        let mut argv = self.unshare_pid.clone().unwrap_or_default();
        argv.extend(["", "run", "-c", &path]);
        let mut sidecar = self.spawn(self.program.command(pod.netns.as_deref(), &argv), &pod.name)?;
        if self.unshare_pid.is_some() {
            // The child is `unshare`; the sidecar is what it forks.
            sidecar.follow_fork(Duration::from_secs(5)).await?;
        }
        self.limit(&pod.name, &sidecar)?;
        pod.sidecar.replace(Some(sidecar));
        Ok(())
    }

    fn limit(&self, name: &str, sidecar: &Running) -> io::Result<()> {
        self.quotas.get(name).map_or(Ok(()), |group| group.add(sidecar.target()))
    }

    /// What the quotas did to the sidecars.
    pub fn throttled(&self) -> BTreeMap<String, Throttled> {
        self.quotas.iter().map(|(name, group)| (name.clone(), group.throttled())).collect()
    }

    async fn until_linked(&self) -> io::Result<()> {
        let deadline = clock::now() + LINK_LIMIT;
        self.until("client", None, self.admin, deadline, &self.client).await?;
        loop {
            let rows = events::status(self.admin, config::UPSTREAM).await.map_err(io::Error::other)?;
            let up = rows.iter().filter(|r| r.state == "active" && r.link == "framed").count();
            if up == self.pods.len() {
                return Ok(());
            }
            if clock::now() >= deadline {
                return Err(io::Error::other(format!("only {up} links are up\n{}", self.log_tail("client"))));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn until(
        &self,
        name: &str,
        netns: Option<&Path>,
        admin: SocketAddr,
        deadline: crate::stamp::Stamp,
        process: &RefCell<Option<Running>>,
    ) -> io::Result<()> {
        loop {
            let asked = http::ask(netns, admin, "GET", "/ready", Duration::from_millis(500)).await;
            let why = match asked {
                Ok((200, _)) => return Ok(()),
                Ok((code, body)) => format!("{code} {}", String::from_utf8_lossy(&body).trim()),
                Err(e) => e,
            };
            let alive = process.borrow_mut().as_mut().is_some_and(Running::alive);
            if !alive || clock::now() >= deadline {
                let what = if alive { "is not ready" } else { "has ended" };
                return Err(io::Error::other(format!(
                    "{name}'s sidecar {what}: {why}\n{}",
                    self.log_tail(name)
                )));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The last lines a process wrote.
    pub fn log_tail(&self, name: &str) -> String {
        let text = std::fs::read(self.dir.0.join(format!("{name}.log"))).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }
}

impl Pod {
    fn new(i: usize, net: Option<&Net>) -> io::Result<Pod> {
        let (endpoint, link_port, admin, netns) = match net {
            Some(net) => {
                let admin = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 7421);
                (SocketAddr::new(net.address(i), 8080), 7420, admin, Some(net.pod(i)))
            }
            None => {
                // Pods have addresses of their own; all of 127/8 is loopback.
                let ip = Ipv4Addr::new(127, 0, 1, i as u8 + 1);
                (free_port(ip)?, free_port(ip)?.port(), free_port(Ipv4Addr::LOCALHOST)?, None)
            }
        };
        let (service, sidecar) = (RefCell::new(None), RefCell::new(None));
        Ok(Pod { name: format!("orders-{}", i + 1), endpoint, link_port, admin, netns, service, sidecar })
    }

    /// IP address of the pod.
    pub fn ip(&self) -> IpAddr {
        self.endpoint.ip()
    }
}

/// A port of a loopback address that was free a moment ago, below the range that outgoing connections are given.
fn free_port(ip: Ipv4Addr) -> io::Result<SocketAddr> {
    use std::sync::atomic::{AtomicU16, Ordering};
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Processes start at different places, and one process never gives a port twice.
    let start = (std::process::id() % 1200) as u16 * 16;
    for _ in 0..4096 {
        let port = 12_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        let at = SocketAddr::new(ip.into(), port);
        if TcpListener::bind(at).is_ok() {
            return Ok(at);
        }
    }
    Err(io::Error::other("no free port on loopback"))
}

/// A control group for each sidecar, if a quota is wanted.
fn quotas(args: &Args, pods: &[Pod]) -> io::Result<BTreeMap<String, Group>> {
    let Some(percent) = args.cpu_quota else { return Ok(BTreeMap::new()) };
    let names = pods.iter().map(|p| p.name.as_str()).chain(["client"]);
    let group = |name: &str| {
        let group = Group::new(&format!("sidebeat-demo-{}-{name}", std::process::id()), percent)?;
        Ok((name.to_owned(), group))
    };
    names.map(group).collect()
}

/// How to run a program in a PID namespace of its own here.
fn pid_namespace() -> Result<Vec<&'static str>, String> {
    let ways: [&[&str]; 2] = [&["-pf"], &["-Urpf"]];
    let mut last = String::new();
    for way in ways {
        let argv = [&["unshare"], way, &["--kill-child", "--mount-proc"]].concat();
        match Command::new(argv[0]).args(&argv[1..]).arg("true").output() {
            Ok(out) if out.status.success() => return Ok(argv),
            Ok(out) => last = String::from_utf8_lossy(&out.stderr).trim().to_owned(),
            Err(e) => return Err(format!("unshare (util-linux): {e}")),
        }
    }
    Err(last)
}

#[derive(Debug)]
struct TempDir(PathBuf);

impl TempDir {
    fn new() -> io::Result<TempDir> {
        let name = format!("sidebeat-demo-{}-{:x}", std::process::id(), clock::now().as_nanos());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path)?;
        Ok(TempDir(path))
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_differ() {
        let mut ports: Vec<_> = (0..32).map(|_| free_port(Ipv4Addr::LOCALHOST).unwrap().port()).collect();
        ports.sort();
        ports.dedup();
        assert_eq!(ports.len(), 32);
    }

    #[test]
    fn pods_on_loopback_are_apart() {
        let (a, b) = (Pod::new(0, None).unwrap(), Pod::new(1, None).unwrap());
        assert_eq!((a.name.as_str(), b.name.as_str()), ("orders-1", "orders-2"));
        assert_ne!(a.endpoint, b.endpoint);
        assert!(a.ip().is_loopback());
    }
}
