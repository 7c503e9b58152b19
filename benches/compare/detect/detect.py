#!/usr/bin/env python3
"""detect.py [--set rivals|bfd|fast|best|slow|own] [--faults ...] [--trials N] [--id K] [--only NAME] --out FILE
Time from a fault of the primary service (s1) until (1) the proxy marks it down, (2) the first request is served by the
backup (s2). Two namespaces joined by a veth pair: pxK holds proxy, probe and s2; svK holds s1. Root needed.
Faults: kill, stop (SIGSTOP), hole (nft drop), pulse (500 ms SIGSTOP), jitter (300 ms of each second), none, and busy: no
fault at all, but every core oversubscribed, to count how often a healthy s1 is called down.
--set own: SIDEBEAT_DETECT='cmd {listen} {s1} {s2} {log}', which sends '/s1 is DOWN' (and UP) to the unix datagram socket {log}."""
import argparse, atexit, ctypes, http.client, json, os, random, re, shlex, signal, socket, subprocess, sys, threading, time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import peers as P
from peers import PK, RUN, ENVOY, conf, envoy_yaml, stop

ap = argparse.ArgumentParser()
ap.add_argument("--set", default="rivals", choices=["rivals", "bfd", "fast", "best", "slow", "own"])
ap.add_argument("--faults", default="kill,stop,hole")
ap.add_argument("--trials", type=int, default=3)
ap.add_argument("--id", default="0", help="tells the namespaces of two runs apart")
ap.add_argument("--only", default="", help="part of a detector's name")
ap.add_argument("--every", type=int, default=4000, help="microseconds between the probe's requests")
ap.add_argument("--secs", type=float, default=0, help="how long to watch after the fault")
ap.add_argument("--burn", type=int, default=4, help="busy loops per core of the fault busy")
ap.add_argument("--bfd", default="10", help="intervals of BFD in ms, multiplier 3")
ap.add_argument("--out", default="")
A = ap.parse_args()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
out = open(A.out, "a") if A.out else sys.stdout
PXN, SVN = f"px{A.id}", f"sv{A.id}"
IP1, IP2 = "192.0.2.1", "192.0.2.2"  # TEST-NET-1, only inside these namespaces
S1, S2, PORT = (IP2, 9101), ("127.0.0.1", 9102), 8000
WATCH = {"pulse": 2.0, "jitter": 5.5, "none": 20.0, "busy": 20.0}
now = time.monotonic_ns


def sh(c, check=True):
    return subprocess.run(c, shell=True, check=check, capture_output=True, text=True).stdout


def setup():
    cleanup()
    sh(f"ip netns add {PXN}; ip netns add {SVN}; ip link add v{A.id}a netns {PXN} type veth peer name v{A.id}b netns {SVN}")
    for ns, d, ip in ((PXN, f"v{A.id}a", IP1), (SVN, f"v{A.id}b", IP2)):
        sh(f"ip -n {ns} link set lo up; ip -n {ns} addr add {ip}/30 dev {d}; ip -n {ns} link set {d} up")
    sh(f"ip netns exec {SVN} nft 'add table ip f; add chain ip f i {{ type filter hook input priority 0; }}'")
    time.sleep(0.3)


def cleanup():
    stop(list(P.ALL))
    sh(f"ip netns del {PXN}; ip netns del {SVN}", check=False)


atexit.register(cleanup)


def spawn(ns, cmd, tag, **kw):
    return P.spawn(["ip", "netns", "exec", ns] + cmd, f"d{A.id}-{tag}", **kw)


def emit(d):
    out.write(json.dumps(d) + "\n")
    out.flush()


# ---- who says when s1 went down --------------------------------------------------------------------
class Log:
    """Timestamps the lines that a proxy sends to a unix datagram socket."""
    def __init__(self, path):
        if os.path.exists(path):
            os.unlink(path)
        self.s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.s.bind(path)
        os.chmod(path, 0o666)
        self.ev, self.on = [], True
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while self.on:
            try:
                m = self.s.recv(8192)
            except OSError:
                return
            t, m = now(), m.decode(errors="replace")
            if re.search(r"/s1 is DOWN|temporarily disabled", m):
                self.ev.append((t, "down", m[-200:].strip()))
            elif re.search(r"/s1 is UP", m):
                self.ev.append((t, "up", ""))

    def close(self):
        self.on = False
        self.s.close()


