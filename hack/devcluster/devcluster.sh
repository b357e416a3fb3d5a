#!/bin/sh
# Builds the devcluster command, which takes a second, and runs it with the arguments.
set -eu
DEVCLUSTER_SOURCE=$(cd "$(dirname "$0")" && pwd)
export DEVCLUSTER_SOURCE
if ! command -v go >/dev/null; then
  echo "devcluster: the go command is not in PATH: install Go 1.26 or a later version" >&2
  exit 1
fi
if [ -z "${XDG_CACHE_HOME:-}${HOME:-}" ]; then
  echo "devcluster: there is no cache folder: set HOME or XDG_CACHE_HOME" >&2
  exit 1
fi
# One binary for each clone; go build replaces it only when its sources changed.
bin=${XDG_CACHE_HOME:-$HOME/.cache}/pdpool-devcluster/cli/$(printf %s "$DEVCLUSTER_SOURCE" | cksum | cut -d' ' -f1)
CGO_ENABLED=0 GOWORK=off GOFLAGS='' go build -C "$DEVCLUSTER_SOURCE" -buildvcs=false -o "$bin" ./cmd/devcluster
exec "$bin" "$@"
