//! Pure: no IO, no clock. What each evidence says now, as numbers and in words, for `/status`.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;

use super::fuse::{ListenerView, ProbeOpinion, ProcessOpinion};
use super::notes::{PauseNote, ProbeNote};
use crate::stamp::Stamp;
use crate::verdict::Vouch;

/// What a watch sees, for `/status`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explain {
    /// The service's address.
    pub service: SocketAddr,
    /// The vouch, as beats carry it.
    pub vouch: Vouch,
    /// Connections to the service.
    pub connections: usize,
    /// Of those, with something unanswered.
    pub unanswered: usize,
    /// Age of the oldest question, ms.
    pub oldest_unanswered_ms: u64,
    /// Since the service said something, ms; `None`: it never did.
    pub last_progress_ms: Option<u64>,
    /// Most unread bytes of one sampled connection.
    pub unread_bytes: u32,
    /// How long bytes usually lie unread, ms.
    pub read_delay_ms: f64,
    /// Unread for longer than this, without progress, is a stall, ms.
    pub stall_limit_ms: f64,
    /// The listener; `None`: it cannot be seen from here.
    pub listener: Option<ListenerView>,
    /// The owner's processes; `known` is false where they cannot be seen.
    pub process: ProcessOpinion,
    /// Their ids.
    pub pids: Vec<u32>,
    /// Connections that the service ended first, by FIN.
    pub fins: u64,
    /// By RST.
    pub resets: u64,
    /// The last connect was refused.
    pub refused: bool,
    /// E5.
    pub probe: ProbeView,
    /// E6.
    pub answers: AnswersView,
    /// E7; `None`: no pause was announced, or it is over.
    pub hook: Option<HookView>,
}

/// The probe (E5).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProbeView {
    /// `http /health`, `tcp`, `exec pg_isready`; empty: none is configured.
    pub what: String,
    /// What it says since the last progress.
    pub opinion: ProbeOpinion,
    /// Successes in a row.
    pub good: u32,
    /// Failures in a row.
    pub bad: u32,
    /// Since the last one ended, ms; `None`: there was none.
    pub age_ms: Option<u64>,
    /// How long it took, ms.
    pub took_ms: f64,
    /// What it saw.
    pub said: String,
}

/// Answer times (E6).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AnswersView {
    /// Answers remembered, older ones less.
    pub samples: f64,
    /// The usual answer time, ms; `None`: too few answers to say.
    pub usual_ms: Option<f64>,
    /// A silence beyond this, with a question open, is late, ms.
    pub limit_ms: Option<f64>,
    /// It is late now.
    pub slow: bool,
}

/// An announced pause (E7).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HookView {
    /// Until its end, ms.
    pub left_ms: u64,
    /// Why.
    pub reason: String,
}

