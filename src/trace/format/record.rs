//! Pure: no IO, no clock. One record of a trace, 2 to 10 bytes where it is usual.
//!
//! A record is a byte of kind and flags, the link's number, the time since the record before, and what its kind needs. The
//! same link and the same time as before take no byte.

use std::sync::Arc;
use std::time::Duration;

use super::varint::{self, Rest, put_signed, put_span, put_text};
use super::{FormatError, STAMP_MAX};
use crate::detector::{End, Facts, Gate, Input, Said};
use crate::stamp::Stamp;

/// What a trace tells of a link when it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// The worker that reads it.
    pub worker: u16,
    /// Name of the upstream.
    pub upstream: String,
    /// Address of the endpoint.
    pub endpoint: String,
    /// Node id of the peer.
    pub node: String,
    /// Name of the law that judges, as in [`crate::detector::catalog`].
    pub law: String,
    /// Its parameters, `key=value` separated by spaces.
    pub settings: String,
    /// Promise assumed before the first one is heard.
    pub first_promise: Duration,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A link begins here; its judge is new.
    Begin(Arc<LinkInfo>),
    /// A link that is there already: for readers of what follows. Its judge is not new.
    Known(Arc<LinkInfo>),
    /// So many records of all links of the block's worker are missing before this one.
    Gap(u64),
    /// The judge of the link was told this.
    Input(Input),
}

/// One entry of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Number of the link, from 1, unique in one run of a sidecar; 0 for a gap.
    pub link: u32,
    /// When, on CLOCK_MONOTONIC.
    pub at: Stamp,
    /// What.
    pub event: Event,
}

const KIND: u8 = 0x0f;
const SAME_LINK: u8 = 0x10;
const SAME_TIME: u8 = 0x20;
const FLAG_A: u8 = 0x40;
const FLAG_B: u8 = 0x80;

const BEGIN: u8 = 1;
const KNOWN: u8 = 2;
const GAP: u8 = 3;
const HEARD: u8 = 4;
const PROMISED: u8 = 5;
const VIEW: u8 = 6;
const WROTE: u8 = 7;
const RTT: u8 = 8;
const CHALLENGE_SENT: u8 = 9;
const ANSWERED: u8 = 10;
const BACKPRESSURE: u8 = 11;
const PEER_STALLED: u8 = 12;
const OWN_STALL: u8 = 13;
const POLLED: u8 = 14;
const MORE: u8 = 15;

const MORE_PROBE: u8 = 0;
const MORE_MAINTENANCE: u8 = 1;
const MORE_ENDED: u8 = 2;
const MORE_INHERITED: u8 = 3;
const MORE_NOISE: u8 = 4;

// === writing ===

/// Appends a record behind one of `link` at `last`.
pub(super) fn put(out: &mut Vec<u8>, record: &Record, link: u32, last: Stamp) {
    let mut kind = kind_of(&record.event);
    if record.link == link {
        kind |= SAME_LINK;
    }
    if record.at == last {
        kind |= SAME_TIME;
    }
    out.push(kind);
    if record.link != link {
        varint::put(out, u64::from(record.link));
    }
    if record.at != last {
        put_signed(out, record.at.as_nanos().wrapping_sub(last.as_nanos()) as i64);
    }
    match &record.event {
        Event::Begin(info) | Event::Known(info) => put_info(out, info),
        Event::Gap(lost) => varint::put(out, *lost),
        Event::Input(input) => put_input(out, input),
    }
}

