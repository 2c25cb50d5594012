#!/bin/sh
# usage: pg-owner.sh COMMAND [ARGUMENT...]
# Runs a command as the user to whom private servers belong. PostgreSQL refuses root, so for root that
# is user postgres, or nobody where there is no such user; for others it is they themselves.
set -eu
[ "$(id -u)" = 0 ] || exec "$@"
owner=postgres
id -u "$owner" >/dev/null 2>&1 || owner=nobody
exec setpriv --reuid "$owner" --regid "$(id -g "$owner")" --init-groups "$@"
