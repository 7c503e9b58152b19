#!/usr/bin/env python3
"""report.py [--max-foreign PCT] FILE...: medians over rounds and ratios to `direct` of the same round."""
import json, statistics as st, sys
from collections import defaultdict

COLS = {
    "http": ["rate", "p50_us", "p99_us", "cpu_s_per_100k"],
    "lat": ["p50_us", "p90_us", "p99_us", "svc_p50_us", "cpu_s_per_100k"],
    "echo": ["rate", "p50_us", "p99_us", "cpu_s_per_100k"],
    "conn": ["rate", "p50_us", "p99_us", "cpu_s_per_100k"],
    "bulk": ["gbps", "cpu_s_per_gib"],
    "idle": ["kib_per_conn", "rss0", "rss1", "hwm", "idle_cpu_pct"],
}
ALONE = ("cpu", "idle", "rss", "hwm", "kib")  # columns that `direct` has no counterpart of


def med(v):
    return st.median(v) if v else float("nan")


def key(r):
    """What makes rows comparable: the part and how it was run."""
    return r["part"], r.get("threads", 1), r.get("rate_set", 0), r.get("var", 0), r.get("pin", ""), r.get("cc", "")


def load(files, max_foreign=1000.0):
    """Rows by key. Rounds of a second pass, which start again at 0, are numbered on."""
    groups, seen, off = defaultdict(list), {}, defaultdict(int)
    for f in files:
        for line in open(f):
            r = json.loads(line)
            if r.get("part") not in COLS:
                continue
            k, n = key(r), r.get("round", 0)
            if n < seen.get(k, 0):
                off[k] += 1000
            seen[k], r["round"] = n, n + off[k]
            if r.get("foreign_pct", 0) <= max_foreign:
                groups[k].append(r)
    return groups


def good(rows):
    return [r for r in rows if "error" not in r]


def by_round(rows, col):
    """Round -> value; the median where a round has several (direct has two)."""
    d = defaultdict(list)
    for r in good(rows):
        if col in r:
            d[r["round"]].append(r[col])
    return {n: st.median(v) for n, v in d.items()}


def ratios(a, b):
    """Ratios of two by_round results, paired by round."""
    return [a[n] / b[n] for n in sorted(a) if b.get(n)]


def num(v):
    return f"{v:.4g}" if abs(v) < 1e4 else f"{v:.0f}"


def table(k, rows):
    cols = COLS[k[0]]
    rel = [c for c in cols if not c.startswith(ALONE)]
    direct = {c: by_round([r for r in rows if r["peer"] == "direct"], c) for c in cols}
    print(f"\n### {k[0]} threads={k[1]} rate={k[2]} var={k[3]}" + (f" pinned to CPU {k[4]}" if k[4] else "") + (f" cc={k[5]}" if k[5] else ""))
    print("| peer | hops | n | " + " | ".join(cols + [c + "/direct" for c in rel]) + f" | spread of {cols[0]} |")
    print("|" + "---|" * (4 + len(cols) + len(rel)))
    peers = defaultdict(list)
    for r in rows:
        peers[r["hops"], r["peer"]].append(r)
    for (hops, name), v in sorted(peers.items()):
        g = good(v)
        if not g:
            print(f"| {name} | {hops} | 0 | {v[0]['error'][:60]} |")
            continue
        vals = {c: [r[c] for r in g if c in r] for c in cols}
        flag = " bad" if len(g) < len(v) or any(r.get("bad") or r.get("errs") for r in g) else ""
        cells = [num(med(vals[c])) for c in cols] + [f"{med(ratios(by_round(g, c), direct[c])):.3f}" for c in rel]
        first = vals[cols[0]]
        print(f"| {name} | {hops} | {len(g)}{flag} | " + " | ".join(cells) + f" | {min(first):.4g}-{max(first):.4g} |")


def main(args):
    limit = 1000.0
    if args and args[0] == "--max-foreign":
        limit, args = float(args[1]), args[2:]
    for k, rows in sorted(load(args, limit).items()):
        table(k, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
