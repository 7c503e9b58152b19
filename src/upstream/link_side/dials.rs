//! Pure: no IO, no clock. What fresh connections tell: to the link port, and to the service's own.

use super::*;

impl LinkSide {
    /// A fresh dial of the link port ended like this. True if the service's own port should be looked at.
    pub fn dial(&mut self, now: Stamp, result: DialResult) -> bool {
        self.refused = result == DialResult::Refused;
        if result == DialResult::Welcomed {
            self.negative = false;
            return false;
        }
        self.negative = true;
        if self.policy == LinkPolicy::Off || self.some_link_lives() {
            return false;
        }
        match result {
            DialResult::Refused => return self.proved_or_ask(now),
            DialResult::AcceptedNoWelcome => self.refine(now, Cause::HangPeer),
            DialResult::Unanswered => self.refine(now, Cause::Blackhole),
            DialResult::NotSidecar if self.policy == LinkPolicy::Required && self.incarnation.is_none() => {
                self.set(now, State::Failed, Cause::SidecarLost, true);
            }
            DialResult::NotSidecar | DialResult::Welcomed => {}
        }
        false
    }

    /// The service's own port, looked at because the link port is refused or plain mode is FAILED.
    pub fn service_port(&mut self, now: Stamp, port: PortState) {
        if self.some_link_lives() {
            return;
        }
        let known = self.incarnation.is_some();
        match (port, self.policy) {
            (PortState::Accepts, LinkPolicy::Required) => {
                self.refine_to(Cause::SidecarLost);
            }
            (PortState::Accepts, LinkPolicy::Auto | LinkPolicy::Off) => {
                if self.mode == Mode::Framed && !self.refused {
                    return;
                }
                if self.mode == Mode::Plain {
                    return self.port_accepts(now);
                }
                let cause = if known { Cause::SidecarLost } else { Cause::None };
                self.go_plain();
                if self.state != State::Active {
                    self.note_end(now);
                    self.healed = self.end_failure(now);
                    self.set(now, State::Active, cause, false);
                }
                self.cause = cause;
            }
            (PortState::Refused, _) => {
                if (self.refused || self.mode == Mode::Plain) && !self.draining {
                    self.fail_by_proof(now, Cause::Crash);
                }
            }
            (PortState::Unanswered, _) if self.mode == Mode::Plain => self.port_silent(now),
            (PortState::Unanswered, LinkPolicy::Auto) if self.refused && known && !self.draining => {
                if self.state != State::Failed {
                    self.set(now, State::Failed, Cause::Blackhole, false);
                }
            }
            (PortState::Unanswered, _) => {}
        }
    }
}
