//! Reading and writing a socket of the runtime: as its own methods do, without the detours that cost as much as what they
//! surround (the C library's cancellation points, a second look at the readiness).

use std::io;
use std::task::{Context, Poll, ready};

use rustix::net::{RecvFlags, SendFlags, recv, send};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// One read of a socket that is said to be readable. A short one tells the runtime that the socket is empty, so that nobody
/// asks again only to hear EAGAIN. 0 bytes: the end.
///
/// # Errors
/// `WouldBlock` where it was empty; the waker has to be registered then.
pub(super) fn read_ready(io: &TcpStream, buf: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    let done = io.try_io(Interest::READABLE, || {
        (got, _) = recv(io, &mut *buf, RecvFlags::DONTWAIT)?;
        let emptied = 0 < got && got < buf.len();
        if emptied { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
    });
    match done {
        Err(e) if got == 0 => Err(e),
        _ => Ok(got),
    }
}

/// As [`read_ready`]; waits until there is something.
pub(super) fn poll_read(io: &TcpStream, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
    loop {
        ready!(io.poll_read_ready(cx))?;
        match read_ready(io, buf) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            other => return Poll::Ready(other),
        }
    }
}

/// One write.
///
/// # Errors
/// `WouldBlock` where the socket takes nothing now.
pub(super) fn write(io: &TcpStream, buf: &[u8]) -> io::Result<usize> {
    io.try_io(Interest::WRITABLE, || Ok(send(io, buf, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let a = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (a, listener.accept().await.unwrap().0)
    }

    async fn read(io: &TcpStream, buf: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| poll_read(io, cx, buf)).await
    }

    #[tokio::test]
    async fn bytes_then_the_end_whatever_the_sizes() {
        let (mut a, b) = pair().await;
        let text: Vec<u8> = (0..100_000_u32).map(|i| i as u8).collect();
        for size in [1, 7, 4096, 1 << 20] {
            let (sent, mut got, mut buf) = (a.write_all(&text[..5000]), Vec::new(), vec![0; size]);
            sent.await.unwrap();
            while got.len() < 5000 {
                let n = read(&b, &mut buf).await.unwrap();
                assert!(n > 0);
                got.extend_from_slice(&buf[..n]);
            }
            assert_eq!(got, text[..5000]);
        }
        a.write_all(b"last").await.unwrap();
        drop(a);
        let mut buf = [0; 64];
        assert_eq!(read(&b, &mut buf).await.unwrap(), 4);
        assert_eq!(read(&b, &mut buf).await.unwrap(), 0, "the end behind a short read is seen");
        assert_eq!(read(&b, &mut buf).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn an_empty_socket_waits_and_a_full_one_says_so() {
        let (a, mut b) = pair().await;
        let mut buf = [0; 64];
        let empty = tokio::time::timeout(std::time::Duration::from_millis(20), read(&a, &mut buf)).await;
        assert!(empty.is_err());
        let block = vec![0; 1 << 16];
        let full = loop {
            match write(&a, &block) {
                Ok(n) => assert!(n > 0),
                Err(e) => break e,
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        b.write_all(b"x").await.unwrap();
        assert_eq!(read(&a, &mut buf).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn a_reset_is_an_error_on_both() {
        let (a, b) = pair().await;
        socket2::SockRef::from(&b).set_linger(Some(std::time::Duration::ZERO)).unwrap();
        drop(b);
        let mut buf = [0; 64];
        assert_eq!(read(&a, &mut buf).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(write(&a, b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
