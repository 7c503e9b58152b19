#!/usr/bin/env bash
# netns.sh CMD...: runs CMD in a network namespace made here on first use: loopback only, wide port range.
# PERF_NS names it. PERF_CC picks the TCP congestion control (default: the machine's; a child namespace may only
# choose an allowed one, e.g. reno).
set -euo pipefail
cc=${PERF_CC:-}
ns=${PERF_NS:-perf}-${cc:-default}
if ! ip netns list | grep -qw -- "$ns"; then
  ip netns add "$ns"
  ip netns exec "$ns" ip link set lo up
  ip netns exec "$ns" sysctl -qw net.ipv4.ip_local_port_range="10000 65000"
  if [ -n "$cc" ]; then ip netns exec "$ns" sysctl -qw net.ipv4.tcp_congestion_control="$cc"; fi
fi
ulimit -n 20000 2>/dev/null || ulimit -n "$(ulimit -Hn)" # 5000 idle connections take 10000 descriptors in one process
exec ip netns exec "$ns" "$@"
