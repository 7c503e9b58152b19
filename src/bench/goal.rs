//! Pure: no IO, no clock. What a bench must come to, and why it did not.

use std::time::Duration;

use super::rows::Row;
use crate::demo::faults::Expected;

/// Most that T_D may be where FAILED must come: p50 and p99 of each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Of the median.
    pub p50: Duration,
    /// Of the 99th percentile.
    pub p99: Duration,
}

/// `--limit`.
pub(super) fn parse_limit(text: &str) -> Result<Limit, String> {
    let (p50, p99) = text.split_once('/').ok_or("expected P50/P99, such as 28ms/55ms")?;
    let parse = |s: &str| humantime::parse_duration(s.trim()).map_err(|e| format!("{s}: {e}"));
    let limit = Limit { p50: parse(p50)?, p99: parse(p99)? };
    if limit.p50 > limit.p99 || limit.p99.is_zero() {
        return Err("expected P50 <= P99, and more than zero".into());
    }
    Ok(limit)
}

/// Why the exit code is 1; empty if it is 0.
pub fn reasons(rows: &[Row], limit: Option<Limit>) -> Vec<String> {
    let acting = || rows.iter().filter(|r| r.main);
    let missed = acting().filter_map(|r| {
        let met = r.met?;
        let what = || format!("{} under {}: {met} of {} led to what they must", r.fault, r.traffic, r.n);
        (met < r.n).then(what)
    });
    let slow = acting().flat_map(|r| limit.map_or_else(Vec::new, |limit| over(r, limit)));
    missed.chain(slow).collect()
}

/// A row without FAILED is not slow: whether it had to come is what `met` says.
fn over(r: &Row, limit: Limit) -> Vec<String> {
    let Some(found) = r.t_d_ms.filter(|_| r.expected == Expected::Failed.name()) else { return Vec::new() };
    let ranks = [("p50", found.p50, limit.p50), ("p99", found.p99, limit.p99)];
    let over = ranks.into_iter().filter(|(_, ms, most)| *ms > most.as_secs_f64() * 1e3);
    over.map(|(rank, ms, most)| {
        let most = humantime::format_duration(most);
        format!("{} under {}: {rank} to FAILED {ms:.1} ms, at most {most} allowed", r.fault, r.traffic)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::rows::Quantiles;

    fn row(fault: &'static str, expected: &'static str, met: usize, p50: f64, p99: f64) -> Row {
        Row {
            fault,
            traffic: "steady",
            detector: "promise".into(),
            main: true,
            n: 10,
            met: Some(met),
            expected,
            suspect_ms: None,
            t_d_ms: Some(Quantiles { p50, p90: p99, p99, max: p99 }),
            served_elsewhere_ms: None,
            healed_ms: None,
            peak_ms: None,
            noise_ms: None,
            failed_requests: None,
            mistakes: 0,
            undetected: 0,
            cause: None,
        }
    }

    fn limit(text: &str) -> Option<Limit> {
        Some(parse_limit(text).unwrap())
    }

    #[test]
    fn what_is_slower_than_the_limit_is_named() {
        let rows = [row("cut", "failed", 10, 26.0, 60.0), row("kill", "failed", 10, 2.0, 4.0)];
        assert!(reasons(&rows, None).is_empty());
        assert!(reasons(&rows, limit("28ms/60ms")).is_empty());
        let found = reasons(&rows, limit("25ms/55ms"));
        assert_eq!(
            found,
            [
                "cut under steady: p50 to FAILED 26.0 ms, at most 25ms allowed",
                "cut under steady: p99 to FAILED 60.0 ms, at most 55ms allowed"
            ]
        );
    }

    #[test]
    fn only_what_must_fail_is_timed_and_only_of_the_one_that_acts() {
        let shadow = Row { main: false, met: None, ..row("cut", "failed", 0, 3000.0, 3000.0) };
        let silent = Row { t_d_ms: None, ..row("kill-sidecar", "failed", 10, 0.0, 0.0) };
        let rows = [row("deadlock", "suspect", 10, 900.0, 900.0), shadow, silent];
        assert!(reasons(&rows, limit("1ms/1ms")).is_empty());
    }

    #[test]
    fn what_missed_its_expectation_is_named() {
        let found = reasons(&[row("hang", "failed", 9, 4.0, 4.0)], None);
        assert_eq!(found, ["hang under steady: 9 of 10 led to what they must"]);
    }

    #[test]
    fn limits_are_read() {
        let ms = Duration::from_millis;
        assert_eq!(parse_limit("28ms/55ms"), Ok(Limit { p50: ms(28), p99: ms(55) }));
        for bad in ["", "28ms", "28/55", "55ms/28ms", "0s/0s", "28ms/", "28ms/55ms/60ms"] {
            assert!(parse_limit(bad).is_err(), "{bad}");
        }
    }
}
