#!/usr/bin/env python3
"""run.py PART [--rounds N] [--secs S] [--threads T] [--peers a,b] [--out FILE]
PART: http | lat | bulk | echo | conn | idle | sysecho | syshttp.   One JSON line per measurement. Run it under netns.sh.
Inside a part every peer stays up and the order is random each round, with `direct` measured twice a round."""
import argparse, atexit, json, os, random, re, resource, select, signal, socket, subprocess, sys, time
import peers as P
from peers import PK, PEERS, spawn, stop, wait_port, cpu, mem, machine_cpu, tree

SRV = {"http": 9000, "echo": 9001, "bulk": 9002}
CTRL = 9003
KINDS = {"http": "http", "lat": "http", "conn": "http", "echo": "echo", "bulk": "bulk", "idle": "echo", "sysecho": "echo", "syshttp": "http"}
VARS = {"echo": "1,64", "bulk": "1,8"}

ap = argparse.ArgumentParser()
ap.add_argument("part", choices=KINDS)
ap.add_argument("--rounds", type=int, default=5)
ap.add_argument("--secs", type=float, default=3)
ap.add_argument("--threads", type=int, default=1, help="worker threads of every peer")
ap.add_argument("--peers", default="")
ap.add_argument("--rate", type=int, default=1000, help="requests per second of lat")
ap.add_argument("--conns", type=int, default=32)
ap.add_argument("--vars", default="", help="connections of echo (1,64), streams of bulk (1,8)")
ap.add_argument("--hops", default="1,2")
ap.add_argument("--pin", default="", help="CPU list that everything (clients, proxies, services) is confined to")
ap.add_argument("--n", type=int, default=5000, help="connections of idle")
ap.add_argument("--out", default="")
A = ap.parse_args()

signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
if A.pin:
    os.sched_setaffinity(0, {int(x) for x in A.pin.split(",")})
atexit.register(lambda: stop(list(P.ALL)))
out = open(A.out, "a") if A.out else sys.stdout
KIND = KINDS[A.part]
NAMES = P.select(KIND, [x for x in A.peers.split(",") if x])
HOPS = [int(x) for x in A.hops.split(",")]


def emit(d):
    out.write(json.dumps(d) + "\n")
    out.flush()


# ---- starting --------------------------------------------------------------------------------------
def services():
    spawn([PK, "httpsrv", "127.0.0.1:9000", "s1"], "httpsrv")
    spawn([PK, "echosrv", "127.0.0.1:9001"], "echosrv")
    spawn([PK, "sink", "127.0.0.1:9002", "127.0.0.1:9003"], "sink")
    for p in (9000, 9001, 9002, 9003):
        wait_port(p)
    if any(p.poll() is not None for p in P.ALL):
        sys.exit("a service did not start: is another run still going in this namespace?")


def start(name, i, hops):
    """Starts a peer; returns {hops: (port, pids)}."""
    near, far, _, chain, _ = PEERS[name]
    base, up = 2000 + 20 * i, SRV[KIND]
    if hops == [1] and chain != "hops":
        return {}
    if chain == "whole":
        r = {2: (base + 10, far([(base + 10, up)], A.threads, f"{name}-c"))}
    else:
        a = near([(base, up)], A.threads, f"{name}-1")
        wait_port(base)
        r = {1: (base, a)} if chain == "hops" else {}
        if 2 in hops:
            r[2] = (base + 10, a + far([(base + 10, base)], A.threads, f"{name}-2"))
    got = {h: r[h] for h in hops if h in r}
    for port, _ in got.values():
        wait_port(port)
        wait_flow(name, port)
    return {h: (port, [p.pid for p in ps]) for h, (port, ps) in got.items()}


def wait_flow(name, port, t=10):
    """Waits until bytes really pass: a chain may listen before it can carry."""
    ask = b"GET /r HTTP/1.1\r\nHost: svc.local\r\nConnection: close\r\n\r\n" if KIND == "http" else b"x"
    end, before = time.time() + t, sunk()[0]
    while time.time() < end:
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as s:
                s.settimeout(1)
                s.sendall(ask)
                if KIND == "bulk":
                    time.sleep(0.1)
                    if sunk()[0] > before:
                        return
                elif s.recv(100).startswith(b"HTTP/1.1 200" if KIND == "http" else b"x"):
                    return
        except OSError:
            pass
        time.sleep(0.05)
    sys.exit(f"{name} does not carry {KIND} on port {port}: see the logs in {P.RUN}")