fn kind_of(event: &Event) -> u8 {
    let input = match event {
        Event::Begin(_) => return BEGIN,
        Event::Known(_) => return KNOWN,
        Event::Gap(_) => return GAP,
        Event::Input(input) => input,
    };
    match input {
        Input::Heard { .. } => HEARD,
        Input::Promised { .. } => PROMISED,
        Input::PeerView { .. } => VIEW,
        Input::Wrote { .. } => WROTE,
        Input::Rtt { .. } => RTT,
        Input::ChallengeSent { .. } => CHALLENGE_SENT,
        Input::Answered { .. } => ANSWERED,
        Input::Backpressure { active, .. } => BACKPRESSURE | if *active { FLAG_A } else { 0 },
        Input::PeerStalled { .. } => PEER_STALLED,
        Input::OwnStall { .. } => OWN_STALL,
        Input::Polled { facts, said, .. } => {
            POLLED | if said.is_some() { FLAG_A } else { 0 } | if facts.is_some() { FLAG_B } else { 0 }
        }
        Input::Probe { .. }
        | Input::Inherited { .. }
        | Input::Noise { .. }
        | Input::Maintenance { .. }
        | Input::Ended { .. } => MORE,
    }
}

fn put_info(out: &mut Vec<u8>, info: &LinkInfo) {
    varint::put(out, u64::from(info.worker));
    for text in [&info.upstream, &info.endpoint, &info.node, &info.law, &info.settings] {
        put_text(out, text);
    }
    put_span(out, info.first_promise);
}

fn put_input(out: &mut Vec<u8>, input: &Input) {
    match *input {
        Input::Heard { .. }
        | Input::ChallengeSent { .. }
        | Input::Answered { .. }
        | Input::PeerStalled { .. } => {}
        Input::Promised { promise, .. }
        | Input::Wrote { promise, .. }
        | Input::Backpressure { promise, .. } => put_span(out, promise),
        Input::PeerView { age, .. } => put_span(out, age),
        Input::Rtt { rtt, .. } => put_span(out, rtt),
        Input::OwnStall { from, to } => put_span(out, to.since(from)),
        Input::Polled { at, facts, said } => {
            if let Some(said) = said {
                out.push(said_code(said));
            }
            if let Some(facts) = facts {
                put_facts(out, at, facts);
            }
        }
        Input::Probe { .. } => out.push(MORE_PROBE),
        Input::Maintenance { pause, .. } => {
            out.push(MORE_MAINTENANCE);
            put_span(out, pause);
        }
        Input::Inherited { peak, .. } => {
            out.push(MORE_INHERITED);
            put_span(out, peak);
        }
        Input::Noise { noise, .. } => {
            out.push(MORE_NOISE);
            put_span(out, noise);
        }
        Input::Ended { how, .. } => out.extend([MORE_ENDED, how as u8]),
    }
}

fn put_facts(out: &mut Vec<u8>, at: Stamp, facts: Facts) {
    let others = [facts.others_heard, facts.others_hear, facts.others_asked];
    let told = others.map(|o| o != Stamp::ZERO && o != Stamp::NEVER);
    let [heard, hear, asked] = told.map(u8::from);
    let never = u8::from(facts.others_asked == Stamp::NEVER);
    out.push(u8::from(facts.unread) | heard << 1 | hear << 2 | asked << 3 | never << 4);
    for (other, _) in others.into_iter().zip(told).filter(|(_, told)| *told) {
        put_signed(out, at.as_nanos().wrapping_sub(other.as_nanos()) as i64);
    }
}

const SAID: [Said; 8] = [
    Said::Challenge,
    Said::Suspect,
    Said::Failed,
    Said::LinkOnly,
    Said::Active { mistake: false, outage: false },
    Said::Active { mistake: true, outage: false },
    Said::Active { mistake: false, outage: true },
    Said::Active { mistake: true, outage: true },
];

fn said_code(said: Said) -> u8 {
    match said {
        Said::Held(gate) => SAID.len() as u8 + gate as u8,
        other => SAID.iter().position(|s| *s == other).unwrap_or_default() as u8,
    }
}

fn said_from(code: u8) -> Result<Said, FormatError> {
    let code = usize::from(code);
    let gate = || Gate::ALL.get(code - SAID.len()).map(|g| Said::Held(*g));
    SAID.get(code).copied().or_else(gate).ok_or(FormatError::Corrupt("an unknown verdict"))
}

// === reading ===

