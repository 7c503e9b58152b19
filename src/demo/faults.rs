//! Pure: no IO, no clock. The kinds of faults, what each must lead to, and how a fault is judged by the
//! transitions that the client's sidecar reported.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::events::Event;
use crate::stamp::Stamp;
use crate::verdict::{Cause, State};

const STALL: &str = Cause::Stall.name();
/// An answer of the demo's service that takes this long is late by far.
const LATE_ENOUGH: Duration = Duration::from_millis(200);

/// A fault of the contract's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// SIGKILL of the service; it is started again after the hold.
    Kill,
    /// SIGSTOP of the service, SIGCONT after the hold.
    Hang,
    /// SIGKILL of the service's sidecar; it is started again after the hold.
    KillSidecar,
    /// SIGSTOP of the service's sidecar.
    HangSidecar,
    /// SIGSTOP of the client's sidecar for 2 s: nobody else is at fault.
    HangObserver,
    /// Black hole in both directions.
    Cut,
    /// Black hole towards the observer.
    CutIn,
    /// Black hole away from the observer.
    CutOut,
    /// Black hole for one connection between the sidecars: the node lives on another link.
    CutLink,
    /// The path towards the observer takes 50 ms longer from one packet to the next.
    Delay,
    /// 500 ms SIGSTOP pulse of the service.
    Pause,
    /// The same pulse, announced to the service's sidecar first.
    Notice,
    /// A client that asks for a large answer and does not read it.
    Saturate,
    /// SIGTERM of the service and an immediate start.
    Restart,
    /// All workers of the service are dead-locked while it still accepts.
    Deadlock,
    /// The service burns CPU time for 500 ms, unannounced, and does nothing else.
    Spin,
}

/// What a fault must lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// FAILED, and healed afterwards.
    Failed,
    /// At least SUSPECT, and healed afterwards: the service's process cannot be seen by its sidecar.
    Suspect,
    /// SUSPECT for a stall and never FAILED, and healed afterwards: the process runs and accepts.
    Stalled,
    /// Never FAILED.
    NotFailed,
    /// Noticed, no request lost, and ACTIVE again once there is a new process.
    Replaced,
}

impl Expected {
    /// Word in the report.
    pub const fn name(self) -> &'static str {
        match self {
            Expected::Failed => "failed",
            Expected::Suspect => "suspect",
            Expected::Stalled => "suspect only",
            Expected::NotFailed => "not failed",
            Expected::Replaced => "noticed",
        }
    }

    /// FAILED is no mistake.
    const fn may_fail(self) -> bool {
        !matches!(self, Expected::Stalled | Expected::NotFailed)
    }
}

impl Kind {
    /// All kinds in the contract's order.
    pub const ALL: [Kind; 16] = [
        Kind::Kill,
        Kind::Hang,
        Kind::KillSidecar,
        Kind::HangSidecar,
        Kind::HangObserver,
        Kind::Cut,
        Kind::CutIn,
        Kind::CutOut,
        Kind::CutLink,
        Kind::Delay,
        Kind::Pause,
        Kind::Notice,
        Kind::Saturate,
        Kind::Restart,
        Kind::Deadlock,
        Kind::Spin,
    ];

