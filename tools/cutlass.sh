#!/usr/bin/env bash
# Makes sure of CUTLASS's headers (10 MB from PyPI), of which tools/cuda.sh's compiler makes libmoesaic_cutlass.so
# (docs/gpu.md). Does nothing where DIR has them.
# usage: tools/cutlass.sh [DIR]     DIR: build/cutlass of the sources, where CMake looks for it
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=${1:-$here/../build/cutlass}

wanted=$(sha256sum <"$here/cutlass-requirements.txt")
if [[ -f $dir/include/cutlass/cutlass.h && $(cat "$dir/requirements" 2>/dev/null) == "$wanted" ]]; then exit 0; fi
fail() { echo "no CUTLASS: $1" >&2; exit 1; }
mkdir -p "$dir"
for name in cccl cuda include; do # nothing but our own links is replaced
  [[ -L $dir/$name || ! -e $dir/$name ]] || fail "$dir/$name is there, and is not a link of an earlier run"
done
rm -rf "$dir/venv"
log=$dir/install.log
echo "Installing CUTLASS's headers in $dir" >&2
python3 -m venv "$dir/venv" >"$log" 2>&1 || fail "python3 -m venv does not work ($log)"
"$dir/venv/bin/pip" install --no-deps --no-cache-dir --require-hashes -r "$here/cutlass-requirements.txt" \
  >>"$log" 2>&1 || fail "its headers could not be had from PyPI ($log)"
packages=$(cd "$(echo "$dir"/venv/lib/python3*/site-packages)" && pwd)
ln -sfn "$packages/nvidia/cu13/include/cccl" "$dir/cccl"
ln -sfn "$packages/nvidia/cu13/include" "$dir/cuda"
ln -sfn "$packages/cutlass_library/source/include" "$dir/include"
[[ -f $dir/include/cutlass/cutlass.h ]] || fail "what was installed is none ($log)"
echo "$wanted" >"$dir/requirements"
