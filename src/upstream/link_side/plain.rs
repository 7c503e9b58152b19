//! Pure: no IO, no clock. What connections straight to the service tell of it: passive detection in plain mode.
//!
//! Proof is a port that refuses. A connection that breaks, or that nobody answers, is doubt at most: it has the port looked
//! at, and only connects in a row that stay unanswered are FAILED.

use super::*;

/// Resets before any answer, in a row, that are doubt; connects in a row without an answer that are FAILED.
const STRIKES: u32 = 3;
/// Who accepts and serves nobody is doubted for this long after the last sign of it. Then somebody may try it again:
/// where another endpoint takes the work, nothing else would ever tell that it is back.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// What plain connections have shown lately.
#[derive(Clone, Debug, Default)]
pub(super) struct Plain {
    /// Resets since the last answer, of connections that had none.
    resets: u32,
    /// Connects in a row that nobody answered.
    pub(super) timeouts: u32,
    /// It accepts and serves nobody: doubted until then. That its port accepts says nothing against it.
    pub(super) doubted_until: Option<Stamp>,
}

impl LinkSide {
    /// A plain connection told this. True if the service's own port should be looked at.
    pub fn plain_result(&mut self, now: Stamp, result: PlainResult) -> bool {
        if self.mode != Mode::Plain {
            return false;
        }
        match result {
            PlainResult::Accepted => self.port_accepts(now),
            PlainResult::Answered => self.answers(now),
            PlainResult::Refused => self.fail_by_proof(now, Cause::Crash),
            PlainResult::Reset => {
                self.plain.resets = self.plain.resets.saturating_add(1);
                if self.plain.resets >= STRIKES {
                    self.serves_nobody(now, Cause::Silent);
                }
                return true;
            }
            PlainResult::Broken => return true,
            PlainResult::Timeout => {
                self.plain.timeouts = self.plain.timeouts.saturating_add(1);
                self.doubt_plain(now, Cause::Silent);
                if self.plain.timeouts >= STRIKES && self.state != State::Failed {
                    self.set(now, State::Failed, Cause::Blackhole, false);
                }
            }
            PlainResult::Silent => {
                self.doubt_plain(now, Cause::Silent);
                return true;
            }
            PlainResult::Late => self.serves_nobody(now, Cause::Stall),
        }
        false
    }

    /// Somebody is served. Whether anybody new would be only its port can tell, if that was what was doubted: a service that
    /// is about to end goes on with those it has.
    fn answers(&mut self, now: Stamp) {
        (self.plain.resets, self.plain.doubted_until) = (0, None);
        if self.plain.timeouts == 0 && !self.by_proof() {
            self.lives(now);
        }
    }

    /// Its port takes connections: path and host are well.
    pub(super) fn port_accepts(&mut self, now: Stamp) {
        self.plain.timeouts = 0;
        if self.plain.doubted_until.is_none() {
            self.lives(now);
        }
    }

    /// Its port does not answer. A slow path is no black hole: that is for connects that have all the time they may take.
    pub(super) fn port_silent(&mut self, now: Stamp) {
        self.doubt_plain(now, Cause::Silent);
    }

    /// Whether only a look at the service's port, and no look at all, can tell that it is back.
    pub fn wants_port(&self) -> bool {
        let asks = match self.state {
            State::Active => false,
            // It accepts already; each look would only be one more that it does not serve.
            State::Suspect => self.plain.doubted_until.is_none(),
            State::Failed => true,
        };
        asks && self.mode == Mode::Plain && self.links.is_empty()
    }

    /// The doubt of who serves nobody ends by itself.
    pub(super) fn settle_plain(&mut self, now: Stamp) {
        if self.plain.doubted_until.is_none_or(|until| now < until) {
            return;
        }
        self.plain.doubted_until = None;
        if self.mode == Mode::Plain && self.state == State::Suspect {
            self.lives(now);
        }
    }

    fn lives(&mut self, now: Stamp) {
        if self.state != State::Active {
            self.note_end(now);
            self.healed = self.end_failure(now);
            self.set(now, State::Active, self.plain_cause(), false);
        }
    }

    fn serves_nobody(&mut self, now: Stamp, cause: Cause) {
        self.doubt_plain(now, cause);
        if self.state == State::Suspect {
            self.plain.doubted_until = Some(now + TRY_AGAIN);
            if self.cause == Cause::Silent {
                self.cause = cause;
            }
        }
    }

    fn doubt_plain(&mut self, now: Stamp, cause: Cause) {
        if self.state == State::Active {
            (self.doubt_from, self.silence, self.since_last) = (now, Duration::ZERO, None);
            self.set(now, State::Suspect, cause, false);
        }
    }
}