class EnvoyPoll(Log):
    """Polls Envoy's admin page about each 2 ms."""
    def __init__(self, port):
        self.ev, self.on, self.port = [], True, port
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        fd = os.open(f"/run/netns/{PXN}", os.O_RDONLY)
        ctypes.CDLL(None, use_errno=True).setns(fd, 0x40000000)  # CLONE_NEWNET, this thread only
        was, c = False, None
        while self.on:
            try:
                c = c or http.client.HTTPConnection("127.0.0.1", self.port, timeout=1)
                c.request("GET", "/clusters?filter=c8000")
                b = c.getresponse().read().decode()
            except Exception:
                c = None
                time.sleep(0.05)
                continue
            m = re.search(re.escape(f"{S1[0]}:{S1[1]}") + r"::health_flags::(\S+)", b)
            if m:
                d = "failed" in m[1]
                if d != was:
                    self.ev.append((now(), "down" if d else "up", m[1]))
                was = d
            time.sleep(0.002)

    def close(self):
        self.on = False


# ---- proxies under test ----------------------------------------------------------------------------
def haproxy(check, be="", dflt="timeout connect 5s"):
    def f(tag):
        lp = f"{RUN}/hlog{A.id}.sock"
        log = Log(lp)
        c = conf(tag, f"""global
  nbthread 1
  maxconn 4000
  log {lp} local0 notice
defaults
  mode http
  {dflt}
  timeout client 30s
  timeout server 30s
  log global
frontend f
  bind 127.0.0.1:{PORT}
  default_backend be
backend be
  {be}
  server s1 {S1[0]}:{S1[1]} {check}
  server s2 {S2[0]}:{S2[1]} backup
""")
        return spawn(PXN, ["haproxy", "-db", "-f", c], tag), log
    return f


def nginx(dirs=""):
    def f(tag):
        lp = f"{RUN}/nlog{A.id}.sock"
        log = Log(lp)
        c = conf(tag, f"""daemon off; worker_processes 1; pid {RUN}/{tag}.pid; error_log syslog:server=unix:{lp},nohostname warn;
events {{ worker_connections 4000; }}
http {{ access_log off; upstream u {{ server {S1[0]}:{S1[1]}; server {S2[0]}:{S2[1]} backup; keepalive 32; }}
 server {{ listen 127.0.0.1:{PORT} backlog=4096; location / {{ proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection ""; {dirs} }} }} }}
""")
        return spawn(PXN, ["nginx", "-c", c], tag), log
    return f


def envoy(hc="", extra="", retry=""):
    def f(tag):
        y = envoy_yaml([(PORT, 0)], "http", admin=9901, hc=hc, cluster_extra=extra, endpoints=[S1], retry=retry)
        y += f"      - priority: 1\n        lb_endpoints:\n        - endpoint: {{address: {{socket_address: {{address: {S2[0]}, port_value: {S2[1]}}}}}}}\n"
        return spawn(PXN, [ENVOY, "-c", conf(tag, y, "yaml"), "--concurrency", "1", "--disable-hot-restart", "--log-level", "error"], tag), EnvoyPoll(9901)
    return f


def ehc(interval, n):
    return (f"    health_checks: [{{timeout: {interval}, interval: {interval}, no_traffic_interval: {interval}, unhealthy_threshold: {n}, "
            "healthy_threshold: 2, http_health_check: {path: /hc}}]\n")


def own(tag):
    lp = f"{RUN}/olog{A.id}.sock"
    log = Log(lp)
    cmd = os.environ["SIDEBEAT_DETECT"].format(listen=f"127.0.0.1:{PORT}", s1="%s:%d" % S1, s2="%s:%d" % S2, log=lp)
    return spawn(PXN, shlex.split(cmd), tag), log


