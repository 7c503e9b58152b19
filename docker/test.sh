#!/usr/bin/env bash
# Builds the image and runs it as real sidecars. Two containers with services that know nothing of it (redis and nginx,
# copied from this machine), each with a sidecar that shares its PID namespace, and one sidecar of a client. All of
# them share one network namespace, so each must be asked at its own address.
#
#   docker/test.sh [STATIC_BINARY]        default: builds one in target/HOST/release
#
# Needs root, buildah, podman, runc, redis-server, nginx, curl. Without them it says SKIPPED and ends with 0, or with 1
# if CI=true.
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
for tool in buildah podman runc conmon redis-server redis-cli nginx curl nsenter strip; do
    PATH=$PATH:/usr/sbin command -v "$tool" >/dev/null || missing+=("$tool")
done
[ ${#missing[@]} = 0 ] || skip "missing: ${missing[*]}"
PATH=$PATH:/usr/sbin

binary=${1:-}
commit=
if [ -z "$binary" ]; then
    say "building the static binary"
    target=$(rustc -vV | sed -n 's/^host: //p')
    commit=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
    SIDEBEAT_COMMIT=$commit RUSTFLAGS="-C target-feature=+crt-static" \
        cargo build --release --locked --bin sidebeat --target "$target"
    binary=${CARGO_TARGET_DIR:-target}/$target/release/sidebeat
fi

say "the configurations of compose.yaml"
samples=0
for toml in docker/*.toml; do
    # One that has a warning would be a bad sample, too.
    said=$("$binary" check "$toml" 2>&1) || fail "$said"
    [ "$(wc -l <<<"$said")" = 1 ] || fail "$said"
    printf '%s\n' "$said"
    samples=$((samples + 1))
done
[ $samples -ge 2 ] || fail "only $samples configurations in docker/"

work=$(mktemp -d)
id=sidebeat-test-$$
# Storage, run root and temporary files of this run only: nothing of the machine's is seen or left behind.
export CONTAINERS_STORAGE_CONF=$work/storage.conf TMPDIR=$work
printf '[storage]\ndriver = "vfs"\nrunroot = "%s/run"\ngraphroot = "%s/graph"\n' "$work" "$work" >"$CONTAINERS_STORAGE_CONF"
pod() { podman --cgroup-manager cgroupfs --runtime "$(command -v runc)" --tmpdir "$work/podman" --events-backend none "$@"; }
cleanup() {
    for c in near far webfar web app; do pod rm -f -t 0 "$id-$c" >/dev/null 2>&1 || true; done
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

# Programs as installed here, and the libraries they name.
copy_programs() { # FOLDER PROGRAM...
    local root=$1 program lib
    shift
    for program in "$@"; do
        install -D "$(readlink -f "$(command -v "$program")")" "$root/bin/$program"
        LC_ALL=C ldd "$(command -v "$program")" | grep -o '/[^ ]*' | while read -r lib; do
            install -D "$(readlink -f "$lib")" "$root$lib"
        done
    done
    mkdir -p "$root/tmp" "$root/etc"
    chmod 1777 "$root/tmp"
}

say "images of two services: redis and nginx"
copy_programs "$work/redis/root" redis-server redis-cli
copy_programs "$work/web/root" nginx
# One process, so that to stop the container's first one is to stop the service.
cat >"$work/web/root/etc/nginx.conf" <<'EOF'
daemon off;
master_process off;
pid /tmp/pid;
error_log stderr;
events {}
http {
    access_log off;
    client_body_temp_path /tmp/body;
    proxy_temp_path /tmp/proxy;
    fastcgi_temp_path /tmp/fastcgi;
    uwsgi_temp_path /tmp/uwsgi;
    scgi_temp_path /tmp/scgi;
    server {
        listen 127.0.0.1:8080;
        location / { return 200 "nginx"; }
    }
}
EOF
for service in redis web; do
    printf 'FROM scratch\nCOPY root /\nUSER 1000:1000\nWORKDIR /tmp\n' >"$work/$service/Dockerfile"
    bud -t "$id-$service" "$work/$service"
done

cat >"$work/far.toml" <<'EOF'
[node]
id = "far"
[[inbound]]
name = "redis"
link_listen = "127.0.0.1:7420"
service = "127.0.0.1:6379"
EOF
cat >"$work/webfar.toml" <<'EOF'
[node]
id = "webfar"
[[inbound]]
name = "web"
link_listen = "127.0.0.1:7440"
service = "127.0.0.1:8080"
EOF
cat >"$work/near.toml" <<'EOF'
[node]
id = "near"
[admin]
listen = "127.0.0.1:7431"
[[outbound]]
name = "redis"
listen = "127.0.0.1:7501"
link = "required"
endpoints = ["127.0.0.1:6379"]
[[outbound]]
name = "web"
listen = "127.0.0.1:7502"
link = "required"
link_port = 7440
endpoints = ["127.0.0.1:8080"]
EOF
chmod 644 "$work"/*.toml
chmod 755 "$work"

limits=(--ulimit nofile=20000:20000 --ulimit nproc=4096:4096)
sidecar() { # NAME EXTRA...
    local name=$1
    shift
    pod run -d --name "$id-$name" "${limits[@]}" --read-only --cap-drop all --security-opt no-new-privileges \
        --health-interval disable \
        --network "container:$id-app" -v "$work/$name.toml:/etc/sidebeat/sidebeat.toml:ro" "$@" "$id" >/dev/null
}
say "containers: the services without a network of the machine, and their sidecars"
pod run -d --name "$id-app" "${limits[@]}" --network none "$id-redis" /bin/redis-server --protected-mode no --save '' >/dev/null
pod run -d --name "$id-web" "${limits[@]}" --network "container:$id-app" "$id-web" /bin/nginx -e stderr -p /tmp -c /etc/nginx.conf >/dev/null
# Three ways to say where the admin port is: by default, from the environment, in the file.
sidecar far --pid "container:$id-app"
sidecar webfar --pid "container:$id-web" --env SIDEBEAT__ADMIN__LISTEN=127.0.0.1:7441
sidecar near

wait_for() { # SECONDS WHAT COMMAND...
    local end=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >"$work/last" 2>&1; do
        if [ $SECONDS -ge $end ]; then
            cat "$work/last"
            for c in far webfar near; do pod logs "$id-$c" 2>&1 | tail -20; done
            fail "not in time: $what"
        fi
        sleep 0.2
    done
    say "$what: ok"
}
app_pid=$(pod inspect "$id-app" --format '{{.State.Pid}}')
inside() { nsenter -t "$app_pid" -n "$@"; }
ask() { [ "$(pod exec "$id-app" /bin/redis-cli -p 7501 "$@" 2>&1)" = "$expected" ]; }
get() { [ "$(inside curl -sS --fail --max-time 5 http://127.0.0.1:7502/)" = nginx ]; }
healthy() { pod healthcheck run "$id-$1"; }
# 1 is the verdict; anything else says that nobody could be asked.
unhealthy() {
    local code=0
    healthy "$1" || code=$?
    [ $code = 1 ]
}
# The exit code of `status` is 3 while something is FAILED: only what it says counts here.
states() { { pod exec "$id-near" /sidebeat status --json || true; } | grep -o '"state": *"[a-z]*"' | grep -o '[a-z]*"$' | tr -d '"' | xargs; }
state() { [ "$(states)" = "$1" ]; }

for c in far webfar near; do wait_for 20 "health check of $c" healthy $c; done
wait_for 20 "redis and nginx are ACTIVE at the near sidecar" state "active active"
expected=PONG wait_for 20 "a request to redis through the pair" ask PING
expected=OK wait_for 5 "a write through the pair" ask SET key value
expected=value wait_for 5 "and read back" ask GET key
wait_for 20 "a request to nginx through its pair" get
status=$(pod exec "$id-near" /sidebeat status)
say "status of the near sidecar:"
printf '%s\n' "$status"
if [ -n "$commit" ]; then
    metrics=$(inside curl -sS --fail 127.0.0.1:7421/metrics)
    grep -q "^sidebeat_build_info{commit=\"$commit\"" <<<"$metrics" || fail "the metrics do not name commit $commit"
fi

say "a service's process is stopped: the sidecar beside it sees it through the shared PID namespace"
pod kill -s STOP "$id-app" >/dev/null
wait_for 10 "redis FAILED at the near sidecar, nginx ACTIVE" state "failed active"
get || fail "nginx is not served while redis is stopped"
pod kill -s CONT "$id-app" >/dev/null
expected=value wait_for 20 "redis is served again after SIGCONT" ask GET key
pod kill -s STOP "$id-web" >/dev/null
wait_for 10 "nginx FAILED at the near sidecar, redis ACTIVE" state "active failed"
pod kill -s CONT "$id-web" >/dev/null
wait_for 20 "nginx is served again after SIGCONT" get

say "each health check asks its own sidecar, although they share a network namespace"
pod kill -s STOP "$id-near" >/dev/null
wait_for 10 "the near sidecar is stopped and unhealthy" unhealthy near
healthy far || fail "the far sidecar is blamed for the near one"
pod kill -s CONT "$id-near" >/dev/null
wait_for 10 "the near sidecar is healthy again" healthy near

stop() {
    local code
    pod stop -t 10 "$id-$1" >/dev/null
    code=$(pod inspect "$id-$1" --format '{{.State.ExitCode}}')
    [ "$code" = 0 ] || fail "$1 ended with $code"
}
say "clean stop"
stop far
for c in near webfar; do healthy $c || fail "$c is blamed for the far sidecar, which was stopped"; done
stop near
stop webfar
say "OK"
