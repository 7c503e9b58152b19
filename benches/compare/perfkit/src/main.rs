//! Small load and test tool. One binary, one sub-command per part:
//!   tcpx LISTEN UPSTREAM THREADS      plain tokio copy_bidirectional proxy
//!   httpsrv LISTEN ID                 HTTP/1.1 keep-alive server, fixed ~200 B response
//!   echosrv LISTEN                    TCP echo server
//!   sink LISTEN CTRL                  TCP sink; CTRL answers "bytes_so_far\n"
//!   bulk ADDR STREAMS SECS [RATE]     64 KiB writers
//!   pp ADDR CONNS SECS SIZE           closed-loop ping-pong, latency percentiles
//!   open ADDR RATE CONNS SECS         open-loop HTTP at a fixed rate, latency from the intended instant
//!   conn ADDR WORKERS SECS            a new connection per HTTP request
//!   idle ADDR N                       N connections, one echo on each, then hold until stdin closes
//!   probe ADDR INTERVAL_US SECS MODE TIMEOUT_MS   one line per request: sent_ns dur_us status id
mod rawx;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream as StdStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn now_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn summary(name: &str, secs: f64, v: &mut Vec<u64>, extra: &str) {
    v.sort_unstable();
    let n = v.len();
    let p = |q: f64| if n == 0 { 0.0 } else { v[(((n - 1) as f64) * q).round() as usize] as f64 / 1000.0 };
    let mean = if n == 0 { 0.0 } else { v.iter().sum::<u64>() as f64 / n as f64 / 1000.0 };
    println!(
        "{{\"kind\":\"{name}\",\"n\":{n},\"secs\":{secs:.4},\"rate\":{:.1},\"mean_us\":{mean:.2},\"p50_us\":{:.2},\"p90_us\":{:.2},\"p99_us\":{:.2},\"p999_us\":{:.2},\"max_us\":{:.2}{extra}}}",
        n as f64 / secs, p(0.5), p(0.9), p(0.99), p(0.999), p(1.0)
    );
}

fn rt(threads: usize) -> tokio::runtime::Runtime {
    if threads <= 1 {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    } else {
        tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap()
    }
}

fn listen(a: &str) -> TcpListener {
    let s = tokio::net::TcpSocket::new_v4().unwrap();
    s.set_reuseaddr(true).unwrap();
    s.bind(a.parse().unwrap()).unwrap();
    s.listen(4096).unwrap()
}

fn tcpx(l: &str, up: &str, threads: usize) {
    let up: SocketAddr = up.parse().unwrap();
    rt(threads).block_on(async move {
        let l = listen(l);
        loop {
            let Ok((mut c, _)) = l.accept().await else { continue };
            tokio::spawn(async move {
                let _ = c.set_nodelay(true);
                if let Ok(mut u) = TcpStream::connect(up).await {
                    let _ = u.set_nodelay(true);
                    let _ = tokio::io::copy_bidirectional(&mut c, &mut u).await;
                }
            });
        }
    });
}

fn httpsrv(l: &str, id: &str) {
    let mut body = format!("{id} ");
    while body.len() < 100 {
        body.push('x');
    }
    let resp: Arc<Vec<u8>> = Arc::new(
        format!(
            "HTTP/1.1 200 OK\r\nServer: perfkit\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{}",
            body.len(),
            body
        )
        .into_bytes(),
    );
    rt(1).block_on(async move {
        let l = listen(l);
        loop {
            let Ok((mut c, _)) = l.accept().await else { continue };
            let resp = resp.clone();
            tokio::spawn(async move {
                let _ = c.set_nodelay(true);
                let mut b = vec![0u8; 8192];
                let mut have = 0;
                loop {
                    let n = match c.read(&mut b[have..]).await {
                        Ok(0) | Err(_) => return,
                        Ok(n) => n,
                    };
                    have += n;
                    let mut used = 0;
                    let mut close = false;
                    while let Some(p) = find(&b[used..have], b"\r\n\r\n") {
                        let head = &b[used..used + p + 4];
                        close |= head.windows(17).any(|w| w.eq_ignore_ascii_case(b"connection: close"));
                        used += p + 4;
                        if c.write_all(&resp).await.is_err() {
                            return;
                        }
                    }
                    b.copy_within(used..have, 0);
                    have -= used;
                    if close || have == b.len() {
                        return;
                    }
                }
            });
        }
    });
}