HTTPCHK = "option httpchk GET /hc\n  option redispatch 1\n  retries 3"
RETRY = ", retry_policy: {retry_on: 'connect-failure,reset', num_retries: 2}"
SETS = {
    "rivals": {
        "haproxy httpchk inter 10ms fall 1": haproxy("check inter 10ms fall 1 rise 2", HTTPCHK),
        "haproxy httpchk inter 10ms fall 3": haproxy("check inter 10ms fall 3 rise 2", HTTPCHK),
    },
    "fast": {
        "haproxy httpchk inter 100ms fall 3": haproxy("check inter 100ms fall 3 rise 2", HTTPCHK),
        "haproxy inter 2s + observe layer7 error-limit 1": haproxy("check inter 2s observe layer7 error-limit 1 on-error mark-down", HTTPCHK, "timeout connect 100ms"),
        "haproxy fastinter: inter 2s fastinter 10ms observe layer4": haproxy("check inter 2s fastinter 10ms fall 2 observe layer4 error-limit 1 on-error fastinter", HTTPCHK, "timeout connect 100ms"),
        "nginx connect/read timeout 100ms": nginx("proxy_connect_timeout 100ms; proxy_read_timeout 100ms;"),
        "envoy hc 10ms/10ms x1": envoy(ehc("0.01s", 1), retry=RETRY),
        "envoy hc 10ms/10ms x3": envoy(ehc("0.01s", 3), retry=RETRY),
        "envoy hc 100ms/100ms x3": envoy(ehc("0.1s", 3), retry=RETRY),
    },
    "best": {  # tuned to lose no request: quick checks plus retries elsewhere
        "haproxy 10ms fall 3 + L7 retry + shutdown-sessions": haproxy("check inter 10ms fall 3 rise 2 on-marked-down shutdown-sessions", HTTPCHK + "\n  retry-on all-retryable-errors", "timeout connect 100ms"),
        "envoy hc 10ms x3 + per-try timeout 100ms, 2 retries": envoy(ehc("0.01s", 3), retry=", retry_policy: {retry_on: '5xx,connect-failure,reset', num_retries: 2, per_try_timeout: 0.1s}"),
        "nginx connect/read timeout 30ms": nginx("proxy_connect_timeout 30ms; proxy_read_timeout 30ms;"),
    },
    "slow": {  # as they come
        "haproxy default check (L4, 2s fall 3)": haproxy("check"),
        "haproxy default httpchk (2s fall 3)": haproxy("check", "option httpchk GET /hc"),
        "nginx default (max_fails 1, 60s timeouts)": nginx(),
        "envoy hc 1s/1s x3": envoy(ehc("1s", 3)),
        "envoy outlier_detection default": envoy(extra="    outlier_detection: {}\n"),
    },
    "own": {"own": own},
}


# ---- faults ----------------------------------------------------------------------------------------
class Fault:
    """Strikes a process or its namespace; `at` is the instant. undo() heals what still lasts."""
    def __init__(self, kind, victim, secs):
        self.victim, self.nft, self.burners, self.at = victim, None, [], now()
        if kind == "kill":
            victim.kill()
        elif kind == "stop":
            self.freeze()
        elif kind == "hole":
            cmd = ["ip", "netns", "exec", SVN, "nft", "-i"]
            self.nft = subprocess.Popen(cmd, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)
            time.sleep(0.15)  # nft has started; the rule itself takes effect at once
            self.at = now()
            self.nft.stdin.write("add rule ip f i drop\n")
            self.nft.stdin.flush()
        elif kind in ("pulse", "jitter"):
            for stall, gap in [(0.5, 0.0)] if kind == "pulse" else [(0.3, 0.7)] * 5:
                self.freeze()
                time.sleep(stall)
                victim.send_signal(signal.SIGCONT)
                time.sleep(gap)
        elif kind == "busy":
            burn = [sys.executable, "-c", f"import time\nend = time.time() + {secs}\nwhile time.time() < end: pass"]
            self.burners = [P.spawn(burn, "burn") for _ in range(A.burn * os.cpu_count())]

    def freeze(self):
        self.victim.send_signal(signal.SIGSTOP)

    def undo(self):
        stop(self.burners)
        if self.nft:
            self.nft.stdin.close()
            self.nft.wait()
            sh(f"ip netns exec {SVN} nft flush chain ip f i")
        if self.victim.poll() is None:
            self.victim.send_signal(signal.SIGCONT)


def after(ev, what, at):
    return [e for e in ev if e[1] == what and e[0] >= at]


