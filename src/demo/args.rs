//! Pure: no IO, no clock. What `sidebeat demo` accepts.

use std::path::PathBuf;
use std::time::Duration;

use super::faults::Kind;
use crate::config::{DetectorKind, Shadow};

/// Arguments of `sidebeat demo`.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Run unattended for at least this long ("20s"); longer if the faults need longer.
    #[arg(long = "for", value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub for_: Option<Duration>,
    /// Faults to inject, in this order: kill, hang, kill-sidecar, hang-sidecar, hang-observer, cut, cut-in,
    /// cut-out, cut-link, delay, pause, notice, saturate, restart, deadlock, spin; or none.
    #[arg(long, value_name = "LIST", value_parser = parse_faults)]
    pub faults: Option<Faults>,
    /// How often the list is run through.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub repeat: u32,
    /// How long each fault is held. Below 500ms it teaches the detector to wait.
    #[arg(long, value_name = "DURATION", default_value = "1.2s", value_parser = parse_hold)]
    pub hold: Duration,
    /// Requests per second of the open-loop stream, at a constant rate.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub rate: u32,
    /// Random gaps between the requests instead of a constant rate ("5ms..20ms").
    #[arg(long, value_name = "MIN..MAX", value_parser = parse_gap, conflicts_with = "rate")]
    pub gap: Option<Gap>,
    /// Bursts of requests 2 ms apart and silences of 50 ms to 3 s between them, instead of a constant rate.
    #[arg(long, conflicts_with_all = ["rate", "gap"])]
    pub bursts: bool,
    /// Threads that burn CPU time beside the whole scene ("2" saturates two processors).
    #[arg(long, value_name = "THREADS", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=256))]
    pub burn: u16,
    /// Processor time of each sidecar, in percent of one processor in periods of 100 ms, as a Kubernetes limit sets it
    /// (a control group, where possible).
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub cpu_quota: Option<u32>,
    /// Workers of each sidecar; each of the client's has a link of its own to each service's sidecar.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub workers: u8,
    /// Number of services, each behind its own sidecar.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=9))]
    pub services: u8,
    /// One JSON report on stdout, progress on stderr.
    #[arg(long)]
    pub json: bool,
    /// Seed of the random moments; the same seed gives the same plan.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Hide each service's process from its sidecar (a PID namespace of its own, where possible).
    #[arg(long)]
    pub no_pid: bool,
    /// A key under `[detector]` of the client's sidecar ("promise.tau_min=4ms"); may be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_setting)]
    pub detector: Vec<(String, String)>,
    /// `beat.active` of all sidecars.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub beat_active: Option<Duration>,
    /// The client's sidecar records there what `sidebeat replay` reads; a directory that exists.
    #[arg(long, value_name = "DIR")]
    pub trace: Option<PathBuf>,
    /// Other detectors that hear the same frames in the client's sidecar and never act (promise, huddm, huddm-tick,
    /// huddm-miss, phi, chen, timeout, p95, and timeout-27ms with any time): the report counts their mistakes too.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_shadow)]
    pub shadows: Vec<String>,
    /// Set by the demo itself when it has moved into its namespaces.
    #[arg(long, hide = true)]
    pub inside: bool,
}

/// As without any argument.
impl Default for Args {
    fn default() -> Args {
        Args {
            for_: None,
            faults: None,
            repeat: 1,
            hold: Duration::from_millis(1200),
            rate: 1000,
            gap: None,
            bursts: false,
            burn: 0,
            cpu_quota: None,
            workers: 2,
            services: 3,
            json: false,
            seed: None,
            no_pid: false,
            detector: Vec::new(),
            beat_active: None,
            trace: None,
            shadows: Vec::new(),
            inside: false,
        }
    }
}

/// Faults in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults(pub Vec<Kind>);

/// `--faults`.
pub(crate) fn parse_faults(text: &str) -> Result<Faults, String> {
    if text == "none" {
        return Ok(Faults::default());
    }
    text.split(',').map(str::parse).collect::<Result<_, _>>().map(Faults)
}

/// Bounds of a random gap, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Shortest.
    pub min: Duration,
    /// Longest.
    pub max: Duration,
}

fn parse_gap(text: &str) -> Result<Gap, String> {
    let (min, max) = text.split_once("..").ok_or("expected MIN..MAX, such as 5ms..20ms")?;
    let parse = |s: &str| humantime::parse_duration(s.trim()).map_err(|e| format!("{s}: {e}"));
    let gap = Gap { min: parse(min)?, max: parse(max)? };
    if gap.min > gap.max || gap.min < Duration::from_micros(50) || gap.max > Duration::from_secs(60) {
        return Err("expected 50us <= MIN <= MAX <= 60s".into());
    }
    Ok(gap)
}

