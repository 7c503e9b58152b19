"""Peers: how each proxy is configured and started. A peer gets a list of (listen, upstream) ports and
returns the processes it started. All listeners are on 127.0.0.1, meant to run inside a network namespace.

sidebeat is two columns: `own` (default link mode) and `own-pc` (one stream per link). To add a proxy as one
more column, add a function here and a line in PEERS. A peer whose binary is missing is left out."""
import os, re, shutil, subprocess, sys, tempfile, textwrap, time, socket

H = os.path.dirname(os.path.abspath(__file__))
RUN = os.environ.get("PERF_RUN", os.path.join(tempfile.gettempdir(), "perf-run"))
PK = os.environ.get("PERFKIT", f"{H}/perfkit/target/release/perfkit")
PX = os.environ.get("PINGX", f"{H}/pingx/target/release/pingx")
ENVOY = os.environ.get("ENVOY", "envoy")
RATHOLE = os.environ.get("RATHOLE", "rathole")
SIDEBEAT = os.environ.get("SIDEBEAT", "sidebeat")
os.makedirs(RUN, exist_ok=True)
ALL = []


def spawn(cmd, tag, **kw):
    with open(f"{RUN}/{tag}.log", "ab") as log:
        kw.setdefault("stdout", log)
        kw.setdefault("stdin", subprocess.DEVNULL)
        p = subprocess.Popen(cmd, stderr=log, **kw)
    ALL.append(p)
    return p


def stop(procs):
    for p in procs:
        if p.poll() is None:
            p.terminate()
    for p in procs:
        try:
            p.wait(5)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
        if p in ALL:
            ALL.remove(p)


def wait_port(port, host="127.0.0.1", t=10):
    end = time.time() + t
    while time.time() < end:
        try:
            socket.create_connection((host, port), 0.5).close()
            return
        except OSError:
            time.sleep(0.02)
    raise RuntimeError(f"port {port} never opened")


def conf(tag, text, ext="cfg"):
    p = f"{RUN}/{tag}.{ext}"
    with open(p, "w") as f:
        f.write(text)
    return p


# ---- peers -----------------------------------------------------------------------------------------
def tokio(pairs, th, tag):
    return [spawn([PK, "tcpx", f"127.0.0.1:{l}", f"127.0.0.1:{u}", str(th)], f"{tag}-{l}") for l, u in pairs]


def _haproxy(pairs, th, tag, mode, extra=""):
    mc = 4000 if "splice" in extra else 9000  # splicing counts 4 descriptors per connection; the machine's limit is 20000
    t = textwrap.dedent(f"""\
        global
          nbthread {th}
          maxconn {mc + 200}
        defaults
          mode {mode}
          maxconn {mc}
          timeout connect 5s
          timeout client 1h
          timeout server 1h
          {extra}
        """)
    for l, u in pairs:
        t += f"frontend f{l}\n  bind 127.0.0.1:{l}\n  default_backend b{l}\nbackend b{l}\n  server s 127.0.0.1:{u}\n"
    return [spawn(["haproxy", "-db", "-f", conf(tag, t)], tag)]


def haproxy_tcp(pairs, th, tag):
    return _haproxy(pairs, th, tag, "tcp")


def haproxy_splice(pairs, th, tag):
    return _haproxy(pairs, th, tag, "tcp", "option splice-auto")


def haproxy_http(pairs, th, tag):
    return _haproxy(pairs, th, tag, "http", "http-reuse always\n  option http-keep-alive")


def _nginx(tag, th, body):
    t = (f"daemon off; worker_processes {th}; worker_rlimit_nofile 20000; error_log {RUN}/{tag}.err warn; pid {RUN}/{tag}.pid;\n"
         "load_module /usr/lib/nginx/modules/ngx_stream_module.so;\nevents {{ worker_connections 19000; }}\n").replace("{{", "{").replace("}}", "}") + body
    return [spawn(["nginx", "-c", conf(tag, t)], tag)]


def nginx_stream(pairs, th, tag):
    b = "stream {\n proxy_timeout 1h;\n"
    for l, u in pairs:
        b += f" server {{ listen 127.0.0.1:{l} backlog=4096; proxy_pass 127.0.0.1:{u}; }}\n"
    return _nginx(tag, th, b + "}\n")


