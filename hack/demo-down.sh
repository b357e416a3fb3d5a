#!/usr/bin/env bash
# Removes what `make demo` made. On an existing cluster: its pool, its pod and the chart.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/cluster.sh
if [[ ${CLUSTER:-dev} != existing ]]; then
  exec $DEVCLUSTER --name demo down
fi
cluster_up demo 0
"${KUBECTL[@]}" delete pdpool/r1 pod/unsplit --ignore-not-found
go tool -modfile=go.tools.mod helm --kubeconfig "$KUBECONFIG_FILE" --kube-context "$KUBE_CONTEXT" uninstall pdpool --namespace pdpool-system --ignore-not-found
"${KUBECTL[@]}" delete crd pdpools.pdpool.dev --ignore-not-found
"${KUBECTL[@]}" delete namespace pdpool-system --ignore-not-found
