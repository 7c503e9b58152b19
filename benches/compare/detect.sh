#!/usr/bin/env bash
# detect.sh [--trials N] [--busy N] [--sets a,b] [--out DIR]: how fast the rivals find a failed upstream, measured with
# detect/detect.py: HAProxy (10 ms checks, fall 1 and fall 3) and BIRD BFD (10 ms x 3) against kill -9, SIGSTOP and a black
# hole, and how often each calls a healthy upstream down while every core is oversubscribed for 20 s (--busy runs of it).
# Run setup.sh first. Root, Linux; two namespaces of its own. More sets: fast, best, slow, own (see detect.py).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"

trials=5 busy=2 sets=rivals,bfd out=''
while [ $# -gt 0 ]; do
  case $1 in
    --trials) trials=$2 ;;
    --busy) busy=$2 ;;
    --sets) sets=$2 ;;
    --out) out=$2 ;;
    *) sed -n '2,5s/^# //p' "$0" >&2; exit 64 ;;
  esac
  shift 2
done
out=${out:-$(mktemp -d "${TMPDIR:-/tmp}/detect.XXXXXX")}
mkdir -p "$out"
begin
for set in ${sets//,/ }; do
  echo "$(date +%T) $set" >&2
  run python3 "$here/detect/detect.py" --set "$set" --id "$$" --trials "$trials" --out "$out/$set.jsonl"
  if [ "$busy" -gt 0 ]; then
    run python3 "$here/detect/detect.py" --set "$set" --id "$$" --trials "$busy" --faults busy --out "$out/$set.jsonl"
  fi
done
python3 "$here/detect/detect_report.py" "$out"/*.jsonl | tee "$out/detect.md"
echo "measurements: $out" >&2
