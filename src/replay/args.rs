//! Pure: no IO, no clock. What `sidebeat replay` accepts.

use std::path::PathBuf;

use super::rows::{Setting, Sweep, parse_setting, parse_sweep};
use crate::detector::catalog;

/// Arguments of `sidebeat replay`.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Trace files, or directories of them.
    #[arg(value_name = "TRACE", required = true)]
    pub traces: Vec<PathBuf>,
    /// Law to compare, may be repeated; without it the recorded one and all of them.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = clap::builder::PossibleValuesParser::new(catalog::NAMES))]
    pub detector: Vec<String>,
    /// Change a parameter, may be repeated; each law is shown without and with the changes.
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_setting)]
    pub set: Vec<Setting>,
    /// One row per value of a parameter, and the curve of detection time against mistakes; may be repeated for a curve of
    /// each law.
    #[arg(long, value_name = "KEY=A..B[:STEPS]", value_parser = parse_sweep)]
    pub sweep: Vec<Sweep>,
    /// Random moments at which everything falls silent, to measure the detection time.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub cuts: u32,
    /// Seed of those moments: the same seed gives the same report.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// One JSON report on stdout instead of the table.
    #[arg(long)]
    pub json: bool,
    /// Write the rows as CSV.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Draw detection time against mistakes per hour.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Draw the scores around the longest recorded silence that ended a life.
    #[arg(long, value_name = "FILE")]
    pub score_svg: Option<PathBuf>,
}

/// The keys of `--set` and `--sweep`, for the help.
pub fn keys_help() -> String {
    let width = catalog::KEYS.iter().map(|(key, _)| key.len()).max().unwrap_or_default();
    let lines = catalog::KEYS.iter().map(|(key, about)| format!("  {key:width$}  {about}\n"));
    format!("{EXAMPLES}\n\nKeys of --set and --sweep:\n{}\n{EXITS}", lines.collect::<String>())
}

const EXAMPLES: &str = "\
Examples:
  sidebeat replay /var/lib/sidebeat/trace                        the recorded law and all others
  sidebeat replay TRACE --detector promise --set tau_min=4ms     one change at a time
  sidebeat replay TRACE --sweep tau_min=2ms..20ms:10 --svg curve.svg
  sidebeat replay TRACE --detector phi,promise --json
  sidebeat replay TRACE --score-svg score.svg                    what every law made of the longest outage";

const EXITS: &str = "Exit codes: 0 compared, 1 a trace cannot be read or a file cannot be written.";

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
        Cli::try_parse_from([&["replay"], list].concat()).map(|c| c.args)
    }

    #[test]
    fn what_is_typed_is_what_is_meant() {
        let a = parse(&[
            "a",
            "b",
            "--detector",
            "phi,chen",
            "--detector",
            "promise",
            "--set",
            "tau_min=4ms",
            "--sweep",
            "slack=1ms..3ms:3",
        ])
        .unwrap();
        assert_eq!((a.traces.len(), a.detector.len(), a.set.len()), (2, 3, 1));
        assert_eq!(a.sweep[0].values.len(), 3);
        assert_eq!((a.cuts, a.seed, a.json), (1000, 1, false));
    }

    #[test]
    fn nonsense_is_refused_and_told_what_is_allowed() {
        let lines: &[(&[&str], &str)] = &[
            (&[], "TRACE"),
            (&["a", "--detector", "raft"], "huddm-tick"),
            (&["a", "--set", "tau_min"], "key=value"),
            (&["a", "--set", "warp=1"], "tau_min"),
            (&["a", "--sweep", "tau_min=1"], "key=a..b"),
            (&["a", "--cuts=-1"], "cuts"),
        ];
        for (line, part) in lines {
            let error = parse(line).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(error.contains(part), "{line:?}: {error}");
        }
        let help = keys_help();
        assert!(
            catalog::KEYS.iter().all(|(key, about)| help.contains(key) && help.contains(about)),
            "{help}"
        );
    }
}