def trial(name, mk, fault, secs):
    tag = "det" + A.id
    s2 = spawn(PXN, [PK, "httpsrv", "%s:%d" % S2, "s2"], "s2")
    s1 = spawn(SVN, [PK, "httpsrv", "%s:%d" % S1, "s1"], "s1")
    time.sleep(0.1)
    proxy, log = mk(tag)
    time.sleep(1.2)
    probe = subprocess.Popen(["ip", "netns", "exec", PXN, PK, "probe", f"127.0.0.1:{PORT}", str(A.every), str(1.5 + secs), "new", "2000"],
                             stdout=subprocess.PIPE, text=True)
    lines = []
    th = threading.Thread(target=lambda: lines.extend(probe.stdout), daemon=True)
    th.start()
    time.sleep(1.0 + random.random() * 0.3)
    pre = len(after(log.ev, "down", 0))
    f = Fault(fault, s1, secs)
    tf = f.at
    th.join()
    probe.wait()
    f.undo()
    log.close()
    downs = after(log.ev, "down", tf)
    q = [(int(a), int(a) + int(b) * 1000, st, i) for a, b, st, i in (l.split() for l in lines)]  # sent, ended, status, who
    other = [e for s, e, st, i in q if st == "200" and i == "s2" and e > tf]
    bad = [s for s, e, st, i in q if st != "200" and e > tf]
    stop([proxy, s1, s2])
    return dict(part="detect", name=name, fault=fault, down_ms=(downs[0][0] - tf) / 1e6 if downs else None,
                why=downs[0][2][-110:] if downs else "", downs=len(downs), pre_downs=pre,
                first_other_ms=(min(other) - tf) / 1e6 if other else None, n=len(q), bad=len(bad), to_s2=len(other),
                last_bad_sent_ms=(max(bad) - tf) / 1e6 if bad else None)


def bird(interval, fault):
    """A BFD session between the two namespaces: BIRD on both sides, the fault strikes the far one."""
    ps, ev = [], []
    for ns, me, peer, n in ((PXN, IP1, IP2, "a"), (SVN, IP2, IP1, "b")):
        c = conf(f"bird{A.id}{n}", f"""log stderr all; router id {me}; debug protocols {{ states, events }};
protocol device {{ }}
protocol bfd b {{ interface "v*" {{ min rx interval {interval} ms; min tx interval {interval} ms; multiplier 3; }}; neighbor {peer} local {me}; }}
""")
        cmd = ["ip", "netns", "exec", ns, "bird", "-f", "-c", c, "-s", f"{RUN}/bird{A.id}{n}.ctl"]
        ps.append(subprocess.Popen(cmd, stderr=subprocess.PIPE, text=True))
    P.ALL.extend(ps)

    def read(p, to):
        for l in p.stderr:
            m = re.search(r"changed state from (\w+) to (\w+)", l)
            if m:
                to.append((now(), m[2].lower()))
    for p, to in ((ps[0], ev), (ps[1], [])):
        threading.Thread(target=read, args=(p, to), daemon=True).start()
    end = time.time() + 15
    while time.time() < end and not after(ev, "up", 0):
        time.sleep(0.02)
    time.sleep(2.5 + random.random() * 0.2)
    pre = len(after(ev, "down", 0))
    secs = A.secs or WATCH.get(fault, 2.0)
    f = Fault(fault, ps[1], secs)
    time.sleep(secs)
    f.undo()
    d = after(ev, "down", f.at)
    up = bool(after(ev, "up", 0))
    stop(ps)
    return dict(part="bfd", name=f"bird2 BFD {interval}ms x3", fault=fault, down_ms=(d[0][0] - f.at) / 1e6 if d else None,
                downs=len(d), pre_downs=pre, up=up)


setup()
for _ in range(A.trials):
    for fault in A.faults.split(","):
        if A.set == "bfd":
            for iv in A.bfd.split(","):
                emit(bird(int(iv), fault))
            continue
        for name, mk in SETS[A.set].items():
            if A.only in name:
                try:
                    emit(trial(name, mk, fault, A.secs or WATCH.get(fault, 14.0 if A.set == "slow" else 2.0)))
                except Exception as e:
                    emit(dict(part="detect", name=name, fault=fault, error=repr(e)))
                    stop(list(P.ALL))
