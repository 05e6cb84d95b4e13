#!/usr/bin/env bash
# Compares the lane maps that tests use (tests/data/gpu/mma_lanes.txt) with those of CUTLASS, whose headers come from
# PyPI (10 MB). Host code alone: no CUDA compiler and no GPU are needed.
# usage: tools/lane_maps.sh [--write]     --write: makes the file
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
file=$here/../tests/data/gpu/mma_lanes.txt
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install --quiet --no-deps --no-cache-dir --require-hashes -r "$here/cutlass-requirements.txt"
packages=$(echo "$dir"/venv/lib/python3*/site-packages)
g++ -std=c++17 -w -I "$packages/cutlass_library/source/include" -I "$packages/nvidia/cu13/include" \
  -I "$packages/nvidia/cu13/include/cccl" "$here/lane_maps.cpp" -o "$dir/lane_maps"
"$dir/lane_maps" >"$dir/lanes.txt"
if [[ ${1:-} == --write ]]; then
  cp "$dir/lanes.txt" "$file"
else
  cmp "$dir/lanes.txt" "$file" && echo "the lane maps are CUTLASS's"
fi
