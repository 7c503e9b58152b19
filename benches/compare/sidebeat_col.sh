#!/usr/bin/env bash
# sidebeat_col.sh a|b LISTEN UPSTREAM [PROTOCOL]: one sidecar of the pair for run.py.
# a: outbound, next to the client, UPSTREAM is b's link address. b: inbound, next to the service.
# Environment: SIDEBEAT (the binary), WORKERS (threads, 1), LINK_MODE (unset: the default), PERF_RUN (folder for the file).
set -euo pipefail
side=$1 listen=$2 up=$3 proto=${4:-tcp}
f=${PERF_RUN:-${TMPDIR:-/tmp}}/sidebeat-$side-${listen##*:}.toml
{
  printf '[node]\nid = "%s-%s"\nworkers = %s\n[admin]\nlisten = "127.0.0.1:0"\n' "$side" "${listen##*:}" "${WORKERS:-1}"
  if [ "$side" = a ]; then
    printf '[[outbound]]\nname = "svc"\nlisten = "%s"\nprotocol = "%s"\nlink = "required"\n' "$listen" "$proto"
    printf 'endpoints = [{ address = "%s", link_port = %s }]\n' "$up" "${up##*:}"
    if [ -n "${LINK_MODE:-}" ]; then printf 'link_mode = "%s"\n' "$LINK_MODE"; fi
  else
    printf '[[inbound]]\nname = "svc"\nlink_listen = "%s"\nservice = "%s"\nprotocol = "%s"\n' "$listen" "$up" "$proto"
  fi
} > "$f"
exec "${SIDEBEAT:-sidebeat}" run -c "$f"
