//! Pure: no IO, no clock. What an endpoint says of itself.

use super::*;

impl Endpoint {
    /// State.
    pub fn state(&self) -> State {
        self.state
    }

    /// Why.
    pub fn cause(&self) -> Cause {
        self.cause
    }

    /// FAILED, and by proof: no limit on how many of a set may be taken out.
    pub fn by_proof(&self) -> bool {
        self.state == State::Failed
            && (self.link.by_proof() || (self.mode() == Mode::Framed && self.service.by_proof()))
    }

    /// GOAWAY was read: no new work.
    pub fn draining(&self) -> bool {
        self.link.draining()
    }

    /// Health: the lower half.
    pub fn score(&self, now: Stamp) -> f64 {
        self.link.score().min(self.service.score(now))
    }

    /// Link's half.
    pub fn link_score(&self, _now: Stamp) -> f64 {
        self.link.score()
    }

    /// Service's half.
    pub fn service_score(&self, now: Stamp) -> f64 {
        self.service.score(now)
    }

    /// Whether FAILED is held back because everything is silent.
    pub fn is_held(&self) -> bool {
        self.link.is_held()
    }

    /// Whether [`Endpoint::isolation`] is to be told again within [`ISOLATION_CHECK`].
    pub fn asks_isolation(&self, now: Stamp) -> bool {
        self.link.asks_isolation(now)
    }

    /// Since when all links are silent past their deadlines, if they are.
    pub fn silent_since(&self) -> Option<Stamp> {
        self.link.silent_since()
    }

    /// Latest vouch.
    pub fn last_vouch(&self) -> Vouch {
        self.service.last_vouch()
    }

    /// Framed or plain.
    pub fn mode(&self) -> Mode {
        self.link.mode()
    }

    /// Links up.
    pub fn links(&self) -> usize {
        self.link.links()
    }

    /// Nodes that links lead to: more than one behind a virtual IP.
    pub fn nodes(&self) -> usize {
        self.service.linked()
    }

    /// Incarnation of the node, once known.
    pub fn incarnation(&self) -> Option<u64> {
        self.link.incarnation()
    }

    /// Latest arrival on any link.
    pub fn last_heard(&self) -> Stamp {
        self.link.last_heard()
    }

    /// Whether the service is spared FAILED because an upstream of its own explains that it stands still.
    pub fn excused(&self) -> bool {
        self.service.excused()
    }

    /// The facets that links and vouches tell; [`crate::upstream::work::Work::complete`] adds what beats say of its work.
    pub fn facets(&self, now: Stamp) -> Facets {
        let vouch = self.service.last_vouch();
        let known = self.link.links() > 0;
        let alive = match vouch {
            Vouch::Gone => Some(false),
            Vouch::Working | Vouch::Running | Vouch::Busy if known => Some(true),
            _ => None,
        };
        let ready = match (self.state, vouch) {
            (State::Failed, _) => Some(false),
            (_, Vouch::Stalled) => Some(false),
            (State::Active, Vouch::Working) if known => Some(!self.draining() && !self.service.frozen(now)),
            _ if self.draining() || self.service.frozen(now) => Some(false),
            _ => None,
        };
        Facets {
            alive,
            ready,
            degraded: known.then_some(self.service.starved()),
            saturated: known.then_some(now < self.saturated_until),
            business: None,
        }
    }

    /// Share of new work it should get, 0.1 to 1: after FAILED it starts slowly.
    pub fn share(&self, now: Stamp) -> f64 {
        let Some(healed) = self.healed_at else { return 1.0 };
        let grown = now.since(healed).as_secs_f64() / SLOW_START.as_secs_f64();
        (SLOW_START_FROM + (1.0 - SLOW_START_FROM) * grown).min(1.0)
    }

    /// FAILED by silence that was wrong.
    pub fn mistakes(&self) -> u64 {
        self.mistakes
    }

    /// FAILED that was right and is over.
    pub fn outages_healed(&self) -> u64 {
        self.outages_healed
    }
}
