#!/usr/bin/env bash
# Reads every #include of the project against the floors (docs/architecture.md): a file includes its own
# folder or a lower floor, never a higher one or a sibling, and foreign headers stay where they belong.
# usage: check_floors.sh [ROOT]     prints one line a breach and exits 1, or exits 0
set -euo pipefail
cd "${1:-$(dirname "$0")/../..}"

grep -RnE '^ *# *include' --include='*.h' --include='*.cpp' --include='*.cu' \
  --include='*.cuh' base src comm kernels launch | awk '
BEGIN {
  # From the ground up; folders on one line are siblings.
  floors("base")
  floors("kernels comm")
  floors("src/parallel")
  floors("src/checkpoint src/tokenizer")
  floors("src/lora src/jinja")
  floors("src/chat")
  floors("src/moe")
  floors("src/model")
  floors("src/train src/generate")
  floors("src/serve")
  floors("launch/options")
  floors("launch/job launch/plot")
  floors("launch/input launch/results launch/shapes")
  floors("launch/chat launch/sft launch/serve")
  floors("launch/plan launch/bench")
  floors("launch/study")
  floors("launch/verbs")
  floors("launch")

  # A foreign header, and the files that may include it.
  confine("^mpi[.]h$", "^comm/(mpi_|shared_memory_)|^launch/job/runtime[.]cpp$")
  confine("^(imm|x86|emm|avx).*intrin[.]h$", "^kernels/cpu/")
  confine("^nlohmann/", "^base/json[.]cpp$")
  confine("^boost/program_options", "^launch/options/")
  confine("^boost/(asio|beast)", "^src/serve/http_")
  confine("^hwloc[.]h$", "^base/topology[.]cpp$")
  confine("^nccl[.]h$", "^comm/nccl_")
  confine("^cuda", "[.]cuh?$|^base/cuda_")
  confine("^(cutlass|cute)/", "^kernels/cuda/cutlass/")
  confine("^pcre2[.]h$", "^src/tokenizer/")
  confine("^utf8proc[.]h$", "^src/(tokenizer|jinja)/")
  confine("^Eigen/", "^launch/study/nonnegative_fit[.]cpp$")
  confine("^histedit[.]h$", "^launch/chat/edited_lines[.]cpp$")
  confine("^xxhash[.]h$", "^base/checksum[.]cpp$")
}
function floors(folders,   names, n, i) {
  ++height
  n = split(folders, names, " ")
  for (i = 1; i <= n; ++i) level[names[i]] = height
}
function confine(header, files) {
  confined[++rules] = header
  allowed[rules] = files
}
# The folder of a path that is a floor, or nothing.
function floor_of(path,   parts, n) {
  n = split(path, parts, "/")
  if (n < 2) return ""
  return n > 2 && (parts[1] == "src" || parts[1] == "launch") ? parts[1] "/" parts[2] : parts[1]
}
function breach(text) {
  print text
  ++breaches
}
{
  split($0, at, ":")
  file = at[1]
  where = file ":" at[2]
  if (!match($0, /[<"][^>"]+[>"]/)) next  # a macro
  quoted = substr($0, RSTART, 1) == "\""
  header = substr($0, RSTART + 1, RLENGTH - 2)
  for (rule = 1; rule <= rules; ++rule) {
    if (header ~ confined[rule] && file !~ allowed[rule]) {
      breach(where ": <" header "> may only be included by files that match " allowed[rule])
    }
  }
  if (!quoted) next
  from = floor_of(file)
  to = floor_of(header)
  if (!(to in level)) {
    breach(where ": \"" header "\" is not a path from the root to a floor")
  } else if (from != to && level[to] >= level[from]) {
    breach(where ": " from " must not include " to)
  }
}
END {
  if (breaches > 0) {
    print breaches " breaches of the floors"
    exit 1
  }
}'
