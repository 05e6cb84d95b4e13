#!/usr/bin/env bash
# What is to be done on a machine with a GPU: the bytes of every kernel, of graphs, and of rows that NCCL moves
# between its GPUs, against what software says; the same under compute-sanitizer; how fast they are. Models are not
# among it: for these, moesaic score --logits-out with and without --gpu-experts (docs/gpu.md).
# usage: tests/gpu/run.sh [check|sanitize|bench] [--driver LIBRARY] [--nccl LIBRARY] [--cutlass LIBRARY] [--report PREFIX]
#        tests/gpu/run.sh --pack FILE [--program GPU_CHECK]
#   check (default), sanitize, bench   build what is needed, if it is not there, and run it on GPU 0; PREFIX.json
#                and PREFIX.md (default: gpu-report) say what was found; sanitize wants compute-sanitizer
#   --pack FILE  writes an archive (.tar.gz) of a program that needs glibc and the driver alone; there:
#                tar xzf FILE && ./gpu-check/run.sh [check|sanitize|bench]
# Exit codes: 0 all is as it should be; 1 something differs, or a sanitizer found something; 2 what was asked for
# cannot be understood, or there is no compute-sanitizer; 4 no GPU, or an error of one.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
part=check pack="" program="" options=()
while (($# > 0)); do
  case $1 in
    check|sanitize|bench) part=$1 ;;
    --driver|--nccl|--cutlass|--report) options+=("$1" "${2:?$1 needs a value}"); shift ;;
    --pack) pack=${2:?--pack needs a file}; shift ;;
    --program) program=${2:?--program needs a path}; shift ;;
    *) sed -n '5,6p' "$0" >&2; exit 2 ;;
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

case $part in
  check|bench) exec "$program" "$part" "${options[@]}" ;;
  sanitize)
    command -v compute-sanitizer >/dev/null || { echo "compute-sanitizer is not installed" >&2; exit 2; }
    for tool in memcheck racecheck synccheck initcheck; do
      echo "== $tool"
      compute-sanitizer --tool "$tool" --error-exitcode 1 "$program" check "${options[@]}"
    done ;;
esac
