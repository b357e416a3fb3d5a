#!/usr/bin/env bash
# Holds what package engine knows of engines against released ones: for vLLM its
# flags, some hundred command lines that are rendered or read, and the verdicts of
# layout rules that vLLM's configuration classes have too; for SGLang its flags and
# command lines. Needs no GPU: parsers and configuration run on the CPU, with
# stand-ins for the GPU libraries that torch is linked with.
#
# Downloads about 1 GB the first time and keeps 2.5 GB in the cache. Needs python3
# with venv, gcc, readelf and a package index. Exit status: 0 if engines and we say
# the same, 75 if that cannot be found out since the packages cannot be installed
# here, any other if something differs or is wrong.
set -euo pipefail
cd "$(dirname "$0")/.."
vllm=0.33.0
sglang=0.5.23
cache="${PDPOOL_INTEROP_CACHE:-$HOME/.cache/pdpool-interop}"
made="$vllm $sglang $(cat hack/interop/requirements.txt hack/interop/stublibs.py | sha256sum | cut -c1-16)"
venv="$cache/venv"
# How long the packages may take to come, and each comparison to run.
install_limit=20m
compare_limit=10m
unset PYTHONDONTWRITEBYTECODE

cannot() {
  echo "interop: nothing was compared: $*" >&2
  exit 75
}
pip() {
  timeout "$install_limit" "$venv/bin/pip" "$@" --quiet --disable-pip-version-check --retries 2 --no-deps
}

for tool in python3 gcc readelf; do
  command -v "$tool" >/dev/null || cannot "there is no $tool"
done
if [ "$(cat "$cache/made" 2>/dev/null)" != "$made" ]; then
  rm -rf "$venv" "$cache/made"
  python3 -m venv "$venv" || cannot "python3 makes no virtual environment (Debian: python3-venv)"
  pip install --no-compile -r hack/interop/requirements.txt || cannot "the packages of hack/interop/requirements.txt cannot be installed"
  packages="$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')"
  pip download --dest "$cache" "vllm==$vllm" "sglang==$sglang" || cannot "vllm $vllm and sglang $sglang cannot be downloaded"
  # Of the engines only what is Python: their kernels are for GPUs.
  "$venv/bin/python" - "$packages" "$cache"/vllm-"$vllm"-*.whl "$cache"/sglang-"$sglang"-*.whl <<'EXTRACT'
import sys, zipfile
for path in sys.argv[2:]:
    with zipfile.ZipFile(path) as wheel:
        names = [n for n in wheel.namelist() if n.endswith((".py", ".json", ".yaml")) or ".dist-info/" in n]
        wheel.extractall(sys.argv[1], names)
EXTRACT
  rm -f "$cache"/*.whl
  "$venv/bin/python" hack/interop/stublibs.py "$packages" "$venv/stubs"
  "$venv/bin/python" -m compileall -q "$packages"/vllm "$packages"/torch "$packages"/transformers >/dev/null || true
  echo "$made" >"$cache/made"
fi

data="$(mktemp -d)"
trap 'rm -rf "$data"' EXIT
CGO_ENABLED=0 PDPOOL_INTEROP="$data/interop.json" go test -count=1 -timeout "$compare_limit" -run '^TestInterop$' ./engine
export HF_HUB_OFFLINE=1 LD_LIBRARY_PATH="$venv/stubs"
VLLM_TARGET_DEVICE=cpu VLLM_NO_USAGE_STATS=1 VLLM_LOGGING_LEVEL=ERROR timeout "$compare_limit" "$venv/bin/python" -W ignore hack/interop/compare.py "$data/interop.json"
timeout "$compare_limit" "$venv/bin/python" -W ignore hack/interop/compare_sglang.py "$data/interop.json"
VLLM_TARGET_DEVICE=cpu VLLM_NO_USAGE_STATS=1 VLLM_LOGGING_LEVEL=ERROR timeout "$compare_limit" "$venv/bin/python" -B -W ignore hack/interop/flagnames.py "$data" 2>"$data/log" || { cat "$data/log"; exit 1; }
diff engine/flagnames/vllm.txt "$data/vllm.txt"
diff engine/flagnames/sglang.txt "$data/sglang.txt"