fn find(h: &[u8], n: &[u8]) -> Option<usize> {
    h.windows(n.len()).position(|w| w == n)
}

fn echosrv(l: &str) {
    rt(1).block_on(async move {
        let l = listen(l);
        loop {
            let Ok((mut c, _)) = l.accept().await else { continue };
            tokio::spawn(async move {
                let _ = c.set_nodelay(true);
                let mut b = [0u8; 2048];
                loop {
                    match c.read(&mut b).await {
                        Ok(0) | Err(_) => return,
                        Ok(n) => {
                            if c.write_all(&b[..n]).await.is_err() {
                                return;
                            }
                        }
                    }
                }
            });
        }
    });
}

fn sink(l: &str, ctrl: &str) {
    let total = Arc::new(AtomicU64::new(0));
    let t2 = total.clone();
    let cl = std::net::TcpListener::bind(ctrl).unwrap();
    std::thread::spawn(move || {
        for c in cl.incoming().flatten() {
            let mut c = c;
            let _ = c.write_all(format!("{} {}\n", t2.load(Relaxed), now_ns()).as_bytes());
        }
    });
    let l = std::net::TcpListener::bind(l).unwrap();
    for c in l.incoming().flatten() {
        let total = total.clone();
        std::thread::spawn(move || {
            let mut c = c;
            let b = rawx::aligned(256 * 1024, 0, true);
            while let Ok(n) = c.read(b) {
                if n == 0 {
                    break;
                }
                total.fetch_add(n as u64, Relaxed);
            }
        });
    }
}

fn bulk(addr: &str, streams: usize, secs: f64, rate_mb: f64) {
    let end = Instant::now() + Duration::from_secs_f64(secs);
    let hs: Vec<_> = (0..streams)
        .map(|_| {
            let addr = addr.to_string();
            std::thread::spawn(move || {
                let mut c = StdStream::connect(addr).unwrap();
                let b = vec![0x5au8; 64 * 1024];
                let mut sent = 0u64;
                let t0 = Instant::now();
                while Instant::now() < end {
                    if c.write_all(&b).is_err() {
                        break;
                    }
                    sent += b.len() as u64;
                    if rate_mb > 0.0 {
                        let due = Duration::from_secs_f64(sent as f64 / (rate_mb * 1e6));
                        let el = t0.elapsed();
                        if due > el {
                            std::thread::sleep(due - el);
                        }
                    }
                }
                sent
            })
        })
        .collect();
    let tot: u64 = hs.into_iter().map(|h| h.join().unwrap()).sum();
    println!("{{\"kind\":\"bulk\",\"sent\":{tot}}}");
}

fn pp(addr: &str, conns: usize, secs: f64, size: usize) {
    let warm = Duration::from_millis(300);
    if conns == 1 {
        let mut c = StdStream::connect(addr).unwrap();
        c.set_nodelay(true).unwrap();
        let out = vec![7u8; size];
        let mut inb = vec![0u8; size];
        let t0 = Instant::now();
        let mut v = Vec::with_capacity(1 << 20);
        loop {
            let s = now_ns();
            c.write_all(&out).unwrap();
            c.read_exact(&mut inb).unwrap();
            let e = now_ns();
            let el = t0.elapsed();
            if el > warm {
                v.push(e - s);
            }
            if el.as_secs_f64() > secs + 0.3 {
                break;
            }
        }
        summary("pp", secs, &mut v, "");
        return;
    }
    let addr: SocketAddr = addr.parse().unwrap();
    let mut all = rt(1).block_on(async move {
        let t0 = Instant::now();
        let hs: Vec<_> = (0..conns)
            .map(|_| {
                tokio::spawn(async move {
                    let mut c = TcpStream::connect(addr).await.unwrap();
                    c.set_nodelay(true).unwrap();
                    let out = vec![7u8; size];
                    let mut inb = vec![0u8; size];
                    let mut v = Vec::with_capacity(1 << 16);
                    loop {
                        let s = now_ns();
                        c.write_all(&out).await.unwrap();
                        c.read_exact(&mut inb).await.unwrap();
                        let e = now_ns();
                        let el = t0.elapsed();
                        if el > warm {
                            v.push(e - s);
                        }
                        if el.as_secs_f64() > secs + 0.3 {
                            return v;
                        }
                    }
                })
            })
            .collect();
        let mut all = vec![];
        for h in hs {
            all.extend(h.await.unwrap());
        }
        all
    });
    summary("pp", secs, &mut all, "");
}

