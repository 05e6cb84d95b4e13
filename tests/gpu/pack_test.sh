#!/usr/bin/env bash
# The archive for a machine with a GPU is small, needs glibc alone, and runs as far as a machine without one lets it.
# usage: pack_test.sh GPU_CHECK
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

"$here/run.sh" --pack "$dir/gpu.tar.gz" --program "$1"
size=$(stat -c %s "$dir/gpu.tar.gz")
((size <= 40 << 20)) || { echo "the archive has $size bytes"; exit 1; }
mkdir "$dir/there"
tar xzf "$dir/gpu.tar.gz" -C "$dir/there"
foreign=$(env -i PATH="$PATH" ldd "$dir/there/gpu-check/gpu_check" | grep -v "$dir/there" |
  grep -vE '(linux-vdso|/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*))\.so' || true)
[[ -z $foreign ]] || { echo "it needs more than glibc: $foreign"; exit 1; }
set +e
said=$(cd "$dir/there" && env -i PATH="$PATH" ./gpu-check/run.sh check --driver /no/libcuda.so.1 2>&1)
code=$?
set -e
[[ $code == 4 && $said == "no GPU: no NVIDIA driver: /no/libcuda.so.1"* ]] || { echo "$code: $said"; exit 1; }
