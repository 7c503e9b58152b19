//! Pure: no IO, no clock. Every label value that is not a configured name, as closed sets: nothing a peer sends can
//! make a new series.

macro_rules! label_set {
    ($(#[$doc:meta])* $set:ident { $($(#[$vdoc:meta])* $name:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $set { $($(#[$vdoc])* $name,)* }

        impl $set {
            /// All values, in the order of their index; every series of the set is made in advance.
            pub const ALL: &'static [$set] = &[$($set::$name,)*];

            /// The label's value.
            pub const fn name(self) -> &'static str {
                match self { $($set::$name => $text,)* }
            }

            pub(crate) const fn index(self) -> usize {
                self as usize
            }
        }
    };
}

label_set! {
    /// Label `direction`: seen from this sidecar.
    Direction {
        /// Towards us: frames received; connections and links that others opened to the local service.
        In = "in",
        /// Away from us: frames sent; connections and links that the local service or we opened.
        Out = "out",
    }
}

label_set! {
    /// Label `kind` of `sidebeat_odd_beats_total`, in the order of `worker::Odd`.
    OddBeat {
        /// Not newer than one before.
        Replayed = "replayed",
        /// Numbers are missing.
        Gap = "gap",
        /// Echo of a beat that was never sent.
        Echo = "echo",
        /// A promise of nothing.
        PromiseZero = "promise_zero",
        /// A promise of more than 10 s.
        PromiseCapped = "promise_capped",
        /// A round trip of more than a second.
        RttCapped = "rtt_capped",
    }
}

label_set! {
    /// Label `kind` of frame counters, in the order of the wire's `METRIC_KINDS`, by whose index frames are counted.
    FrameKind {
        /// Payload of a stream.
        Data = "data",
        /// Heartbeat.
        Beat = "beat",
        /// Sender is full, not dead.
        Backpressure = "backpressure",
        /// Announced pause.
        Maintenance = "maintenance",
        /// Question for life.
        Challenge = "challenge",
        /// Answer to a challenge.
        Answer = "answer",
        /// Flow control.
        Credit = "credit",
        /// Start of a stream: OPEN, OPENED, OPEN_FAILED.
        Open = "open",
        /// End of a direction.
        Fin = "fin",
        /// Abort of a stream.
        Reset = "reset",
        /// Planned end of the link.
        Goaway = "goaway",
        /// Kinds of later versions, and handshake frames where none belongs.
        Other = "other",
    }
}

label_set! {
    /// Label `reason` of `sidebeat_connections_closed_total`.
    CloseReason {
        /// Both directions ended with FIN.
        Fin = "fin",
        /// One side aborted with RST.
        Reset = "rst",
        /// Cut by us, because its endpoint was FAILED.
        Failed = "failed",
        /// Its link broke.
        LinkLost = "link_lost",
        /// The service did not accept it.
        OpenFailed = "open_failed",
        /// Still open when its worker ended: the drain deadline, of the process or of an earlier configuration.
        Drain = "drain",
        /// An error of the local socket, or dropped without a reason.
        Error = "error",
    }
}

label_set! {
    /// Label `reason` of `sidebeat_rejected_total`: work turned away before it had an endpoint or a service.
    RejectReason {
        /// No endpoint may take work.
        NoEndpoint = "no_endpoint",
        /// Every endpoint that was tried refused or timed out.
        Unreachable = "unreachable",
        /// `[limits] connections` or `streams_per_link`.
        Limit = "limit",
        /// A link whose address is not in `allow`.
        NotAllowed = "not_allowed",
    }
}

label_set! {
    /// Label `reason` of `sidebeat_link_errors_total`: how a link ended when it was not planned.
    LinkError {
        /// FIN without GOAWAY.
        Eof = "eof",
        /// RST.
        Reset = "rst",
        /// The kernel gave up sending.
        Timeout = "timeout",
        /// The peer sent what the wire format does not allow.
        Protocol = "protocol",
        /// The peer went over a cap.
        Limit = "limit",
        /// Cut by a verdict: it alone is silent, or its node has been restarted.
        Failed = "failed",
        /// Any other error of the socket.
        Io = "io",
    }
}

label_set! {
    /// Label `result` of `sidebeat_handshakes_total`.
    Handshake {
        /// The link is up.
        Ok = "ok",
        /// Connection refused or unanswered; only where we dial.
        Connect = "connect",
        /// REFUSE, by either side.
        Refused = "refused",
        /// Not complete in time.
        Timeout = "timeout",
        /// Not a sidecar, or a malformed hello.
        Protocol = "protocol",
        /// The socket broke.
        Io = "io",
    }
}

label_set! {
    /// Label `result` of `sidebeat_probes_total`.
    ProbeResult {
        /// The service answered as it should.
        Ok = "ok",
        /// It refused, or answered otherwise.
        Failed = "failed",
        /// No answer in time.
        Timeout = "timeout",
    }
}

label_set! {
    /// Label `gate` of `sidebeat_gate_holds_total` (detection.md section 3).
    Gate {
        /// The challenge has not been out for long enough.
        Challenge = "challenge",
        /// Our own loop was late.
        OwnStall = "own_stall",
        /// The kernel holds unread or out-of-order data of the link.
        Unread = "unread",
        /// Fresh backpressure.
        Backpressure = "backpressure",
        /// Another link to the same node still hears it.
        OtherLink = "other_link",
        /// Nearly everything fell silent at once: we may be the one cut off.
        SelfIsolated = "self_isolated",
        /// An upstream of the service itself explains that it stands still.
        Starved = "starved",
        /// `max_failed`, or the last endpoint of a set.
        Panic = "panic",
    }
}

impl Gate {
    /// The gate of that name.
    pub fn from_name(name: &str) -> Option<Gate> {
        Gate::ALL.iter().copied().find(|g| g.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_the_place_in_all() {
        for (i, kind) in FrameKind::ALL.iter().enumerate() {
            assert_eq!(kind.index(), i);
        }
        assert_eq!(FrameKind::ALL.len(), 12);
        assert_eq!(Gate::from_name("own_stall"), Some(Gate::OwnStall));
        assert_eq!(Gate::from_name("invented by a peer"), None);
    }
}
