#!/usr/bin/env bash
# The code of libmoesaic_cutlass.so: for each chip there are products of the fifth generation of tensor cores with
# scales of 16 k (a source that takes a chip for another one compiles too, to nothing), nothing is spilled, and no sum
# of floats is atomic. Of the machine code where there is NVIDIA's disassembler.
# usage: cutlass_code_test.sh FOLDER [NVDISASM]     FOLDER: what nvcc -keep left there
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

failed=0
fail() {
  echo "$1"
  failed=1
}
for chip in 100a 103a; do
  ptx=$(find "$1" -name "*${chip}*.ptx")
  products=$(grep -cE 'tcgen05\.mma\..*kind::mxf4nvf4\.block_scale' "$ptx" || true)
  echo "sm_$chip: $products products in PTX"
  ((products > 0)) || fail "none"
  if grep -E '(red|atom)\.[a-z.:]*(add|min|max)[a-z.]*\.(f16|bf16|f32|f64)' "$ptx"; then fail "sums are atomic"; fi
  [[ -n ${2:-} ]] || continue
  "$2" -c "$(find "$1" -name "*${chip}*.cubin" ! -name '*dlink*')" >"$dir/code"
  products=$(grep -c UTCOMMA "$dir/code" || true)
  echo "sm_$chip: $products products in machine code"
  ((products > 0)) || fail "none"
  if grep -E '\b(LDL|STL)\b' "$dir/code"; then fail "registers are spilled"; fi
done
exit $failed
