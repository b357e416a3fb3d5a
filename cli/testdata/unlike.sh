docker run --rm --network host --device /dev/kfd example/vllm-rocm:v0.33.0 vllm serve Qwen/Qwen3-32B -tp 8 --kv-cache-dtype fp8 --port 8000 --max-model-len 40960 --unknown-flag 3 \
  --kv-transfer-config '{"kv_connector":"MoRIIOConnector","kv_role":"kv_producer","kv_load_failure_policy":"recompute","kv_connector_extra_config":{"http_port":8000,"defer_timeout":90}}'
docker run --rm --network host example/vllm-rocm:v0.33.0 vllm serve Qwen/Qwen3-32B -tp 4 -pp 2 --block-size 32 --port 8000 --max-num-seqs 512 \
  --kv-transfer-config '{"kv_connector":"MoRIIOConnector","kv_role":"kv_consumer","kv_load_failure_policy":"recompute","kv_connector_extra_config":{"http_port":8000,"recv_abort_timeout":300}}'
