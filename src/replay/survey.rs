//! Pure: no IO, no clock. The first pass: when each link lived, what its own judge said, and whether the shipped judge,
//! told the same, says the same again.
//!
//! A link lives from an arrival to the last one before it ended, before a hole, or before a FAILED of the recorded judge
//! that did not heal within `learn_max`: what FAILED says outside of that is right, within it is a mistake.

use std::collections::BTreeMap;
use std::time::Duration;

use super::tracks::{Key, Seen};
use crate::detector::{End, Input, LinkJudge, Params, Said};
use crate::stamp::Stamp;
use crate::trace::format::LinkInfo;
use crate::trace::settings;

/// A time in which a peer was there, from one arrival to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// First arrival.
    pub from: Stamp,
    /// Last arrival.
    pub to: Stamp,
}

impl Life {
    /// True while the peer was there for sure.
    pub fn holds(&self, at: Stamp) -> bool {
        self.from <= at && at < self.to
    }
}

/// Records of one link without a hole.
#[derive(Clone, Debug)]
pub struct Stretch {
    /// The link.
    pub key: Key,
    /// Index in [`Survey::groups`].
    pub group: usize,
    /// First and last record.
    pub from: Stamp,
    /// See `from`.
    pub to: Stamp,
    /// In order, apart.
    pub lives: Vec<Life>,
}

/// Links to the same endpoint in the same run: the first verdict on any of them counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    /// The run.
    pub run: u32,
    /// Name of the upstream.
    pub upstream: String,
    /// Address of the endpoint.
    pub endpoint: String,
}

/// What the recorded judges said, and what came of repeating them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Laws with their settings, and how many stretches were judged by each.
    pub laws: BTreeMap<(String, String), u64>,
    /// SUSPECT.
    pub suspects: u64,
    /// FAILED of a link, by silence.
    pub failed: u64,
    /// Healed as a mistake.
    pub mistakes: u64,
    /// Healed as an outage.
    pub outages: u64,
    /// Verdicts (SUSPECT, FAILED, ACTIVE) that could be repeated: their link was recorded from its beginning.
    pub repeatable: u64,
    /// Those that came out the same, at the same time.
    pub reproduced: u64,
    /// The first that did not.
    pub first_difference: Option<String>,
    /// Why some laws could not be repeated.
    pub unknown_law: Option<String>,
}

/// What the first pass found.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// In the order in which they begin in the files.
    pub stretches: Vec<Stretch>,
    /// Endpoints.
    pub groups: Vec<Group>,
    /// Of the recorded judges.
    pub recorded: Recorded,
    /// Arrivals in all.
    pub arrivals: u64,
    /// Links that ended by FIN, RST or an error, and FAILED that did not heal: real ends of a life.
    pub failures: u64,
}

/// The first pass; see the module.
#[derive(Debug, Default)]
pub struct Surveyor {
    survey: Survey,
    open: BTreeMap<Key, Open>,
    by_group: BTreeMap<Group, usize>,
}

struct Open {
    stretch: usize,
    learn_max: Duration,
    life_from: Option<Stamp>,
    heard: Option<Stamp>,
    suspected: Option<Stamp>,
    failed: Option<Failed>,
    /// Its end was counted as a failure.
    counted: bool,
    /// The judge to be repeated.
    judge: Option<Box<LinkJudge>>,
}

/// FAILED, until it heals.
#[derive(Clone, Copy)]
struct Failed {
    at: Stamp,
    suspected: Stamp,
    last_heard: Option<Stamp>,
    heard_again: Option<Stamp>,
}

impl std::fmt::Debug for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Open({})", self.stretch)
    }
}

impl Survey {
    /// Time that links lived, in all.
    pub fn lived(&self) -> Duration {
        self.stretches.iter().flat_map(|s| &s.lives).map(|l| l.to.since(l.from)).sum()
    }
}

impl Surveyor {
    /// Nothing seen yet.
    pub fn new() -> Surveyor {
        Surveyor::default()
    }

    /// When every link has stopped.
    pub fn finish(self) -> Survey {
        self.survey
    }

