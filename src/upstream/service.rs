//! Pure: no IO, no clock. The service behind the peer's sidecar, by what that sidecar vouches for (detection.md
//! section 4).

use std::time::Duration;

use crate::detector::promise::reached;
use crate::detector::{FAILED_BELOW, FRAME_WORTH, HEALED_FROM, SUSPECT_BELOW};
use crate::stamp::Stamp;
use crate::verdict::{Cause, State, Vouch};

/// An announced pause is believed for at most this long.
pub const FREEZE_MAX: Duration = Duration::from_secs(30);
/// A beat that says `frozen` extends the pause this far.
const FREEZE_BY_BEAT: Duration = Duration::from_secs(1);
/// View of a service that burns CPU without progress.
const BUSY_CAP: f64 = 0.6;
/// View of a service that does not read.
const STALLED_CAP: f64 = 0.49;
/// View of a service that has not read for the stall patience.
const STUCK_CAP: f64 = 0.1;
/// Beats that tell of recovery come each 5 ms, a little early or late; closer ones count once.
const BEAT_SPACING: Duration = Duration::from_millis(4);
/// A peer that no longer says `stopped` or `gone` for this long, without ever saying `running`, is believed.
const SILENT_RETURN: Duration = Duration::from_secs(1);
/// Streams that could not be opened, in a row, before the service counts as stalled.
const OPEN_FAILURES: u32 = 3;

/// Stored score, latest vouch, and the view of both.
#[derive(Clone, Debug)]
pub struct ServiceSide {
    vouch: Vouch,
    /// When it was said.
    vouched_at: Stamp,
    stored: f64,
    credited_at: Stamp,
    /// When the peer last said stopped or gone.
    dead_at: Stamp,
    /// When the peer last said anything else.
    good_at: Option<Stamp>,
    open_failures: u32,
    starved: bool,
    frozen_from: Stamp,
    frozen_until: Stamp,
    frozen_view: f64,
    frozen_said: Stamp,
    /// Why it fell last: the cause while it recovers.
    fell: Cause,
    state: State,
}

impl ServiceSide {
    /// Nothing known yet: takes work.
    pub fn new() -> Self {
        ServiceSide {
            vouch: Vouch::Unknown,
            vouched_at: Stamp::ZERO,
            stored: 1.0,
            credited_at: Stamp::ZERO,
            dead_at: Stamp::ZERO,
            good_at: None,
            open_failures: 0,
            starved: false,
            frozen_from: Stamp::ZERO,
            frozen_until: Stamp::ZERO,
            frozen_view: 1.0,
            frozen_said: Stamp::ZERO,
            fell: Cause::None,
            state: State::Active,
        }
    }

    /// A beat carried this vouch. `frozen`: its service is in announced maintenance; `starved`: it is slow
    /// because of an upstream of its own.
    pub fn vouch(&mut self, now: Stamp, vouch: Vouch, frozen: bool, starved: bool) {
        // Another link of the node has said something newer.
        if now < self.vouched_at {
            return;
        }
        self.vouched_at = now;
        if frozen {
            self.freeze(now, now + FREEZE_BY_BEAT);
        }
        self.vouch = vouch;
        self.starved = starved;
        match vouch {
            Vouch::Stopped | Vouch::Gone => self.dead_at = now,
            Vouch::Working | Vouch::Running => {
                self.open_failures = 0;
                self.alive(now);
            }
            Vouch::Unknown | Vouch::Idle if self.stored < HEALED_FROM => {
                self.good_at = Some(now);
                if now.since(self.dead_at) >= SILENT_RETURN {
                    self.alive(now);
                }
            }
            Vouch::Unknown | Vouch::Idle | Vouch::Busy | Vouch::Stalled | Vouch::Stuck => {
                self.good_at = Some(now);
            }
        }
        self.settle(now);
    }

    /// A maintenance frame announced a pause; zero ends it.
    pub fn maintenance(&mut self, now: Stamp, pause: Duration) {
        if pause.is_zero() {
            self.frozen_until = now;
        } else {
            self.freeze(now, now + pause);
        }
        self.settle(now);
    }

    /// A stream could not be opened; `refused`: the service's port refused it, which is proof.
    pub fn open_failed(&mut self, now: Stamp, refused: bool) {
        if refused {
            self.vouch = Vouch::Gone;
            self.dead_at = now;
        } else {
            self.open_failures += 1;
        }
        self.settle(now);
    }

    /// Time passed: an announced pause may be over.
    pub fn settle(&mut self, now: Stamp) {
        if now >= self.frozen_until && matches!(self.vouch, Vouch::Stopped | Vouch::Gone) {
            self.stored = 0.0;
            self.fell = if self.vouch == Vouch::Gone { Cause::Crash } else { Cause::Hang };
        }
        let view = self.score(now);
        self.state = match self.state {
            _ if view < FAILED_BELOW => State::Failed,
            State::Failed if !reached(view, HEALED_FROM) => State::Failed,
            _ if !reached(view, SUSPECT_BELOW) => State::Suspect,
            _ => State::Active,
        };
        debug_assert!((0.0..=1.0).contains(&self.stored), "score out of range: {self:?}");
        debug_assert!(view >= FAILED_BELOW || self.state == State::Failed, "dead but not FAILED: {self:?}");
    }

