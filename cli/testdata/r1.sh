# both instances
COMMON="--block-size 64 --kv-cache-dtype auto --attention-backend ROCM_AITER_MLA --max-num-seqs 256 --max-model-len 65536"
export VLLM_ROCM_USE_AITER=1

HIP_VISIBLE_DEVICES=0,1,2,3 MORI_IO_XGMI_SCATTER_GATHER_THRESHOLD=0 vllm serve deepseek-ai/DeepSeek-R1 --port 9101 \
  --tensor-parallel-size 4 $COMMON \
  --kv-transfer-config '{"kv_connector":"MoRIIOConnector","kv_role":"kv_producer","kv_connector_extra_config":{"backend":"xgmi","proxy_ip":"127.0.0.1","proxy_ping_port":"9103","http_port":"9101","handshake_port":"9110","notify_port":"9118"}}'

HIP_VISIBLE_DEVICES=4,5,6,7 vllm serve deepseek-ai/DeepSeek-R1 --port 9102 \
  --tensor-parallel-size 4 --decode-context-parallel-size 4 --cp-kv-cache-interleave-size 64 $COMMON \
  --kv-transfer-config '{"kv_connector":"MoRIIOConnector","kv_role":"kv_consumer","kv_connector_extra_config":{"backend":"xgmi","proxy_ip":"127.0.0.1","proxy_ping_port":"9103","http_port":"9102","handshake_port":"9126","notify_port":"9134"}}'
