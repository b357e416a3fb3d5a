# Sourced by the scripts that need a cluster. cluster_up sets KUBECONFIG_FILE,
# KUBE_CONTEXT, KUBECTL, IMAGES and TAG.
#
# By default it is the development cluster NAME of hack/devcluster, brought up
# here; an existing cluster is used only when it is named:
#   CLUSTER=existing CONTEXT=name-of-a-context REGISTRY=prefix-of-pushed-images TAG=their-tag
# An ambient KUBECONFIG is ignored unless CLUSTER=existing.

DEVCLUSTER=hack/devcluster/devcluster.sh

cluster_up() { # NAME PORT
  if [[ ${CLUSTER:-dev} == existing ]]; then
    : "${CONTEXT:?CLUSTER=existing needs CONTEXT=, the context to use}"
    : "${REGISTRY:?CLUSTER=existing needs REGISTRY=, where the images manager, transfer-agent, router and enginesim are}"
    : "${TAG:?CLUSTER=existing needs TAG=, the tag of these images}"
    KUBECONFIG_FILE=${KUBECONFIG:-$HOME/.kube/config}
    KUBE_CONTEXT=$CONTEXT
    IMAGES=$REGISTRY
    KUBECTL=(kubectl --kubeconfig "$KUBECONFIG_FILE" --context "$KUBE_CONTEXT")
    return
  fi
  unset KUBECONFIG
  $DEVCLUSTER --name "$1" up --nodes 2 --gpus 8 --port "$2"
  $DEVCLUSTER --name "$1" load bin/images/{manager,transfer-agent,router,enginesim}.tar
  KUBECONFIG_FILE=$($DEVCLUSTER --name "$1" kubeconfig)
  KUBE_CONTEXT=
  IMAGES=localhost/pdpool
  TAG=$(cat bin/images/tag)
  KUBECTL=("$DEVCLUSTER" --name "$1" kubectl)
}

install_chart() {
  local helm=(go tool -modfile=go.tools.mod helm --kubeconfig "$KUBECONFIG_FILE")
  [[ -z $KUBE_CONTEXT ]] || helm+=(--kube-context "$KUBE_CONTEXT")
  "${helm[@]}" upgrade --install pdpool charts/pdpool --namespace pdpool-system --create-namespace \
    --set "image.repository=$IMAGES" --set-string "image.tag=$TAG" --wait --timeout 3m >/dev/null
}
