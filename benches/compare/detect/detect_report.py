#!/usr/bin/env python3
"""detect_report.py FILE...: medians and ranges of the detection times."""
import json, statistics as st, sys
from collections import defaultdict


def times(v):
    h = [x for x in v if x is not None]
    if not h:
        return "never"
    d = 0 if max(h) >= 20 else 1
    s = f"{st.median(h):.{d}f} ({min(h):.{d}f}-{max(h):.{d}f})"
    return s + (f" [{len(h)}/{len(v)}]" if len(h) < len(v) else "")


def row(rs):
    g = [r for r in rs if "error" not in r]
    if not g:
        return ["0", "error: " + rs[0]["error"][:80]] + ["-"] * 5
    m = lambda k: f"{st.median([r.get(k) or 0 for r in g]):.0f}"
    cells = [str(len(g)), times([r["down_ms"] for r in g])]
    if g[0]["part"] == "detect":
        cells += [times([r["first_other_ms"] for r in g]), f"{m('bad')} of {m('n')}", times([r["last_bad_sent_ms"] for r in g])]
    else:
        cells += ["-"] * 3
    return cells + [m("downs"), str(sum(r["pre_downs"] for r in g))]


groups = defaultdict(list)
for f in sys.argv[1:]:
    for l in open(f):
        r = json.loads(l)
        groups[r["name"], r["fault"]].append(r)
print("| detector | fault | n | marked down ms | first served elsewhere ms | failed requests | last failed sent at ms | down events | down before the fault |")
print("|" + "---|" * 9)
for (name, fault), rs in sorted(groups.items()):
    print("| " + " | ".join([name, fault, *row(rs)]) + " |")
