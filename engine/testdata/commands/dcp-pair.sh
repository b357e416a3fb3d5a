# flags that both instances have
SHARED="--block-size 64 --kv-cache-dtype auto --attention-backend ROCM_AITER_MLA --gpu-memory-utilization 0.90 \
  --enable-prefix-caching --max-num-seqs 256 --max-model-len 65536 \
  --compilation-config {\"cudagraph_mode\":\"FULL_DECODE_ONLY\"} --reasoning-parser deepseek_r1"
export VLLM_ROCM_USE_AITER=1 VLLM_USE_BREAKABLE_CUDAGRAPH=0

# prefill
HIP_VISIBLE_DEVICES=0,1,2,3 MORI_IO_XGMI_SCATTER_GATHER_THRESHOLD=0 vllm serve deepseek-ai/DeepSeek-R1 --port 11501 \
  --tensor-parallel-size 4 $SHARED \
  --kv-transfer-config '{"kv_connector":"MoRIIOConnector","kv_role":"kv_producer","kv_connector_extra_config":{"backend":"xgmi","proxy_ip":"127.0.0.1","proxy_ping_port":"11503","http_port":"11501","handshake_port":"11510","notify_port":"11518"}}'

# decode
HIP_VISIBLE_DEVICES=4,5,6,7 vllm serve deepseek-ai/DeepSeek-R1 --port 11502 \
  --tensor-parallel-size 4 --decode-context-parallel-size 4 --cp-kv-cache-interleave-size 64 $SHARED \
  --kv-transfer-config '{"kv_connector":"MoRIIOConnector","kv_role":"kv_consumer","kv_connector_extra_config":{"backend":"xgmi","proxy_ip":"127.0.0.1","proxy_ping_port":"11503","http_port":"11502","handshake_port":"11526","notify_port":"11534"}}'

vllm bench serve --backend vllm --base-url $URL --model deepseek-ai/DeepSeek-R1 --num-prompts 640
