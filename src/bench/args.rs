//! Pure: no IO, no clock. What `sidebeat bench` accepts.

use std::path::PathBuf;
use std::time::Duration;

use super::goal::{Limit, parse_limit};
use crate::demo::args::{
    Args as DemoArgs, Faults, Gap, parse_faults, parse_hold, parse_setting, parse_shadow,
};
use crate::demo::faults::Kind;

const FAULTS_HELP: &str = "\
Examples:
  sidebeat bench faults                                                  the whole matrix, more than an hour
  sidebeat bench faults --faults cut,hang --traffic steady --repeat 10   a part of it
  sidebeat bench faults --faults cut --traffic steady --limit 28ms/55ms  exit code 1 if FAILED takes longer (p50 / p99)
  sidebeat bench faults --set beat.active=10ms --set promise.tau_min=4ms the aggressive profile
  sidebeat bench faults --faults kill,hang,cut --traffic steady --hold 5s
                                            long enough for the plain heartbeat (1 s, given up after 3 s)

Each fault is injected at a random moment. Times are from the fault's instant to the transition on CLOCK_MONOTONIC. The
baselines are shadows of the same run: they hear the same frames and never act.
Exit codes: 0 every fault led to what it must, within --limit; 1 not: stderr says which.";

/// Arguments of `sidebeat bench`.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// What to measure.
    #[command(subcommand)]
    pub what: What,
}

/// The benches.
#[derive(clap::Subcommand, Clone, Debug)]
pub enum What {
    /// Real processes, real faults: how soon each detector knows, and how often it is wrong.
    #[command(after_help = FAULTS_HELP)]
    Faults(FaultArgs),
}

/// Arguments of `sidebeat bench faults`.
#[derive(clap::Args, Clone, Debug)]
pub struct FaultArgs {
    /// Faults, in this order (see `sidebeat demo --help`). Default: all that say something of detection.
    #[arg(long, value_name = "LIST", value_parser = parse_faults)]
    pub faults: Option<Faults>,
    /// Traffic: steady (5 to 20 ms between two requests of each service), bursty, idle.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "steady,bursty,idle")]
    pub traffic: Vec<Traffic>,
    /// How often each fault is injected under each traffic.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub repeat: u32,
    /// Baselines that run as shadows: promise, huddm, huddm-tick, huddm-miss, phi, chen, timeout, p95, and timeout-27ms with
    /// any time.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_shadow,
        default_value = "timeout,timeout-27ms,p95,phi,chen,huddm-tick,huddm-miss")]
    pub detector: Vec<String>,
    /// Most that FAILED may take, p50 and p99 ("28ms/55ms"), in each row where it must come; else the exit code is 1.
    #[arg(long, value_name = "P50/P99", value_parser = parse_limit)]
    pub limit: Option<Limit>,
    /// A setting of the client's sidecar: a key under `[detector]` ("promise.tau_min=4ms"), or `beat.active` of all
    /// sidecars; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_setting)]
    pub set: Vec<(String, String)>,
    /// How long each fault is held. Below 500ms it teaches the detector to wait.
    #[arg(long, value_name = "DURATION", default_value = "1.2s", value_parser = parse_hold)]
    pub hold: Duration,
    /// Hide each service's process from its sidecar.
    #[arg(long)]
    pub no_pid: bool,
    /// Threads that burn CPU time beside the whole scene.
    #[arg(long, value_name = "THREADS", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=256))]
    pub burn: u16,
    /// The client's sidecar records there what `sidebeat replay` reads; a directory that exists.
    #[arg(long, value_name = "DIR")]
    pub trace: Option<PathBuf>,
    /// Seed of the random moments.
    #[arg(long)]
    pub seed: Option<u64>,
    /// One JSON report on stdout, progress on stderr.
    #[arg(long)]
    pub json: bool,
    /// Set by the bench itself when it has moved into its namespaces.
    #[arg(long, hide = true)]
    pub inside: bool,
}

/// How requests come.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Gaps of 5 to 20 ms.
    Steady,
    /// Bursts and silences.
    Bursty,
    /// One request a second in all.
    Idle,
}

impl Traffic {
    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Traffic::Steady => "steady",
            Traffic::Bursty => "bursty",
            Traffic::Idle => "idle",
        }
    }
}

/// What the matrix consists of if nothing else is asked for. Not `delay`: its first jump is beyond what the law lets pass.
pub const DEFAULT: [Kind; 14] = [
    Kind::Kill,
    Kind::Hang,
    Kind::Deadlock,
    Kind::Spin,
    Kind::Pause,
    Kind::Notice,
    Kind::KillSidecar,
    Kind::HangSidecar,
    Kind::HangObserver,
    Kind::Cut,
    Kind::CutIn,
    Kind::CutOut,
    Kind::CutLink,
    Kind::Saturate,
];

/// Services of the scene: a neighbour of the one at fault shows mistakes.
const SERVICES: u8 = 3;

/// Faults that share a scene.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// In this order.
    pub kinds: Vec<Kind>,
    /// Workers of each sidecar: links to each service.
    pub workers: u8,
}

