#!/usr/bin/env bash
# Compares the lane maps that tests use (tests/data/gpu/mma_lanes.txt, nvfp4_lanes.txt) with those of CUTLASS, whose
# headers come from PyPI (10 MB). Host code alone: no CUDA compiler and no GPU are needed.
# usage: tools/lane_maps.sh [--write]     --write: makes the files
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
data=$here/../tests/data/gpu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install --quiet --no-deps --no-cache-dir --require-hashes -r "$here/cutlass-requirements.txt"
packages=$(echo "$dir"/venv/lib/python3*/site-packages)
g++ -std=c++17 -w -I "$packages/cutlass_library/source/include" -I "$packages/nvidia/cu13/include" \
  -I "$packages/nvidia/cu13/include/cccl" "$here/lane_maps.cpp" -o "$dir/lane_maps"
for kind in bf16 nvfp4; do
  "$dir/lane_maps" "$kind" >"$dir/lanes.txt"
  file=$data/nvfp4_lanes.txt
  if [[ $kind == bf16 ]]; then file=$data/mma_lanes.txt; fi
  if [[ ${1:-} == --write ]]; then
    cp "$dir/lanes.txt" "$file"
  else
    cmp "$dir/lanes.txt" "$file"
  fi
done
[[ ${1:-} == --write ]] || echo "the lane maps are CUTLASS's"
