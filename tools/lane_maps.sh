#!/usr/bin/env bash
# Compares the lane maps and the places of scales that tests use (tests/data/gpu/mma_lanes.txt, nvfp4_lanes.txt,
# scale_places.txt) with those of CUTLASS (tools/cutlass.sh). Host code alone: no CUDA compiler and no GPU are needed.
# usage: tools/lane_maps.sh [--write]     --write: makes the files
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
data=$here/../tests/data/gpu
cutlass=$here/../build/cutlass
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

"$here/cutlass.sh"
g++ -std=c++17 -w -I "$cutlass/include" -I "$cutlass/cuda" -I "$cutlass/cccl" "$here/lane_maps.cpp" -o "$dir/lane_maps"
compare() {  # what, file
  "$dir/lane_maps" "$1" >"$dir/lanes.txt"
  if [[ $write == --write ]]; then
    cp "$dir/lanes.txt" "$data/$2"
  else
    cmp "$dir/lanes.txt" "$data/$2"
  fi
}
write=${1:-}
compare bf16 mma_lanes.txt
compare nvfp4 nvfp4_lanes.txt
compare scales scale_places.txt
[[ $write == --write ]] || echo "the lane maps are CUTLASS's"
