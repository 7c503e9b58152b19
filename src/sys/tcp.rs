//! What the kernel knows of one of our own TCP sockets.
#![expect(
    unsafe_code,
    reason = "TCP_INFO, SIOCOUTQ, SIOCOUTQNSD and IP_BIND_ADDRESS_NO_PORT have no safe wrapper"
)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// `linux/sockios.h`: bytes in the send queue that were not yet sent.
const SIOCOUTQNSD: libc::c_ulong = 0x894B;
/// `linux/in.h`.
const IP_BIND_ADDRESS_NO_PORT: libc::c_int = 24;
/// Longest `struct tcp_info` known is 248 bytes; a later kernel's tail is cut by the call.
const TCP_INFO_MAX: usize = 256;
/// End of `tcpi_min_rtt`: kernels before 4.6 give less.
const TCP_INFO_MIN: usize = 152;

/// State of a TCP socket, as numbered by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpState {
    /// Open in both directions.
    Established,
    /// Being opened by us.
    SynSent,
    /// Being opened by the peer.
    SynRecv,
    /// We closed, the peer has not acknowledged.
    FinWait1,
    /// We closed, the peer has not closed.
    FinWait2,
    /// Both closed, waiting for late segments.
    TimeWait,
    /// No longer a socket.
    Close,
    /// The peer closed, we have not.
    CloseWait,
    /// Both closed, our FIN is not acknowledged.
    LastAck,
    /// Takes connections.
    Listen,
    /// Both closed at once.
    Closing,
    /// A number of a later kernel.
    Other(u8),
}

impl TcpState {
    /// From the kernel's number.
    pub const fn from_code(code: u8) -> TcpState {
        match code {
            1 => TcpState::Established,
            2 => TcpState::SynSent,
            3 | 12 => TcpState::SynRecv,
            4 => TcpState::FinWait1,
            5 => TcpState::FinWait2,
            6 => TcpState::TimeWait,
            7 => TcpState::Close,
            8 => TcpState::CloseWait,
            9 => TcpState::LastAck,
            10 => TcpState::Listen,
            11 => TcpState::Closing,
            other => TcpState::Other(other),
        }
    }
}

/// The part of `struct tcp_info` that sidebeat uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpInfo {
    /// State.
    pub state: TcpState,
    /// Smoothed round trip; inflated by delayed ACKs, so never a base for judging a peer.
    pub rtt: Duration,
    /// Smallest round trip of the last minutes.
    pub min_rtt: Duration,
    /// How often what is not acknowledged was sent again without any answer, for its time was over.
    pub retransmits: u8,
    /// Segments sent and not acknowledged.
    pub unacked: u32,
    /// Segments received.
    pub segs_in: u32,
    /// Segments sent again, in all.
    pub total_retrans: u32,
    /// Bytes not yet sent.
    pub notsent: u32,
    /// Bytes the peer's kernel acknowledged.
    pub bytes_acked: u64,
    /// Bytes received in order, read or not.
    pub bytes_received: u64,
    /// Segments received out of order; `None` before kernel 5.4.
    pub rcv_ooopack: Option<u32>,
    /// Since data last arrived, ms resolution.
    pub last_data_recv: Duration,
}

impl TcpInfo {
    /// From the kernel's bytes (native byte order); `None` if they end before `tcpi_min_rtt`.
    pub fn parse(raw: &[u8]) -> Option<TcpInfo> {
        if raw.len() < TCP_INFO_MIN {
            return None;
        }
        let u32_at = |at: usize| Some(u32::from_ne_bytes(raw.get(at..at + 4)?.try_into().ok()?));
        let u64_at = |at: usize| Some(u64::from_ne_bytes(raw.get(at..at + 8)?.try_into().ok()?));
        Some(TcpInfo {
            state: TcpState::from_code(raw[0]),
            retransmits: raw[2],
            unacked: u32_at(24)?,
            last_data_recv: Duration::from_millis(u64::from(u32_at(52)?)),
            rtt: Duration::from_micros(u64::from(u32_at(68)?)),
            total_retrans: u32_at(100)?,
            bytes_acked: u64_at(120)?,
            bytes_received: u64_at(128)?,
            segs_in: u32_at(140)?,
            notsent: u32_at(144)?,
            min_rtt: Duration::from_micros(u64::from(u32_at(148)?)),
            rcv_ooopack: u32_at(224),
        })
    }
}

