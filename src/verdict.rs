//! Pure: no IO, no clock. The words of every judgement: state, cause, vouch (detection.md sections 4 and 5).

use serde::{Deserialize, Serialize};

/// State of an endpoint (row H6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Takes work. Score at least 0.5.
    Active,
    /// Doubted: no new work if a better endpoint exists; undone by itself.
    Suspect,
    /// Taken out.
    Failed,
}

impl State {
    /// All states, in order of health.
    pub const ALL: [State; 3] = [State::Active, State::Suspect, State::Failed];

    /// Name in metrics, events and `/status`.
    pub const fn name(self) -> &'static str {
        match self {
            State::Active => "active",
            State::Suspect => "suspect",
            State::Failed => "failed",
        }
    }

    /// Small number for atomics.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Inverse of [`State::code`]; unknown numbers are `Active`.
    pub const fn from_code(code: u8) -> State {
        match code {
            1 => State::Suspect,
            2 => State::Failed,
            _ => State::Active,
        }
    }
}

macro_rules! causes {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Why an endpoint is in the state it is in (detection.md section 5).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Cause { $($(#[$doc])* $name,)* }

        impl Cause {
            /// All causes, for pre-created metrics.
            pub const ALL: &'static [Cause] = &[$(Cause::$name,)*];

            /// Name in metrics, events and `/status`.
            pub const fn name(self) -> &'static str {
                match self { $(Cause::$name => $text,)* }
            }
        }
    };
}

causes! {
    /// Nothing is wrong.
    None = "none",
    /// A promise was broken; not yet refined.
    Silent = "silent",
    /// FIN / RST and refused, or vouch `gone`.
    Crash = "crash",
    /// Vouch `stopped`: the service's process is stopped.
    Hang = "hang",
    /// Vouch `stalled`: requests unread or unanswered and no progress, or a failing probe.
    Stall = "stall",
    /// Vouch `busy`: no progress, but burning CPU.
    Busy = "busy",
    /// The peer's kernel accepts, its sidecar does not answer.
    HangPeer = "hang_peer",
    /// A fresh connection stays unanswered.
    Blackhole = "blackhole",
    /// We hear the peer, it does not hear us.
    OneWay = "one_way",
    /// The link port is refused, the service's port accepts.
    SidecarLost = "sidecar_lost",
    /// Fresh backpressure.
    Saturated = "saturated",
    /// The peer is slow because its own upstream failed.
    Starved = "starved",
    /// GOAWAY: planned.
    Draining = "draining",
    /// A new incarnation of the node.
    Restart = "restart",
    /// We are the ones cut off.
    SelfIsolated = "self_isolated",
}

/// What a sidecar says of the service beside it (detection.md section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Vouch {
    /// Nothing known.
    #[default]
    Unknown,
    /// Progress seen since the last beat.
    Working,
    /// Nothing asked.
    Idle,
    /// Runs or listens again after `Stopped` or `Gone`, or answers its probe while nothing is asked; no work seen yet.
    Running,
    /// No progress, but running and burning CPU.
    Busy,
    /// Unread for too long and no progress anywhere; or answers are late; or its probe fails.
    Stalled,
    /// As `Stalled`, for longer than the stall patience and seen on two connections or the accept queue.
    Stuck,
    /// The process is stopped or a zombie.
    Stopped,
    /// No listener, or refused.
    Gone,
}

impl Vouch {
    /// All vouches in order of their wire code.
    pub const ALL: [Vouch; 9] = [
        Vouch::Unknown,
        Vouch::Working,
        Vouch::Idle,
        Vouch::Running,
        Vouch::Busy,
        Vouch::Stalled,
        Vouch::Stuck,
        Vouch::Stopped,
        Vouch::Gone,
    ];

    /// Code on the wire.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Inverse of [`Vouch::code`]; codes of a later version read as `Unknown`.
    pub fn from_code(code: u8) -> Vouch {
        Vouch::ALL.get(usize::from(code)).copied().unwrap_or_default()
    }

    /// Name in `/status`.
    pub const fn name(self) -> &'static str {
        match self {
            Vouch::Unknown => "unknown",
            Vouch::Working => "working",
            Vouch::Idle => "idle",
            Vouch::Running => "running",
            Vouch::Busy => "busy",
            Vouch::Stalled => "stalled",
            Vouch::Stuck => "stuck",
            Vouch::Stopped => "stopped",
            Vouch::Gone => "gone",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip() {
        for v in Vouch::ALL {
            assert_eq!(Vouch::from_code(v.code()), v);
        }
        assert_eq!(Vouch::from_code(200), Vouch::Unknown);
        for s in State::ALL {
            assert_eq!(State::from_code(s.code()), s);
        }
    }
}