/// Returns the length of the first complete response in `b`, if any.
fn resp_len(b: &[u8]) -> Option<usize> {
    let h = find(b, b"\r\n\r\n")? + 4;
    let mut cl = 0usize;
    for line in b[..h].split(|c| *c == b'\n') {
        if line.len() > 15 && line[..15].eq_ignore_ascii_case(b"content-length:") {
            cl = std::str::from_utf8(&line[15..]).ok()?.trim().parse().ok()?;
        }
    }
    (b.len() >= h + cl).then_some(h + cl)
}

fn open(addr: &str, rate: f64, conns: usize, secs: f64) {
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1u64) };
    struct C {
        s: StdStream,
        q: VecDeque<u64>,
        busy: Option<(u64, u64)>,
        buf: Vec<u8>,
    }
    let req = b"GET /r HTTP/1.1\r\nHost: svc.local\r\nUser-Agent: perfkit\r\nAccept: */*\r\n\r\n";
    let ep = unsafe { libc::epoll_create1(0) };
    let mut cs: Vec<C> = (0..conns)
        .map(|i| {
            let s = StdStream::connect(addr).unwrap();
            s.set_nodelay(true).unwrap();
            s.set_nonblocking(true).unwrap();
            let mut ev = libc::epoll_event { events: libc::EPOLLIN as u32, u64: i as u64 };
            unsafe { libc::epoll_ctl(ep, libc::EPOLL_CTL_ADD, s.as_raw_fd(), &mut ev) };
            C { s, q: VecDeque::new(), busy: None, buf: Vec::with_capacity(4096) }
        })
        .collect();
    let start = now_ns() + 10_000_000;
    let gap = 1e9 / rate;
    let warm = 500_000_000u64;
    let total = ((secs * 1e9 + warm as f64) / gap) as u64;
    let (mut i, mut done, mut errs, mut late) = (0u64, 0u64, 0u64, 0u64);
    let mut v = vec![];
    let mut svc = vec![];
    let mut evs: Vec<libc::epoll_event> = vec![libc::epoll_event { events: 0, u64: 0 }; 64];
    let hard = start + ((secs + 5.0) * 1e9) as u64 + warm;
    while done + errs < total && now_ns() < hard {
        let mut now = now_ns();
        while i < total && start + (i as f64 * gap) as u64 <= now {
            let due = start + (i as f64 * gap) as u64;
            if now - due > 1_000_000 {
                late += 1;
            }
            let c = &mut cs[(i % conns as u64) as usize];
            if c.busy.is_none() {
                if c.s.write_all(req).is_err() {
                    errs += 1;
                } else {
                    c.busy = Some((due, now));
                }
            } else {
                c.q.push_back(due);
            }
            i += 1;
            now = now_ns();
        }
        let next = if i < total { start + (i as f64 * gap) as u64 } else { now + 50_000_000 };
        let w = next.saturating_sub(now);
        let ts = libc::timespec { tv_sec: (w / 1_000_000_000) as i64, tv_nsec: (w % 1_000_000_000) as i64 };
        let n = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                ep,
                evs.as_mut_ptr(),
                64,
                &ts as *const _,
                std::ptr::null::<u8>(),
                8,
            )
        };
        for k in 0..n.max(0) as usize {
            let ix = evs[k].u64 as usize;
            let c = &mut cs[ix];
            let mut b = [0u8; 4096];
            match c.s.read(&mut b) {
                Ok(0) => {
                    eprintln!("closed by peer");
                    errs += 1 + c.q.len() as u64;
                    c.q.clear();
                    c.busy = None;
                    unsafe {
                        libc::epoll_ctl(ep, libc::EPOLL_CTL_DEL, c.s.as_raw_fd(), std::ptr::null_mut())
                    };
                }
                Ok(m) => {
                    c.buf.extend_from_slice(&b[..m]);
                    if let Some(l) = resp_len(&c.buf) {
                        let t = now_ns();
                        if !c.buf.starts_with(b"HTTP/1.1 200") {
                            errs += 1;
                        }
                        c.buf.drain(..l);
                        if let Some((due, sent)) = c.busy.take() {
                            done += 1;
                            if due >= start + warm {
                                v.push(t - due);
                                svc.push(t - sent);
                            }
                        }
                        if let Some(due) = c.q.pop_front() {
                            let t = now_ns();
                            let _ = c.s.write_all(req);
                            c.busy = Some((due, t));
                        }
                    }
                }
                Err(_) => {}
            }
        }
    }
    svc.sort_unstable();
    let q = |p: f64| {
        if svc.is_empty() {
            0.0
        } else {
            svc[((svc.len() - 1) as f64 * p) as usize] as f64 / 1000.0
        }
    };
    let ex = format!(
        ",\"errs\":{errs},\"late\":{late},\"svc_p50_us\":{:.2},\"svc_p99_us\":{:.2}",
        q(0.5),
        q(0.99)
    );
    summary("open", secs, &mut v, &ex);
}