# ---- one measurement -------------------------------------------------------------------------------
def pk(*a):
    o = subprocess.run([PK, *map(str, a)], capture_output=True, text=True, timeout=A.secs + 20)
    if o.returncode:
        raise RuntimeError(o.stderr[-300:])
    return json.loads(o.stdout.strip().splitlines()[-1])


def sunk():
    """Bytes that the sink has read, and the instant."""
    with socket.create_connection(("127.0.0.1", CTRL)) as s:
        b = s.recv(100).split()
    return int(b[0]), int(b[1])


def wrk(port):
    cmd = ["wrk", "-t1", f"-c{A.conns}", f"-d{int(-(-A.secs // 1))}s", "--latency", f"http://127.0.0.1:{port}/r"]
    o = subprocess.run(cmd, capture_output=True, text=True, timeout=60).stdout
    us = lambda s: float(re.match(r"[\d.]+", s)[0]) * (1 if s.endswith("us") else 1000 if s.endswith("ms") else 1e6)
    g = lambda k: us(re.search(rf"(?m)^\s+{k}%\s+(\S+)", o)[1])
    n = int(re.search(r"(\d+) requests in", o)[1])
    bad = "Non-2xx" in o or "Socket errors" in o
    return dict(n=n, rate=float(re.search(r"Requests/sec:\s+([\d.]+)", o)[1]), p50_us=g(50), p99_us=g(99), bad=bad)


def bulk(port, pids, streams):
    w = subprocess.Popen([PK, "bulk", f"127.0.0.1:{port}", str(streams), str(A.secs + 0.8)], stdout=subprocess.DEVNULL)
    try:
        time.sleep(0.5)
        (b0, t0), c0, m0 = sunk(), cpu(pids), machine_cpu()
        time.sleep(A.secs)
        (b1, t1), c1, m1 = sunk(), cpu(pids), machine_cpu()
        w.wait(20)
    finally:
        w.kill()
        w.wait()
    time.sleep(0.15)
    gib = (b1 - b0) / 2**30
    return dict(gbps=(b1 - b0) * 8 / (t1 - t0), cpu=c1 - c0, cpu_s_per_gib=(c1 - c0) / gib, **busy(m0, m1))


def measure(port, pids, var):
    if A.part == "bulk":
        return bulk(port, pids, var)
    m0, c0 = machine_cpu(), cpu(pids)
    if A.part == "http":
        d = wrk(port)
        n = d["n"]
    elif A.part == "lat":
        d = pk("open", f"127.0.0.1:{port}", A.rate, A.conns, A.secs)
        n = d["n"] + 0.5 * A.rate
    elif A.part == "conn":
        d = pk("conn", f"127.0.0.1:{port}", 16, A.secs)
        n = d["n"]
    else:
        d = pk("pp", f"127.0.0.1:{port}", var, A.secs, 64)
        n = d["rate"] * (A.secs + 0.3)
    c1, m1 = cpu(pids), machine_cpu()
    d.update(cpu=c1 - c0, cpu_s_per_100k=(c1 - c0) / (n / 1e5), **busy(m0, m1))
    return d


