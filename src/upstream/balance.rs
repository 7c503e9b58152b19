//! Pure: no IO, no clock. The choice of an endpoint: smooth weighted round robin over the healthiest tier, and the
//! panic rule (detection.md section 6).

use crate::stamp::Stamp;
use crate::verdict::State;

use super::endpoint::Endpoint;

/// Tier of the FAILED: only what the panic rule keeps in.
const LAST_RESORT: u8 = 3;

/// What a verdict may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Enforce {
    /// Judge, never act.
    Off,
    /// Avoid SUSPECT and FAILED, take nothing out.
    Suspect,
    /// Take FAILED out.
    #[default]
    Failed,
}

/// One endpoint as the choice sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct View {
    /// State.
    pub state: State,
    /// FAILED by proof, not by silence.
    pub by_proof: bool,
    /// Announced its end: takes no new work while another can.
    pub draining: bool,
    /// Relative share, at least 1.
    pub weight: u32,
    /// Slow start, 0 to 1.
    pub share: f64,
    /// Score: among endpoints failed by silence the worst are taken out first.
    pub score: f64,
}

impl View {
    /// A healthy endpoint of that weight.
    pub fn active(weight: u32) -> Self {
        View { state: State::Active, by_proof: false, draining: false, weight, share: 1.0, score: 1.0 }
    }

    /// The view of an endpoint.
    pub fn of(endpoint: &Endpoint, weight: u32, now: Stamp) -> Self {
        View {
            state: endpoint.state(),
            by_proof: endpoint.by_proof(),
            draining: endpoint.draining(),
            weight,
            share: endpoint.share(now),
            score: endpoint.score(now),
        }
    }

    fn pull(&self) -> f64 {
        f64::from(self.weight.max(1)) * self.share.clamp(0.01, 1.0)
    }
}

/// Chooses among the endpoints of one upstream.
#[derive(Clone, Debug)]
pub struct Balance {
    enforce: Enforce,
    max_failed: f64,
    turn: Vec<f64>,
}

impl Balance {
    /// `max_failed`: share of the set, 0 to 1, that silence may take out.
    pub fn new(enforce: Enforce, max_failed: f64) -> Self {
        Balance { enforce, max_failed: max_failed.clamp(0.0, 1.0), turn: Vec::new() }
    }

    /// Changes what a verdict may do.
    pub fn set_enforce(&mut self, enforce: Enforce) {
        self.enforce = enforce;
    }

    /// Index of the endpoint that takes the next connection; None if every endpoint is excluded (already tried) or
    /// rightly out. ACTIVE comes before SUSPECT, SUSPECT before draining, and FAILED last, as far as the panic rule
    /// keeps it in.
    pub fn pick(&mut self, views: &[View], exclude: &[usize]) -> Option<usize> {
        if self.turn.len() != views.len() {
            self.turn = vec![0.0; views.len()];
        }
        let mut open: Vec<usize> = (0..views.len()).filter(|i| !exclude.contains(i)).collect();
        let tier = open.iter().map(|&i| self.tier(&views[i])).min()?;
        open.retain(|&i| self.tier(&views[i]) == tier && (tier < LAST_RESORT || self.keeps_in(views, i)));
        self.next_turn(views, &open)
    }

    /// Whether endpoint `index` is out: no new work even as a last resort.
    pub fn out(&self, views: &[View], index: usize) -> bool {
        self.tier(&views[index]) == LAST_RESORT && !self.keeps_in(views, index)
    }

    /// How many verdicts the panic rule holds back after a change that it did not hold back before it: endpoints that are
    /// FAILED and yet take work where nobody better can.
    pub fn newly_held(&self, before: &[View], after: &[View]) -> usize {
        let held = |views: &[View], i: usize| {
            let failed = views.get(i).is_some_and(|v| v.state == State::Failed);
            failed && self.enforce == Enforce::Failed && self.keeps_in(views, i)
        };
        (0..after.len()).filter(|&i| held(after, i) && !held(before, i)).count()
    }

    fn tier(&self, view: &View) -> u8 {
        match view.state {
            _ if self.enforce == Enforce::Off => u8::from(view.draining),
            State::Failed => LAST_RESORT,
            _ if view.draining => 2,
            State::Suspect => 1,
            State::Active => 0,
        }
    }

    /// The panic rule. A single endpoint is never refused; proof has no limit; silence takes out at most its share
    /// of the set, worst first, and never the last one.
    fn keeps_in(&self, views: &[View], index: usize) -> bool {
        if self.enforce != Enforce::Failed || views.len() == 1 {
            return true;
        }
        let view = &views[index];
        if view.by_proof {
            return false;
        }
        let silent = |v: &View| v.state == State::Failed && !v.by_proof;
        let count = views.iter().filter(|v| silent(v)).count();
        let others_work = views.iter().any(|v| v.state != State::Failed);
        let share = (self.max_failed * views.len() as f64 + 1e-9).floor() as usize;
        let allowed = share.min(if others_work { count } else { count - 1 });
        let worse = views
            .iter()
            .enumerate()
            .filter(|(i, v)| silent(v) && (v.score, *i) < (view.score, index))
            .count();
        worse >= allowed
    }

    fn next_turn(&mut self, views: &[View], open: &[usize]) -> Option<usize> {
        let mut total = 0.0;
        let mut best: Option<usize> = None;
        for &i in open {
            let pull = views[i].pull();
            total += pull;
            self.turn[i] += pull;
            if best.is_none_or(|b| self.turn[i] > self.turn[b]) {
                best = Some(i);
            }
        }
        let best = best?;
        self.turn[best] -= total;
        Some(best)
    }
}

#[cfg(test)]
#[path = "balance_tests.rs"]
mod tests;
