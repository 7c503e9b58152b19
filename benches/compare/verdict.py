#!/usr/bin/env python3
"""verdict.py [--max-foreign PCT] [--strict] FILE...: the speed goals against what run.py measured.
The best rival is chosen per goal by its median over the rounds; ratios are paired by round, then the median is taken.
`floor-*` rows are not rivals. A column with an error or a failed request has not met its goal, and neither has an absent
one. --strict: exit 1 unless every goal is met."""
import argparse, math, statistics as st, sys
from dataclasses import dataclass
from report import by_round, good, load, med, ratios

TCP = ("haproxy-tcp", "nginx-stream", "tokio", "rathole", "envoy-tcp")
OURS = ("own", "own-pc")


@dataclass
class Goal:
    text: str
    part: str
    col: str
    vs: str  # best | direct | value | the name of one rival
    op: str  # ">=" or "<="
    target: float
    var: int = 0
    pin: str = ""
    threads: int = 1
    column: str = "own"
    rivals: tuple = ()  # empty: all of the part
    scale: float = 1.0  # of a value, for display

    def met(self, v):
        return v >= self.target if self.op == ">=" else v <= self.target


GOALS = [
    Goal("HTTP keep-alive, 32 connections: rate", "http", "rate", "best", ">=", 1.3),
    Goal("HTTP keep-alive, 32 connections: CPU s per 100k requests", "http", "cpu_s_per_100k", "value", "<=", 3.2),
    Goal("HTTP keep-alive, 2 worker threads each: rate", "http", "rate", "best", ">=", 1.15, threads=2),
    Goal("64 B echo, 64 connections: rate", "echo", "rate", "best", ">=", 1.4, var=64),
    Goal("64 B echo, 1 connection, one core: p50", "echo", "p50_us", "best", "<=", 1.10, var=1, pin="0"),
    Goal("HTTP at 1000 requests/s, one core: p50", "lat", "p50_us", "direct", "<=", 2.15, pin="0"),
    Goal("bulk, 1 stream: Gbit/s", "bulk", "gbps", "envoy-tcp", ">=", 1.0, var=1, column="own-pc"),
    Goal("bulk, 1 stream: CPU s per GiB", "bulk", "cpu_s_per_gib", "value", "<=", 1.4, var=1, column="own-pc"),
    Goal("bulk, 8 streams: Gbit/s", "bulk", "gbps", "direct", ">=", 0.30, var=8),
    Goal("new connection per request: rate", "conn", "rate", "best", ">=", 1.1, rivals=TCP),
    Goal("5000 idle connections: KiB each, both sidecars", "idle", "kib_per_conn", "value", "<=", 4.0),
    Goal("base memory, both sidecars: MiB", "idle", "rss0", "value", "<=", 16.0, scale=1 / 1024),
]


def pick(groups, g):
    """Two-hop and direct rows that the goal speaks of."""
    return [r for (part, threads, _, var, pin, cc), rows in groups.items() for r in rows
            if (part, threads, var, pin, cc) == (g.part, g.threads, g.var, g.pin, "") and r["hops"] != 1]


def best_rival(rows, g):
    """Name and values by round of the rival with the best median."""
    names = {r["peer"] for r in good(rows)} - {"direct", *OURS}
    names = [n for n in sorted(names) if not n.startswith("floor-") and (not g.rivals or n in g.rivals)]
    if g.vs in names:
        names = [g.vs]
    vals = {n: by_round([r for r in rows if r["peer"] == n], g.col) for n in names}
    # by the goal's own direction: the highest rate, the lowest latency, CPU or memory
    best = (max if g.op == ">=" else min)
    return best(((n, v) for n, v in vals.items() if v), key=lambda x: st.median(x[1].values()), default=("-", {}))


def show(v, digits=2):
    return "-" if math.isnan(v) else f"{v:.{digits}f}" if abs(v) < 1000 else f"{v:.0f}"


def spread(v):
    return f"{show(med(v))} ({show(min(v))}-{show(max(v))})" if v else "-"


def judge(groups, g):
    """One row of the table, and whether the goal is met (None: nothing was measured)."""
    rows = pick(groups, g)
    mine = [r for r in rows if r["peer"] == g.column]
    own, direct = (by_round([r for r in rows if r["peer"] == p], g.col) for p in (g.column, "direct"))
    name, rival = best_rival(rows, g)
    to = {"value": sorted(own.values()), "direct": ratios(own, direct)}.get(g.vs, ratios(own, rival))
    if g.vs == "value":
        to = [v * g.scale for v in to]
    spoiled = sum("error" in r or bool(r.get("bad")) or bool(r.get("errs")) for r in mine)
    ok = None if not mine else bool(to) and g.met(med(to)) and not spoiled
    own_s, rival_s = (show(med(list(v.values())) * g.scale) for v in (own, rival))
    foreign = [r["foreign_pct"] for r in rows if "foreign_pct" in r]
    cells = [g.text, g.column, own_s, f"{name} {rival_s}", spread(ratios(own, rival)), spread(ratios(own, direct)),
             show(med(ratios(rival, direct))), f"{g.op} {g.target:g}" + {"best": " x best", "direct": " x direct", "value": ""}.get(g.vs, f" x {g.vs}"),
             {None: "-", True: "OK", False: "MISS"}[ok] + (f" ({spoiled} rows with errors)" if spoiled else ""),
             str(len(own) or len(rival)), show(med(foreign), 0)]
    return cells, ok


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--max-foreign", type=float, default=1000.0, help="leave out rows during which others took more of the machine")
    ap.add_argument("--strict", action="store_true")
    ap.add_argument("files", nargs="+")
    a = ap.parse_args()
    groups = load(a.files, a.max_foreign)
    print("\n| goal | column | own | best rival | own/rival (range) | own/direct (range) | rival/direct | target | verdict | rounds | foreign % |")
    print("|" + "---|" * 11)
    oks = []
    for g in GOALS:
        cells, ok = judge(groups, g)
        oks.append(ok)
        print("| " + " | ".join(cells) + " |")
    print(f"\n{oks.count(True)} OK, {oks.count(False)} MISS, {oks.count(None)} not measured")
    if a.strict and oks.count(True) < len(oks):
        sys.exit(1)


if __name__ == "__main__":
    main()
