//! One function per command.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::args::{self, AdminAddress, Command, ConfigCommand, Healthcheck, Maintenance, Status};
use super::{CONFIG, RUNTIME, complain, environment, logging, print};
use crate::admin::client;
use crate::app::Hooks;
use crate::config::{self, Config, Warning};

pub(super) fn run(command: Command) -> ExitCode {
    match command {
        Command::Run(args) => sidecar(&args.config),
        Command::Check(args) => check(&args.file),
        Command::Demo(args) => crate::demo::run(args),
        Command::Bench(args) => crate::bench::run(args),
        Command::DemoInner(inner) => crate::demo::run_inner(&inner),
        Command::Sim(args) => sim(&args),
        Command::Replay(args) => replay(&args),
        Command::Status(args) => status(args),
        Command::Maintenance(args) => maintenance(args),
        Command::Healthcheck(args) => healthcheck(args),
        Command::Config(args) => match args.command {
            ConfigCommand::Defaults => print(&config::docs::defaults()),
        },
    }
}

/// Loads a file with this process's environment; errors are printed.
fn load(file: &Path, needs: Needs) -> Result<(Config, Vec<Warning>), ExitCode> {
    let loaded = config::load(file, environment());
    let usable = loaded.and_then(|(config, warnings)| match needs(&config) {
        Ok(()) => Ok((config, warnings)),
        Err((at, what)) => Err(config::blame(file, environment(), at, &what)),
    });
    usable.map_err(|errors| {
        let n = errors.0.len();
        complain(&format!(
            "{errors}\n\n{}: {n} {}\n",
            file.display(),
            if n == 1 { "error" } else { "errors" }
        ));
        ExitCode::from(CONFIG)
    })
}

type Lack = ((&'static str, &'static str), String);

/// What the configuration needs of the disk; else section and key, and what is wrong.
type Needs = fn(&Config) -> Result<(), Lack>;

fn trace_folder(config: &Config) -> Result<(), Lack> {
    let Some(dir) = &config.trace.path else { return Ok(()) };
    crate::trace::check_dir(dir).map_err(|e| (("trace", "path"), e.without_key()))
}

/// That of the hook's socket is often made by what starts the sidecar, so `check` only warns of it.
fn hook_folder(config: &Config) -> Result<(), Lack> {
    let Some(socket) = &config.maintenance.socket else { return Ok(()) };
    crate::admin::hook::check_place(socket).map(|_| ()).map_err(|e| (("maintenance", "socket"), e))
}

fn check(file: &Path) -> ExitCode {
    let (config, warnings) = match load(file, trace_folder) {
        Ok(loaded) => loaded,
        Err(code) => return code,
    };
    for warning in &warnings {
        complain(&format!("warning: {warning}\n\n"));
    }
    if let Err(((section, key), what)) = hook_folder(&config) {
        complain(&format!("warning: {section}.{key}: {what}; `run` would refuse it\n\n"));
    }
    let (inbound, outbound) = (config.inbound.len(), config.outbound.len());
    print(&format!("{}: valid ({inbound} inbound, {outbound} outbound)\n", file.display()))
}

fn sidecar(file: &Path) -> ExitCode {
    let (config, warnings) =
        match load(file, |config| trace_folder(config).and_then(|()| hook_folder(config))) {
            Ok(loaded) => loaded,
            Err(code) => return code,
        };
    let log = logging::init(&config.log);
    for warning in &warnings {
        tracing::warn!(key = warning.key, "{warning}");
    }
    let may_open = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    if let Some(warning) = config.descriptor_warning(may_open.unwrap_or(u64::MAX)) {
        tracing::info!("{warning}");
    }
    app(config, log, file.to_owned())
}

/// Runs the data path; an error that ends it is logged.
fn app(config: Config, log: logging::LogHandle, file: PathBuf) -> ExitCode {
    let load = move || {
        let loaded = config::load_again(&file, environment());
        let (config, warnings) = loaded.map_err(|errors| errors.to_string())?;
        for warning in &warnings {
            tracing::warn!(key = warning.key, "{warning}");
        }
        Ok(config)
    };
    let set_level = move |level: &str| log.set_level(level);
    match crate::app::run(config, Hooks { set_level: Box::new(set_level), load: Box::new(load) }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::from(RUNTIME)
        }
    }
}

fn sim(args: &crate::sim::Args) -> ExitCode {
    match crate::sim::run(args) {
        Ok(done) => {
            let printed = print(&done.text);
            if done.held { printed } else { ExitCode::from(RUNTIME) }
        }
        Err(error) => {
            complain(&format!("sidebeat sim: {error}\n"));
            ExitCode::from(RUNTIME)
        }
    }
}

fn replay(args: &crate::replay::Args) -> ExitCode {
    match crate::replay::run(args) {
        Ok(text) => print(&text),
        Err(error) => {
            complain(&format!("sidebeat replay: {error}\n"));
            ExitCode::from(RUNTIME)
        }
    }
}

/// The sidecar that is meant: two in one network namespace must not answer for each other.
fn admin(a: AdminAddress) -> SocketAddr {
    a.admin.unwrap_or_else(|| config::admin_listen(&args::config_file(), environment()))
}

fn status(a: Status) -> ExitCode {
    client::status(admin(a.admin), a.watch, a.json)
}

fn maintenance(a: Maintenance) -> ExitCode {
    match a.socket {
        Some(path) => client::maintenance_by_socket(&path, a.for_, &a.reason),
        None => client::maintenance(admin(a.admin), a.for_, &a.reason),
    }
}

fn healthcheck(a: Healthcheck) -> ExitCode {
    client::healthcheck(admin(a.admin))
}