    /// Name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Kill => "kill",
            Kind::Hang => "hang",
            Kind::KillSidecar => "kill-sidecar",
            Kind::HangSidecar => "hang-sidecar",
            Kind::HangObserver => "hang-observer",
            Kind::Cut => "cut",
            Kind::CutIn => "cut-in",
            Kind::CutOut => "cut-out",
            Kind::CutLink => "cut-link",
            Kind::Delay => "delay",
            Kind::Pause => "pause",
            Kind::Notice => "notice",
            Kind::Saturate => "saturate",
            Kind::Restart => "restart",
            Kind::Deadlock => "deadlock",
            Kind::Spin => "spin",
        }
    }

    /// Needs a network that can be cut.
    pub const fn needs_net(self) -> bool {
        matches!(self, Kind::Cut | Kind::CutIn | Kind::CutOut | Kind::CutLink | Kind::Delay)
    }

    /// What must follow. `pid_seen`: the sidecar can see the service's process.
    pub const fn expected(self, pid_seen: bool) -> Expected {
        match self {
            Kind::CutLink | Kind::Delay => Expected::NotFailed,
            Kind::Hang | Kind::Pause if !pid_seen => Expected::Suspect,
            Kind::Deadlock => Expected::Stalled,
            Kind::HangObserver | Kind::Notice | Kind::Saturate | Kind::Spin => Expected::NotFailed,
            Kind::Restart => Expected::Replaced,
            _ => Expected::Failed,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Kind {
    type Err = String;
    fn from_str(text: &str) -> Result<Kind, String> {
        Kind::ALL.into_iter().find(|k| k.name() == text).ok_or_else(|| {
            let names: Vec<_> = Kind::ALL.iter().map(|k| k.name()).collect();
            format!("expected one of {}", names.join(", "))
        })
    }
}

/// When a fault began and ended, and whom it hit.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Address of the endpoint; None where no endpoint is at fault.
    pub endpoint: Option<String>,
    /// Right before the fault was injected.
    pub at: Stamp,
    /// When it was undone.
    pub end: Stamp,
    /// When the demo went on: transitions up to here belong to the fault.
    pub settled: Stamp,
}

impl Span {
    fn covers(&self, e: &Event) -> bool {
        let same = self.endpoint.as_deref().is_none_or(|mine| mine == e.endpoint);
        same && e.at() >= self.at && e.at() <= self.settled
    }
}

/// What the observer saw of a fault. Times in ms.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// Fault to leaving ACTIVE.
    pub suspected_ms: Option<f64>,
    /// Fault to FAILED.
    pub detected_ms: Option<f64>,
    /// Last sign of life to FAILED, as the observer says.
    pub from_silence_ms: Option<f64>,
    /// Cause at FAILED, else at SUSPECT.
    pub first_cause: Option<String>,
    /// The most refined cause before healing.
    pub cause: Option<String>,
    /// Goes on without its sidecar.
    pub plain: bool,
    /// End of the fault to ACTIVE; zero if it was back before; None if it never left or never came back.
    pub healed_ms: Option<f64>,
    /// ACTIVE (again) at the end.
    pub healed: bool,
}

/// The transitions that belong to a fault.
pub fn during<'a>(events: &'a [Event], span: &Span) -> impl Iterator<Item = &'a Event> {
    events.iter().filter(|e| span.covers(e))
}

/// Reads what `events` say about a fault.
pub fn seen(events: &[Event], span: &Span) -> Seen {
    let mut out = Seen { healed: true, ..Seen::default() };
    let mut bad = 0_usize;
    let mut left_at: Option<Stamp> = None;
    for e in during(events, span) {
        match e.to {
            State::Active => note_active(&mut out, e, span, &mut left_at),
            _ => {
                bad += 1;
                left_at = Some(e.at());
                out.healed = false;
                note_bad(&mut out, e, span, bad == 1);
            }
        }
    }
    out
}

fn note_active(out: &mut Seen, e: &Event, span: &Span, left_at: &mut Option<Stamp>) {
    if e.cause == "sidecar_lost" {
        out.plain = true;
        out.cause = Some(e.cause.clone());
        out.first_cause.get_or_insert_with(|| e.cause.clone());
    }
    if left_at.take().is_some() {
        out.healed = true;
        out.healed_ms = Some(e.at().millis_since(span.end).max(0.0));
    }
}

fn note_bad(out: &mut Seen, e: &Event, span: &Span, first: bool) {
    let ms = e.at().millis_since(span.at);
    out.suspected_ms.get_or_insert(ms);
    if e.to == State::Failed && out.detected_ms.is_none() {
        out.detected_ms = Some(ms);
        out.from_silence_ms = e.silence_ms;
        out.first_cause = Some(e.cause.clone());
    } else if first {
        out.first_cause = Some(e.cause.clone());
    }
    // What comes after the end (a restarted sidecar greeting, for one) does not say why it failed.
    if (e.at() <= span.end || out.cause.is_none()) && e.cause != "none" {
        out.cause = Some(e.cause.clone());
    }
}

/// Whether a fault met its expectation, with so many requests lost meanwhile.
pub fn met(kind: Kind, expected: Expected, seen: &Seen, lost: u64) -> bool {
    let stall = || [&seen.first_cause, &seen.cause].iter().any(|c| c.as_deref() == Some(STALL));
    let reached = match expected {
        Expected::Failed => seen.detected_ms.is_some() || (kind == Kind::KillSidecar && seen.plain),
        Expected::Suspect => seen.suspected_ms.is_some(),
        Expected::Stalled => seen.suspected_ms.is_some() && seen.detected_ms.is_none() && stall(),
        Expected::NotFailed => seen.detected_ms.is_none(),
        // Before the end there is no new process that could be ACTIVE.
        Expected::Replaced => lost == 0 && seen.healed_ms.is_some_and(|ms| ms > 0.0),
    };
    reached && seen.healed
}

