#!/usr/bin/env bash
# Holds what package engine knows of vLLM against a released vLLM: its flags, some
# hundred command lines that it renders or reads, and the verdicts of layout rules
# that vLLM's configuration classes have too. Needs no GPU: parser and configuration
# run on the CPU, with stand-ins for the GPU libraries that torch is linked with.
#
# Downloads about 1 GB the first time and keeps 3 GB in the cache. Needs python3
# with venv, gcc and readelf.
set -euo pipefail
cd "$(dirname "$0")/.."
release=0.33.0
cache="${PDPOOL_INTEROP_CACHE:-$HOME/.cache/pdpool-interop}"
made="$release $(cat hack/interop/requirements.txt hack/interop/stublibs.py | sha256sum | cut -c1-16)"
venv="$cache/venv"
unset PYTHONDONTWRITEBYTECODE

if [ "$(cat "$cache/made" 2>/dev/null)" != "$made" ]; then
  rm -rf "$venv" "$cache/made"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --no-compile -r hack/interop/requirements.txt
  packages="$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')"
  "$venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --dest "$cache" "vllm==$release"
  # Of vLLM only what is Python: its kernels are for GPUs.
  "$venv/bin/python" - "$cache"/vllm-"$release"-*.whl "$packages" <<'EXTRACT'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    wheel.extractall(sys.argv[2], [n for n in wheel.namelist() if n.startswith("vllm-") or n.endswith((".py", ".json", ".yaml"))])
EXTRACT
  rm -f "$cache"/vllm-"$release"-*.whl
  "$venv/bin/python" hack/interop/stublibs.py "$packages" "$venv/stubs"
  "$venv/bin/python" -m compileall -q "$packages"/vllm "$packages"/torch "$packages"/transformers >/dev/null || true
  echo "$made" >"$cache/made"
fi

data="$(mktemp -d)"
trap 'rm -rf "$data"' EXIT
PDPOOL_INTEROP="$data/interop.json" go test -count=1 -run '^TestInterop$' ./engine
VLLM_TARGET_DEVICE=cpu VLLM_NO_USAGE_STATS=1 VLLM_LOGGING_LEVEL=ERROR HF_HUB_OFFLINE=1 LD_LIBRARY_PATH="$venv/stubs" \
  "$venv/bin/python" -W ignore hack/interop/compare.py "$data/interop.json"
