#!/usr/bin/env bash
# What the loops of tensor-core kernels cost in machine code, as NVIDIA's disassembler shows it: W4A16 on sm_90a and W4A4 on
# sm_120a. With 1 to 8 rows at most 37 instructions an mma of W4A16 (256 weights) and 40 of W4A4 (1,024). With 128 rows at most 5
# of W4A4, those that do nothing (it has one after most mma) counted too, and 6.5 of W4A16, where a warp has 64 of the rows: kernels
# with 128 had at most 5, and half the speed on an H200.
# usage: machine_code_test.sh NVDISASM FOLDER     FOLDER: with mma/nvfp4.sm_90a.cubin, and perhaps
#                                                 block_scaled/nvfp4.sm_120a.cubin
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failed=0

loops() {  # a line for each loop of a disassembly that has mma: the kernel, its instructions, its mma
  awk '
    /^\.text\./ { kernel = $1; gsub(/^\.text\.|:.*/, "", kernel); split("", at); split("", before); code = mma = 0 }
    /^\.L_x_[0-9]+:/ { label = $1; sub(/:.*/, "", label); at[label] = code; before[label] = mma }
    /^ +\/\*[0-9a-f]+\*\// {
      ++code
      if (/[HO]MMA/) ++mma
      if (match($0, /`\(\.L_x_[0-9]+\)/)) {
        label = substr($0, RSTART + 2, RLENGTH - 3)
        if (label in at && mma > before[label]) print kernel, code - at[label], mma - before[label]
      }
    }' "$1"
}
limit() {  # module, kernel, most instructions an mma in its tightest loop
  local least
  least=$(awk -v kernel="$2" '$1 == kernel {print $2 / $3}' "$dir/loops" | sort -g | head -1)
  echo "$1 $2: ${least:-no loop} instructions an mma"
  [[ -n $least ]] && awk -v a="$least" -v b="$3" 'BEGIN {exit !(a <= b)}' || failed=1
}
check() {  # disassembler, cubin, most instructions an mma with 8 and with 128 rows
  "$1" -c "$2" >"$dir/code"
  loops "$dir/code" >"$dir/loops"
  local name
  name=$(basename "$(dirname "$2")")/$(basename "$2" .cubin)
  for product in gate_up down; do
    limit "$name" ${product}_8 "$3"
    limit "$name" ${product}_128 "$4"
  done
  if grep -qE '\b(LDL|STL)\b' "$dir/code"; then
    echo "$name: registers are spilled"
    failed=1
  fi
}

check "$1" "$2/mma/nvfp4.sm_90a.cubin" 37 6.5
if [[ -e $2/block_scaled/nvfp4.sm_120a.cubin ]]; then check "$1" "$2/block_scaled/nvfp4.sm_120a.cubin" 40 5; fi
exit $failed
