#!/bin/sh
# Installs what the tests run against, where it is missing: a real Redis, the C
# compiler that Go's race detector needs, a WebSocket client of another make
# (Python's), and curl, which the documents use.
set -eu

missing=""
command -v redis-server >/dev/null 2>&1 || missing="$missing redis-server"
command -v redis-cli >/dev/null 2>&1 || missing="$missing redis-tools"
command -v gcc >/dev/null 2>&1 || missing="$missing gcc libc6-dev"
command -v curl >/dev/null 2>&1 || missing="$missing curl"
/usr/bin/python3 -c 'import websockets' >/dev/null 2>&1 || missing="$missing python3-websockets"
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
	echo "please install these and try again:$missing" >&2
	exit 1
fi
as_root=""
[ "$(id -u)" = 0 ] || as_root=sudo
echo "installing:$missing"
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -qq
# shellcheck disable=SC2086
$as_root apt-get install -y -qq --no-install-recommends $missing >/dev/null