    /// Takes what happens to a link.
    pub fn see(&mut self, seen: &Seen<'_>) {
        match seen {
            Seen::Start { key, info, at, begun } => self.start(*key, info, *at, *begun),
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

    fn start(&mut self, key: Key, info: &LinkInfo, at: Stamp, begun: bool) {
        let group = Group { run: key.run, upstream: info.upstream.clone(), endpoint: info.endpoint.clone() };
        let known = self.by_group.get(&group).copied();
        let group = known.unwrap_or_else(|| {
            let index = self.survey.groups.len();
            self.survey.groups.push(group.clone());
            self.by_group.insert(group, index);
            index
        });
        let law = (info.law.clone(), info.settings.clone());
        *self.survey.recorded.laws.entry(law).or_default() += 1;
        let params = settings::params(info);
        if let Err(why) = &params {
            self.survey.recorded.unknown_law.get_or_insert_with(|| why.clone());
        }
        let learn_max = params.as_ref().map_or(Params::default().learn_max, |p| p.learn_max);
        let judge = params.ok().filter(|_| begun).map(|p| Box::new(LinkJudge::new(&p, at)));
        let open = Open {
            stretch: self.survey.stretches.len(),
            learn_max,
            life_from: None,
            heard: None,
            suspected: None,
            failed: None,
            counted: false,
            judge,
        };
        self.survey.stretches.push(Stretch { key, group, from: at, to: at, lives: Vec::new() });
        self.open.insert(key, open);
    }

    fn input(&mut self, open: &mut Open, input: &Input) {
        let at = input.at();
        let stretch = &mut self.survey.stretches[open.stretch];
        stretch.to = stretch.to.max(at);
        self.repeat(open, input);
        match *input {
            Input::Heard { at } => {
                self.survey.arrivals += 1;
                open.life_from.get_or_insert(at);
                open.heard = Some(at);
                if let Some(failed) = &mut open.failed {
                    failed.heard_again.get_or_insert(at);
                }
            }
            Input::Polled { at, said: Some(said), .. } => self.said(open, at, said),
            Input::Ended { how, .. } => {
                open.counted = !matches!(how, End::Unknown | End::Goaway | End::Cut);
                self.survey.failures += u64::from(open.counted);
            }
            _ => {}
        }
    }

    fn said(&mut self, open: &mut Open, at: Stamp, said: Said) {
        let recorded = &mut self.survey.recorded;
        match said {
            Said::Suspect => {
                recorded.suspects += 1;
                open.suspected = Some(at);
            }
            Said::Failed | Said::LinkOnly => {
                recorded.failed += 1;
                let suspected = open.suspected.unwrap_or(at);
                let failed = Failed { at, suspected, last_heard: open.heard, heard_again: None };
                open.failed.get_or_insert(failed);
            }
            Said::Active { mistake, outage } => {
                recorded.mistakes += u64::from(mistake);
                recorded.outages += u64::from(outage);
                if let Some(failed) = open.failed.take().filter(|_| outage) {
                    self.back(open, &failed, at);
                }
            }
            Said::Challenge | Said::Held(_) => {}
        }
    }

    /// The recorded judge takes what healed at `at` for an outage. If it lasted longer than a mistake does, one life ended
    /// and another begins.
    fn back(&mut self, open: &mut Open, failed: &Failed, at: Stamp) {
        let (Some(last), Some(again)) = (failed.last_heard, failed.heard_again) else { return };
        let silent = again.since(last) > open.learn_max;
        if !silent && at.since(failed.at) <= open.learn_max {
            // Short and explained by the peer: it was there.
            return;
        }
        self.survey.failures += 1;
        // Where arrivals went on, it was the peer that did not hear us.
        let (to, from) = if silent { (last, again) } else { (failed.suspected, at) };
        self.end_life(open, to);
        open.life_from = Some(from);
    }

    fn end_life(&mut self, open: &mut Open, to: Stamp) {
        if let Some(from) = open.life_from.take().filter(|from| *from < to) {
            self.survey.stretches[open.stretch].lives.push(Life { from, to });
        }
    }

    fn stop(&mut self, mut open: Open) {
        let last = match open.failed {
            // It never healed: silence from before the verdict on.
            Some(failed) => {
                self.survey.failures += u64::from(!open.counted);
                failed.last_heard
            }
            None => open.heard,
        };
        if let Some(last) = last {
            self.end_life(&mut open, last);
        }
    }

    fn repeat(&mut self, open: &mut Open, input: &Input) {
        let Some(judge) = &mut open.judge else { return };
        let now = judge.take(input);
        let Input::Polled { at, said, .. } = *input else { return };
        let verdict = |s: Option<Said>| !matches!(s, None | Some(Said::Challenge | Said::Held(_)));
        if verdict(said) || verdict(now) {
            self.survey.recorded.repeatable += 1;
            self.survey.recorded.reproduced += u64::from(said == now);
        }
        if said != now {
            let first = || {
                let words = |s: Option<Said>| s.map_or("nothing".to_owned(), |s| s.to_string());
                format!("at {at:?} the recorded judge said {}, now it says {}", words(said), words(now))
            };
            self.survey.recorded.first_difference.get_or_insert_with(first);
        }
    }
}

/// A moment at which a replay lets everything fall silent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cut {
    /// Index among all cuts; links of the same endpoint share it.
    pub index: usize,
    /// When.
    pub at: Stamp,
}

/// `n` random moments, spread evenly over the time that links lived, by stretch. `unit` gives numbers from 0 to 1.
pub fn cuts(survey: &Survey, n: usize, unit: &mut dyn FnMut() -> f64) -> Vec<Vec<Cut>> {
    let mut by_stretch = vec![Vec::new(); survey.stretches.len()];
    let mut ends = Vec::new();
    let mut sum = 0.0;
    for (i, stretch) in survey.stretches.iter().enumerate() {
        for life in &stretch.lives {
            sum += life.to.since(life.from).as_secs_f64();
            ends.push((sum, i, *life));
        }
    }
    if ends.is_empty() {
        return by_stretch;
    }
    let mut of_group = vec![Vec::new(); survey.groups.len()];
    for (i, stretch) in survey.stretches.iter().enumerate() {
        of_group[stretch.group].push(i);
    }
    for index in 0..n {
        let x = unit() * sum;
        let (end, stretch, life) = ends[ends.partition_point(|e| e.0 <= x).min(ends.len() - 1)];
        let at = (life.to - Duration::from_secs_f64((end - x).max(0.0))).max(life.from);
        for other in &of_group[survey.stretches[stretch].group] {
            let s = &survey.stretches[*other];
            if s.from <= at && at <= s.to {
                by_stretch[*other].push(Cut { index, at });
            }
        }
    }
    by_stretch.iter_mut().for_each(|cuts| cuts.sort_by_key(|c| c.at));
    by_stretch
}
