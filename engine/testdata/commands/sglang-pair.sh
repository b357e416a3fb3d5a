# 1P1D
podman run --rm --network host -e MORI_DISABLE_AUTO_XGMI=0 rocm/sgl-dev:v0.5.9-rocm700-mi35x-20260316 \
  bash -lc "cd /sgl && python3 -m sglang.launch_server --model-path moonshotai/Kimi-K3 --tp 16 --dp 16 --enable-dp-attention \
    --ep 16 --disaggregation-mode prefill --disaggregation-transfer-backend mori --disaggregation-ib-device rdma0,rdma1 \
    --page-size 64 --kv-cache-dtype fp8_e4m3 --mem-fraction-static 0.85 --host 0.0.0.0 --port 30000"
SGLANG_USE_AITER=1 nohup sglang serve moonshotai/Kimi-K3 --tp-size 8 --dcp-size 8 --page-size=64 --kv-cache-dtype fp8_e4m3 \
  --disaggregation-mode decode --disaggregation-transfer-backend mori --context-length 131072 --attention-backend triton \
  --decode-attention-backend aiter --speculative-algo EAGLE --speculative-num-steps 2 --speculative-eagle-topk 1 \
  --speculative-num-draft-tokens 3 --enable-hicache > decode.log 2>&1 &
