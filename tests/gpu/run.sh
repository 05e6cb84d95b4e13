#!/usr/bin/env bash
# What is to be done on a machine with a GPU: the bytes of every kernel, of graphs, and of rows that NCCL moves
# between its GPUs, against what software says; the same under compute-sanitizer; how fast they are. Models are not
# among it: for these, moesaic score --logits-out with and without --gpu-experts (docs/gpu.md).
# usage: tests/gpu/run.sh [check|sanitize|bench] [--only TEXT] [--driver LIBRARY] [--nccl LIBRARY] [--cutlass LIBRARY]
#                         [--tool TOOL] [--report PREFIX]
#        tests/gpu/run.sh --pack FILE [--program GPU_CHECK]
#   check (default), sanitize, bench   build what is needed, if it is not there, and run it on GPU 0; PREFIX.json
#                and PREFIX.md (default: gpu-report) say what was found
#   sanitize     is check under compute-sanitizer, once for each of its tools or for TOOL (memcheck, racecheck,
#                synccheck, initcheck), which leaves PREFIX-TOOL.log, and PREFIX-TOOL.json and .md of the check
#   --only TEXT  only kernels of experts with TEXT in their name, as reports have it: mma/nvfp4
#   --pack FILE  writes an archive (.tar.gz) of a program that needs glibc and the driver alone; there:
#                tar xzf FILE && ./gpu-check/run.sh [check|sanitize|bench]
# Exit codes: 0 all is as it should be; 1 something differs, or a sanitizer found something; 2 what was asked for
# cannot be understood, or there is no compute-sanitizer; 4 no GPU, or an error of one.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
part=check pack="" program="" report=gpu-report options=() tools=(memcheck racecheck synccheck initcheck)
while (($# > 0)); do
  case $1 in
    check|sanitize|bench) part=$1 ;;
    --only|--driver|--nccl|--cutlass) options+=("$1" "${2:?$1 needs a value}"); shift ;;
    --report) report=${2:?--report needs a prefix}; shift ;;
    --tool) tools=("${2:?--tool needs a name}"); shift ;;
    --pack) pack=${2:?--pack needs a file}; shift ;;
    --program) program=${2:?--program needs a path}; shift ;;
    *) sed -n '5,7p' "$0" >&2; exit 2 ;;
  esac
  shift
done

# Unpacked, the program is beside this script; in the repository it is built.
if [[ -z $program && -x $here/gpu_check ]]; then program=$here/gpu_check; fi
if [[ -z $program ]]; then
  root=$here/../..
  "$root/tools/cuda.sh"
  mkdir -p "$root/build"
  (cd "$root" && cmake --preset dev >build/configure.log && cmake --build --preset dev --target gpu_check -- --quiet)
  program=$root/build/dev/bin/gpu_check
fi

if [[ -n $pack ]]; then
  dir=$(mktemp -d)
  trap 'rm -rf "$dir"' EXIT
  mkdir -p "$dir/gpu-check/lib"
  cp "$program" "$here/run.sh" "$dir/gpu-check/"
  strip "$dir/gpu-check/gpu_check"
  # What is not of glibc goes along.
  ldd "$program" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' |
    grep -vE '/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*)\.so' |
    while read -r library; do cp -L "$library" "$dir/gpu-check/lib/"; done
  tar czf "$pack" -C "$dir" gpu-check
  exit 0
fi

# Every tool to its end, whatever those before it found.
sanitize() {
  local tool code summary result=0 objects="" rows=""
  for tool in "${tools[@]}"; do
    echo "== $tool"
    code=0
    compute-sanitizer --tool "$tool" --log-file "$report-$tool.log" --error-exitcode 10 \
      "$program" check "${options[@]}" --report "$report-$tool" || code=$?
    # 10: the tool found something; 1: results differ; others: as the program's.
    case $code in 0|1|10) ;; *) cat "$report-$tool.log" >&2; exit "$code" ;; esac
    ((code == 0)) || result=1
    summary=$(sed -n 's/^=*  *\(.* SUMMARY: .*\)/\1/p' "$report-$tool.log" | tail -n 1)
    echo "${summary:=no summary}"
    objects+=${objects:+$',\n'}$(printf '{"tool": "%s", "code": %d, "summary": "%s", "log": "%s"}' \
      "$tool" "$code" "$summary" "$(basename "$report-$tool.log")")
    rows+=$(printf '| %s | %d | %s |' "$tool" "$code" "$summary")$'\n'
  done
  printf '{"part": "sanitize", "findings": %d, "tools": [\n%s\n]}\n' "$result" "$objects" >"$report.json"
  printf '# compute-sanitizer\n\n%s\n\n| tool | code | summary |\n|---|---|---|\n%s' \
    "$(compute-sanitizer --version | tail -n 1)" "$rows" >"$report.md"
  return "$result"
}

case $part in
  check|bench) exec "$program" "$part" "${options[@]}" --report "$report" ;;
  sanitize)
    command -v compute-sanitizer >/dev/null || { echo "compute-sanitizer is not installed" >&2; exit 2; }
    sanitize ;;
esac