def nginx_http(pairs, th, tag):
    b = "http {\n access_log off; keepalive_requests 100000000; keepalive_timeout 1h;\n"
    for l, u in pairs:
        b += (f" upstream u{l} {{ server 127.0.0.1:{u}; keepalive 256; keepalive_requests 100000000; }}\n"
              f" server {{ listen 127.0.0.1:{l} backlog=4096; location / {{ proxy_pass http://u{l}; proxy_http_version 1.1; proxy_set_header Connection \"\"; }} }}\n")
    return _nginx(tag, th, b + "}\n")


def envoy_yaml(pairs, kind, admin=None, hc="", cluster_extra="", endpoints=None, retry=""):
    t = ""
    if admin:
        t += f"admin:\n  address: {{socket_address: {{address: 127.0.0.1, port_value: {admin}}}}}\n"
    t += "static_resources:\n  listeners:\n"
    for l, u in pairs:
        t += f"  - name: l{l}\n    address: {{socket_address: {{address: 127.0.0.1, port_value: {l}}}}}\n    filter_chains:\n    - filters:\n"
        if kind == "tcp":
            t += ("      - name: envoy.filters.network.tcp_proxy\n        typed_config:\n"
                  "          \"@type\": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy\n"
                  f"          stat_prefix: s{l}\n          cluster: c{l}\n")
        else:
            t += ("      - name: envoy.filters.network.http_connection_manager\n        typed_config:\n"
                  "          \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager\n"
                  f"          stat_prefix: s{l}\n          codec_type: HTTP1\n          route_config:\n            virtual_hosts:\n"
                  f"            - name: v\n              domains: ['*']\n              routes:\n              - match: {{prefix: /}}\n                route: {{cluster: c{l}, timeout: 15s{retry}}}\n"
                  "          http_filters:\n          - name: envoy.filters.http.router\n            typed_config:\n"
                  "              \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router\n")
    t += "  clusters:\n"
    for l, u in pairs:
        eps = endpoints or [("127.0.0.1", u)]
        t += (f"  - name: c{l}\n    type: STATIC\n    connect_timeout: 5s\n    circuit_breakers: {{thresholds: [{{max_connections: 30000, max_pending_requests: 30000, max_requests: 30000}}]}}\n"
              f"{cluster_extra}{hc}    load_assignment:\n      cluster_name: c{l}\n      endpoints:\n      - lb_endpoints:\n")
        for h, p in eps:
            t += f"        - endpoint: {{address: {{socket_address: {{address: {h}, port_value: {p}}}}}}}\n"
    return t


def _envoy(pairs, th, tag, kind):
    c = conf(tag, envoy_yaml(pairs, kind), "yaml")
    return [spawn([ENVOY, "-c", c, "--concurrency", str(th), "--disable-hot-restart", "--log-level", "error"], tag)]


def envoy_tcp(pairs, th, tag):
    return _envoy(pairs, th, tag, "tcp")


def envoy_http(pairs, th, tag):
    return _envoy(pairs, th, tag, "http")


def pingora_http(pairs, th, tag):
    return [spawn([PX, f"127.0.0.1:{l}", f"127.0.0.1:{u}", str(th)], f"{tag}-{l}") for l, u in pairs]


def rathole_chain(pairs, th, tag):
    """Only as a two-hop chain: server (client side) <- tunnel <- client (service side)."""
    ctl = pairs[0][0] + 5
    env = dict(os.environ, TOKIO_WORKER_THREADS=str(th), RUST_LOG="error")
    s = f'[server]\nbind_addr = "127.0.0.1:{ctl}"\ndefault_token = "t"\n'
    c = f'[client]\nremote_addr = "127.0.0.1:{ctl}"\ndefault_token = "t"\n'
    for l, u in pairs:
        s += f'[server.services.s{l}]\nbind_addr = "127.0.0.1:{l}"\nnodelay = true\n'
        c += f'[client.services.s{l}]\nlocal_addr = "127.0.0.1:{u}"\nnodelay = true\n'
    a = spawn([RATHOLE, "-s", conf(tag + "-s", s, "toml")], tag + "-s", env=env)
    time.sleep(0.3)
    b = spawn([RATHOLE, "-c", conf(tag + "-c", c, "toml")], tag + "-c", env=env)
    time.sleep(0.7)
    return [a, b]


def raw(mode, align="off"):
    return lambda pairs, th, tag: [spawn([PK, "rawx", f"127.0.0.1:{l}", f"127.0.0.1:{u}", mode, "128", align], f"{tag}-{l}") for l, u in pairs]


def raw_framed_page(pairs, th, tag):
    return raw_framed(pairs, th, tag, "page")


