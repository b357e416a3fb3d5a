export ROUTER_IP=<set this>

docker run --name router --network host --rm example/vllm-router:write-mode \
  vllm-router --vllm-pd-disaggregation --kv-connector moriio --log-level info

docker run \
  --rm --name prefill --init --network host --ipc host --privileged \
  --cap-add SYS_PTRACE --security-opt seccomp=unconfined --ulimit memlock=-1 --shm-size 256G \
  --group-add video --device /dev/kfd --device /dev/dri --device /dev/infiniband \
  -v /sys:/sys -v "${HOME}/.cache/huggingface:/root/.cache/huggingface" \
  -e HF_HOME=/root/.cache/huggingface \
  -e VLLM_MORIIO_CONNECTOR_READ_MODE=0 -e VLLM_USE_V1=1 \
  -e VLLM_ENGINE_READY_TIMEOUT_S=3600 \
  example/vllm-openai-rocm:v0.22.0 \
  deepseek-ai/DeepSeek-R1-0528 \
    --load-format dummy --port 8100 --tensor-parallel-size 8 --kv-cache-dtype fp8 \
    --gpu-memory-utilization 0.7 --max-model-len 16384 --no-enable-prefix-caching --block-size 1 --enforce-eager \
    --kv-transfer-config '{
      "kv_connector": "MoRIIOConnector",
      "kv_role": "kv_producer",
      "kv_connector_extra_config": {
        "proxy_ip": "'"${ROUTER_IP}"'",
        "proxy_ping_port": "36367", "http_port": "8100", "handshake_port": "6301", "notify_port": "61005"
      }
    }'

docker run --rm -it --network=host -eVLLM_MORIIO_CONNECTOR_READ_MODE=0 example/vllm-openai-rocm:v0.22.0 \
  deepseek-ai/DeepSeek-R1-0528 --port=8200 -tp=8 --kv_cache_dtype fp8 --block_size=1 \
  --enable-expert-parallel --all2all-backend mori --compilation-config '{"cudagraph_mode": "PIECEWISE"}' \
  --kv-transfer-config.kv_connector MoRIIOConnector --kv-transfer-config.kv_role=kv_consumer \
  --kv-transfer-config.kv_connector_extra_config '{"http_port": 8200, "handshake_port": "6301"}'

for concurrency in 16 32 64; do
  docker exec prefill vllm bench serve --max-concurrency $concurrency --num-prompts $((concurrency * 10)) | tee out.txt
done
