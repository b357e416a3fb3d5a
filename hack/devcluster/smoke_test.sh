#!/bin/bash
# Starts a cluster of two nodes named "smoke", checks what it promises, and checks that
# nothing of it is left afterwards. Needs root. SMOKE_PORT chooses another port.
set -euo pipefail
cd "$(dirname "$0")"
port=${SMOKE_PORT:-26443}
work=$(mktemp -d)
dc() { ./devcluster.sh "$@"; }
k() { dc kubectl --name smoke "$@"; }

fail() {
  echo "FAIL $*" >&2
  exit 1
}
cleanup() {
  dc down --name smoke >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap cleanup EXIT

# check WHAT WANTED COMMAND... tries until the output holds WANTED, for a minute.
check() {
  local what=$1 want=$2 got end=$((SECONDS + 60))
  shift 2
  while ((SECONDS < end)); do
    got=$("$@" 2>&1) || true
    if [[ $got == *"$want"* ]]; then
      echo "ok   $what"
      return
    fi
    sleep 0.3
  done
  fail "$what: wanted '$want', got: $got"
}

# expect CODE WANTED COMMAND... wants an exit code and a sentence, once.
expect() {
  local code=$1 want=$2 got status=0
  shift 2
  got=$("$@" 2>&1) || status=$?
  [[ $status == "$code" && $got == *"$want"* ]] || fail "'$*': wanted exit code $code with '$want', got $status: $got"
  echo "ok   exit code $code: $want"
}

# snapshot NAME writes what a cluster could leave on this machine.
snapshot() {
  local dir=$work/$1
  mkdir -p "$dir"
  sort /proc/self/mounts >"$dir/mounts"
  ip -br link | awk '{print $1}' | sort >"$dir/links"
  ip netns list | sort >"$dir/netns"
  find /sys/fs/cgroup -type d -name 'pdpool-devcluster-smoke*' >"$dir/cgroups"
  lsns -n -o NS | sort >"$dir/namespaces"
  (cd /proc/sys && tail -n +1 vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_max*) >"$dir/sysctls"
  find /etc/cni /var/lib/cni /var/lib/kubelet /var/lib/containerd /run/containerd /run/netns /run/pdpool /usr/libexec/kubernetes /var/log/pods /var/log/containers 2>/dev/null | sort >"$dir/files" || true
  ls -d "${XDG_CACHE_HOME:-$HOME/.cache}"/pdpool-devcluster/state/smoke >"$dir/state" 2>/dev/null || true
}

# same NAME compares a snapshot with the one from before the cluster. Another process
# of the machine may have made a namespace meanwhile: only ones of the cluster count.
same() {
  local f
  for f in mounts links netns cgroups sysctls files state; do
    diff "$work/before/$f" "$work/$1/$f" || fail "$1: $f are not what they were"
  done
  [[ -z $(comm -12 "$work/cluster" "$work/$1/namespaces") ]] || fail "$1: namespaces are left"
  echo "ok   nothing is left: $1"
}

bad_input() {
  expect 2 'no command "nope"' dc nope
  expect 2 "--nodes" dc up --name smoke --nodes -1
  expect 2 "--gpus" dc up --name smoke --gpus many
  expect 2 "no name for a cluster" dc up --name Smoke_1
  expect 2 "NODE" dc stop-node --name smoke
  expect 1 "is not running" dc kubeconfig --name smoke
  expect 1 "is not running" dc load --name smoke x.tar
  expect 2 "localhost/x:dev" dc image --out "$work/x.tar" --name nope go.mod
  expect 1 "no such file" dc image --out "$work/x.tar" --name localhost/x:dev "$work/missing"
  expect 0 "nothing to do" dc down --name smoke
}

make_image() {
  CGO_ENABLED=0 go build -o "$work/probe" ./cmd/probe
  dc image --out "$work/probe.tar" --name localhost/probe:dev --user 65532 "$work/probe:/bin/probe"
  dc image --out "$work/again.tar" --name localhost/probe:dev --user 65532 "$work/probe:/bin/probe"
  cmp "$work/probe.tar" "$work/again.tar" || fail "the same files gave another image"
  dc load --name smoke "$work/probe.tar"
}

probe_on() { k get pod -l app=probe --field-selector "spec.nodeName=$1" -o "jsonpath={.items[0]$2}"; }
ask() { k exec "$1" -- /bin/probe "${@:2}"; }

network() {
  k rollout status ds/probe --timeout=60s >/dev/null
  local a b ip1 ip2
  a=$(probe_on n1 .metadata.name) b=$(probe_on n2 .metadata.name)
  ip1=$(probe_on n1 .status.podIP) ip2=$(probe_on n2 .status.podIP)
  check "n1 reaches a pod of n2" "$b" ask "$a" get "http://$ip2:8080/"
  check "n2 reaches a pod of n1" "$a" ask "$b" get "http://$ip1:8080/"
  check "a Service's name resolves" "10.96." ask "$a" lookup probe
  check "a Service reaches n2" "$b" ask "$a" get http://probe.default.svc.cluster.local/
  check "a Service reaches n1" "$a" ask "$a" get http://probe/
  check "a headless Service has n1" "$ip1" ask "$a" lookup probe-headless
  check "a headless Service has n2" "$ip2" ask "$a" lookup probe-headless
  check "logs" "serving" k logs "$b"
  check "the API server reaches pods" "$a" k get --raw "/api/v1/namespaces/default/pods/$a:8080/proxy/"
}

host_path() {
  k wait --for=condition=Ready pod/neighbour --timeout=60s >/dev/null
  dc enter --name smoke n1 chmod 777 /run/pdpool
  ask "$(probe_on n1 .metadata.name)" write /shared/file hello
  check "pods of a node share a folder of its /run" "hello" ask neighbour cat /shared/file
  check "other nodes do not" "no such file" ask "$(probe_on n2 .metadata.name)" cat /shared/file
}

webhook() {
  local ca
  ca=$(ask neighbour get "http://probe/ca" | base64 -w0)
  # Two pods have two authorities: the webhook is that of one node.
  k label pod "$(probe_on n2 .metadata.name)" app=other --overwrite >/dev/null
  check "one pod is left behind the Service" "$(probe_on n1 .status.podIP)" k get endpointslices -l kubernetes.io/service-name=probe -o "jsonpath={.items[*].endpoints[?(@.conditions.ready==true)].addresses[*]}"
  ca=$(ask neighbour get "http://$(probe_on n1 .status.podIP):8080/ca" | base64 -w0)
  k apply -f - >/dev/null <<YAML
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: probe}
webhooks:
- name: probe.default.svc
  clientConfig: {caBundle: $ca, service: {name: probe, namespace: default}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  matchConditions: [{name: smoke, expression: "request.namespace == 'default' && request.name != 'kube-root-ca.crt'"}]
YAML
  check "the API server calls a webhook in a pod" "the name says so" k create configmap denied
  check "which allows the rest" "created" k create configmap allowed
  k delete validatingwebhookconfiguration probe >/dev/null
}

gpus() {
  k wait --for=condition=Ready pod/gpu4 --timeout=60s >/dev/null
  [[ $(ask gpu4 env SIMULATED_AMD_GPUS | tr , '\n' | grep -c gpu) == 4 ]] || fail "a pod with amd.com/gpu: 4 did not get 4"
  [[ $(ask gpu4 ls '/dev/dri/renderD*' | wc -l) == 4 ]] || fail "a pod with amd.com/gpu: 4 does not see 4 device files"
  check "a pod with amd.com/gpu: 4 gets 4" "/dev/kfd" ask gpu4 ls /dev/kfd
  check "a pod with amd.com/gpu: 9 waits" "Insufficient amd.com/gpu" k get pod gpu9 -o 'jsonpath={.status.phase} {.status.conditions[*].message}'
  k delete pod gpu9 --now >/dev/null
}

# gang NAME FILE: pods of the label gang=NAME wait while gpu4 runs, and start together.
gang() {
  local name=$1 file=$2
  k apply -f "$file" >/dev/null
  check "$name waits whole while a part does not fit" "Pending Pending" k get pods -l "gang=$name" -o 'jsonpath={.items[*].status.phase}'
  sleep 3
  [[ -z $(k get pods -l "gang=$name" -o 'jsonpath={.items[*].spec.nodeName}') ]] || fail "a part of $name was placed"
  check "which its condition says" "Unschedulable" k get podgroups -o 'jsonpath={.items[*].status.conditions[*].reason}'
  k delete pod gpu4 --now >/dev/null
  check "$name starts when there is room" "Running Running" k get pods -l "gang=$name" -o 'jsonpath={.items[*].status.phase}'
  k delete --now -f "$file" >/dev/null
}

allocatable() { k get node "$1" -o 'jsonpath={.status.allocatable.amd\.com/gpu} of {.status.capacity.amd\.com/gpu}'; }

health() {
  expect 1 "no GPU gpu8" dc gpu-unhealthy --name smoke n2 gpu8
  expect 1 "no node n3" dc gpu-unhealthy --name smoke n3 gpu0
  expect 0 "gpu6 gpu7" dc gpu-unhealthy --name smoke n2 gpu6 7
  check "unhealthy GPUs lower Allocatable" "6 of 8" allocatable n2
  expect 0 "none" dc gpu-healthy --name smoke n2
  check "healthy GPUs raise it" "8 of 8" allocatable n2
}

node_ready() { k get node "$1" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'; }

node_failure() {
  dc stop-node --name smoke 2
  check "status says that the node is stopped" "n2   stopped" dc status --name smoke
  check "a stopped node is not ready" "Unknown" node_ready n2
  local start=$SECONDS
  dc start-node --name smoke 2
  echo "     start-node took $((SECONDS - start)) s"
  check "a started node is ready" "True" node_ready n2
  check "and has its GPUs" "8 of 8" allocatable n2
  k rollout status ds/probe --timeout=60s >/dev/null
  echo "ok   its pods run again"
}

kubelet_restart() {
  local old
  old=$(k get node n1 -o 'jsonpath={.status.conditions[?(@.type=="Ready")].lastHeartbeatTime}')
  dc enter --name smoke n1 sh -c 'kill -9 $(pidof kubelet kube | tr " " "\n" | while read -r p; do tr "\0" " " </proc/$p/cmdline | grep -q " kubelet " && echo $p; done)'
  check "a killed kubelet starts again" "1" node_restarts "$old"
  check "and its GPUs come back" "8 of 8" allocatable n1
}

# node_restarts says 1 when n1 reported after the time OLD.
node_restarts() {
  [[ $(k get node n1 -o 'jsonpath={.status.conditions[?(@.type=="Ready")].lastHeartbeatTime}') > $1 ]] && echo 1
}

bad_input
snapshot before
start=$(date +%s.%N)
dc up --name smoke --nodes 2 --gpus 8 --port "$port"
echo "     up took $(awk "BEGIN {print $(date +%s.%N) - $start}") s"
lsns -n -o NS | sort | comm -13 "$work/before/namespaces" - >"$work/cluster"
expect 0 "is running already" dc up --name smoke --port "$port"
expect 1 "run down" dc up --name smoke --nodes 3 --port "$port"
expect 1 "port $port of 127.0.0.1 is in use" dc up --name smoke2 --port "$port"
make_image
k apply -f testdata/smoke.yaml >/dev/null
network
host_path
gpus
gang gang testdata/gang.yaml
k apply -f testdata/smoke.yaml >/dev/null # gpu4 again
k delete pod gpu9 --now >/dev/null
k wait --for=condition=Ready pod/gpu4 --timeout=60s >/dev/null
gang pool-0 testdata/composite.yaml
webhook
health
kubelet_restart
node_failure
state=$(dirname "$(dc kubeconfig --name smoke)")
check "the audit log has requests" '"resource":"podgroups"' cat "$state/audit.log"

lsns -n -o NS | sort | comm -13 "$work/before/namespaces" - >"$work/cluster"
kill -9 "$(cut -d' ' -f1 "$state/process")"
check "a killed supervisor takes the cluster along" "is not running" dc status --name smoke
dc up --name smoke --nodes 2 --gpus 8 --port "$port"
check "the next one is new" "n2   ready     8 of 8" dc status --name smoke
lsns -n -o NS | sort | comm -13 "$work/before/namespaces" - >>"$work/cluster"
sort -u -o "$work/cluster" "$work/cluster"
dc down --name smoke
snapshot after-down
same after-down
echo "all passed after $SECONDS s"
