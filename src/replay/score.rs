//! Pure: no IO, no clock. The second pass: every row beside every link, and what it would have said.

use std::collections::BTreeMap;
use std::time::Duration;

use super::mistakes::Mistakes;
use super::player::Player;
use super::rows::Row;
use super::survey::{Cut, Survey};
use super::tracks::{Key, Seen};
use crate::detector::Input;
use crate::stamp::Stamp;
use crate::trace::format::LinkInfo;
use crate::verdict::State;

/// A silence that no verdict ends within this is undetected.
pub const LIMIT: Duration = Duration::from_secs(120);

/// What one row came to. Symbols as in the literature: T_M mistake duration, T_MR mistake recurrence.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Score {
    /// False SUSPECT.
    pub suspects: u64,
    /// False FAILED: the link lived, and an arrival proved it.
    pub mistakes: u64,
    /// Time of all mistakes, each as far as the life goes that it began in.
    pub wrong: Duration,
    /// Longest of them.
    pub wrong_max: Duration,
    /// From the beginning of a mistake to that of the next one on the same link, in time that it lived: how often, and in
    /// all.
    pub recurrences: (u64, Duration),
    /// Lives that began while the link was held for FAILED: from there to ACTIVE, or to the end of that life.
    pub recoveries: Vec<Duration>,
    /// Of each cut, by index: from the cut to SUSPECT and to FAILED.
    pub cuts: Vec<CutScore>,
}

/// What a row made of one cut: the first verdict on any link to the endpoint counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CutScore {
    /// Links that were recorded at that moment.
    pub links: u32,
    /// Those that the row held for FAILED already: it says nothing about its speed.
    pub failed_before: u32,
    /// To SUSPECT.
    pub suspect: Option<Duration>,
    /// To FAILED.
    pub failed: Option<Duration>,
}

/// All rows over one set of files.
pub struct Scoring<'a> {
    rows: &'a [Row],
    survey: &'a Survey,
    cuts: &'a [Vec<Cut>],
    /// One per row.
    pub scores: Vec<Score>,
    open: BTreeMap<Key, Open>,
    started: usize,
}

struct Open {
    stretch: usize,
    /// Cuts that are over.
    cut: usize,
    seats: Vec<Seat>,
}

/// One row beside one link.
struct Seat {
    player: Player,
    mistakes: Mistakes,
}

