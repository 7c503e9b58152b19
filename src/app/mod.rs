//! Wiring only: configuration to parameters, threads, listeners, signals, the order of the end. The one place that
//! knows every stage; no judgement lives here.
//!
//! Threads: one per worker (listeners, links, streams, judgement) and this one (admin port, signals).

mod control;
mod data;
mod generation;
mod loads;
mod params;
mod probes;
mod report;
mod stop;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use crate::admin;
use crate::admin::events::EventLog;
use crate::admin::hook::Hook;
use crate::config::Config;
use crate::metrics::{BuildInfo, Metrics};
use crate::proxy::accept;
use crate::trace;
use control::App;
use generation::{Generation, Process};

/// Why the sidecar could not start or stopped by itself.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A listener could not be made.
    #[error("cannot listen on {addr} ({what}): {source}{}", listen_hint(what, source))]
    Listen {
        /// Where.
        addr: SocketAddr,
        /// For whom.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// A thread or runtime could not be made.
    #[error("cannot start: {0}")]
    Start(#[from] io::Error),
    /// Nothing can be recorded.
    #[error("{0}")]
    Trace(#[from] trace::TraceError),
    /// The hook's socket could not be made.
    #[error("maintenance.socket: {0}")]
    Hook(String),
    /// A worker thread panicked.
    #[error("a worker stopped by a defect; see the log")]
    Worker,
}

fn listen_hint(what: &str, e: &io::Error) -> &'static str {
    match (e.kind(), what) {
        (io::ErrorKind::AddrInUse, "admin") => {
            "; a second sidecar on this machine? Give it an `[admin] listen` of its own (SIDEBEAT__ADMIN__LISTEN)"
        }
        (io::ErrorKind::AddrInUse, _) => "; another program, or another sidecar, listens there",
        (io::ErrorKind::PermissionDenied, _) => "; ports below 1024 need CAP_NET_BIND_SERVICE",
        (io::ErrorKind::AddrNotAvailable, _) => "; this machine has no such address",
        _ => "",
    }
}

/// How the program changes its log level.
pub type SetLevel = Box<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// What the command line gives the running program.
pub struct Hooks {
    /// Changes the log level.
    pub set_level: SetLevel,
    /// Reads and validates the configuration again; the error is for people.
    pub load: Box<dyn Fn() -> Result<Config, String> + Send + Sync>,
}

/// Runs the sidecar until it is told to stop.
///
/// # Errors
/// It could not start, or a worker died.
pub fn run(config: Config, hooks: Hooks) -> Result<(), RunError> {
    raise_file_limit(&config);
    keep_code();
    let process = Process {
        seed: random_seed()?,
        recordings: Default::default(),
        metrics: Metrics::new(BuildInfo::current()),
        events: EventLog::new(),
    };
    let admin_listener = listen(config.admin.listen, "admin")?;
    let public = config.admin.public.map(|a| listen(a, "admin.public")).transpose()?;
    let hook = bind_hook(&config)?;
    let first = Generation::start(config, &process, None)?;
    let app = Arc::new(App::new(process, first, hooks));
    log_start(&app, &admin_listener, public.as_ref());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        probes::start(&app.current());
        if let Some(hook) = hook {
            tokio::spawn(serve_hook(hook, app.clone()));
        }
        stop::until_stopped(app.clone(), admin_listener, public).await
    });
    app.stop_workers()?;
    result
}

fn listen(addr: SocketAddr, what: &str) -> Result<TcpListener, RunError> {
    accept::listen(addr).map_err(|source| RunError::Listen { addr, what: what.to_owned(), source })
}

fn bind_hook(config: &Config) -> Result<Option<Hook>, RunError> {
    let m = &config.maintenance;
    m.socket.as_deref().map(|path| Hook::bind(path, m.mode)).transpose().map_err(RunError::Hook)
}

/// Until the runtime goes; the file goes with it.
async fn serve_hook(hook: Hook, app: Arc<App>) {
    tracing::info!(path = %hook.path().display(), "takes hooks");
    if let Err(e) = hook.serve(app).await {
        tracing::error!(error = %e, "no hooks are taken");
    }
}

fn random_seed() -> io::Result<u64> {
    let mut b = [0u8; 8];
    rustix::rand::getrandom(&mut b[..], rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(b))
}

/// Code that runs seldom is needed when somebody has died.
fn keep_code() {
    match crate::sys::memory::keep_code() {
        Ok(bytes) => tracing::debug!(bytes, "the program's code is locked in memory"),
        Err(e) => tracing::info!(error = %e,
            "the program's code may be paged out, and beats may wait for the disk: raise the limit of locked memory (ulimit -l)"),
    }
}

/// Two descriptors per connection, and some for links, logs and /proc.
fn raise_file_limit(config: &Config) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let want = config.limits.connections as u64 * 2 + 1024;
    let have = getrlimit(Resource::Nofile);
    let most = have.maximum.unwrap_or(u64::MAX);
    let new = Rlimit { current: Some(want.max(have.current.unwrap_or(0)).min(most)), maximum: have.maximum };
    if let Err(e) = setrlimit(Resource::Nofile, new) {
        tracing::warn!(error = %e, "the limit of open files could not be raised");
    }
}

fn log_start(app: &App, admin: &TcpListener, public: Option<&TcpListener>) {
    let at = |l: &TcpListener| l.local_addr().map(|a| a.to_string()).unwrap_or_default();
    let first = app.current();
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        node = first.config.node.id,
        incarnation = format!("{:016x}", first.shared.common.incarnation),
        workers = first.config.node.workers,
        admin = at(admin),
        public = public.map(at),
        "sidebeat runs"
    );
    for (what, addr) in first.shared.addresses() {
        tracing::info!(listener = what, addr = %addr, "listens");
    }
}

/// Serves the admin port until `done`.
async fn serve_admin(
    app: Arc<App>,
    admin: TcpListener,
    public: Option<TcpListener>,
    done: impl Future<Output = ()>,
) {
    let main = tokio::net::TcpListener::from_std(admin);
    let public = public.map(tokio::net::TcpListener::from_std).transpose();
    match (main, public) {
        (Ok(main), Ok(public)) => {
            admin::serve(
                main,
                public,
                app.clone(),
                app.process.metrics.clone(),
                app.process.events.clone(),
                done,
            )
            .await;
        }
        (Err(e), _) | (_, Err(e)) => {
            tracing::error!(error = %e, "no admin port");
            done.await;
        }
    }
}
