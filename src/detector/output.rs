//! Pure: no IO, no clock. What the judge of a link asks for and says, with the numbers behind it.

use std::time::Duration;

use crate::stamp::Stamp;

/// The numbers behind a verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evidence {
    /// Silence past the deadline: so far, or (on `Active`) of the silence that ended.
    pub silence: Duration,
    /// Since the last byte of this link.
    pub since_last: Duration,
    /// Promise in force.
    pub promise: Duration,
    /// Least round trip time of the last 10 s.
    pub rtt: Option<Duration>,
    /// Lateness remembered (idea 4).
    pub peak: Duration,
    /// Score, 0 to 1.
    pub score: f64,
    /// The half that is lower is "being heard": we hear the peer, it does not hear us.
    pub one_way: bool,
    /// The lateness that the ended silence taught.
    pub learned: Option<Duration>,
    /// FAILED was wrong: healed within `learn_max`, and nobody explained the silence.
    pub mistake: bool,
    /// FAILED was right and is over.
    pub outage: bool,
}

/// Why a verdict is held back (detection.md section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Gate {
    /// The challenge was not given enough time yet.
    Challenge = 0,
    /// Our own loop slept.
    OwnStall = 1,
    /// The kernel holds unread bytes, or segments arrived.
    Unread = 2,
    /// Fresh backpressure.
    Backpressure = 3,
    /// Another link to the same node heard something.
    OtherLink = 4,
}

impl Gate {
    /// All gates, for pre-created metrics.
    pub const ALL: [Gate; 5] =
        [Gate::Challenge, Gate::OwnStall, Gate::Unread, Gate::Backpressure, Gate::OtherLink];

    /// Name in metrics and events.
    pub const fn name(self) -> &'static str {
        match self {
            Gate::Challenge => "challenge",
            Gate::OwnStall => "own_stall",
            Gate::Unread => "unread",
            Gate::Backpressure => "backpressure",
            Gate::OtherLink => "other_link",
        }
    }
}

/// What the judge of one link wants done or known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Output {
    /// Send CHALLENGE now and call [`super::LinkJudge::challenge_sent`] once it is written.
    Challenge,
    /// The link is doubted.
    Suspect(Evidence),
    /// The link is silent, and no other link to the node is alive: the node is FAILED by silence.
    Failed(Evidence),
    /// The link is well again.
    Active(Evidence),
    /// The link is silent but the node is alive on other links: cut this link, keep the endpoint (gate 5).
    LinkOnly(Evidence),
    /// A gate held a verdict back; once per silence and gate.
    Held(Gate),
}

/// What only the shell can look up, asked just before FAILED is declared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The kernel holds bytes of this link (FIONREAD), or segments arrived since the deadline.
    pub unread: bool,
    /// Latest arrival on any other link to the same node; ZERO if none.
    pub others_heard: Stamp,
    /// Latest moment at which the node had heard us on any other link, by its own beats; ZERO if none.
    pub others_hear: Stamp,
    /// When the last of our other loops that had links to the node came to ask on them; NEVER if one did not yet, ZERO if there
    /// is none.
    pub others_asked: Stamp,
}