def raw_framed(pairs, th, tag, align="off"):
    """Two hops with an 8-byte header per chunk on the link between them."""
    mid = [l + 5 for l, _ in pairs]
    b = raw("dec", align)([(m, u) for m, (_, u) in zip(mid, pairs)], th, tag + "-b")
    a = raw("enc", align)([(l, m) for m, (l, _) in zip(mid, pairs)], th, tag + "-a")
    return a + b


def sidebeat(side, link_mode=""):
    """One sidecar of the pair: `a` next to the client, `b` next to the service."""
    def f(pairs, th, tag):
        env = dict(os.environ, WORKERS=str(th), LINK_MODE=link_mode, PERF_RUN=RUN)
        return [spawn([f"{H}/sidebeat_col.sh", side, f"127.0.0.1:{l}", f"127.0.0.1:{u}"], f"{tag}-{l}", env=env) for l, u in pairs]
    return f


TCP = {"http", "echo", "bulk"}
# name: (starter of the hop next to the service, starter of the hop next to the client, kinds, chain, binary)
# chain: "hops" works with one or two hops; "whole" is started in one piece; "pair" starts hop by hop, makes sense only with both
PEERS = {
    "own": (sidebeat("b"), sidebeat("a"), TCP, "pair", SIDEBEAT),
    "own-pc": (sidebeat("b"), sidebeat("a", "per-connection"), TCP, "pair", SIDEBEAT),
    "tokio": (tokio, tokio, TCP, "hops", PK),
    "haproxy-tcp": (haproxy_tcp, haproxy_tcp, TCP, "hops", "haproxy"),
    "haproxy-splice": (haproxy_splice, haproxy_splice, {"bulk"}, "hops", "haproxy"),
    "haproxy-http": (haproxy_http, haproxy_http, {"http"}, "hops", "haproxy"),
    "nginx-stream": (nginx_stream, nginx_stream, TCP, "hops", "nginx"),
    "nginx-http": (nginx_http, nginx_http, {"http"}, "hops", "nginx"),
    "envoy-tcp": (envoy_tcp, envoy_tcp, TCP, "hops", ENVOY),
    "envoy-http": (envoy_http, envoy_http, {"http"}, "hops", ENVOY),
    "pingora-http": (pingora_http, pingora_http, {"http"}, "hops", PX),
    "rathole": (None, rathole_chain, TCP, "whole", RATHOLE),
    "floor-epoll": (raw("plain"), raw("plain"), TCP, "hops", PK),
    "floor-framed": (None, raw_framed, TCP, "whole", PK),
    "floor-epoll-page": (raw("plain", "page"), raw("plain", "page"), {"bulk"}, "hops", PK),
    "floor-framed-page": (None, raw_framed_page, {"bulk"}, "whole", PK),
}


def select(kind, wanted):
    """Names of the peers for a kind of load, less those that are not installed."""
    names = [n for n, v in PEERS.items() if kind in v[2] and (not wanted or n in wanted)]
    missing = [n for n in names if not shutil.which(PEERS[n][4])]
    if missing:
        print("left out, binary not found:", ", ".join(missing), file=sys.stderr)
    return [n for n in names if n not in missing]


# ---- /proc readers ---------------------------------------------------------------------------------
def tree(pids):
    out, todo = [], list(pids)
    while todo:
        p = todo.pop()
        out.append(p)
        try:
            for t in os.listdir(f"/proc/{p}/task"):
                todo += [int(x) for x in open(f"/proc/{p}/task/{t}/children").read().split()]
        except OSError:
            pass
    return out


def cpu(pids):
    """user+sys seconds of the processes, from the scheduler's ns counters of live threads."""
    s = 0
    for p in tree(pids):
        try:
            for t in os.listdir(f"/proc/{p}/task"):
                s += int(open(f"/proc/{p}/task/{t}/schedstat").read().split()[0])
        except OSError:
            pass
    return s / 1e9


def mem(pids):
    """(rss, pss, peak rss) in KiB summed over the process tree."""
    r = ps = hw = 0
    for p in tree(pids):
        try:
            for l in open(f"/proc/{p}/smaps_rollup"):
                if l.startswith("Rss:"):
                    r += int(l.split()[1])
                elif l.startswith("Pss:"):
                    ps += int(l.split()[1])
            hw += int(re.search(r"VmHWM:\s+(\d+)", open(f"/proc/{p}/status").read()).group(1))
        except (OSError, AttributeError):
            pass
    return r, ps, hw


def machine_cpu():
    v = [int(x) for x in open("/proc/stat").readline().split()[1:9]]
    return dict(zip("user nice system idle iowait irq softirq steal".split(), [x / 100 for x in v]))
