#!/usr/bin/env bash
# What the loops of tensor-core kernels cost in the code for sm_90a, as NVIDIA's disassembler shows it: with 1 to 8 rows
# at most 40 instructions an mma (256 weights), with 128 rows at least 20 % of the loop is mma.
# usage: machine_code_test.sh NVDISASM FOLDER     FOLDER: with mma/nvfp4.sm_90a.cubin
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

"$1" -c "$2/mma/nvfp4.sm_90a.cubin" >"$dir/code"
# A line for each loop that has mma: the kernel, its instructions, its mma.
awk '
  /^\.text\./ { kernel = $1; gsub(/^\.text\.|:.*/, "", kernel); split("", at); split("", before); code = mma = 0 }
  /^\.L_x_[0-9]+:/ { label = $1; sub(/:.*/, "", label); at[label] = code; before[label] = mma }
  /^ +\/\*[0-9a-f]+\*\// {
    ++code
    if (/HMMA/) ++mma
    if (match($0, /`\(\.L_x_[0-9]+\)/)) {
      label = substr($0, RSTART + 2, RLENGTH - 3)
      if (label in at && mma > before[label]) print kernel, code - at[label], mma - before[label]
    }
  }' "$dir/code" >"$dir/loops"

failed=0
limit() {  # kernel, most instructions an mma in its tightest loop
  local least
  least=$(awk -v kernel="$1" '$1 == kernel {print $2 / $3}' "$dir/loops" | sort -g | head -1)
  echo "$1: ${least:-no loop} instructions an mma"
  [[ -n $least ]] && awk -v a="$least" -v b="$2" 'BEGIN {exit !(a <= b)}' || failed=1
}
limit gate_up_8 40
limit down_8 40
limit gate_up_128 5
limit down_128 5
if grep -qE '\b(LDL|STL)\b' "$dir/code"; then
  echo "registers are spilled"
  failed=1
fi
exit $failed