impl FaultArgs {
    /// The faults, each once.
    pub fn kinds(&self) -> Vec<Kind> {
        self.faults.as_ref().map_or_else(|| DEFAULT.to_vec(), |f| f.0.clone())
    }

    /// Kind of the detector that acts.
    pub fn main(&self) -> &str {
        self.set.iter().rev().find(|(key, _)| key == "kind").map_or("promise", |(_, kind)| kind)
    }

    /// The same in groups: one scene for each. `cut-link` has its own, with two links to each service; more of them would
    /// change what the others measure.
    pub fn groups(&self) -> Vec<Group> {
        let (links, others): (Vec<_>, Vec<_>) = self.kinds().into_iter().partition(|k| *k == Kind::CutLink);
        let groups = [Group { kinds: others, workers: 1 }, Group { kinds: links, workers: 2 }];
        groups.into_iter().filter(|g| !g.kinds.is_empty()).collect()
    }

    /// The scene of `group` under `traffic`.
    pub fn scene(&self, traffic: Traffic, group: &Group) -> Result<DemoArgs, String> {
        let mut args = DemoArgs {
            faults: Some(Faults(group.kinds.clone())),
            workers: group.workers,
            repeat: self.repeat,
            hold: self.hold,
            services: SERVICES,
            burn: self.burn,
            no_pid: self.no_pid,
            seed: self.seed,
            trace: self.trace.clone(),
            inside: self.inside,
            shadows: self.detector.clone(),
            ..DemoArgs::default()
        };
        match traffic {
            // The balancer gives each service its share.
            Traffic::Steady => {
                let each = |ms: u64| Duration::from_micros(ms * 1000 / u64::from(SERVICES));
                args.gap = Some(Gap { min: each(5), max: each(20) });
            }
            Traffic::Bursty => args.bursts = true,
            Traffic::Idle => args.rate = 1,
        }
        for (key, value) in &self.set {
            match key.strip_prefix("beat.") {
                Some("active") => {
                    let beat = humantime::parse_duration(value).map_err(|e| format!("beat.active: {e}"))?;
                    args.beat_active = Some(beat);
                }
                Some(_) => return Err(format!("--set {key}: of [beat] only beat.active can be set")),
                None => args.detector.push((key.clone(), value.clone())),
            }
        }
        Ok(args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn parse(list: &[&str]) -> Result<FaultArgs, clap::Error> {
        Cli::try_parse_from([&["bench", "faults"], list].concat()).map(|c| {
            let What::Faults(args) = c.args.what;
            args
        })
    }

    fn scene(args: &FaultArgs, traffic: Traffic) -> Result<DemoArgs, String> {
        args.scene(traffic, &args.groups()[0])
    }

    #[test]
    fn one_link_of_two_is_cut_in_a_scene_of_its_own() {
        let groups = parse(&[]).unwrap().groups();
        let kinds: usize = groups.iter().map(|g| g.kinds.len()).sum();
        assert_eq!((groups.len(), kinds), (2, DEFAULT.len()));
        assert_eq!(groups[1], Group { kinds: vec![Kind::CutLink], workers: 2 });
        assert!(groups[0].workers == 1 && !groups[0].kinds.contains(&Kind::CutLink));
        let only = parse(&["--faults", "cut-link"]).unwrap();
        assert_eq!(only.groups().len(), 1);
        assert_eq!(scene(&only, Traffic::Idle).unwrap().workers, 2);
    }

    #[test]
    fn each_service_gets_a_request_each_5_to_20_ms() {
        let args = parse(&[]).unwrap();
        assert_eq!(args.traffic, [Traffic::Steady, Traffic::Bursty, Traffic::Idle]);
        let gap = scene(&args, Traffic::Steady).unwrap().gap.unwrap();
        let whole = gap.min * u32::from(SERVICES);
        assert!(whole > Duration::from_micros(4990) && whole <= Duration::from_millis(5));
        assert!(scene(&args, Traffic::Bursty).unwrap().bursts);
        assert_eq!(scene(&args, Traffic::Idle).unwrap().rate, 1);
    }

    #[test]
    fn settings_go_where_they_belong() {
        let args = parse(&["--set", "beat.active=10ms", "--set", "promise.tau_min=4ms"]).unwrap();
        assert_eq!(args.main(), "promise");
        assert_eq!(parse(&["--set", "kind=phi"]).unwrap().main(), "phi");
        let steady = scene(&args, Traffic::Steady).unwrap();
        assert_eq!(steady.beat_active, Some(Duration::from_millis(10)));
        assert_eq!(steady.detector, [("promise.tau_min".to_owned(), "4ms".to_owned())]);
        let wrong = parse(&["--set", "beat.duty=3"]).unwrap();
        assert!(scene(&wrong, Traffic::Steady).unwrap_err().contains("beat.active"));
        for bad in [
            &["--traffic", "mad"][..],
            &["--repeat", "0"],
            &["--faults", "x"],
            &["--hold", "0s"],
            &["--limit", "28ms"],
            &["--detector", "huddm,timeout-1ms"],
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
