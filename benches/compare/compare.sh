#!/usr/bin/env bash
# compare.sh [--quick] [--rivals-only] [--strict] [--parts a,b] [--rounds N] [--secs S] [--out DIR]
# sidebeat and its rivals side by side on this machine's loopback, two hops each, then every speed goal with its verdict.
# Columns: own (default link mode), own-pc (per-connection), the rivals, direct. Run setup.sh first. Root, Linux.
# Parts: http http2 echo echo1 lat bulk conn idle. A full run takes about 50 minutes, a quick one about 10.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"

parts=http,http2,echo,echo1,lat,bulk,conn,idle rounds=7 secs=2 out='' own=own,own-pc, strict=()
tcp=tokio,haproxy-tcp,nginx-stream,envoy-tcp,rathole,floor-framed
http=$tcp,haproxy-http,nginx-http,envoy-http,pingora-http
while [ $# -gt 0 ]; do
  case $1 in
    --quick) rounds=3 secs=1 http=$tcp ;; # the HTTP-aware rivals never come first
    --rivals-only) own= ;;
    --strict) strict=(--strict) ;;
    --parts) parts=$2; shift ;;
    --rounds) rounds=$2; shift ;;
    --secs) secs=$2; shift ;;
    --out) out=$2; shift ;;
    *) sed -n '2,5s/^# //p' "$0" >&2; exit 64 ;;
  esac
  shift
done
if [ -n "$own" ] && [ ! -x "$(command -v "$SIDEBEAT")" ]; then
  echo "no sidebeat at $SIDEBEAT: build it with cargo build --release, name it in SIDEBEAT, or pass --rivals-only" >&2
  exit 1
fi
out=${out:-$(mktemp -d "${TMPDIR:-/tmp}/compare.XXXXXX")}
mkdir -p "$out"
begin

failed=''
part() { # NAME RIVALS ARGS...: one part of the comparison, into its own file
  local name=$1 rivals=$2
  shift 2
  case ",$parts," in *",$name,"*) ;; *) return 0 ;; esac
  echo "$(date +%T) $name" >&2
  run "$here/netns.sh" python3 "$here/run.py" "$@" --hops 2 --peers "$own$rivals" --out "$out/$name.jsonl" || failed+=" $name"
}

common=(--rounds "$rounds" --secs "$secs")
part http "$http" http "${common[@]}"
part http2 "$http" http "${common[@]}" --threads 2
part echo "$tcp" echo "${common[@]}"
part echo1 "$tcp" echo "${common[@]}" --pin 0 --vars 1
part lat "$http" lat "${common[@]}" --pin 0 --rate 1000
part bulk "$tcp,haproxy-splice" bulk "${common[@]}"
part conn "$tcp" conn "${common[@]}"
part idle "$tcp" idle --rounds "$rounds" --n 5000

python3 "$here/report.py" "$out"/*.jsonl > "$out/tables.md"
echo "measurements and tables.md: $out" >&2
python3 "$here/verdict.py" "${strict[@]}" "$out"/*.jsonl | tee "$out/verdict.md"
if [ -n "$failed" ]; then
  echo "parts that failed:$failed" >&2
  exit 1
fi
