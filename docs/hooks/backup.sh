#!/bin/sh
# Announces the pause of a backup and makes it: backup.sh SOCKET COMMAND [ARGUMENT...]
# The service may stand still for 20 s; a pause that lasts longer is judged as any silence is.
set -eu
if [ $# -lt 2 ]; then
    echo "usage: $0 SOCKET COMMAND [ARGUMENT...]" >&2
    exit 2
fi
socket=$1
shift
# A sidecar that is away must not prevent a backup.
sidebeat maintenance --for 20s --reason backup --socket "$socket" || echo "not announced" >&2
result=0
"$@" || result=$?
# Otherwise a failure in the rest of the 20 s would be taken for the backup.
sidebeat maintenance --end --socket "$socket" || true
exit $result
