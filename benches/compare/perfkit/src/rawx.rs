//! A floor for what a proxy hop can cost: one thread, epoll, read -> write, nothing else.
//! rawx LISTEN UPSTREAM plain|enc|dec [BUF_KIB]: `enc` puts an 8-byte length header before each chunk
//! sent to the upstream and strips it from what comes back (sidecar A); `dec` is the other end (sidecar B).
use std::net::SocketAddr;

const H: usize = 8;
struct End {
    fd: i32,
    pend: Vec<u8>, // bytes not yet written to this end
    off: usize,
    framed: bool, // this end of the pair speaks frames
    eof: bool,    // this end has sent its FIN
    shut: bool,   // we have passed a FIN on to this end
    rem: usize,   // payload bytes left of the frame being read from this end
    head: [u8; H],
    hn: usize,
    ev: u32,
}
impl End {
    fn new(fd: i32, framed: bool) -> End {
        End { fd, pend: vec![], off: 0, framed, eof: false, shut: false, rem: 0, head: [0; H], hn: 0, ev: 0 }
    }
}

fn sa(a: &str) -> libc::sockaddr_in {
    let SocketAddr::V4(v) = a.parse().unwrap() else { panic!() };
    libc::sockaddr_in {
        sin_family: 2,
        sin_port: v.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v.ip().octets()) },
        sin_zero: [0; 8],
    }
}

unsafe fn opt(fd: i32, lv: i32, o: i32) {
    let one = 1i32;
    libc::setsockopt(fd, lv, o, &one as *const _ as _, 4);
}

/// A slice whose byte H lies on a page boundary (`page`), or 16 bytes past it as glibc gives large blocks (!`page`).
/// It matters: on Zen 3 a copy to 8 or 16 bytes past the source's page offset is 10 to 30 times slower.
pub fn aligned(n: usize, head: usize, page: bool) -> &'static mut [u8] {
    let v = vec![0u8; n + 3 * 4096].leak();
    let at = v.as_ptr() as usize + head;
    let skip = (4096 - at % 4096) % 4096 + if page { 0 } else { 16 };
    &mut v[skip..skip + n]
}

pub fn run(listen: &str, up: &str, mode: &str, kib: usize, page: bool) {
    unsafe {
        let (la, ua) = (sa(listen), sa(up));
        let l = libc::socket(2, 1 | libc::SOCK_NONBLOCK, 0);
        opt(l, libc::SOL_SOCKET, libc::SO_REUSEADDR);
        assert!(libc::bind(l, &la as *const _ as _, 16) == 0);
        libc::listen(l, 4096);
        let ep = libc::epoll_create1(0);
        let ctl = |op: i32, fd: i32, ev: u32, id: u64| {
            let mut e = libc::epoll_event { events: ev, u64: id };
            libc::epoll_ctl(ep, op, fd, &mut e);
        };
        ctl(libc::EPOLL_CTL_ADD, l, libc::EPOLLIN as u32, u64::MAX);
        let mut pairs: Vec<Option<[End; 2]>> = vec![];
        let mut free: Vec<usize> = vec![];
        let buf = aligned(kib * 1024 + H, H, page);
        let mut evs = vec![libc::epoll_event { events: 0, u64: 0 }; 256];
        let (fa, fb) = (mode == "dec", mode == "enc");
        loop {
            let n = libc::epoll_wait(ep, evs.as_mut_ptr(), 256, -1);
            for k in 0..n.max(0) as usize {
                let id = evs[k].u64;
                if id == u64::MAX {
                    loop {
                        let c =
                            libc::accept4(l, std::ptr::null_mut(), std::ptr::null_mut(), libc::SOCK_NONBLOCK);
                        if c < 0 {
                            break;
                        }
                        let u = libc::socket(2, 1 | libc::SOCK_NONBLOCK, 0);
                        opt(c, 6, 1);
                        opt(u, 6, 1);
                        libc::connect(u, &ua as *const _ as _, 16);
                        let i = free.pop().unwrap_or_else(|| {
                            pairs.push(None);
                            pairs.len() - 1
                        });
                        let mut p = [End::new(c, fa), End::new(u, fb)];
                        p[0].ev = libc::EPOLLIN as u32;
                        p[1].ev = libc::EPOLLIN as u32;
                        ctl(libc::EPOLL_CTL_ADD, c, p[0].ev, (i * 2) as u64);
                        ctl(libc::EPOLL_CTL_ADD, u, p[1].ev, (i * 2 + 1) as u64);
                        pairs[i] = Some(p);
                    }
                    continue;
                }
                let (i, s) = ((id / 2) as usize, (id % 2) as usize);
                let Some(p) = pairs[i].as_mut() else { continue };
                let mut dead = false;
                let e = evs[k].events;
                if e & libc::EPOLLOUT as u32 != 0 {
                    dead |= !flush(&mut p[s]);
                }
                if e & (libc::EPOLLIN | libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0
                    && p[1 - s].pend.is_empty()
                    && !p[s].eof
                {
                    let (a, b) = p.split_at_mut(1);
                    let (src, dst) = if s == 0 { (&mut a[0], &mut b[0]) } else { (&mut b[0], &mut a[0]) };
                    dead |= !pump(src, dst, buf);
                } else if e & (libc::EPOLLERR) as u32 != 0 {
                    dead = true;
                }
                for x in 0..2 {
                    if p[1 - x].eof && p[x].pend.is_empty() && !p[x].shut {
                        libc::shutdown(p[x].fd, 1);
                        p[x].shut = true;
                    }
                }
                if dead || (p[0].eof && p[1].eof && p[0].pend.is_empty() && p[1].pend.is_empty()) {
                    libc::close(p[0].fd);
                    libc::close(p[1].fd);
                    pairs[i] = None;
                    free.push(i);
                    continue;
                }
                for x in 0..2 {
                    let mut want = 0;
                    if !p[x].eof && p[1 - x].pend.is_empty() {
                        want |= libc::EPOLLIN as u32;
                    }
                    if !p[x].pend.is_empty() {
                        want |= libc::EPOLLOUT as u32;
                    }
                    if want != p[x].ev {
                        p[x].ev = want;
                        ctl(libc::EPOLL_CTL_MOD, p[x].fd, want, (i * 2 + x) as u64);
                    }
                }
            }
        }
    }
}

fn again() -> bool {
    matches!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EAGAIN) | Some(libc::ENOTCONN))
}