fn conn(addr: &str, workers: usize, secs: f64) {
    let addr: SocketAddr = addr.parse().unwrap();
    let (mut all, errs) = rt(1).block_on(async move {
        let t0 = Instant::now();
        let hs: Vec<_> = (0..workers)
            .map(|_| {
                tokio::spawn(async move {
                    let mut v = vec![];
                    let mut errs = 0u64;
                    let mut b = vec![0u8; 4096];
                    while t0.elapsed().as_secs_f64() < secs {
                        let s = now_ns();
                        match one(addr, &mut b, true).await {
                            Ok(_) => v.push(now_ns() - s),
                            Err(_) => errs += 1,
                        }
                    }
                    (v, errs)
                })
            })
            .collect();
        let mut all = vec![];
        let mut e = 0;
        for h in hs {
            let (v, x) = h.await.unwrap();
            all.extend(v);
            e += x;
        }
        (all, e)
    });
    summary("conn", secs, &mut all, &format!(",\"errs\":{errs}"));
}

async fn one(addr: SocketAddr, b: &mut [u8], close: bool) -> std::io::Result<(String, String)> {
    let mut c = TcpStream::connect(addr).await?;
    let _ = c.set_nodelay(true);
    ask(&mut c, b, close).await
}

async fn ask(c: &mut TcpStream, b: &mut [u8], close: bool) -> std::io::Result<(String, String)> {
    let e = || std::io::Error::other("eof");
    let r: &[u8] = if close {
        b"GET /r HTTP/1.1\r\nHost: svc.local\r\nConnection: close\r\n\r\n"
    } else {
        b"GET /r HTTP/1.1\r\nHost: svc.local\r\n\r\n"
    };
    c.write_all(r).await?;
    let mut n = 0;
    loop {
        let m = c.read(&mut b[n..]).await?;
        if m == 0 {
            return Err(e());
        }
        n += m;
        if let Some(l) = resp_len(&b[..n]) {
            let s = String::from_utf8_lossy(&b[9..12]).into_owned();
            let h = find(&b[..n], b"\r\n\r\n").unwrap() + 4;
            let id = String::from_utf8_lossy(&b[h..l])
                .split_whitespace()
                .next()
                .unwrap_or("-")
                .chars()
                .take(12)
                .collect();
            return Ok((s, id));
        }
    }
}