# ---- what else the machine does --------------------------------------------------------------------
def ours():
    """CPU seconds of this script, of what it has running and of what it has ended."""
    s = sum(x.ru_utime + x.ru_stime for x in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
    for p in tree([p.pid for p in P.ALL]):
        try:  # whole-process times: they keep what ended threads used
            v = open(f"/proc/{p}/stat").read().rsplit(")", 1)[1].split()
            s += (int(v[11]) + int(v[12])) / 100
        except OSError:
            pass
    return s


def delta(a, b):
    d = {k: b[k] - a[k] for k in a}
    return d, sum(d.values()) or 1


def busy(a, b):
    d, tot = delta(a, b)
    return dict(idle_pct=round(100 * d["idle"] / tot, 1), steal_pct=round(100 * d["steal"] / tot, 1))


def quiet(limit=float(os.environ.get("PERF_QUIET_S", "0.6")), below=12.0):
    """Waits until the machine is nearly idle, but not for ever; the row's foreign_pct tells how it went."""
    end = time.time() + limit
    while time.time() < end:
        a = machine_cpu()
        time.sleep(0.15)
        d, tot = delta(a, machine_cpu())
        if 100 * (1 - (d["idle"] + d["iowait"]) / tot) < below:
            return


# ---- parts -----------------------------------------------------------------------------------------
def one(name, hops, port, pids, var, rd):
    try:
        quiet()
        o0, w0 = ours(), machine_cpu()
        d = measure(port, pids, var)
        work, (w, tot) = ours() - o0, delta(w0, machine_cpu())
        # share of both cores taken by others
        d["foreign_pct"] = round(100 * (tot - w["idle"] - w["iowait"] - work) / tot, 1)
    except Exception as e:
        d = {"error": repr(e)[:200]}
    d.update(part=A.part, peer=name, hops=hops, var=var, round=rd, threads=A.threads, pin=A.pin, cc=os.environ.get("PERF_CC", ""),
             mem=mem(pids), rate_set=A.rate if A.part == "lat" else 0, t=round(time.time(), 1))
    emit(d)


def load():
    variants = [int(x) for x in (A.vars or VARS.get(A.part, "0")).split(",")]
    direct = ("direct", 0, SRV[KIND], [])
    cfgs = [(n, h, port, pids) for i, n in enumerate(NAMES) for h, (port, pids) in start(n, i, HOPS).items()]
    if any(p.poll() is not None for p in P.ALL):
        sys.exit("a peer did not start: see the logs in " + P.RUN)
    for rd in range(A.rounds):
        random.shuffle(cfgs)
        half = len(cfgs) // 2
        for c in [direct] + cfgs[:half] + [direct] + cfgs[half:]:
            for v in variants:
                one(*c, v, rd)


def hold(port, n):
    """Opens n connections with one echo on each; returns the holder once all stand."""
    w = subprocess.Popen([PK, "idle", f"127.0.0.1:{port}", str(n)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if select.select([w.stdout], [], [], 60)[0] and w.stdout.readline().startswith("READY"):
        return w
    w.kill()
    w.wait()
    raise RuntimeError(f"{n} connections did not stand within 60 s")


def idle_one(port, pids):
    hold(port, 50).communicate("\n")
    time.sleep(0.3)
    quiet()
    m0, t0 = mem(pids), time.time()
    w = hold(port, A.n)
    t1 = time.time()
    time.sleep(0.5)
    m1, c0 = mem(pids), cpu(pids)
    time.sleep(3)
    c1 = cpu(pids)
    w.communicate("\n")
    return dict(n=A.n, setup_s=t1 - t0, rss0=m0[0], pss0=m0[1], rss1=m1[0], pss1=m1[1], hwm=m1[2],
                kib_per_conn=(m1[0] - m0[0]) / A.n, idle_cpu_pct=(c1 - c0) / 3 * 100)


def idle():
    for rd in range(A.rounds):
        for i, n in enumerate(NAMES):
            for h in HOPS:  # fresh processes for each
                for port, pids in start(n, i, [h]).values():
                    time.sleep(0.5)
                    try:
                        d = idle_one(port, pids)
                    except Exception as e:
                        d = {"error": repr(e)[:200]}
                    emit(dict(part="idle", peer=n, hops=h, round=rd, **d))
                time.sleep(0.5)
                stop(list(P.ALL)[3:])


def syscalls():
    f = f"{P.RUN}/strace.out"
    for i, n in enumerate(NAMES):
        for h, (port, pids) in start(n, i, HOPS).items():
            st = subprocess.Popen(["strace", "-f", "-c", "-U", "name,calls", "-o", f] + [x for p in tree(pids) for x in ("-p", str(p))],
                                  stderr=subprocess.DEVNULL)
            time.sleep(0.7)
            d = pk("pp", f"127.0.0.1:{port}", 1, 2, 64) if A.part == "sysecho" else pk("open", f"127.0.0.1:{port}", 200, 4, 2)
            st.send_signal(signal.SIGINT)
            st.wait()
            reqs = d["rate"] * 2.3 if A.part == "sysecho" else d["n"] + 100
            found = [re.match(r"\s*(\w+)\s+(\d+)\s*$", l) for l in open(f)]
            calls = {m[1]: round(int(m[2]) / reqs, 2) for m in found if m and m[1] != "total"}
            calls = {k: v for k, v in sorted(calls.items(), key=lambda x: -x[1]) if v >= 0.05}
            emit(dict(part=A.part, peer=n, hops=h, per_round_trip=round(sum(calls.values()), 2), calls=calls))
        stop(list(P.ALL)[3:])


services()
{"idle": idle, "sysecho": syscalls, "syshttp": syscalls}.get(A.part, load)()