    /// When [`ServiceSide::settle`] may change something by itself.
    pub fn due(&self, now: Stamp) -> Stamp {
        if self.frozen_until > now { self.frozen_until } else { Stamp::NEVER }
    }

    /// Score at `now`: the stored one, under the cap of the vouch.
    pub fn score(&self, now: Stamp) -> f64 {
        let cap = match self.vouch {
            Vouch::Busy => BUSY_CAP,
            Vouch::Stalled => STALLED_CAP,
            // Slow because what it needs is gone: not this node's fault (row H4).
            Vouch::Stuck if self.excused() => STALLED_CAP,
            Vouch::Stuck => STUCK_CAP,
            Vouch::Stopped | Vouch::Gone => 0.0,
            Vouch::Unknown | Vouch::Idle | Vouch::Working | Vouch::Running => 1.0,
        };
        let cap = if self.open_failures >= OPEN_FAILURES { cap.min(STALLED_CAP) } else { cap };
        let view = self.stored.min(cap);
        if now < self.frozen_until { view.max(self.frozen_view) } else { view }
    }

    /// State of the service.
    pub fn state(&self) -> State {
        self.state
    }

    /// Latest vouch.
    pub fn last_vouch(&self) -> Vouch {
        self.vouch
    }

    /// Whether it would be FAILED if no upstream of its own explained that it stands still.
    pub fn excused(&self) -> bool {
        self.starved && self.vouch == Vouch::Stuck
    }

    /// Whether its slowness is put down to an upstream of its own.
    pub fn starved(&self) -> bool {
        self.starved
    }

    /// Whether an announced pause runs at `now`.
    pub fn frozen(&self, now: Stamp) -> bool {
        now < self.frozen_until
    }

    /// When the peer last vouched for anything but a dead service.
    pub fn last_good(&self) -> Option<Stamp> {
        self.good_at
    }

    /// Whether the verdict is proved: the process is stopped, or its port is gone.
    pub fn by_proof(&self) -> bool {
        self.state == State::Failed && self.stored < HEALED_FROM
    }

    /// Whether its connections are dead for sure, not only asleep.
    pub fn gone(&self) -> bool {
        self.state == State::Failed && self.vouch == Vouch::Gone
    }

    /// Why the service is in its state.
    pub fn cause(&self) -> Cause {
        match (self.state, self.vouch) {
            (_, Vouch::Gone) => Cause::Crash,
            (_, Vouch::Stopped) => Cause::Hang,
            (_, Vouch::Stalled | Vouch::Stuck | Vouch::Busy) if self.starved => Cause::Starved,
            (_, Vouch::Stalled | Vouch::Stuck) => Cause::Stall,
            (_, Vouch::Busy) => Cause::Busy,
            (State::Active, _) => Cause::None,
            _ if self.open_failures >= OPEN_FAILURES => Cause::Stall,
            _ => self.fell,
        }
    }

    fn alive(&mut self, now: Stamp) {
        self.good_at = Some(now);
        if self.credited_at == Stamp::ZERO || now >= self.credited_at + BEAT_SPACING {
            self.stored = (self.stored + FRAME_WORTH).min(1.0);
            self.credited_at = now;
        }
    }

    fn freeze(&mut self, now: Stamp, until: Stamp) {
        if now >= self.frozen_until {
            self.frozen_view = self.score(now);
            // A peer that says `frozen` in each beat does not stretch one pause past the limit.
            if self.frozen_said == Stamp::ZERO || now > self.frozen_said + FREEZE_BY_BEAT {
                self.frozen_from = now;
            }
        }
        self.frozen_said = now;
        self.frozen_until = self.frozen_until.max(until.min(self.frozen_from + FREEZE_MAX));
    }
}

