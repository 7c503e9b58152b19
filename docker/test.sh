#!/usr/bin/env bash
# Builds the image and runs it as a real sidecar: one container with a service that knows nothing of it (redis, copied
# from this machine), and beside it two sidecars that share its network, one of them also its PID namespace.
#
#   docker/test.sh [STATIC_BINARY]        default: builds one in target/x86_64-unknown-linux-gnu/release
#
# Needs root, buildah, podman, runc, redis-server. Without them it says SKIPPED and ends with 0, or with 1 if CI=true.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly LIMIT_MB=25
say() { printf '== docker/test.sh: %s\n' "$*"; }
fail() { say "FAILED: $*" >&2; exit 1; }
skip() {
    say "SKIPPED: $*" >&2
    [ "${CI:-}" = true ] && exit 1
    exit 0
}

[ "$(id -u)" = 0 ] || skip "needs root"
missing=()
for tool in buildah podman runc conmon redis-server redis-cli strip; do
    PATH=$PATH:/usr/sbin command -v "$tool" >/dev/null || missing+=("$tool")
done
[ ${#missing[@]} = 0 ] || skip "missing: ${missing[*]}"
PATH=$PATH:/usr/sbin

binary=${1:-}
if [ -z "$binary" ]; then
    say "building the static binary"
    RUSTFLAGS="-C target-feature=+crt-static" \
        cargo build --release --locked --bin sidebeat --target x86_64-unknown-linux-gnu
    binary=${CARGO_TARGET_DIR:-target}/x86_64-unknown-linux-gnu/release/sidebeat
fi

work=$(mktemp -d)
id=sidebeat-test-$$
# Storage, run root and temporary files of this run only: nothing of the machine's is seen or left behind.
export CONTAINERS_STORAGE_CONF=$work/storage.conf TMPDIR=$work
printf '[storage]\ndriver = "vfs"\nrunroot = "%s/run"\ngraphroot = "%s/graph"\n' "$work" "$work" >"$CONTAINERS_STORAGE_CONF"
pod() { podman --cgroup-manager cgroupfs --runtime "$(command -v runc)" --tmpdir "$work/podman" --events-backend none "$@"; }
cleanup() {
    for c in near far app; do pod rm -f -t 0 "$id-$c" >/dev/null 2>&1 || true; done
    rm -rf "$work"
}
trap cleanup EXIT

say "image of sidebeat from $binary"
mkdir "$work/sidecar" "$work/service"
strip -o "$work/sidecar/sidebeat" "$binary"
if LC_ALL=C ldd "$work/sidecar/sidebeat" 2>&1 | grep -q '=>'; then fail "the binary is not static"; fi
# The last stage of the Dockerfile as it stands, with the binary from here instead of from the first stage.
sed -n '/^FROM \${BASE}/,$p' docker/Dockerfile | sed 's,^FROM \${BASE},FROM scratch,; s,^COPY --from=build /out/,COPY ,' \
    >"$work/sidecar/Dockerfile"
bud() { buildah bud --isolation chroot --network host --format docker "$@" >"$work/bud.log" 2>&1 || { cat "$work/bud.log"; fail "buildah"; }; }
bud -t "$id" "$work/sidecar"

size=$(pod image inspect "$id" --format '{{.Size}}')
say "size of the image: $((size / 1000)) kB"
[ "$size" -lt $((LIMIT_MB * 1000000)) ] || fail "the image is larger than $LIMIT_MB MB"
[ "$(pod image inspect "$id" --format '{{.Config.User}}')" = 65534:65534 ] || fail "the image does not run as nobody"

say "image of a service: redis as installed here, and the libraries it names"
for program in redis-server redis-cli; do
    install -D "$(readlink -f "$(command -v "$program")")" "$work/service/root/bin/$program"
    LC_ALL=C ldd "$(command -v "$program")" | grep -o '/[^ ]*' | while read -r lib; do
        install -D "$(readlink -f "$lib")" "$work/service/root$lib"
    done
done
mkdir -p "$work/service/root/tmp"
printf 'FROM scratch\nCOPY root /\nUSER 1000:1000\nWORKDIR /tmp\n' >"$work/service/Dockerfile"
bud -t "$id-service" "$work/service"

far='
[node]
id = "far"
[admin]
listen = "127.0.0.1:7421"
[[inbound]]
name = "redis"
link_listen = "127.0.0.1:7420"
service = "127.0.0.1:6379"
'
near='
[node]
id = "near"
[admin]
listen = "127.0.0.1:7431"
[[outbound]]
name = "redis"
listen = "127.0.0.1:7501"
link = "required"
endpoints = ["127.0.0.1:6379"]
'
printf '%s' "$far" >"$work/far.toml"
printf '%s' "$near" >"$work/near.toml"
chmod 644 "$work"/*.toml
chmod 755 "$work"

limits=(--ulimit nofile=20000:20000 --ulimit nproc=4096:4096)
sidecar() { # NAME EXTRA...
    local name=$1
    shift
    pod run -d --name "$id-$name" "${limits[@]}" --read-only --cap-drop all --security-opt no-new-privileges \
        --network "container:$id-app" -v "$work/$name.toml:/etc/sidebeat/sidebeat.toml:ro" "$@" "$id" >/dev/null
}
say "containers: the service without a network of the machine, and its sidecars"
pod run -d --name "$id-app" "${limits[@]}" --network none "$id-service" /bin/redis-server --protected-mode no --save '' >/dev/null
sidecar far --pid "container:$id-app"
sidecar near --env SIDEBEAT__ADMIN__LISTEN=127.0.0.1:7431

wait_for() { # SECONDS WHAT COMMAND...
    local end=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >"$work/last" 2>&1; do
        if [ $SECONDS -ge $end ]; then
            cat "$work/last"
            for c in far near; do pod logs "$id-$c" 2>&1 | tail -20; done
            fail "not in time: $what"
        fi
        sleep 0.2
    done
    say "$what: ok"
}
ask() { [ "$(pod exec "$id-app" /bin/redis-cli -p 7501 "$@" 2>&1)" = "$expected" ]; }

wait_for 20 "health check of the far sidecar" pod healthcheck run "$id-far"
wait_for 20 "health check of the near sidecar" pod healthcheck run "$id-near"
expected=PONG wait_for 20 "a request through the pair" ask PING
expected=OK wait_for 5 "a write through the pair" ask SET key value
expected=value wait_for 5 "and read back" ask GET key
status=$(pod exec "$id-near" /sidebeat status --admin 127.0.0.1:7431)
say "status of the near sidecar:"
printf '%s\n' "$status"

say "the service's process is stopped: the sidecar beside it sees it through the shared PID namespace"
pod kill -s STOP "$id-app" >/dev/null
stopped() { pod exec "$id-near" /sidebeat status --json --admin 127.0.0.1:7431 | grep -q '"state": *"failed"'; }
wait_for 10 "FAILED at the near sidecar" stopped
pod kill -s CONT "$id-app" >/dev/null
expected=value wait_for 20 "served again after SIGCONT" ask GET key

say "clean stop"
for c in near far; do
    pod stop -t 10 "$id-$c" >/dev/null
    code=$(pod inspect "$id-$c" --format '{{.State.ExitCode}}')
    [ "$code" = 0 ] || fail "$c ended with $code"
done
say "OK"
