#!/bin/sh
# clients.sh openai|langchain BASE_URL MODEL: runs clients.py with SDKs of its own. First start installs them.
# clients.sh llm BASE_URL MODEL: Simon Willison's `llm` program, without and with a stream.
set -eu
HERE=$(cd "$(dirname "$0")" && pwd); V=${REAL_CACHE:-$HOME/.cache/manometer-real}/clients
if [ ! -x "$V/bin/llm" ]; then
  python3.11 -m venv "$V"
  "$V/bin/pip" install -q --disable-pip-version-check openai langchain-openai llm
fi
[ "$1" = llm ] || exec "$V/bin/python" "$HERE/clients.py" "$@"
LLM_USER_PATH=$(mktemp -d); export LLM_USER_PATH; trap 'rm -rf "$LLM_USER_PATH"' EXIT
printf -- '- model_id: proxied\n  model_name: "%s"\n  api_base: "%s"\n' "$3" "$2" > "$LLM_USER_PATH/extra-openai-models.yaml"
ask() { name=$1; shift; OPENAI_API_KEY=none "$V/bin/llm" -m proxied "$@" 'Tell me about the fox.' && echo "[$name: ok]" || echo "[$name: failed]"; }
ask whole --no-stream
ask stream
