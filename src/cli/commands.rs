//! One function per command.

use std::path::Path;
use std::process::ExitCode;

use super::args::{Command, ConfigCommand, Demo, Healthcheck, Maintenance, Status};
use super::{CONFIG, RUNTIME, complain, environment, logging, print};
use crate::config::{self, Config, Warning};

pub(super) fn run(command: Command) -> ExitCode {
    match command {
        Command::Run(args) => sidecar(&args.config),
        Command::Check(args) => check(&args.file),
        Command::Demo(args) => demo(args),
        Command::Status(args) => status(args),
        Command::Maintenance(args) => maintenance(args),
        Command::Healthcheck(args) => healthcheck(args),
        Command::Config(args) => match args.command {
            ConfigCommand::Defaults => print(&config::docs::defaults()),
        },
    }
}

/// Loads a file with this process's environment; errors are printed.
fn load(file: &Path) -> Result<(Config, Vec<Warning>), ExitCode> {
    config::load(file, environment()).map_err(|errors| {
        let n = errors.0.len();
        complain(&format!(
            "{errors}\n\n{}: {n} {}\n",
            file.display(),
            if n == 1 { "error" } else { "errors" }
        ));
        ExitCode::from(CONFIG)
    })
}

fn check(file: &Path) -> ExitCode {
    let (config, warnings) = match load(file) {
        Ok(loaded) => loaded,
        Err(code) => return code,
    };
    for warning in &warnings {
        complain(&format!("warning: {warning}\n\n"));
    }
    let (inbound, outbound) = (config.inbound.len(), config.outbound.len());
    print(&format!("{}: valid ({inbound} inbound, {outbound} outbound)\n", file.display()))
}

fn sidecar(file: &Path) -> ExitCode {
    let (config, warnings) = match load(file) {
        Ok(loaded) => loaded,
        Err(code) => return code,
    };
    let log = logging::init(&config.log);
    for warning in &warnings {
        tracing::warn!(key = warning.key, "{warning}");
    }
    let may_open = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    if let Some(warning) = config.descriptor_warning(may_open.unwrap_or(u64::MAX)) {
        tracing::warn!("{warning}");
    }
    app(config, log)
}

// === Seams: each body below is replaced by one call when its part is merged. ===

/// Becomes `crate::app::run(config, log)`; an error is logged and gives 1.
fn app(_: Config, _: logging::LogHandle) -> ExitCode {
    missing("run")
}

/// Becomes `crate::demo::run(args)`, with `crate::demo::Args` instead of [`Demo`] in args.rs.
fn demo(_: Demo) -> ExitCode {
    missing("demo")
}

/// Becomes a call of the admin client.
fn status(_: Status) -> ExitCode {
    missing("status")
}

/// Becomes a call of the admin client.
fn maintenance(_: Maintenance) -> ExitCode {
    missing("maintenance")
}

/// Becomes a call of the admin client.
fn healthcheck(_: Healthcheck) -> ExitCode {
    missing("healthcheck")
}

fn missing(command: &str) -> ExitCode {
    complain(&format!("sidebeat: `{command}` is not built into this program yet\n"));
    ExitCode::from(RUNTIME)
}
