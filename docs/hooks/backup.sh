#!/bin/sh
# Announces the pause of a backup and makes it: backup.sh SOCKET COMMAND [ARGUMENT...]
# The service may stand still for 20 s; a pause that lasts longer is judged as any silence is.
set -eu
socket=$1
shift
# A sidecar that is away must not prevent a backup.
sidebeat maintenance --for 20s --reason backup --socket "$socket" || echo "not announced" >&2
"$@"