unsafe fn flush(d: &mut End) -> bool {
    while d.off < d.pend.len() {
        let w = libc::send(d.fd, d.pend[d.off..].as_ptr() as _, d.pend.len() - d.off, libc::MSG_NOSIGNAL);
        if w < 0 {
            return again();
        }
        d.off += w as usize;
    }
    d.pend.clear();
    d.off = 0;
    true
}

/// Writes the slice, keeping what does not fit.
unsafe fn put(d: &mut End, b: &[u8]) -> bool {
    if !d.pend.is_empty() {
        d.pend.extend_from_slice(b);
        return true;
    }
    let w = libc::send(d.fd, b.as_ptr() as _, b.len(), libc::MSG_NOSIGNAL);
    if w < 0 && !again() {
        return false;
    }
    let w = w.max(0) as usize;
    if w < b.len() {
        d.pend.extend_from_slice(&b[w..]);
    }
    true
}

unsafe fn pump(s: &mut End, d: &mut End, buf: &mut [u8]) -> bool {
    let n = libc::recv(s.fd, buf[H..].as_mut_ptr() as _, buf.len() - H, 0);
    if n < 0 {
        return again();
    }
    if n == 0 {
        s.eof = true;
        return true;
    }
    let n = n as usize;
    if d.framed {
        buf[..4].copy_from_slice(&(n as u32).to_le_bytes());
        buf[4..8].copy_from_slice(&[1, 0, 0, 0]);
        return put(d, &buf[..H + n]);
    }
    if !s.framed {
        return put(d, &buf[H..H + n]);
    }
    // strip headers in place, then one write
    let (mut r, mut w, end) = (H, 0, H + n);
    let first = if s.rem > 0 || s.hn > 0 { None } else { Some(()) };
    if first.is_some() && n >= H {
        let len = u32::from_le_bytes(buf[H..H + 4].try_into().unwrap()) as usize;
        if n == H + len {
            return put(d, &buf[H + H..end]); // exactly one whole frame: nothing to move
        }
    }
    while r < end {
        if s.rem == 0 {
            let t = (H - s.hn).min(end - r);
            s.head[s.hn..s.hn + t].copy_from_slice(&buf[r..r + t]);
            s.hn += t;
            r += t;
            if s.hn == H {
                s.rem = u32::from_le_bytes(s.head[..4].try_into().unwrap()) as usize;
                s.hn = 0;
            }
        } else {
            let t = s.rem.min(end - r);
            buf.copy_within(r..r + t, w);
            w += t;
            r += t;
            s.rem -= t;
        }
    }
    w == 0 || put(d, &buf[..w])
}
