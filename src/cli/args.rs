//! The command line as typed.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  sidebeat config defaults > sidebeat.toml    every default, and a service and an upstream to uncomment
  sidebeat check sidebeat.toml                all errors, with line and column
  sidebeat run -c sidebeat.toml               the sidecar
  sidebeat status --watch                     who is up, who is suspected, and why
  sidebeat replay DIRECTORY                   what other laws would have said of recorded traffic

Exit codes: 0 success, 1 failure while running, 3 something is FAILED (status), 64 wrong command line,
78 wrong configuration.";

/// Names the configuration file where the command line does not.
const CONFIG_VARIABLE: &str = "SIDEBEAT_CONFIG";
const DEFAULT_CONFIG: &str = "/etc/sidebeat/sidebeat.toml";

/// The configuration file of a `run` without arguments.
pub(super) fn config_file() -> PathBuf {
    std::env::var_os(CONFIG_VARIABLE).map_or_else(|| DEFAULT_CONFIG.into(), PathBuf::from)
}

/// Sidecar proxy that piggybacks liveness on business traffic.
#[derive(Debug, Parser)]
#[command(name = "sidebeat", version, after_help = EXAMPLES, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the sidecar.
    #[command(after_help = RUN_HELP)]
    Run(Run),
    /// Check a configuration and report every error.
    #[command(after_help = CHECK_HELP)]
    Check(Check),
    /// Show the whole scene on this machine: services, sidecars, traffic, faults.
    Demo(crate::demo::Args),
    /// Measure detection with real processes and real faults.
    Bench(crate::bench::Args),
    /// What the demo runs itself with.
    #[command(flatten)]
    DemoInner(crate::demo::Inner),
    /// Compare the detectors in virtual time: mistakes per hour and time to detect.
    #[command(after_help = SIM_HELP)]
    Sim(crate::sim::Args),
    /// Compare the detectors on recorded arrivals.
    #[command(after_help = crate::replay::args::keys_help())]
    Replay(crate::replay::Args),
    /// Show upstreams and endpoints: score, state, cause.
    #[command(after_help = STATUS_HELP)]
    Status(Status),
    /// Announce a pause to all downstreams, as a hook for GC, backup or deploy.
    #[command(after_help = MAINTENANCE_HELP)]
    Maintenance(Maintenance),
    /// Ask /ready, for HEALTHCHECK in a container: 0 ready, 1 not.
    Healthcheck(Healthcheck),
    /// Print configuration.
    Config(ConfigArgs),
}

const RUN_HELP: &str = "\
Example:
  sidebeat run -c /etc/sidebeat/sidebeat.toml

SIGTERM drains, a second one or SIGINT stops at once, SIGHUP reloads, SIGUSR1 logs the state.
Exit codes: 0 clean stop, 1 failure while running, 78 wrong configuration.";

const CHECK_HELP: &str = "\
Example:
  sidebeat check sidebeat.toml && sidebeat run -c sidebeat.toml

Overrides of the form SIDEBEAT__SECTION__KEY in the environment are checked too.
Exit codes: 0 valid, 78 not.";

const SIM_HELP: &str = "\
Examples:
  sidebeat sim                                            every scenario and detector; minutes
  sidebeat sim --scenario bursts,poisson --seeds 4        a shorter look
  sidebeat sim --scenario bursts --svg bursts.svg --score-svg score.svg --json

Exit codes: 0 compared, 1 promise-20 missed a fault or a file cannot be written.";

const STATUS_HELP: &str = "Exit codes: 0 all well, 3 something is FAILED, 1 the sidecar cannot be reached.";

const MAINTENANCE_HELP: &str = "\
Example:
  sidebeat maintenance --for 500ms --reason gc
  sidebeat maintenance --for 20s --reason backup --socket /run/sidebeat/hook.sock
  sidebeat maintenance --end

Exit codes: 0 announced, 1 the sidecar cannot be reached or refused it, 64 wrong arguments.";

/// `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Configuration file.
    #[arg(
        short,
        long,
        value_name = "FILE",
        env = CONFIG_VARIABLE,
        default_value = DEFAULT_CONFIG
    )]
    pub config: PathBuf,
}

/// `check`.
#[derive(Debug, Args)]
pub struct Check {
    /// Configuration file.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Where the sidecar's admin server listens, if that was said.
#[derive(Clone, Copy, Debug, Args)]
pub struct AdminAddress {
    /// Admin address of the sidecar. Default: `[admin] listen` of the configuration that `sidebeat run` would read here,
    /// from SIDEBEAT__ADMIN__LISTEN or its file.
    #[arg(long, value_name = "IP:PORT", env = "SIDEBEAT_ADMIN", value_parser = admin_address)]
    pub admin: Option<SocketAddr>,
}

fn admin_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected an address and a port, such as 127.0.0.1:7421".to_owned())
}

/// `status`.
#[derive(Debug, Args)]
pub struct Status {
    /// Admin address.
    #[command(flatten)]
    pub admin: AdminAddress,
    /// Go on showing it.
    #[arg(long)]
    pub watch: bool,
    /// The JSON of GET /status.
    #[arg(long)]
    pub json: bool,
}

/// `maintenance`.
#[derive(Debug, Args)]
pub struct Maintenance {
    /// Length of the pause at most, such as 500ms; up to 30s.
    #[arg(long = "for", value_name = "DURATION", value_parser = humantime::parse_duration, required_unless_present = "end")]
    pub for_: Option<Duration>,
    /// The pause is over, earlier than announced.
    #[arg(long, conflicts_with_all = ["for_", "reason"])]
    pub end: bool,
    /// Admin address.
    #[command(flatten)]
    pub admin: AdminAddress,
    /// Why, for logs and events.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub reason: String,
    /// Hook socket of the sidecar (`[maintenance] socket`), instead of the admin address.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// `healthcheck`.
#[derive(Debug, Args)]
pub struct Healthcheck {
    /// Admin address.
    #[command(flatten)]
    pub admin: AdminAddress,
}

/// `config`.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// What to print.
    #[command(subcommand)]
    pub command: ConfigCommand,
}

/// The commands of `config`.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum ConfigCommand {
    /// The commented default configuration.
    Defaults,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn maintenance_and_status_take_an_address() {
        let cli =
            Cli::try_parse_from(["sidebeat", "maintenance", "--for", "500ms", "--admin", "[::1]:1"]).unwrap();
        let Command::Maintenance(m) = cli.command else { panic!() };
        assert_eq!((m.for_, m.admin.admin.map(|a| a.port())), (Some(Duration::from_millis(500)), Some(1)));
        let Command::Maintenance(m) =
            Cli::try_parse_from(["sidebeat", "maintenance", "--end"]).unwrap().command
        else {
            panic!()
        };
        assert!(m.end && m.for_.is_none());
        for bad in [
            &["sidebeat", "maintenance"][..],
            &["sidebeat", "maintenance", "--end", "--for", "1s"],
            &["sidebeat", "status", "--admin", "nowhere"],
        ] {
            assert!(Cli::try_parse_from(bad).is_err());
        }
    }
}
