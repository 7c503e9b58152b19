//! Pure: no IO, no clock. The second pass: every row beside every link, and what it would have said.

use std::collections::BTreeMap;
use std::time::Duration;

use super::player::Player;
use super::rows::Row;
use super::survey::{Cut, Life, Survey};
use super::tracks::{Key, Seen};
use crate::detector::{Input, Said};
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
    /// Time of all mistakes.
    pub wrong: Duration,
    /// Longest of them.
    pub wrong_max: Duration,
    /// From the beginning of a mistake to that of the next one on the same link: how often, and in all.
    pub recurrences: (u64, Duration),
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
    /// The mistake that lasts: since when, and the life it is in.
    wrong: Option<(Stamp, Life)>,
    last_mistake: Option<Stamp>,
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
        let seat = |row: &Row| Seat { player: row.player(info, at), wrong: None, last_mistake: None };
        let seats = self.rows.iter().map(seat).collect();
        self.open.insert(key, Open { stretch: self.started, cut: 0, seats });
        self.started += 1;
    }

    fn input(&mut self, open: &mut Open, input: &Input) {
        self.cut_before(open, input.at());
        let lives = &self.survey.stretches[open.stretch].lives;
        for (seat, score) in open.seats.iter_mut().zip(&mut self.scores) {
            let Seat { player, wrong, last_mistake } = seat;
            player.take(input, &mut |at, said| {
                judge(score, wrong, last_mistake, lives, at, said);
            });
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
            let Seat { player, wrong, last_mistake } = seat;
            player.finish(stretch.to, &mut |at, said| {
                judge(score, wrong, last_mistake, &stretch.lives, at, said);
            });
            if let Some((since, life)) = wrong.take() {
                add_wrong(score, since, life.to);
            }
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

/// A verdict within a life is wrong, outside of one it is right.
fn judge(
    score: &mut Score,
    wrong: &mut Option<(Stamp, Life)>,
    last_mistake: &mut Option<Stamp>,
    lives: &[Life],
    at: Stamp,
    said: Said,
) {
    let alive = lives[..lives.partition_point(|l| l.from <= at)].last().filter(|l| l.holds(at));
    match said {
        Said::Suspect => score.suspects += u64::from(alive.is_some()),
        Said::Failed | Said::LinkOnly => {
            let Some(life) = alive else { return };
            score.mistakes += 1;
            if let Some(before) = last_mistake.replace(at) {
                score.recurrences.0 += 1;
                score.recurrences.1 += at.since(before);
            }
            *wrong = Some((at, *life));
        }
        Said::Active { .. } => {
            if let Some((since, life)) = wrong.take() {
                add_wrong(score, since, at.min(life.to));
            }
        }
        Said::Challenge | Said::Held(_) => {}
    }
}

fn add_wrong(score: &mut Score, since: Stamp, to: Stamp) {
    let lasted = to.since(since);
    score.wrong += lasted;
    score.wrong_max = score.wrong_max.max(lasted);
}

impl Score {
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
