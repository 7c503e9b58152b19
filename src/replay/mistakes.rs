//! Pure: no IO, no clock. What FAILED of one row beside one link was worth: a mistake, a late recovery, or right.
//!
//! ```text
//!   life      ├──────────────────┤     outage      ├──────────────────┤
//!   FAILED         ├──┤                ├───────────────────┤
//!                 mistake                 right    │recovery│
//! ```
//!
//! FAILED said within a life is a mistake, as far as that life goes. FAILED that is still there when a life begins is a late
//! recovery, whatever it began with. Both are wrong for P_A.

use std::time::Duration;

use super::score::Score;
use super::survey::Life;
use crate::detector::Said;
use crate::stamp::Stamp;

/// One row beside one link, as far as it was wrong.
#[derive(Clone, Debug, Default)]
pub struct Mistakes {
    /// Since when the row holds the link for FAILED.
    failed: Option<Stamp>,
    /// When the last mistake began.
    last: Option<Stamp>,
}

impl Mistakes {
    /// The row spoke. `lives` are those of the link, in order.
    pub fn said(&mut self, score: &mut Score, lives: &[Life], at: Stamp, said: Said) {
        match said {
            Said::Suspect => score.suspects += u64::from(alive(lives, at).is_some()),
            Said::Failed | Said::LinkOnly if self.failed.is_none() => {
                self.failed = Some(at);
                if alive(lives, at).is_some() {
                    self.mistake(score, lives, at);
                }
            }
            Said::Active { .. } => self.over(score, lives, at),
            Said::Failed | Said::LinkOnly | Said::Challenge | Said::Held(_) => {}
        }
    }

    /// The row healed at `at`, or the records end there.
    pub fn over(&mut self, score: &mut Score, lives: &[Life], at: Stamp) {
        let Some(since) = self.failed.take() else { return };
        for life in lives.iter().filter(|l| l.from <= at && since < l.to) {
            let until = at.min(life.to);
            if life.holds(since) {
                score.add_mistake(until.since(since));
            } else {
                score.recoveries.push(until.since(life.from));
            }
        }
    }

    /// T_MR is a time between mistakes of a link that lives: an outage between them is none of it.
    fn mistake(&mut self, score: &mut Score, lives: &[Life], at: Stamp) {
        score.mistakes += 1;
        if let Some(before) = self.last.replace(at) {
            score.recurrences.0 += 1;
            score.recurrences.1 += lived(lives, before, at);
        }
    }
}

fn alive(lives: &[Life], at: Stamp) -> Option<&Life> {
    lives[..lives.partition_point(|l| l.from <= at)].last().filter(|l| l.holds(at))
}

