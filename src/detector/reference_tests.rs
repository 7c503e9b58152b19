//! The published laws against a second, naive writing of them in floating milliseconds: no excuses, no recovery rules
//! of ours, nothing shared with the code that is tested.

use super::*;

const START_MS: f64 = 1000.0;

/// Arrival times, ms, of traffic that beats, bursts, rests and loses; the same at every run.
fn arrivals(n: usize) -> Vec<f64> {
    let mut state = 12_345_u64;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / (1u64 << 31) as f64
    };
    let mut t = START_MS;
    (0..n)
        .map(|i| {
            t += match (i / 100) % 4 {
                0 => 5.0 + 15.0 * next(),
                1 => -2.0 * (1.0 - next()).ln() + 0.01,
                2 => 80.0 + 3.0 * next(),
                _ if next() < 0.05 => 150.0 + 400.0 * next(),
                _ => 12.0 + 8.0 * next(),
            };
            (t * 1e6).round() / 1e6
        })
        .collect()
}

fn stamp(ms: f64) -> Stamp {
    Stamp::from_nanos((ms * 1e6).round() as u64)
}

fn millis(at: Stamp) -> f64 {
    at.as_nanos() as f64 / 1e6
}

#[test]
fn timeout_is_a_time_after_the_last_arrival() {
    for timeout in [27, 3000] {
        let params = Params { timeout: Duration::from_millis(timeout), ..Params::of(Kind::Timeout) };
        let mut law = params.build(stamp(START_MS));
        for t in arrivals(2000) {
            law.heard(stamp(t), None);
            assert_eq!(law.fail_at(), stamp(t) + Duration::from_millis(timeout));
            assert_eq!(law.suspect_at(), law.fail_at());
        }
    }
}

#[test]
fn phi_is_the_quantile_of_the_gaps() {
    // Quantiles to four digits, as tables print them: hence the tolerance of a ten-thousandth of the deviation.
    for (threshold, z, window) in [(8.0, 5.6120, 1000), (3.0, 3.0902, 1000), (8.0, 5.6120, 60)] {
        let phi = PhiParams { threshold, window, ..PhiParams::default() };
        let mut law = Params { phi, ..Params::of(Kind::Phi) }.build(stamp(START_MS));
        let (mut gaps, mut last) = (Vec::new(), START_MS);
        for t in arrivals(3000) {
            gaps.push(t - last);
            last = t;
            law.heard(stamp(t), None);
            let kept = &gaps[gaps.len().saturating_sub(window as usize)..];
            let n = kept.len() as f64;
            let mean = kept.iter().sum::<f64>() / n;
            let variance = kept.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / n;
            let deviation = variance.sqrt().max(10.0);
            let at = |z: f64| if n < 5.0 { t + 1000.0 } else { t + mean + z * deviation };
            let near = |found: Stamp, wanted: f64| (millis(found) - wanted).abs() < 1e-4 * deviation + 1e-5;
            assert!(near(law.suspect_at(), at(1.2816)), "{t}: {:?} not {}", law.suspect_at(), at(1.2816));
            assert!(near(law.fail_at(), at(z)), "{t}: {:?} not {}", law.fail_at(), at(z));
        }
    }
}

/// The source's pseudo-code. `miss`: its field fix, that decay starts a whole interval after the expected time.
struct Published {
    miss: bool,
    estimate: f64,
    score: f64,
    last: f64,
    expected: f64,
}

impl Published {
    fn decays_from(&self) -> f64 {
        self.expected + if self.miss { self.estimate } else { 0.0 }
    }

    fn score_at(&self, t: f64) -> f64 {
        let ticks = (t - self.decays_from()).floor().max(0.0);
        self.score * 0.9f64.powf(ticks)
    }

    fn frame(&mut self, t: f64) {
        self.score = (self.score_at(t) + 0.2).min(1.0);
        self.estimate = 0.9 * self.estimate + 0.1 * (t - self.last).max(1.0);
        self.expected = t + 1.2 * self.estimate;
        self.last = t;
    }

    /// First whole tick at which the score is no longer above `limit`; None if it was below already.
    fn crosses(&self, limit: f64) -> Option<f64> {
        let ticks = (0..).find(|n| self.score * 0.9f64.powi(*n) <= limit)?;
        (self.score >= limit).then(|| self.decays_from() + f64::from(ticks))
    }
}

/// Equal: the estimate, the expected time, the score at any instant, both verdicts. Not equal, and meant so: a score
/// that is below a verdict's limit when a frame arrives crosses it at the expected time, not at the frame.
#[test]
fn huddm_is_the_published_law() {
    for (kind, miss) in [(Kind::HuddmTick, false), (Kind::HuddmMiss, true)] {
        let mut published =
            Published { miss, estimate: 10.0, score: 1.0, last: START_MS, expected: START_MS + 12.0 };
        let mut law = Params::of(kind).build(stamp(START_MS));
        let mut crossed = 0;
        for t in arrivals(3000) {
            published.frame(t);
            law.heard(stamp(t), None);
            assert!((millis(Stamp::ZERO + law.promise()) - published.estimate).abs() < 1e-3, "{t}: estimate");
            assert!((millis(law.deadline()) - published.expected).abs() < 1e-3, "{t}: expected");
            for later in [0.0, 3.5, 17.3, 60.2, 333.3] {
                let (found, wanted) = (law.score(stamp(t + later)), published.score_at(t + later));
                assert!((found - wanted).abs() < 1e-9, "{t} + {later}: {found} not {wanted}");
            }
            for (found, limit) in [(law.suspect_at(), 0.5), (law.fail_at(), 0.2)] {
                let Some(wanted) = published.crosses(limit) else { continue };
                assert!((millis(found) - wanted).abs() < 1e-3, "{t}: {found:?} not {wanted}");
                crossed += 1;
            }
        }
        assert!(crossed > 5000, "only {crossed} verdicts were compared");
    }
}
