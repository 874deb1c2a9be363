#!/bin/bash
# diffusion_server.sh PORT: a real diffusion-LLM server (dlmserve 0.1.1, with its own denoising loop) on CPU and loopback,
# serving exact_llada, which lies beside this script. First start installs about 1.2 GB; it needs Python 3.11.
# It ignores SIGTERM: stop it by its PID with SIGKILL.
set -eu
PORT=${1:?port}; HERE=$(cd "$(dirname "$0")" && pwd)
CACHE=${REAL_CACHE:-$HOME/.cache/manometer-real}; VENV=$CACHE/dllm; MODEL=$CACHE/exact-llada
if [ ! -f "$VENV/ready" ]; then
  python3.11 -m venv "$VENV"
  "$VENV/bin/pip" install -q --disable-pip-version-check torch==2.13.0
  "$VENV/bin/pip" install -q --disable-pip-version-check 'transformers>=4.44,<5' 'accelerate>=0.34' fastapi \
    'uvicorn[standard]' prometheus-client 'pydantic>=2.8' httpx einops safetensors
  "$VENV/bin/pip" install -q --disable-pip-version-check --no-deps dlmserve==0.1.1
  touch "$VENV/ready"
fi
[ -f "$MODEL/config.json" ] || "$VENV/bin/python" "$HERE/exact_llada/make.py" "$MODEL"
export HF_HUB_OFFLINE=1 HF_MODULES_CACHE=$CACHE/modules OMP_NUM_THREADS=${THREADS:-2}
export DLMSERVE_MODEL=$MODEL DLMSERVE_DTYPE=bf16 DLMSERVE_DEVICE=cpu
cd "$CACHE" && exec "$VENV/bin/uvicorn" dlmserve.api.server:app --host 127.0.0.1 --port "$PORT"