/// Takes the record at the beginning of `rest`, behind one of `link` at `last`.
pub(super) fn take(rest: &mut Rest<'_>, link: u32, last: Stamp) -> Result<Record, FormatError> {
    let kind = rest.byte()?;
    let link = match kind & SAME_LINK {
        0 => u32::try_from(rest.number()?).map_err(|_| FormatError::Corrupt("a link's number over 2^32"))?,
        _ => link,
    };
    let at = match kind & SAME_TIME {
        0 => stamp(last.as_nanos().wrapping_add(rest.signed()? as u64))?,
        _ => stamp(last.as_nanos())?,
    };
    let event = match kind & KIND {
        BEGIN => Event::Begin(take_info(rest)?),
        KNOWN => Event::Known(take_info(rest)?),
        GAP => Event::Gap(rest.number()?),
        _ => Event::Input(take_input(kind, rest, at)?),
    };
    Ok(Record { link, at, event })
}

fn stamp(ns: u64) -> Result<Stamp, FormatError> {
    if ns > STAMP_MAX {
        Err(FormatError::Corrupt("a time after 146 years"))
    } else {
        Ok(Stamp::from_nanos(ns))
    }
}

fn take_info(rest: &mut Rest<'_>) -> Result<Arc<LinkInfo>, FormatError> {
    let worker =
        u16::try_from(rest.number()?).map_err(|_| FormatError::Corrupt("a worker's number over 2^16"))?;
    let mut text = || rest.text().map(str::to_owned);
    let (upstream, endpoint, node, law, settings) = (text()?, text()?, text()?, text()?, text()?);
    let first_promise = rest.span()?;
    Ok(Arc::new(LinkInfo { worker, upstream, endpoint, node, law, settings, first_promise }))
}

fn take_input(kind: u8, rest: &mut Rest<'_>, at: Stamp) -> Result<Input, FormatError> {
    Ok(match kind & KIND {
        HEARD => Input::Heard { at },
        PROMISED => Input::Promised { at, promise: rest.span()? },
        VIEW => Input::PeerView { at, age: rest.span()? },
        WROTE => Input::Wrote { at, promise: rest.span()? },
        RTT => Input::Rtt { at, rtt: rest.span()? },
        CHALLENGE_SENT => Input::ChallengeSent { at },
        ANSWERED => Input::Answered { at },
        BACKPRESSURE => Input::Backpressure { at, active: kind & FLAG_A != 0, promise: rest.span()? },
        PEER_STALLED => Input::PeerStalled { at },
        OWN_STALL => Input::OwnStall { from: at - rest.span()?, to: at },
        POLLED => {
            let said = if kind & FLAG_A != 0 { Some(said_from(rest.byte()?)?) } else { None };
            let facts = if kind & FLAG_B != 0 { Some(take_facts(rest, at)?) } else { None };
            Input::Polled { at, facts, said }
        }
        MORE => match rest.byte()? {
            MORE_PROBE => Input::Probe { at },
            MORE_MAINTENANCE => Input::Maintenance { at, pause: rest.span()? },
            MORE_INHERITED => Input::Inherited { at, peak: rest.span()? },
            MORE_NOISE => Input::Noise { at, noise: rest.span()? },
            MORE_ENDED => {
                let how = End::ALL.get(usize::from(rest.byte()?)).copied();
                Input::Ended { at, how: how.ok_or(FormatError::Corrupt("an unknown end of a link"))? }
            }
            _ => return Err(FormatError::Corrupt("an unknown kind of record")),
        },
        _ => return Err(FormatError::Corrupt("an unknown kind of record")),
    })
}

fn take_facts(rest: &mut Rest<'_>, at: Stamp) -> Result<Facts, FormatError> {
    let flags = rest.byte()?;
    let mut other = |flag| match flags & flag {
        0 => Ok(Stamp::ZERO),
        _ => stamp(at.as_nanos().wrapping_sub(rest.signed()? as u64)),
    };
    let (others_heard, others_hear, asked) = (other(2)?, other(4)?, other(8)?);
    let others_asked = if flags & 16 == 0 { asked } else { Stamp::NEVER };
    Ok(Facts { unread: flags & 1 != 0, others_heard, others_hear, others_asked })
}
