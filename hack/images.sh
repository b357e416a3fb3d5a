#!/usr/bin/env bash
# Makes the container images as archives from the commands in a folder, without
# docker: hack/images.sh BIN writes BIN/images/NAME.tar, each named
# localhost/pdpool/NAME:TAG. TAG is a hash of all four commands, so that a changed
# command is never taken for the one before; it is left in BIN/images/tag.
set -euo pipefail
bin=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
names="manager transfer-agent router enginesim"
mkdir -p "$bin/images"
tag=$(cd "$bin" && cat $names | sha256sum | cut -c1-12)
for name in $names; do
  hack/devcluster/devcluster.sh image --out "$bin/images/$name.tar" --name "localhost/pdpool/$name:$tag" \
    --user 65532:65532 --entrypoint "/usr/local/bin/$name" "$bin/$name:/usr/local/bin/$name"
done
echo "$tag" >"$bin/images/tag"