/// How much of the time between the two the link lived.
fn lived(lives: &[Life], from: Stamp, to: Stamp) -> Duration {
    let part = |l: &Life| l.to.min(to).since(l.from.max(from));
    lives.iter().filter(|l| l.from < to && from < l.to).map(part).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEALED: Said = Said::Active { mistake: true, outage: false };

    fn sec(n: u64) -> Stamp {
        Stamp::from_millis(n * 1000)
    }

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn lives(list: &[(u64, u64)]) -> Vec<Life> {
        list.iter().map(|&(from, to)| Life { from: sec(from), to: sec(to) }).collect()
    }

    /// A row that is FAILED in these times, seconds, beside a link that lives in those.
    fn scored(list: &[(u64, u64)], failed: &[(u64, u64)]) -> Score {
        let (lives, mut score, mut row) = (lives(list), Score::default(), Mistakes::default());
        for &(from, to) in failed {
            row.said(&mut score, &lives, sec(from), Said::Suspect);
            row.said(&mut score, &lives, sec(from), Said::Failed);
            row.said(&mut score, &lives, sec(to), HEALED);
        }
        score
    }

    #[test]
    fn failed_within_a_life_is_a_mistake_and_outside_it_is_right() {
        let score = scored(&[(0, 100)], &[(10, 12), (40, 41), (200, 300)]);
        assert_eq!((score.mistakes, score.suspects), (2, 2));
        assert_eq!((score.wrong, score.wrong_max), (secs(3), secs(2)));
        assert_eq!((score.recoveries.len(), score.wrong_time()), (0, secs(3)));
    }

    /// It was counted as right to the end of time: P_A stayed 1.
    #[test]
    fn failed_that_outlasts_an_outage_is_a_late_recovery() {
        let score = scored(&[(0, 100), (200, 300)], &[(101, 207)]);
        assert_eq!((score.mistakes, score.recoveries.clone()), (0, vec![secs(7)]));
        assert_eq!(score.wrong_time(), secs(7));
    }

    #[test]
    fn one_that_heals_with_the_first_arrival_recovers_at_once() {
        let score = scored(&[(0, 100), (200, 300)], &[(101, 200)]);
        assert_eq!(score.recoveries, [Duration::ZERO]);
        let score = scored(&[(0, 100), (200, 300)], &[(101, 199)]);
        assert!(score.recoveries.is_empty(), "it was ACTIVE again before there was anything to recover from");
    }

    /// The part behind the life it began in was lost.
    #[test]
    fn a_mistake_that_goes_on_into_the_next_lives_is_wrong_there_too() {
        let score = scored(&[(0, 100), (200, 300), (400, 500)], &[(98, 405)]);
        assert_eq!((score.mistakes, score.wrong), (1, secs(2)));
        assert_eq!(score.recoveries, [secs(100), secs(5)], "it never recovered in the second life");
        assert_eq!(score.wrong_time(), secs(107));
    }

    #[test]
    fn the_end_of_the_records_ends_all() {
        let lives = lives(&[(0, 100), (200, 300)]);
        let (mut score, mut row) = (Score::default(), Mistakes::default());
        row.said(&mut score, &lives, sec(150), Said::Failed);
        row.said(&mut score, &lives, sec(160), Said::LinkOnly);
        row.over(&mut score, &lives, sec(300));
        row.over(&mut score, &lives, sec(400));
        assert_eq!((score.mistakes, score.recoveries), (0, vec![secs(100)]));
    }

    /// By hand after Chen, Toueg, Aguilera 2002: mistakes of 2 s begin at 10, 30, 50, 70 and 90 s of 100. T_M 2 s, T_MR
    /// 20 s, lambda_M 5 in 100 s = 1 / T_MR, P_A 0.9 = 1 - T_M / T_MR.
    fn of_chen(score: &Score, lived: f64) {
        let (t_m, t_mr) = (score.t_m().unwrap().as_secs_f64(), score.t_mr().unwrap().as_secs_f64());
        assert_eq!((t_m, t_mr), (2.0, 20.0));
        let (lambda, p_a) = (score.mistakes as f64 / lived, 1.0 - score.wrong_time().as_secs_f64() / lived);
        assert!((lambda - 1.0 / t_mr).abs() < 1e-12, "lambda_M {lambda}");
        assert!((p_a - (1.0 - t_m / t_mr)).abs() < 1e-12, "P_A {p_a}");
    }

    #[test]
    fn the_relations_of_chen_hold_in_one_life() {
        of_chen(&scored(&[(0, 100)], &[(10, 12), (30, 32), (50, 52), (70, 72), (90, 92)]), 100.0);
    }

    /// An hour of outage between two mistakes made their distance an hour.
    #[test]
    fn the_relations_of_chen_hold_across_an_outage() {
        let lives = [(0, 40), (3640, 3700)];
        let failed = [(10, 12), (30, 32), (41, 3640), (3650, 3652), (3670, 3672), (3690, 3692)];
        let score = scored(&lives, &failed);
        of_chen(&score, 100.0);
        assert_eq!(score.recoveries, [Duration::ZERO]);
    }

    #[test]
    fn one_mistake_has_no_distance_to_the_next() {
        let score = scored(&[(0, 100)], &[(10, 12)]);
        assert_eq!((score.t_m(), score.t_mr()), (Some(secs(2)), None));
        assert_eq!((Score::default().t_m(), Score::default().t_mr()), (None, None));
    }
}
