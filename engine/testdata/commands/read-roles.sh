VLLM_MORIIO_CONNECTOR_READ_MODE=1 \
VLLM_USE_V1=1 \
vllm serve "$MODEL_SNAPSHOT" \
  --served-model-name MiniMaxAI/MiniMax-M3-MXFP8 \
  --host 0.0.0.0 --port "$ROLE_HTTP_PORT" \
  --tensor-parallel-size 8 --block-size 128 --kv-cache-dtype fp8 --attention-backend TRITON_ATTN \
  --no-enable-prefix-caching --gpu-memory-utilization 0.90 \
  --kv-transfer-config "$ROLE_CONFIG"