/// Whole milliseconds, saturating.
pub(super) fn whole_ms(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

impl ProbeView {
    /// Of a note as it stands at `now`; `opinion` holds since the last progress.
    pub fn new(note: ProbeNote, opinion: ProbeOpinion, now: Stamp) -> ProbeView {
        let age_ms = (note.at != Stamp::ZERO).then(|| whole_ms(now.since(note.at)));
        let (good, bad) = note.streak;
        ProbeView { what: note.what, opinion, good, bad, age_ms, took_ms: note.took_ms, said: note.said }
    }
}

impl HookView {
    /// Of a pause that is not over at `now`.
    pub fn new(note: PauseNote, now: Stamp) -> Option<HookView> {
        let left = note.until.since(now);
        (!left.is_zero()).then(|| HookView { left_ms: whole_ms(left).max(1), reason: note.reason })
    }
}

impl Explain {
    /// One sentence per evidence, E1 to E7.
    pub fn words(&self) -> Vec<String> {
        vec![
            self.progress(),
            self.unread(),
            self.process(),
            self.listener(),
            self.probe(),
            self.answers(),
            self.hook(),
        ]
    }

    fn progress(&self) -> String {
        let ago = match self.last_progress_ms {
            None => "the service has said nothing yet".to_owned(),
            Some(ms) => format!("the service said something {ms} ms ago"),
        };
        let open = format!("{} of {} connections wait for an answer", self.unanswered, self.connections);
        if self.unanswered == 0 {
            return format!("E1 progress: {ago}; nothing waits");
        }
        format!("E1 progress: {ago}; {open}, the oldest for {} ms", self.oldest_unanswered_ms)
    }

    fn unread(&self) -> String {
        if self.unread_bytes == 0 {
            return "E2 unread queue: empty where it was looked at".to_owned();
        }
        format!(
            "E2 unread queue: up to {} bytes; a stall after {:.0} ms without progress",
            self.unread_bytes, self.stall_limit_ms
        )
    }

    fn process(&self) -> String {
        let p = &self.process;
        let state = match () {
            () if p.gone => "has exited",
            () if !p.known => "cannot be seen from here",
            () if p.stopped => "is stopped",
            () if p.cpu_advancing => "burns CPU",
            () if p.blocked => "waits in the kernel",
            () => "runs",
        };
        let pids: Vec<_> = self.pids.iter().map(u32::to_string).collect();
        let who = if pids.is_empty() { String::new() } else { format!(" {}", pids.join(", ")) };
        format!("E3 process{who}: {state}")
    }

    fn listener(&self) -> String {
        let refused = if self.refused { "; the last connect was refused" } else { "" };
        match self.listener {
            None => format!("E4 listener: cannot be seen from here{refused}"),
            Some(l) if !l.listening => format!("E4 listener: none{refused}"),
            Some(l) => {
                format!("E4 listener: listens, {} of {} wait to be accepted{refused}", l.queue, l.backlog)
            }
        }
    }

    fn probe(&self) -> String {
        let p = &self.probe;
        if p.what.is_empty() {
            return "E5 probe: not configured".to_owned();
        }
        let Some(age) = p.age_ms else { return format!("E5 probe ({}): none was needed yet", p.what) };
        let opinion = match p.opinion {
            ProbeOpinion::Unknown => "says nothing now",
            ProbeOpinion::Alive => "alive",
            ProbeOpinion::Failing => "failing",
        };
        let streak =
            if p.bad > 0 { format!("{} failed in a row", p.bad) } else { format!("{} ok in a row", p.good) };
        format!(
            "E5 probe ({}): {opinion}, {streak}; {age} ms ago, in {:.1} ms: {}",
            p.what, p.took_ms, p.said
        )
    }

    fn answers(&self) -> String {
        let a = &self.answers;
        let (Some(usual), Some(limit)) = (a.usual_ms, a.limit_ms) else {
            return format!("E6 answer time: {:.0} answers are too few to say anything", a.samples);
        };
        let now = if a.slow { "late now" } else { "not late" };
        format!("E6 answer time: usually {usual:.1} ms, late after {limit:.0} ms of silence; {now}")
    }

    fn hook(&self) -> String {
        match &self.hook {
            None => "E7 hook: no pause is announced".to_owned(),
            Some(h) if h.reason.is_empty() => {
                format!("E7 hook: a pause is announced for {} ms more", h.left_ms)
            }
            Some(h) => format!("E7 hook: a pause is announced for {} ms more: {}", h.left_ms, h.reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing() -> Explain {
        Explain {
            service: "127.0.0.1:80".parse().unwrap(),
            vouch: Vouch::Unknown,
            connections: 0,
            unanswered: 0,
            oldest_unanswered_ms: 0,
            last_progress_ms: None,
            unread_bytes: 0,
            read_delay_ms: 0.0,
            stall_limit_ms: 10.0,
            listener: None,
            process: ProcessOpinion::default(),
            pids: Vec::new(),
            fins: 0,
            resets: 0,
            refused: false,
            probe: ProbeView::default(),
            answers: AnswersView::default(),
            hook: None,
        }
    }

    #[test]
    fn each_evidence_has_a_sentence_also_when_it_knows_nothing() {
        let words = nothing().words();
        assert_eq!(words.len(), 7);
        for (i, w) in words.iter().enumerate() {
            assert!(w.starts_with(&format!("E{} ", i + 1)), "{w}");
        }
        assert_eq!(words[4], "E5 probe: not configured");
        assert_eq!(words[6], "E7 hook: no pause is announced");
    }

    #[test]
    fn numbers_become_words() {
        let note = ProbeNote {
            what: "http /health".into(),
            opinion: ProbeOpinion::Failing,
            streak: (0, 4),
            at: Stamp::from_millis(900),
            took_ms: 1000.0,
            said: "no answer within 1s".into(),
        };
        let now = Stamp::from_millis(1000);
        let pause = PauseNote { at: now, until: Stamp::from_millis(1400), reason: "gc".into() };
        let e = Explain {
            unanswered: 2,
            connections: 3,
            oldest_unanswered_ms: 40,
            last_progress_ms: Some(7),
            unread_bytes: 9,
            listener: Some(ListenerView { listening: true, queue: 1, backlog: 128 }),
            process: ProcessOpinion { known: true, cpu_advancing: true, ..ProcessOpinion::default() },
            pids: vec![42, 43],
            probe: ProbeView::new(note, ProbeOpinion::Failing, now),
            answers: AnswersView { samples: 500.0, usual_ms: Some(1.2), limit_ms: Some(25.0), slow: true },
            hook: HookView::new(pause.clone(), now),
            ..nothing()
        };
        let wanted = [
            "E1 progress: the service said something 7 ms ago; 2 of 3 connections wait for an answer, the oldest for 40 ms",
            "E2 unread queue: up to 9 bytes; a stall after 10 ms without progress",
            "E3 process 42, 43: burns CPU",
            "E4 listener: listens, 1 of 128 wait to be accepted",
            "E5 probe (http /health): failing, 4 failed in a row; 100 ms ago, in 1000.0 ms: no answer within 1s",
            "E6 answer time: usually 1.2 ms, late after 25 ms of silence; late now",
            "E7 hook: a pause is announced for 400 ms more: gc",
        ];
        assert_eq!(e.words(), wanted);
        assert_eq!(HookView::new(pause, Stamp::from_millis(1400)), None);
    }
}
