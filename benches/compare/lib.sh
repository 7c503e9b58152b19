# shellcheck shell=bash
# Shared by the scripts of this folder: where the tools are, one measurement at a time, and an orderly end.

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
TOOLS=${PERF_TOOLS:-$repo/target/compare}
PERFKIT=${PERFKIT:-$TOOLS/build/release/perfkit}
PINGX=${PINGX:-$TOOLS/build/release/pingx}
RATHOLE=${RATHOLE:-$TOOLS/rathole/bin/rathole}
ENVOY=${ENVOY:-$(compgen -G "$TOOLS/venv/lib/python3*/site-packages/envoy/_bin/envoy" || echo envoy)}
SIDEBEAT=${SIDEBEAT:-$repo/target/release/sidebeat}
export PERFKIT PINGX RATHOLE ENVOY SIDEBEAT

begin() { # waits for the lock (descriptor 9), makes the folder for logs and generated configuration
  local dir=${TMPDIR:-/tmp}/perf-run
  mkdir -p "$dir"
  exec 9> "$dir/lock"
  flock -n 9 || { echo "another measurement is running, waiting" >&2; flock -w 7200 9; }
  PERF_RUN=$(mktemp -d "${TMPDIR:-/tmp}/compare-run.XXXXXX")
  chmod 755 "$PERF_RUN" # nginx workers are not root
  export PERF_RUN PERF_NS=compare-$$
  child=''
  trap 'exit 130' INT TERM
  trap finish EXIT
}

run() { # CMD...: waits for it in a way that a signal to this script ends it too; it must not inherit the lock
  "$@" 9>&- &
  child=$!
  wait "$child"
}

finish() {
  local rc=$?
  if [ -n "$child" ] && kill "$child" 2> /dev/null; then wait "$child" || true; fi
  ip netns del "$PERF_NS-${PERF_CC:-default}" 2> /dev/null || true
  if [ $rc -eq 0 ]; then rm -rf "$PERF_RUN"; else echo "logs: $PERF_RUN" >&2; fi
}