/// `--hold`.
pub(crate) fn parse_hold(text: &str) -> Result<Duration, String> {
    let hold = parse_seconds(text).map_or_else(|| humantime::parse_duration(text), Ok);
    match hold.map_err(|e| e.to_string())? {
        d if d < Duration::from_millis(50) || d > Duration::from_secs(60) => {
            Err("expected 50ms to 60s".into())
        }
        d => Ok(d),
    }
}

/// "1.2s": humantime knows no fractions.
fn parse_seconds(text: &str) -> Option<Duration> {
    let number = text.strip_suffix('s')?;
    Duration::try_from_secs_f64(number.parse().ok()?).ok()
}

/// One of `--shadows`: what `detector.shadows` takes.
pub(crate) fn parse_shadow(text: &str) -> Result<String, String> {
    let known = || DetectorKind::ALL.map(DetectorKind::name).join(", ");
    match Shadow::from_name(text) {
        Some(shadow) => Ok(shadow.name),
        None => Err(format!("expected one of {}, huddm-tick, huddm-miss, timeout-27ms", known())),
    }
}

/// `KEY=VALUE`.
pub(crate) fn parse_setting(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE, such as promise.tau_min=4ms")?;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-' || c == '.';
    if key.is_empty() || !key.chars().all(plain) || value.contains(['\n', '"', '\\']) {
        return Err("the key is a dotted path, the value a duration, a number or a word".into());
    }
    Ok((key.to_owned(), value.to_owned()))
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

    fn parse(list: &[&str]) -> Result<Args, clap::Error> {
        Cli::try_parse_from([&["demo"], list].concat()).map(|c| c.args)
    }

    #[test]
    fn the_documented_lines_parse() {
        let a = parse(&[
            "--for",
            "20s",
            "--faults",
            "kill,hang,pause",
            "--repeat",
            "3",
            "--gap",
            "5ms..20ms",
            "--json",
        ])
        .unwrap();
        assert_eq!(a.for_, Some(Duration::from_secs(20)));
        assert_eq!(a.faults, Some(Faults(vec![Kind::Kill, Kind::Hang, Kind::Pause])));
        assert_eq!(a.gap, Some(Gap { min: Duration::from_millis(5), max: Duration::from_millis(20) }));
        assert_eq!(a.hold, Duration::from_millis(1200));
        let soak = parse(&["--for", "10m", "--faults", "none", "--bursts", "--burn", "2"]).unwrap();
        assert_eq!((soak.faults, soak.bursts, soak.burn), (Some(Faults::default()), true, 2));
        let b = parse(&["--hold", "300ms", "--detector", "promise.tau_min=4ms", "--no-pid"]).unwrap();
        assert_eq!(b.hold, Duration::from_millis(300));
        assert_eq!(b.detector, [("promise.tau_min".to_owned(), "4ms".to_owned())]);
        let c = parse(&["--shadows", "huddm,huddm-tick,timeout-27ms"]).unwrap();
        assert_eq!(c.shadows, ["huddm", "huddm-tick", "timeout-27ms"]);
    }

    #[test]
    fn the_default_is_what_an_empty_line_gives() {
        assert_eq!(format!("{:?}", parse(&[]).unwrap()), format!("{:?}", Args::default()));
    }

    #[test]
    fn nonsense_is_refused() {
        let lines: &[&[&str]] = &[
            &["--gap", "20ms..5ms"],
            &["--gap", "5ms"],
            &["--gap", ".."],
            &["--gap", "5..20"],
            &["--gap", "0s..1s"],
            &["--gap", "1s..2h"],
            &["--faults", "explode"],
            &["--faults", "kill,none"],
            &["--faults", ""],
            &["--bursts", "--gap", "5ms..6ms"],
            &["--burn", "-1"],
            &["--services", "0"],
            &["--services", "10"],
            &["--hold", "1ms"],
            &["--repeat", "0"],
            &["--detector", "kind"],
            &["--detector", "a b=1"],
            &["--rate", "100", "--gap", "5ms..6ms"],
            &["--shadows", "huddm-tock"],
            &["--shadows", "timeout-1ms"],
        ];
        assert!(!lines.is_empty());
        for line in lines {
            assert!(parse(line).is_err(), "{line:?} was accepted");
        }
    }
}
