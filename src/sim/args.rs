//! Pure: no IO, no clock. What `sidebeat sim` accepts.

use std::path::PathBuf;

use super::detectors::{self, Rhythm};
use super::scenario::{self, Scenario};

/// Arguments of `sidebeat sim`.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Scenarios, in this order; or all. The first ten are those of the design's table.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_scenario, help = scenario_help())]
    pub scenario: Vec<&'static Scenario>,
    /// Detectors to show.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_detector, help = detector_help())]
    pub detector: Vec<&'static str>,
    /// What the detectors other than promise listen to: the beats of the sidecar, or those of the reference simulation behind the
    /// design, which counts every silence beyond a law's limit.
    #[arg(long, value_enum, default_value_t)]
    pub beats: Rhythm,
    /// Seed of everything: the same seed gives the same report.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Runs without a fault per cell, each with traffic of its own.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub seeds: u32,
    /// Length of each, in hours of virtual time.
    #[arg(long, default_value_t = 0.5, value_parser = parse_hours)]
    pub hours: f64,
    /// Faults per cell, each in a run of its own.
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub faults: u32,
    /// One JSON report on stdout instead of the table.
    #[arg(long)]
    pub json: bool,
    /// Draw T_D against false FAILED per hour, for the first scenario; a name that ends in .csv or .txt gives that instead.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Draw the scores around one fault, for the first scenario; a name that ends in .csv or .txt gives that instead.
    #[arg(long, value_name = "FILE")]
    pub score_svg: Option<PathBuf>,
}

impl Args {
    /// The scenarios meant: all if none is named.
    pub fn scenarios(&self) -> Vec<&'static Scenario> {
        if self.scenario.is_empty() { scenario::ALL.iter().collect() } else { self.scenario.clone() }
    }

    /// The detectors meant: all if none is named.
    pub fn detectors(&self) -> Vec<&'static str> {
        if self.detector.is_empty() { detectors::NAMES.to_vec() } else { self.detector.clone() }
    }
}

fn scenario_names() -> String {
    scenario::ALL.map(|s| s.name).join(", ")
}

fn scenario_help() -> String {
    format!(
        "Scenarios; all of them if not given. The ten of docs/detection.md come first: {}",
        scenario_names()
    )
}

fn detector_help() -> String {
    format!("Detectors; all of them if not given: {}", detectors::NAMES.join(", "))
}

fn parse_scenario(text: &str) -> Result<&'static Scenario, String> {
    scenario::by_name(text).ok_or_else(|| format!("expected one of: {}", scenario_names()))
}

fn parse_detector(text: &str) -> Result<&'static str, String> {
    let known = detectors::NAMES.iter().find(|n| **n == text);
    known.copied().ok_or_else(|| format!("expected one of: {}", detectors::NAMES.join(", ")))
}

fn parse_hours(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(hours) if (0.001..=1000.0).contains(&hours) => Ok(hours),
        _ => Err("expected 0.001 to 1000, such as 0.5".into()),
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

    fn parse(list: &[&str]) -> Result<Args, clap::Error> {
        Cli::try_parse_from([&["sim"], list].concat()).map(|c| c.args)
    }

    #[test]
    fn nothing_given_means_everything() {
        let a = parse(&[]).unwrap();
        assert_eq!((a.scenarios().len(), a.detectors().len()), (scenario::ALL.len(), detectors::NAMES.len()));
        assert_eq!((a.seed, a.seeds, a.hours, a.faults, a.json), (1, 20, 0.5, 120, false));
        assert_eq!(
            (a.beats, parse(&["--beats", "reference"]).unwrap().beats),
            (Rhythm::Sidecar, Rhythm::Reference)
        );
    }

    #[test]
    fn lists_keep_their_order() {
        let a =
            parse(&["--scenario", "poisson,bursts", "--detector", "phi,promise-20", "--hours", "2"]).unwrap();
        assert_eq!(a.scenarios().iter().map(|s| s.name).collect::<Vec<_>>(), ["poisson", "bursts"]);
        assert_eq!(a.detectors(), ["phi", "promise-20"]);
    }

    #[test]
    fn nonsense_is_refused_and_told_what_is_allowed() {
        let lines: &[&[&str]] = &[
            &["--scenario", "storm"],
            &["--scenario", ""],
            &["--detector", "promise"],
            &["--hours", "0"],
            &["--hours", "NaN"],
            &["--hours", "-1"],
            &["--seeds", "0"],
            &["--faults", "-1"],
            &["--seed", "x"],
            &["--beats", "mine"],
            &["bursts"],
        ];
        for line in lines {
            assert!(parse(line).is_err(), "{line:?} was accepted");
        }
        let told = parse(&["--scenario", "storm"]).err().unwrap().to_string();
        assert!(told.contains("throttled-sender"), "{told}");
    }
}