/// TCP_INFO of a TCP socket, about 1 us.
///
/// # Errors
/// That of getsockopt; `InvalidData` if the kernel is too old to fill the fields.
pub fn tcp_info(fd: impl AsFd) -> io::Result<TcpInfo> {
    let mut raw = [0u8; TCP_INFO_MAX];
    let mut len = TCP_INFO_MAX as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `raw`, which is that long and outlives the call; the
    // descriptor is borrowed, hence open.
    let rc = unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            raw.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    let filled = raw.get(..len as usize).unwrap_or(&raw);
    TcpInfo::parse(filled).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "short TCP_INFO"))
}

/// Bytes written to the socket that its peer's kernel has not acknowledged (SIOCOUTQ).
///
/// # Errors
/// That of ioctl.
pub fn outq(fd: impl AsFd) -> io::Result<u32> {
    queue(fd, libc::TIOCOUTQ)
}

/// Bytes written to the socket that were not sent yet (SIOCOUTQNSD).
///
/// # Errors
/// That of ioctl.
pub fn notsent(fd: impl AsFd) -> io::Result<u32> {
    queue(fd, SIOCOUTQNSD)
}

/// Bytes received that we have not read (FIONREAD).
///
/// # Errors
/// That of ioctl.
pub fn unread(fd: impl AsFd) -> io::Result<u64> {
    Ok(rustix::io::ioctl_fionread(fd)?)
}

fn queue(fd: impl AsFd, request: libc::c_ulong) -> io::Result<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: both requests write one int to the pointer, which is valid for the call; the descriptor is borrowed.
    let rc = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request as _, &raw mut bytes) };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u32::try_from(bytes).unwrap_or(0))
}

/// IP_BIND_ADDRESS_NO_PORT: a later bind to port 0 chooses the port at connect, so that the same port may serve
/// several destinations. Without it 28 000 connections from one address are the limit.
///
/// # Errors
/// That of setsockopt.
pub fn bind_no_port(fd: impl AsFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the kernel reads one int from the pointer, which is valid for the call; the descriptor is borrowed.
    let rc = unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            libc::IPPROTO_IP,
            IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (TcpStream, TcpStream) {
        let l = TcpListener::bind("127.0.0.1:0").unwrap();
        let a = TcpStream::connect(l.local_addr().unwrap()).unwrap();
        let (b, _) = l.accept().unwrap();
        (a, b)
    }

    #[test]
    fn a_socket_tells_its_queues() {
        let (mut a, mut b) = pair();
        a.write_all(b"hello").unwrap();
        while unread(&b).unwrap() < 5 {}
        assert_eq!(outq(&a).unwrap(), 0);
        assert_eq!(notsent(&a).unwrap(), 0);
        let info = tcp_info(&b).unwrap();
        assert_eq!((info.state, info.bytes_received), (TcpState::Established, 5));
        assert_eq!(tcp_info(&a).unwrap().bytes_acked, 5 + 1, "the SYN counts");
        assert!(info.segs_in >= 2);
        b.read_exact(&mut [0; 5]).unwrap();
        assert_eq!(unread(&b).unwrap(), 0);
    }

    #[test]
    fn a_full_receiver_shows_in_the_senders_queue() {
        let (mut a, _b) = pair();
        a.set_nonblocking(true).unwrap();
        while a.write(&[0; 65536]).is_ok() {}
        assert!(outq(&a).unwrap() > 0);
        assert!(notsent(&a).unwrap() <= outq(&a).unwrap());
    }

    #[test]
    fn short_answers_are_refused() {
        assert_eq!(TcpInfo::parse(&[0; 151]), None);
        assert_eq!(TcpInfo::parse(&[0; 152]).and_then(|i| i.rcv_ooopack), None);
        assert_eq!(TcpInfo::parse(&[0; 232]).and_then(|i| i.rcv_ooopack), Some(0));
    }

    #[test]
    fn no_port_is_taken_at_bind() {
        let s = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        bind_no_port(&s).unwrap();
        s.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
        assert_eq!(s.local_addr().unwrap().as_socket().unwrap().port(), 0);
    }
}