impl Default for ServiceSide {
    fn default() -> Self {
        ServiceSide::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(x: u64) -> Stamp {
        Stamp::from_millis(x)
    }

    fn dur(x: u64) -> Duration {
        Duration::from_millis(x)
    }

    #[test]
    fn each_vouch_has_its_effect() {
        let table = [
            (Vouch::Unknown, 1.0, State::Active, Cause::None),
            (Vouch::Idle, 1.0, State::Active, Cause::None),
            (Vouch::Working, 1.0, State::Active, Cause::None),
            (Vouch::Running, 1.0, State::Active, Cause::None),
            (Vouch::Busy, 0.6, State::Active, Cause::Busy),
            (Vouch::Stalled, 0.49, State::Suspect, Cause::Stall),
            (Vouch::Stuck, 0.1, State::Failed, Cause::Stall),
            (Vouch::Stopped, 0.0, State::Failed, Cause::Hang),
            (Vouch::Gone, 0.0, State::Failed, Cause::Crash),
        ];
        assert_eq!(table.len(), Vouch::ALL.len());
        for (vouch, score, state, cause) in table {
            let mut side = ServiceSide::new();
            side.vouch(ms(100), vouch, false, false);
            assert_eq!((side.score(ms(100)), side.state(), side.cause()), (score, state, cause), "{vouch:?}");
            assert_eq!(side.by_proof(), matches!(vouch, Vouch::Stopped | Vouch::Gone), "{vouch:?}");
        }
    }

    /// A bug of an earlier version: what a second link had said last, told late, undid for an instant what the first one
    /// had just said.
    #[test]
    fn an_older_word_undoes_no_newer_one() {
        let mut side = ServiceSide::new();
        side.vouch(ms(100), Vouch::Stalled, false, false);
        side.vouch(ms(90), Vouch::Working, false, false);
        assert_eq!((side.state(), side.last_vouch()), (State::Suspect, Vouch::Stalled));
        side.vouch(ms(101), Vouch::Working, false, false);
        assert_eq!(side.state(), State::Active);
    }

    #[test]
    fn caps_go_with_the_vouch() {
        for vouch in [Vouch::Busy, Vouch::Stalled, Vouch::Stuck] {
            let mut side = ServiceSide::new();
            side.vouch(ms(100), vouch, false, false);
            side.vouch(ms(120), Vouch::Working, false, false);
            assert_eq!((side.score(ms(120)), side.state()), (1.0, State::Active), "{vouch:?}");
        }
    }

    #[test]
    fn four_beats_heal_a_stopped_service() {
        let mut side = ServiceSide::new();
        side.vouch(ms(100), Vouch::Stopped, false, false);
        let mut beats = 0;
        let mut t = 200;
        while side.state() != State::Active {
            side.vouch(ms(t), Vouch::Running, false, false);
            side.vouch(ms(t + 1), Vouch::Running, false, false);
            t += 5;
            beats += 1;
            assert!(beats < 10);
        }
        assert_eq!(beats, 4);
    }

    #[test]
    fn idle_after_gone_is_believed_after_a_second_only() {
        let mut side = ServiceSide::new();
        side.open_failed(ms(100), true);
        assert_eq!((side.state(), side.cause()), (State::Failed, Cause::Crash));
        side.vouch(ms(300), Vouch::Idle, false, false);
        assert_eq!(side.score(ms(300)), 0.0);
        for i in 0..4 {
            side.vouch(ms(1200 + 100 * i), Vouch::Idle, false, false);
        }
        assert_eq!(side.state(), State::Active);
    }

    #[test]
    fn maintenance_freezes_and_ends() {
        let mut side = ServiceSide::new();
        side.maintenance(ms(100), dur(500));
        side.vouch(ms(150), Vouch::Stopped, false, false);
        assert_eq!((side.score(ms(599)), side.state()), (1.0, State::Active));
        assert_eq!(side.due(ms(150)), ms(600));
        side.settle(ms(600));
        assert_eq!((side.state(), side.cause()), (State::Failed, Cause::Hang));
    }

    #[test]
    fn a_pause_is_believed_for_thirty_seconds_at_most() {
        let mut side = ServiceSide::new();
        side.maintenance(ms(100), dur(3_600_000));
        assert_eq!(side.due(ms(100)), ms(30_100));
        let mut t = 200;
        while t < 40_000 {
            side.vouch(ms(t), Vouch::Stopped, true, false);
            t += 100;
        }
        assert_eq!(side.state(), State::Failed);
    }

    #[test]
    fn starved_excuses_slowness_only() {
        let mut side = ServiceSide::new();
        for slow in [Vouch::Stalled, Vouch::Stuck] {
            side.vouch(ms(100), slow, false, true);
            assert_eq!((side.cause(), side.state()), (Cause::Starved, State::Suspect), "{slow:?}");
            assert_eq!(side.excused(), slow == Vouch::Stuck, "{slow:?}: SUSPECT needs no excuse");
        }
        side.vouch(ms(150), Vouch::Stuck, false, false);
        assert!(!side.excused());
        assert_eq!(
            (side.cause(), side.state()),
            (Cause::Stall, State::Failed),
            "its upstream is back, it is not"
        );
        side.vouch(ms(200), Vouch::Stopped, false, true);
        assert_eq!(side.cause(), Cause::Hang);
    }

    #[test]
    fn opens_that_fail_without_refusal_are_a_stall_at_most() {
        let mut side = ServiceSide::new();
        for i in 0..5 {
            side.open_failed(ms(100 + i), false);
        }
        assert_eq!((side.state(), side.cause()), (State::Suspect, Cause::Stall));
        side.vouch(ms(200), Vouch::Working, false, false);
        assert_eq!(side.state(), State::Active);
    }
}
