//! Pure: no IO, no clock. The scores of every row around the longest recorded silence: a figure of one real failure (row H15).

use std::time::Duration;

use super::player::Player;
use super::rows::Row;
use super::survey::Survey;
use super::tracks::{Key, Seen};
use crate::detector::Input;
use crate::sim::plot::{Axis, Plot, Series};
use crate::stamp::Stamp;
use crate::trace::format::LinkInfo;

/// What the figure shows before the last arrival, and after it.
const BEFORE: Duration = Duration::from_millis(60);
const AFTER: Duration = Duration::from_millis(240);
const STEP: Duration = Duration::from_micros(500);

/// A silence that ended a life: nothing arrived from `at` on for `length`, or until the records end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// Index in [`Survey::stretches`].
    pub stretch: usize,
    /// Last arrival.
    pub at: Stamp,
    /// Recorded length.
    pub length: Duration,
}

/// The longest silence between two lives of a link, or after its last one; None if every link lived to its last record.
pub fn longest(survey: &Survey) -> Option<Silence> {
    let of_stretch = |(stretch, s): (usize, &super::survey::Stretch)| {
        let begins = s.lives.iter().skip(1).map(|l| l.from).chain([s.to]);
        let silences: Vec<_> = s
            .lives
            .iter()
            .zip(begins)
            .map(|(life, next)| Silence { stretch, at: life.to, length: next.since(life.to) })
            .collect();
        silences
    };
    let all = survey.stretches.iter().enumerate().flat_map(of_stretch);
    all.filter(|s| s.length > Duration::ZERO).max_by_key(|s| s.length)
}

/// Every row beside the link of one silence.
pub struct Watching<'a> {
    rows: &'a [Row],
    silence: Silence,
    started: usize,
    link: Option<(Key, Vec<Seat>)>,
    /// What the title says of the link.
    endpoint: String,
    scores: Vec<Vec<(f64, f64)>>,
}

struct Seat {
    player: Player,
    scores: Vec<(f64, f64)>,
}

impl<'a> Watching<'a> {
    /// Waits for the link of `silence`.
    pub fn new(rows: &'a [Row], silence: Silence) -> Watching<'a> {
        Watching { rows, silence, started: 0, link: None, endpoint: String::new(), scores: Vec::new() }
    }

    /// Takes what happens to a link, in the order in which the survey saw it.
    pub fn see(&mut self, seen: &Seen<'_>) {
        match seen {
            Seen::Start { key, info, at, .. } => {
                if self.started == self.silence.stretch {
                    self.start(*key, info, *at);
                }
                self.started += 1;
            }
            Seen::Input { key, input } => self.input(*key, input),
            Seen::Stop { key } => {
                if self.link.as_ref().is_some_and(|(k, _)| k == key) {
                    self.finish();
                }
            }
        }
    }

    fn start(&mut self, key: Key, info: &LinkInfo, at: Stamp) {
        let seat = |row: &Row| Seat { player: row.player(info, at), scores: Vec::new() };
        self.endpoint = format!("{} {}", info.upstream, info.endpoint);
        self.link = Some((key, self.rows.iter().map(seat).collect()));
    }

    fn input(&mut self, key: Key, input: &Input) {
        let Some((_, seats)) = self.link.as_mut().filter(|(k, _)| *k == key) else { return };
        let end = self.silence.at;
        if matches!(input, Input::Heard { at } if *at > end) {
            return self.finish();
        }
        let heard = matches!(input, Input::Heard { .. }) && input.at() + BEFORE >= end;
        for seat in seats {
            seat.player.take(input, &mut |_, _| {});
            if heard {
                seat.scores.push((-end.millis_since(input.at()), seat.player.score(input.at())));
            }
        }
    }

    /// The silence begins.
    fn finish(&mut self) {
        let Some((_, seats)) = self.link.take() else { return };
        let (at, shown) = (self.silence.at, AFTER.min(self.silence.length));
        self.scores = seats
            .into_iter()
            .map(|mut seat| {
                seat.scores.extend(seat.player.decay(at, shown, STEP));
                seat.scores
            })
            .collect();
    }

    /// The figure.
    pub fn plot(self) -> Plot {
        let named = self.rows.iter().zip(self.scores);
        Plot {
            title: format!(
                "{}: scores around a recorded silence of {:.0} ms",
                self.endpoint,
                self.silence.length.as_secs_f64() * 1e3
            ),
            x: Axis::linear("ms from the last arrival"),
            y: Axis::linear("score: SUSPECT below 0.5, FAILED below 0.2"),
            series: named.map(|(row, scores)| Series::new(row.name(), scores)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Stamp {
        Stamp::from_millis(ms)
    }

    #[test]
    fn a_silence_follows_each_life_and_the_longest_counts() {
        use super::super::survey::{Life, Stretch};
        let stretch = |to, lives: &[(u64, u64)]| Stretch {
            key: Key { run: 1, link: 1 },
            group: 0,
            from: at(0),
            to: at(to),
            lives: lives.iter().map(|&(a, b)| Life { from: at(a), to: at(b) }).collect(),
        };
        let stretches = vec![stretch(900, &[(0, 900)]), stretch(2000, &[(0, 300), (1700, 1900)])];
        let survey = Survey { stretches, ..Survey::default() };
        let silence = Silence { stretch: 1, at: at(300), length: Duration::from_millis(1400) };
        assert_eq!(longest(&survey), Some(silence));
        assert_eq!(longest(&Survey::default()), None);
    }
}
