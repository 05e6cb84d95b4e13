#!/usr/bin/env bash
# Installs what is missing, builds the program, and lets four ranks that share the experts of the demo model
# continue some text.
# usage: launch/demo.sh [PROMPT]
set -euo pipefail
if [[ $# -gt 1 || ${1:-} == -* ]]; then echo "usage: launch/demo.sh [PROMPT]" >&2; exit 2; fi
cd "$(dirname "$0")/.."

tools/packages.sh
cmake --preset release >/dev/null
cmake --build --preset release -- --quiet

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1  # containers
prompt=${1:-And it came to pass in those days, that}
set -x
mpirun --oversubscribe --bind-to none -n 4 build/release/bin/moesaic generate \
  -m tests/data/demo-model -p "$prompt" -n 120 --threads 1 --seed 1
