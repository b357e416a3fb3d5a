#!/usr/bin/env bash
# Brings up a cluster on this machine, installs the operator, and shows one pool
# refused, one served, and where every byte of its KV cache went. Takes root on
# Linux. `make demo-down` removes all of it.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/cluster.sh

stop() { echo "make demo: $*" >&2; exit 1; }
[[ $(uname -s) == Linux ]] || stop "needs Linux (this is $(uname -s)): run it in a virtual machine with Linux"
[[ ${CLUSTER:-dev} == existing || $(id -u) == 0 ]] || stop "needs root, since it makes network namespaces and runs containers: run it as root, or use CLUSTER=existing (see hack/cluster.sh)"
command -v go >/dev/null || stop "needs the go command, version 1.26 or later: install Go"
[[ $(go env GOVERSION | sed 's/^go1\.\([0-9]*\).*/\1/') -ge 26 ]] || stop "needs Go 1.26 or later, this is $(go env GOVERSION): install a newer one"
if [[ ${CLUSTER:-dev} != existing ]]; then
  cache=$(go env GOCACHE)
  while [[ ! -d $cache ]]; do cache=$(dirname "$cache"); done
  free=$(df --output=avail -BG "$cache" | tail -1 | tr -dc 0-9)
  need=5
  ls "${XDG_CACHE_HOME:-$HOME/.cache}"/pdpool-devcluster/*/bin/kube >/dev/null 2>&1 || need=15
  [[ $free -ge $need ]] || stop "needs $need GB of free disk under $cache for what it builds, there are $free GB: make room"
fi

say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
run() { printf '\033[2m$ %s\033[0m\n' "$*"; "$@"; }
kubectl() { "${KUBECTL[@]}" "$@"; }
started=$(date +%s)

say "Building the operator, the transfer agent, the router and the simulated engine"
make images >/dev/null
go build -o bin/demo ./hack/demo

say "A Kubernetes cluster of two nodes with 8 GPUs each (simulated), PDPool installed by its chart"
cluster_up demo "${DEMO_PORT:-16443}"
install_chart
run kubectl get nodes -o custom-columns='NODE:.metadata.name,PRODUCT:.metadata.labels.amd\.com/gpu\.product-name,GPUS:.status.allocatable.amd\.com/gpu'

say "A pool that cannot work is refused ahead of time: all problems at once, each with the field to change"
if run kubectl apply -f config/samples/refused.yaml; then stop "the pool was not refused"; fi

say "DeepSeek-R1's geometry, prefill TP4 -> decode TP4 DCP4 interleave 64, written by the transfer agents"
run kubectl apply -f config/samples/simulator.yaml
sed "s#IMAGE#$IMAGES/enginesim:$TAG#" hack/demo/unsplit.yaml | kubectl apply -f - >/dev/null
kubectl wait --for=condition=Ready pdpool/r1 pod/unsplit --timeout=120s >/dev/null
run kubectl get pdpool r1
run kubectl get pods -l pdpool.dev/pool=r1 -o custom-columns='POD:.metadata.name,NODE:.spec.nodeName,PHASE:.status.phase,GPUS:.spec.containers[0].resources.limits.amd\.com/gpu,AGENT:.spec.initContainers[*].name'
demo() { bin/demo --kubeconfig "$KUBECONFIG_FILE" --context "$KUBE_CONTEXT" --pool r1 --unsplit unsplit:8000; }
demo

say "The same pool with decode TP4 and no DCP: every decode rank gets every token, four times the bytes"
run kubectl patch pdpool r1 --type=json -p '[{"op":"remove","path":"/spec/decode/layout/dcp"},{"op":"remove","path":"/spec/decode/layout/interleave"}]'
demo

say "Done after $(($(date +%s) - started)) s. What to try next"
cat <<EOF
  k() { $(printf '%q ' "${KUBECTL[@]/#hack/$PWD/hack}")"\$@"; }   # kubectl for this cluster
  k get pdpool -w                                  # in a second terminal, with k again:
  k patch pdpool r1 --type=merge -p '{"spec":{"decode":{"layout":{"dcp":4,"interleave":48}}}}'   # refused: 48 does not divide 64
  k delete pod -l pdpool.dev/role=prefill          # the replica comes back as its next attempt
  k port-forward svc/r1-router 8000:80
  curl -N localhost:8000/v1/completions -H 'Content-Type: application/json' \\
    -d '{"model":"deepseek-ai/DeepSeek-R1","prompt":"a few words","stream":true}'
  make demo-down                                # removes everything
EOF