fn idle(addr: &str, n: usize) {
    let mut v = vec![];
    for _ in 0..n {
        let mut c = StdStream::connect(addr).unwrap();
        c.write_all(b"x").unwrap();
        let mut b = [0u8; 1];
        c.read_exact(&mut b).unwrap();
        v.push(c);
    }
    println!("READY {n}");
    std::io::stdout().flush().unwrap();
    let mut s = String::new();
    let _ = std::io::stdin().read_line(&mut s);
}

/// MODE new: a fresh connection per request; keep: one keep-alive connection per slot of a pool of 32.
fn probe(addr: &str, every_us: u64, secs: f64, mode: &str, timeout_ms: u64) {
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1u64) };
    let addr: SocketAddr = addr.parse().unwrap();
    let keep = mode == "keep";
    let (tx, rx) = std::sync::mpsc::channel::<String>();
    let w = std::thread::spawn(move || {
        let mut o = std::io::BufWriter::new(std::io::stdout());
        for l in rx {
            let _ = writeln!(o, "{l}");
        }
    });
    let total = (secs * 1e6) as u64 / every_us;
    rt(1).block_on(async move {
        let pool: Arc<std::sync::Mutex<Vec<TcpStream>>> = Arc::default();
        let t0 = Instant::now();
        let mut hs = vec![];
        for i in 0..total {
            let due = t0 + Duration::from_micros(i * every_us);
            tokio::time::sleep_until(due.into()).await;
            let tx = tx.clone();
            let pool = pool.clone();
            hs.push(tokio::spawn(async move {
                let s = now_ns();
                let mut b = vec![0u8; 4096];
                let fut = async {
                    if keep {
                        let c = pool.lock().unwrap().pop();
                        let mut c = match c {
                            Some(c) => c,
                            None => TcpStream::connect(addr).await?,
                        };
                        let r = ask(&mut c, &mut b, false).await?;
                        pool.lock().unwrap().push(c);
                        Ok(r)
                    } else {
                        one(addr, &mut b, false).await
                    }
                };
                let r: Result<std::io::Result<(String, String)>, _> =
                    tokio::time::timeout(Duration::from_millis(timeout_ms), fut).await;
                let (st, id) = match r {
                    Ok(Ok(x)) => x,
                    Ok(Err(e)) => ("ERR".into(), format!("{:?}", e.kind())),
                    Err(_) => ("TMO".into(), "-".into()),
                };
                let _ = tx.send(format!("{s} {} {st} {id}", (now_ns() - s) / 1000));
            }));
        }
        for h in hs {
            let _ = h.await;
        }
        drop(tx);
    });
    w.join().unwrap();
}