/// Why nobody could have noticed a fault, if nobody did. `asked`: when its target was first asked in it. `connected`: there
/// were connections to it before.
pub fn unnoticeable(
    kind: Kind,
    span: &Span,
    seen: &Seen,
    asked: Option<Stamp>,
    connected: bool,
) -> Option<&'static str> {
    if seen.suspected_ms.is_some() {
        return None;
    }
    match kind {
        Kind::Deadlock if asked.is_none_or(|at| at + LATE_ENOUGH > span.end) => {
            Some("nobody asked it, or so late that the answer was not late")
        }
        Kind::Restart if !connected => {
            Some("nobody was connected to it, and it was back before anybody looked")
        }
        _ => None,
    }
}

/// FAILED transitions that no fault explains: outside of every fault's span, on another endpoint, or under a
/// fault which must not fail anything.
pub fn mistakes<'a>(events: &'a [Event], faults: &[(Expected, Span)]) -> Vec<&'a Event> {
    let excused = |e: &Event| faults.iter().any(|(x, span)| x.may_fail() && span.covers(e));
    events.iter().filter(|e| e.to == State::Failed && e.from != State::Failed && !excused(e)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(ms: u64, from: State, to: State, cause: &str) -> Event {
        Event {
            mono_ns: ms * 1_000_000,
            endpoint: "a:1".into(),
            from,
            to,
            cause: cause.into(),
            silence_ms: Some(25.0),
            ..Event::default()
        }
    }

    fn span(at: u64, end: u64, settled: u64) -> Span {
        Span {
            endpoint: Some("a:1".into()),
            at: Stamp::from_millis(at),
            end: Stamp::from_millis(end),
            settled: Stamp::from_millis(settled),
        }
    }

    use State::{Active, Failed, Suspect};

    #[test]
    fn names_round_trip() {
        assert!(!Kind::ALL.is_empty());
        for k in Kind::ALL {
            assert_eq!(k.name().parse::<Kind>(), Ok(k));
        }
        assert!("explode".parse::<Kind>().unwrap_err().contains("kill-sidecar"));
    }

    #[test]
    fn a_black_hole_is_read_with_its_refined_cause() {
        let events = [
            event(90, Active, Suspect, "silent"), // before the fault
            event(95, Suspect, Active, "none"),
            event(122, Active, Suspect, "silent"),
            event(130, Suspect, Failed, "silent"),
            event(160, Failed, Failed, "blackhole"),
            event(1380, Failed, Active, "none"),
        ];
        let s = seen(&events, &span(100, 1300, 1400));
        assert_eq!((s.suspected_ms, s.detected_ms), (Some(22.0), Some(30.0)));
        assert_eq!(s.first_cause.as_deref(), Some("silent"));
        assert_eq!(s.cause.as_deref(), Some("blackhole"));
        assert_eq!((s.healed_ms, s.healed), (Some(80.0), true));
        assert!(met(Kind::Cut, Expected::Failed, &s, 0));
        assert!(!met(Kind::Notice, Expected::NotFailed, &s, 0));
    }

    #[test]
    fn unhealed_does_not_meet() {
        let s = seen(&[event(101, Active, Failed, "crash")], &span(100, 200, 300));
        assert_eq!((s.healed, s.healed_ms), (false, None));
        assert!(!met(Kind::Kill, Expected::Failed, &s, 0));
    }

    #[test]
    fn a_lost_sidecar_may_go_on_plain() {
        let events = [event(101, Active, Suspect, "silent"), event(103, Suspect, Active, "sidecar_lost")];
        let s = seen(&events, &span(100, 200, 300));
        assert!(s.plain && s.healed && s.detected_ms.is_none());
        assert_eq!((s.healed_ms, s.cause.as_deref()), (Some(0.0), Some("sidecar_lost")));
        assert!(met(Kind::KillSidecar, Expected::Failed, &s, 0));
        assert!(!met(Kind::Kill, Expected::Failed, &s, 0));
    }

    #[test]
    fn a_dead_lock_must_be_doubted_for_a_stall_and_no_more() {
        let all = span(100, 1300, 1400);
        let judge = |events: &[Event]| {
            let faults = [(Kind::Deadlock.expected(true), all.clone())];
            let met = met(Kind::Deadlock, faults[0].0, &seen(events, &all), 0);
            (met, mistakes(events, &faults).len())
        };
        let doubted = |cause| event(130, Active, Suspect, cause);
        let healed = |from| event(1302, from, Active, "none");
        assert_eq!(judge(&[doubted("stall"), healed(Suspect)]), (true, 0));
        let refined = event(132, Suspect, Suspect, "stall");
        assert_eq!(judge(&[doubted("silent"), refined, healed(Suspect)]), (true, 0));
        assert_eq!(judge(&[doubted("silent"), healed(Suspect)]), (false, 0));
        let failed = event(1150, Suspect, Failed, "stall");
        assert_eq!(judge(&[doubted("stall"), failed, healed(Failed)]), (false, 1));
        assert_eq!(judge(&[doubted("stall")]), (false, 0), "not healed");
        assert_eq!(judge(&[]), (false, 0));
        assert_eq!(Kind::Deadlock.expected(false), Expected::Stalled);
    }

    #[test]
    fn a_restart_must_be_noticed_and_end_on_the_new_process() {
        let judge = |events: &[Event], lost| {
            let expected = Kind::Restart.expected(true);
            let faults = [(expected, span(100, 110, 500))];
            let met = met(Kind::Restart, expected, &seen(events, &faults[0].1), lost);
            (met, mistakes(events, &faults).len())
        };
        let (gone, back) = (event(102, Active, Failed, "crash"), event(140, Failed, Active, "none"));
        assert_eq!(judge(&[gone.clone(), back.clone()], 0), (true, 0), "a crash is what it looks like");
        assert_eq!(judge(&[event(102, Active, Suspect, "draining"), back.clone()], 0), (true, 0));
        assert_eq!(judge(&[], 0), (false, 0), "nobody noticed");
        assert_eq!(judge(std::slice::from_ref(&gone), 0), (false, 0), "never back");
        assert_eq!(judge(&[gone.clone(), back], 1), (false, 0), "a request was lost");
        let early = event(105, Failed, Active, "none");
        assert_eq!(judge(&[gone, early], 0), (false, 0), "the old process cannot have come back");
    }

    #[test]
    fn what_nobody_could_notice_is_no_failure_of_the_detector() {
        let (all, none) = (span(100, 900, 1300), seen(&[], &span(100, 900, 1300)));
        let asked = |ms| Some(Stamp::from_millis(ms));
        let why = |kind, at, connected| unnoticeable(kind, &all, &none, at, connected).is_some();
        assert!(why(Kind::Deadlock, None, true) && why(Kind::Deadlock, asked(800), true));
        assert!(!why(Kind::Deadlock, asked(600), true), "three tenths of a second without an answer");
        assert!(why(Kind::Restart, None, false) && !why(Kind::Restart, None, true));
        assert!(!why(Kind::Hang, None, false));
        let noticed = seen(&[event(130, Active, Suspect, "silent")], &all);
        assert_eq!(unnoticeable(Kind::Deadlock, &all, &noticed, None, false), None);
    }

    #[test]
    fn nothing_seen_is_fine_only_where_nothing_is_expected() {
        let s = seen(&[], &span(100, 200, 300));
        assert!(met(Kind::Saturate, Expected::NotFailed, &s, 0));
        assert!(!met(Kind::Hang, Expected::Suspect, &s, 0));
        assert_eq!(s.healed_ms, None);
    }

    #[test]
    fn only_unexplained_failures_are_mistakes() {
        let events = [
            event(50, Active, Failed, "silent"),
            event(130, Suspect, Failed, "silent"),
            event(140, Failed, Failed, "blackhole"),
            event(530, Active, Failed, "silent"),
        ];
        let faults = [(Expected::Failed, span(100, 300, 400)), (Expected::NotFailed, span(500, 600, 700))];
        let wrong: Vec<_> = mistakes(&events, &faults).iter().map(|e| e.mono_ns / 1_000_000).collect();
        assert_eq!(wrong, [50, 530]);
    }

    #[test]
    fn without_pid_access_a_hang_need_only_be_suspected() {
        assert_eq!(Kind::Hang.expected(true), Expected::Failed);
        assert_eq!(Kind::Hang.expected(false), Expected::Suspect);
        assert_eq!(Kind::Kill.expected(false), Expected::Failed);
        let failed = seen(
            &[event(101, Active, Failed, "hang"), event(250, Failed, Active, "none")],
            &span(100, 200, 300),
        );
        assert!(met(Kind::Hang, Expected::Suspect, &failed, 0), "at least");
        let doubted = seen(
            &[event(101, Active, Suspect, "stall"), event(250, Suspect, Active, "none")],
            &span(100, 200, 300),
        );
        assert!(
            met(Kind::Hang, Expected::Suspect, &doubted, 0)
                && !met(Kind::Hang, Expected::Failed, &doubted, 0)
        );
    }
}
