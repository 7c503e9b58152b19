//! Pure: no IO, no clock. Every input of a judge as a value: what a recorder keeps and a replay gives back (row H15).

use std::fmt;
use std::time::Duration;

use super::LinkJudge;
use crate::detector::output::{Facts, Gate, Output};
use crate::stamp::Stamp;

/// One thing that a judge was told or asked, in the order in which it happened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Input {
    /// [`LinkJudge::heard`].
    Heard {
        /// When the bytes were read.
        at: Stamp,
    },
    /// [`LinkJudge::promised`].
    Promised {
        /// When the frame was read.
        at: Stamp,
        /// What it promises.
        promise: Duration,
    },
    /// [`LinkJudge::peer_view`].
    PeerView {
        /// When the beat was read.
        at: Stamp,
        /// How long before it the peer had heard us.
        age: Duration,
    },
    /// [`LinkJudge::we_promised`].
    Wrote {
        /// When our frame was handed to the kernel.
        at: Stamp,
        /// What it promises.
        promise: Duration,
    },
    /// [`LinkJudge::rtt_sample_at`].
    Rtt {
        /// When it was measured.
        at: Stamp,
        /// The round trip.
        rtt: Duration,
    },
    /// [`LinkJudge::challenge_sent`].
    ChallengeSent {
        /// When it was queued.
        at: Stamp,
    },
    /// [`LinkJudge::challenge_answered`].
    Answered {
        /// When the answer was read.
        at: Stamp,
    },
    /// [`LinkJudge::backpressure`].
    Backpressure {
        /// When the frame was read.
        at: Stamp,
        /// False in the last one.
        active: bool,
        /// What it promises.
        promise: Duration,
    },
    /// [`LinkJudge::peer_stalled`].
    PeerStalled {
        /// When the beat was read.
        at: Stamp,
    },
    /// [`LinkJudge::own_stall`].
    OwnStall {
        /// When our loop should have woken up.
        from: Stamp,
        /// When it did.
        to: Stamp,
    },
    /// [`LinkJudge::probe`].
    Probe {
        /// When the owner of the endpoint asked for it.
        at: Stamp,
    },
    /// [`LinkJudge::poll`], and what came of it.
    Polled {
        /// The time it judged by.
        at: Stamp,
        /// What the shell looked up, if it was asked.
        facts: Option<Facts>,
        /// What the judge said.
        said: Option<Said>,
    },
    /// [`LinkJudge::inherit`].
    Inherited {
        /// When the link began.
        at: Stamp,
        /// What other links to the node had learned.
        peak: Duration,
    },
    /// [`LinkJudge::set_noise`], where it changed.
    Noise {
        /// When the beat was read.
        at: Stamp,
        /// Lateness of the peer's loop.
        noise: Duration,
    },
    /// The peer announced a pause of its service. A judge of links ignores it.
    Maintenance {
        /// When the frame was read.
        at: Stamp,
        /// Length of the pause.
        pause: Duration,
    },
    /// The link ended. A judge ignores it: it is not asked any more.
    Ended {
        /// When.
        at: Stamp,
        /// How.
        how: End,
    },
}

impl Input {
    /// When it happened; the end of an own stall.
    pub fn at(&self) -> Stamp {
        match *self {
            Input::Heard { at }
            | Input::Promised { at, .. }
            | Input::PeerView { at, .. }
            | Input::Wrote { at, .. }
            | Input::Rtt { at, .. }
            | Input::ChallengeSent { at }
            | Input::Answered { at }
            | Input::Backpressure { at, .. }
            | Input::PeerStalled { at }
            | Input::Probe { at }
            | Input::Polled { at, .. }
            | Input::Inherited { at, .. }
            | Input::Noise { at, .. }
            | Input::Maintenance { at, .. }
            | Input::Ended { at, .. } => at,
            Input::OwnStall { to, .. } => to,
        }
    }
}

