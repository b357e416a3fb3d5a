#!/usr/bin/env bash
# Runs the end-to-end tests: bin/e2e.test and bin/images must be built (make e2e).
# The development cluster "e2e" is brought up and taken down; KEEP=1 leaves it.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/cluster.sh
logs=${E2E_LOGS:-$(mktemp -d)}
finish() {
  local code=$?
  if [[ $code != 0 ]]; then
    echo "e2e failed; the operator's last words:"
    "${KUBECTL[@]}" -n pdpool-system logs -l app.kubernetes.io/component=manager --tail=30 2>/dev/null || true
    "${KUBECTL[@]}" get pods -A -o wide 2>/dev/null || true
    "${KUBECTL[@]}" get pdpools -A 2>/dev/null || true
  fi
  [[ ${CLUSTER:-dev} == existing || -n ${KEEP:-} ]] || $DEVCLUSTER --name e2e down
  exit "$code"
}
KUBECTL=(false)
trap finish EXIT
cluster_up e2e "${E2E_PORT:-16453}"
install_chart
if [[ ${CLUSTER:-dev} != existing ]]; then
  export E2E_DEVCLUSTER="$DEVCLUSTER --name e2e"
  E2E_AUDIT=$($DEVCLUSTER --name e2e status | sed -n 's/^audit log *//p')
  E2E_HELM=$(go tool -modfile=go.tools.mod -n helm)
  E2E_CHART=$PWD/charts/pdpool
  export E2E_AUDIT E2E_HELM E2E_CHART
fi
E2E_KUBECONFIG=$KUBECONFIG_FILE E2E_CONTEXT=$KUBE_CONTEXT E2E_IMAGES=$IMAGES E2E_TAG=$TAG E2E_LOGS=$logs \
  bin/e2e.test -test.v -test.timeout 75m -ginkgo.timeout 70m -ginkgo.v -ginkgo.no-color ${E2E_FOCUS:+-ginkgo.focus "$E2E_FOCUS"}
