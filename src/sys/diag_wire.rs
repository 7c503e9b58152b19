//! Pure: no IO, no clock. Bytes of NETLINK_SOCK_DIAG (`linux/netlink.h`, `linux/inet_diag.h`): requests out, answers in.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::sock_diag::SockState;
use super::tcp::{TcpInfo, TcpState};

const HEADER: usize = 16;
const REQUEST: usize = HEADER + 56;
const MSG: usize = 72;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_CGROUP_ID: u16 = 21;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub(super) enum Query {
    /// The socket with this local and remote address; a listener if `remote` is unspecified.
    Exact { local: SocketAddr, remote: SocketAddr },
    /// All listeners of a family on a port.
    Listeners { v6: bool, port: u16 },
}

/// One message of an answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply {
    /// A socket.
    Socket(Box<SockState>),
    /// End of a dump.
    Done,
    /// errno, positive.
    Error(i32),
}

/// A request; `info` asks for TCP_INFO too.
pub(super) fn encode(query: Query, seq: u32, info: bool) -> [u8; REQUEST] {
    let (family, local, remote, flags, states) = match query {
        Query::Exact { local, remote } => (family(local), local, remote, NLM_F_REQUEST, u32::MAX),
        Query::Listeners { v6, port } => {
            let any = if v6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
            let local = SocketAddr::new(any, port);
            (family(local), local, SocketAddr::new(any, 0), NLM_F_REQUEST | NLM_F_DUMP, 1 << 10)
        }
    };
    let mut out = [0u8; REQUEST];
    put(&mut out, 0, &(REQUEST as u32).to_ne_bytes());
    put(&mut out, 4, &SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    put(&mut out, 6, &flags.to_ne_bytes());
    put(&mut out, 8, &seq.to_ne_bytes());
    put(&mut out, 16, &[family, libc::IPPROTO_TCP as u8, u8::from(info) << (INET_DIAG_INFO - 1), 0]);
    put(&mut out, 20, &states.to_ne_bytes());
    put(&mut out, 24, &local.port().to_be_bytes());
    put(&mut out, 26, &remote.port().to_be_bytes());
    put(&mut out, 28, &address(local.ip()));
    put(&mut out, 44, &address(remote.ip()));
    put(&mut out, 64, &[0xff; 8]);
    out
}

fn put(out: &mut [u8; REQUEST], at: usize, bytes: &[u8]) {
    out[at..at + bytes.len()].copy_from_slice(bytes);
}

fn family(a: SocketAddr) -> u8 {
    if a.is_ipv4() { AF_INET } else { AF_INET6 }
}

fn address(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V6(v6) => v6.octets(),
        IpAddr::V4(v4) => {
            let mut out = [0; 16];
            out[..4].copy_from_slice(&v4.octets());
            out
        }
    }
}

/// Calls `each` for every message in `buf` that answers request `seq`.
pub(super) fn decode(mut buf: &[u8], seq: u32, mut each: impl FnMut(Reply)) {
    while let (Some(len), Some(kind), Some(got_seq)) = (u32_at(buf, 0), u16_at(buf, 4), u32_at(buf, 8)) {
        let len = len as usize;
        if len < HEADER || len > buf.len() {
            return;
        }
        let body = &buf[HEADER..len];
        if got_seq == seq
            && let Some(reply) = reply(kind, body)
        {
            each(reply);
        }
        buf = buf.get(align(len)..).unwrap_or_default();
    }
}

fn reply(kind: u16, body: &[u8]) -> Option<Reply> {
    match kind {
        NLMSG_DONE => Some(Reply::Done),
        NLMSG_ERROR => Some(Reply::Error((u32_at(body, 0)? as i32).saturating_neg())),
        SOCK_DIAG_BY_FAMILY => socket(body).map(|s| Reply::Socket(Box::new(s))),
        _ => None,
    }
}

fn socket(body: &[u8]) -> Option<SockState> {
    let head = body.get(..MSG)?;
    let mut state = SockState {
        state: TcpState::from_code(head[1]),
        local: SocketAddr::new(ip(head[0], &head[8..24])?, u16::from_be_bytes([head[4], head[5]])),
        rqueue: u32_at(head, 56)?,
        wqueue: u32_at(head, 60)?,
        uid: u32_at(head, 64)?,
        inode: u32_at(head, 68)?,
        cgroup_id: None,
        info: None,
    };
    let mut rest = &body[MSG..];
    while let (Some(len), Some(kind)) = (u16_at(rest, 0), u16_at(rest, 2)) {
        let Some(value) = rest.get(4..usize::from(len)) else { break };
        match kind {
            INET_DIAG_CGROUP_ID => state.cgroup_id = value.try_into().ok().map(u64::from_ne_bytes),
            INET_DIAG_INFO => state.info = TcpInfo::parse(value),
            _ => {}
        }
        rest = rest.get(align(usize::from(len))..).unwrap_or_default();
    }
    Some(state)
}

