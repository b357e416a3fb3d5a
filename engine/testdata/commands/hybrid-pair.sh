SHARED="--trust-remote-code --block-size 2048 --kv-cache-dtype auto --attention-backend ROCM_AITER_MLA
  --gpu-memory-utilization 0.35 --max-num-batched-tokens 32768 --max-model-len 32768"
export VLLM_ROCM_USE_AITER=1 VLLM_SSM_CONV_STATE_LAYOUT=DS

HIP_VISIBLE_DEVICES=0,1 vllm serve moonshotai/Kimi-Linear-48B-A3B-Instruct --port 20005 -tp 2 $SHARED \
  --kv-transfer-config '{"kv_connector":"MoRIIOConnector","kv_role":"kv_producer","kv_connector_extra_config":{"backend":"xgmi","http_port":"20005","handshake_port":"6301","notify_port":"6105"}}' &

HIP_VISIBLE_DEVICES=0,1 vllm serve moonshotai/Kimi-Linear-48B-A3B-Instruct --port 40005 -tp 2 -dcp 2 $SHARED \
  --kv-transfer-config '{"kv_connector":"MoRIIOConnector","kv_role":"kv_consumer","kv_connector_extra_config":{"backend":"xgmi","http_port":"40005","handshake_port":"7301","notify_port":"7501"}}' &
wait