/// An [`Output`] without the numbers behind it: they follow from the inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// Ask the peer.
    Challenge,
    /// Doubt.
    Suspect,
    /// Silent, and no other link lives.
    Failed,
    /// Well again.
    Active {
        /// FAILED was wrong.
        mistake: bool,
        /// FAILED was right and is over.
        outage: bool,
    },
    /// Silent, but the node lives on other links.
    LinkOnly,
    /// A gate held FAILED back.
    Held(Gate),
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Said::Challenge => f.write_str("challenge"),
            Said::Suspect => f.write_str("suspect"),
            Said::Failed => f.write_str("failed"),
            Said::Active { mistake: true, .. } => f.write_str("active after a mistake"),
            Said::Active { outage: true, .. } => f.write_str("active after an outage"),
            Said::Active { .. } => f.write_str("active"),
            Said::LinkOnly => f.write_str("this link only"),
            Said::Held(gate) => write!(f, "held back ({})", gate.name()),
        }
    }
}

impl From<&Output> for Said {
    fn from(output: &Output) -> Said {
        match output {
            Output::Challenge => Said::Challenge,
            Output::Suspect(_) => Said::Suspect,
            Output::Failed(_) => Said::Failed,
            Output::Active(e) => Said::Active { mistake: e.mistake, outage: e.outage },
            Output::LinkOnly(_) => Said::LinkOnly,
            Output::Held(gate) => Said::Held(*gate),
        }
    }
}

/// How a link ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Nobody said: the sidecar stopped.
    Unknown,
    /// The peer closed it without GOAWAY.
    Fin,
    /// The peer reset it.
    Rst,
    /// The kernel gave up on it.
    TimedOut,
    /// After GOAWAY.
    Goaway,
    /// We cut it.
    Cut,
    /// The peer broke the protocol.
    Protocol,
}

impl End {
    /// All of them, in the order of their code in a trace.
    pub const ALL: [End; 7] =
        [End::Unknown, End::Fin, End::Rst, End::TimedOut, End::Goaway, End::Cut, End::Protocol];
}

/// Sees every input of a judge: the recorder of traces.
pub trait Tap: fmt::Debug {
    /// The judge is about to take this input, or has just been polled.
    fn note(&mut self, input: &Input);
}

/// The tap of a judge, if it has one. A copy of a judge has none: what it is told did not happen.
#[derive(Debug, Default)]
pub(super) struct TapSlot(Option<Box<dyn Tap>>);

impl Clone for TapSlot {
    fn clone(&self) -> TapSlot {
        TapSlot(None)
    }
}

impl TapSlot {
    pub(super) fn note(&mut self, input: Input) {
        if let Some(tap) = &mut self.0 {
            tap.note(&input);
        }
    }
}

impl LinkJudge {
    /// From now on `tap` sees every input.
    pub fn tap(&mut self, tap: Box<dyn Tap>) {
        self.tap = TapSlot(Some(tap));
    }

    /// Something that does not concern the judge and that whoever listens should know.
    pub fn tell_tap(&mut self, input: Input) {
        self.tap.note(input);
    }

    /// Takes a recorded input; a recorded poll is polled again at the same time with the same facts, and what the judge
    /// says now is returned.
    pub fn take(&mut self, input: &Input) -> Option<Said> {
        match *input {
            Input::Heard { at } => self.heard(at),
            Input::Promised { at, promise } => self.promised(at, promise),
            Input::PeerView { at, age } => self.peer_view(at, age),
            Input::Wrote { at, promise } => self.we_promised(at, promise),
            Input::Rtt { at, rtt } => self.rtt_sample_at(at, rtt),
            Input::ChallengeSent { at } => self.challenge_sent(at),
            Input::Answered { at } => self.challenge_answered(at),
            Input::Backpressure { at, active, promise } => self.backpressure(at, active, promise),
            Input::PeerStalled { at } => self.peer_stalled(at),
            Input::OwnStall { from, to } => self.own_stall(from, to),
            Input::Probe { at } => self.probe(at),
            Input::Inherited { at, peak } => self.inherit(at, peak),
            Input::Noise { at, noise } => self.set_noise(at, noise),
            Input::Polled { at, facts, .. } => {
                let output = self.poll(at, &mut || facts.unwrap_or_default());
                return output.as_ref().map(Said::from);
            }
            Input::Maintenance { .. } | Input::Ended { .. } => self.tell_tap(*input),
        }
        None
    }
}
