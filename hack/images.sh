#!/usr/bin/env bash
# Makes the container images as archives from the commands in a folder, without
# docker: hack/images.sh BIN writes BIN/images/*.tar, named localhost/pdpool/NAME:dev.
set -euo pipefail
bin=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
mkdir -p "$bin/images"
for name in manager transfer-agent router enginesim; do
  hack/devcluster/devcluster.sh image --out "$bin/images/$name.tar" --name "localhost/pdpool/$name:dev" \
    --user 65532:65532 --entrypoint "/usr/local/bin/$name" "$bin/$name:/usr/local/bin/$name"
done