fn ip(family: u8, raw: &[u8]) -> Option<IpAddr> {
    match family {
        AF_INET => Some(IpAddr::V4(<[u8; 4]>::try_from(raw.get(..4)?).ok()?.into())),
        AF_INET6 => Some(IpAddr::V6(<[u8; 16]>::try_from(raw.get(..16)?).ok()?.into())),
        _ => None,
    }
}

fn align(len: usize) -> usize {
    (len + 3) & !3
}

fn u16_at(b: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(b.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(b: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(b.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, seq: u32, body: &[u8]) -> Vec<u8> {
        let mut m = Vec::new();
        m.extend_from_slice(&((HEADER + body.len()) as u32).to_ne_bytes());
        m.extend_from_slice(&kind.to_ne_bytes());
        m.extend_from_slice(&[0, 0]);
        m.extend_from_slice(&seq.to_ne_bytes());
        m.extend_from_slice(&[0; 4]);
        m.extend_from_slice(body);
        m.resize(align(m.len()), 0);
        m
    }

    fn listener_body() -> Vec<u8> {
        let mut b = vec![0u8; MSG];
        b[0] = AF_INET;
        b[1] = 10;
        b[4..6].copy_from_slice(&8080u16.to_be_bytes());
        b[8..12].copy_from_slice(&[127, 0, 0, 1]);
        b[56..60].copy_from_slice(&3u32.to_ne_bytes());
        b[60..64].copy_from_slice(&128u32.to_ne_bytes());
        b[64..68].copy_from_slice(&1000u32.to_ne_bytes());
        b[68..72].copy_from_slice(&77u32.to_ne_bytes());
        b.extend_from_slice(&5u16.to_ne_bytes());
        b.extend_from_slice(&8u16.to_ne_bytes());
        b.extend_from_slice(&[0; 4]);
        b.extend_from_slice(&12u16.to_ne_bytes());
        b.extend_from_slice(&INET_DIAG_CGROUP_ID.to_ne_bytes());
        b.extend_from_slice(&4242u64.to_ne_bytes());
        b
    }

    fn all(buf: &[u8], seq: u32) -> Vec<Reply> {
        let mut out = Vec::new();
        decode(buf, seq, |r| out.push(r));
        out
    }

    #[test]
    fn a_dump_is_read_message_by_message() {
        let mut buf = message(SOCK_DIAG_BY_FAMILY, 9, &listener_body());
        buf.extend(message(NLMSG_DONE, 9, &[0; 4]));
        let got = all(&buf, 9);
        let Reply::Socket(s) = &got[0] else { panic!("{got:?}") };
        assert_eq!((s.rqueue, s.wqueue, s.uid, s.inode, s.cgroup_id), (3, 128, 1000, 77, Some(4242)));
        assert_eq!(s.local, "127.0.0.1:8080".parse().unwrap());
        assert_eq!(got[1], Reply::Done);
    }

    #[test]
    fn answers_to_older_requests_are_skipped() {
        let mut buf = message(SOCK_DIAG_BY_FAMILY, 8, &listener_body());
        buf.extend(message(NLMSG_ERROR, 9, &(-2i32).to_ne_bytes()));
        assert_eq!(all(&buf, 9), [Reply::Error(2)]);
    }

    #[test]
    fn cut_bytes_never_panic() {
        let whole = message(SOCK_DIAG_BY_FAMILY, 1, &listener_body());
        for n in 0..whole.len() {
            all(&whole[..n], 1);
            let mut lying = whole[..n].to_vec();
            if n >= 4 {
                lying[..4].copy_from_slice(&(n as u32).to_ne_bytes());
                all(&lying, 1);
            }
        }
        all(&[0; 64], 0);
        all(&[0xff; 64], u32::MAX);
    }

    #[test]
    fn a_request_names_both_ends() {
        let q = Query::Exact { local: "[::1]:80".parse().unwrap(), remote: "[::1]:4000".parse().unwrap() };
        let raw = encode(q, 5, true);
        assert_eq!(raw[16..20], [AF_INET6, 6, 2, 0]);
        assert_eq!((raw[24..26].to_vec(), raw[26..28].to_vec()), (vec![0, 80], vec![0x0f, 0xa0]));
        assert_eq!((raw[43], raw[59]), (1, 1));
    }
}