/// What the machine itself can do: copies, system calls, a loopback hop.
fn limits() {
    let time = |name: &str, n: u64, per: f64, f: &mut dyn FnMut()| {
        for _ in 0..n / 10 + 1 {
            f();
        }
        let mut best = vec![];
        for _ in 0..7 {
            let t = Instant::now();
            for _ in 0..n {
                f();
            }
            best.push(t.elapsed().as_nanos() as f64 / n as f64);
        }
        best.sort_by(|a, b| a.total_cmp(b));
        println!(
            "{{\"kind\":\"limit\",\"name\":\"{name}\",\"ns\":{:.1},\"min_ns\":{:.1},\"gbytes_s\":{:.2}}}",
            best[3],
            best[0],
            per / best[3]
        );
    };
    for sz in [64usize << 10, 1 << 20, 64 << 20] {
        let a = vec![1u8; sz];
        let mut b = vec![0u8; sz];
        time(&format!("memcpy {} KiB", sz >> 10), ((256 << 20) / sz) as u64, sz as f64, &mut || {
            b.copy_from_slice(std::hint::black_box(&a));
            std::hint::black_box(&mut b);
        });
    }
    time("getppid", 200_000, 0.0, &mut || unsafe {
        libc::getppid();
    });
    time("clock_gettime", 200_000, 0.0, &mut || {
        now_ns();
    });
    let l = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut c = StdStream::connect(l.local_addr().unwrap()).unwrap();
    let mut s = l.accept().unwrap().0;
    c.set_nodelay(true).unwrap();
    s.set_nodelay(true).unwrap();
    let ep = unsafe { libc::epoll_create1(0) };
    let mut ev = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    unsafe { libc::epoll_ctl(ep, libc::EPOLL_CTL_ADD, s.as_raw_fd(), &mut ev) };
    for sz in [64usize, 4096, 65536] {
        let out = vec![1u8; sz];
        let mut inb = vec![0u8; sz];
        time(&format!("loopback send+recv same thread {sz} B"), 20_000, sz as f64, &mut || {
            c.write_all(&out).unwrap();
            s.read_exact(&mut inb).unwrap();
        });
    }
    let out = [1u8; 64];
    let mut inb = [0u8; 64];
    time("loopback send+epoll_wait+recv same thread 64 B", 20_000, 0.0, &mut || {
        c.write_all(&out).unwrap();
        unsafe { libc::epoll_wait(ep, &mut ev, 1, -1) };
        s.read_exact(&mut inb).unwrap();
    });
    time("epoll_wait ready", 1, 0.0, &mut || {});
    for same in [true, false] {
        let l = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let a = l.local_addr().unwrap();
        let pin = |c: usize| unsafe {
            let mut m: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(c, &mut m);
            libc::sched_setaffinity(0, std::mem::size_of_val(&m), &m);
        };
        let h = std::thread::spawn(move || {
            pin(if same { 0 } else { 1 });
            let mut s = l.accept().unwrap().0;
            s.set_nodelay(true).unwrap();
            let mut b = [0u8; 64];
            while s.read_exact(&mut b).is_ok() {
                s.write_all(&b).unwrap();
            }
        });
        let mut c = StdStream::connect(a).unwrap();
        c.set_nodelay(true).unwrap();
        std::thread::spawn(move || {
            pin(0);
            time(
                if same {
                    "ping-pong 64 B two threads one core"
                } else {
                    "ping-pong 64 B two threads two cores"
                },
                10_000,
                0.0,
                &mut || {
                    c.write_all(&out).unwrap();
                    let mut b = [0u8; 64];
                    c.read_exact(&mut b).unwrap();
                },
            );
        })
        .join()
        .unwrap();
        h.join().unwrap();
    }
    time("connect+accept+close", 3_000, 0.0, &mut || {
        let c = StdStream::connect(l.local_addr().unwrap()).unwrap();
        drop(l.accept().unwrap());
        drop(c);
    });
}

fn main() {
    let a: Vec<String> = std::env::args().collect();
    let f = |i: usize| a[i].as_str();
    let n = |i: usize| a[i].parse::<f64>().unwrap();
    match f(1) {
        "tcpx" => tcpx(f(2), f(3), n(4) as usize),
        "httpsrv" => httpsrv(f(2), f(3)),
        "echosrv" => echosrv(f(2)),
        "sink" => sink(f(2), f(3)),
        "bulk" => bulk(f(2), n(3) as usize, n(4), if a.len() > 5 { n(5) } else { 0.0 }),
        "pp" => pp(f(2), n(3) as usize, n(4), n(5) as usize),
        "open" => open(f(2), n(3), n(4) as usize, n(5)),
        "conn" => conn(f(2), n(3) as usize, n(4)),
        "idle" => idle(f(2), n(3) as usize),
        "probe" => probe(f(2), n(3) as u64, n(4), f(5), n(6) as u64),
        "rawx" => rawx::run(
            f(2),
            f(3),
            f(4),
            if a.len() > 5 { n(5) as usize } else { 128 },
            a.len() > 6 && f(6) == "page",
        ),
        "limits" => limits(),
        x => panic!("unknown {x}"),
    }
}