impl<'a> Scoring<'a> {
    /// `cuts` as [`super::survey::cuts`] made them, `count` in all.
    pub fn new(rows: &'a [Row], survey: &'a Survey, cuts: &'a [Vec<Cut>], count: usize) -> Scoring<'a> {
        let score = Score { cuts: vec![CutScore::default(); count], ..Score::default() };
        Scoring { rows, survey, cuts, scores: vec![score; rows.len()], open: BTreeMap::new(), started: 0 }
    }

    /// Takes what happens to a link, in the order in which the survey saw it.
    pub fn see(&mut self, seen: &Seen<'_>) {
        match seen {
            Seen::Start { key, info, at, .. } => self.start(*key, info, *at),
            Seen::Input { key, input } => {
                if let Some(mut open) = self.open.remove(key) {
                    self.input(&mut open, input);
                    self.open.insert(*key, open);
                }
            }
            Seen::Stop { key } => {
                if let Some(open) = self.open.remove(key) {
                    self.stop(open);
                }
            }
        }
    }

    fn start(&mut self, key: Key, info: &LinkInfo, at: Stamp) {
        let seat = |row: &Row| Seat { player: row.player(info, at), mistakes: Mistakes::default() };
        let seats = self.rows.iter().map(seat).collect();
        self.open.insert(key, Open { stretch: self.started, cut: 0, seats });
        self.started += 1;
    }

    fn input(&mut self, open: &mut Open, input: &Input) {
        self.cut_before(open, input.at());
        let lives = &self.survey.stretches[open.stretch].lives;
        for (seat, score) in open.seats.iter_mut().zip(&mut self.scores) {
            let Seat { player, mistakes } = seat;
            player.take(input, &mut |at, said| mistakes.said(score, lives, at, said));
        }
    }

    /// The cuts that no longer see what is recorded at `now`.
    fn cut_before(&mut self, open: &mut Open, now: Stamp) {
        while let Some(cut) = self.cuts[open.stretch].get(open.cut).filter(|c| c.at < now) {
            open.cut += 1;
            for (seat, score) in open.seats.iter().zip(&mut self.scores) {
                note_cut(&mut score.cuts[cut.index], &seat.player, cut.at);
            }
        }
    }

    fn stop(&mut self, mut open: Open) {
        self.cut_before(&mut open, Stamp::NEVER);
        let stretch = &self.survey.stretches[open.stretch];
        for (seat, score) in open.seats.iter_mut().zip(&mut self.scores) {
            let Seat { player, mistakes } = seat;
            player.finish(stretch.to, &mut |at, said| mistakes.said(score, &stretch.lives, at, said));
            mistakes.over(score, &stretch.lives, stretch.to);
        }
    }
}

fn note_cut(cut: &mut CutScore, player: &Player, at: Stamp) {
    cut.links += 1;
    if player.state() == State::Failed {
        cut.failed_before += 1;
        return;
    }
    let silence = player.cut(at, LIMIT);
    let first = |before: Option<Duration>, when: Option<Stamp>| match (before, when.map(|w| w.since(at))) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    cut.suspect = first(cut.suspect, silence.suspect);
    cut.failed = first(cut.failed, silence.failed);
}

impl Score {
    pub(super) fn add_mistake(&mut self, lasted: Duration) {
        self.wrong += lasted;
        self.wrong_max = self.wrong_max.max(lasted);
    }

    /// Time for which a link that lived was held for FAILED: mistakes and late recoveries.
    pub fn wrong_time(&self) -> Duration {
        self.wrong + self.recoveries.iter().sum::<Duration>()
    }

    /// T_M, the mean duration of a mistake; None without one.
    pub fn t_m(&self) -> Option<Duration> {
        mean(self.wrong, self.mistakes)
    }

    /// T_MR, the mean time from one mistake to the next; None unless a link made two.
    pub fn t_mr(&self) -> Option<Duration> {
        mean(self.recurrences.1, self.recurrences.0)
    }

    /// Mean time of recovery; None without one.
    pub fn recovery(&self) -> Option<Duration> {
        mean(self.recoveries.iter().sum(), self.recoveries.len() as u64)
    }

    /// Times of recovery, ms, sorted.
    pub fn recovery_times(&self) -> Vec<f64> {
        sorted_ms(self.recoveries.iter().copied())
    }

    /// Cuts that the row could be fast at: it held no link of the endpoint for FAILED before.
    fn fair(&self) -> impl Iterator<Item = &CutScore> {
        self.cuts.iter().filter(|c| c.links > 0 && c.failed_before == 0)
    }

    /// Detection times T_D, ms, sorted.
    pub fn detections(&self) -> Vec<f64> {
        sorted_ms(self.fair().filter_map(|c| c.failed))
    }

    /// Times to SUSPECT, ms, sorted.
    pub fn suspicions(&self) -> Vec<f64> {
        sorted_ms(self.fair().filter_map(|c| c.suspect))
    }

    /// Cuts that no FAILED followed within [`LIMIT`].
    pub fn undetected(&self) -> usize {
        self.fair().filter(|c| c.failed.is_none()).count()
    }
}

fn mean(sum: Duration, n: u64) -> Option<Duration> {
    (n > 0).then(|| Duration::from_secs_f64(sum.as_secs_f64() / n as f64))
}

fn sorted_ms(times: impl Iterator<Item = Duration>) -> Vec<f64> {
    let mut all: Vec<f64> = times.map(|d| d.as_secs_f64() * 1e3).collect();
    all.sort_by(f64::total_cmp);
    all
}

/// The value below which a share of `sorted` lies; None if it is empty.
pub fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get((last as f64 * share).round() as usize).copied()
}
