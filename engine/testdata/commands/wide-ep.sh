#!/bin/bash
set -euo pipefail
ARGS=(
  --tensor-parallel-size 1
  --data-parallel-size 16 --data-parallel-size-local "${DP_LOCAL:-8}"   # two pods
  --data-parallel-address ${LWS_LEADER_ADDRESS} --data-parallel-rpc-port 29560
  --data-parallel-start-rank $((LWS_WORKER_INDEX * 8))
  --enable-expert-parallel --data-parallel-hybrid-lb --api-server-count 8
)
ARGS+=(--block-size 16 --all2all-backend mori_low_latency)
exec vllm serve deepseek-ai/DeepSeek-V3 --port 8200 "${ARGS[@]}" \
  --kv_transfer_config '{"kv_connector":"MoRIIOConnector","kv_role":"kv_consumer","kv_connector_extra_config":{"http_port":8200,"read_mode":"false"}}'
