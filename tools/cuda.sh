#!/usr/bin/env bash
# Makes sure of a CUDA 13 compiler for the kernels of GPUs (105 MB from PyPI, 260 MB on disk; no GPU and no
# driver are needed). Does nothing where DIR has one or one is installed, but for NVIDIA's disassembler (5 MB), which a
# test of machine code wants, where that is missing; says so and ends well where there is no network: Moesaic is then
# built without GPU parts.
# usage: tools/cuda.sh [DIR]     DIR: build/cuda of the sources, where CMake looks for it
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=${1:-$here/../build/cuda}

is_cuda13() { [[ -x $1 ]] && "$1" --version | grep -q 'release 13\.'; }
for nvcc in "$dir/toolkit/bin/nvcc" /usr/local/cuda/bin/nvcc "$(command -v nvcc || true)"; do
  [[ -n $nvcc ]] && is_cuda13 "$nvcc" || continue
  for nvdisasm in "$(dirname "$nvcc")/nvdisasm" "$dir/disassembler/bin/nvdisasm" "$(command -v nvdisasm || true)"; do
    if [[ -n $nvdisasm && -x $nvdisasm ]]; then exit 0; fi
  done
  echo "Installing NVIDIA's disassembler in $dir" >&2
  mkdir -p "$dir/disassembler"
  grep -A1 '^nvidia-cuda-nvdisasm==' "$here/cuda-requirements.txt" >"$dir/disassembler/requirements.txt"
  if python3 -m venv "$dir/disassembler/venv" >"$dir/install.log" 2>&1 &&
    "$dir/disassembler/venv/bin/pip" install --no-deps --no-cache-dir --require-hashes \
      -r "$dir/disassembler/requirements.txt" >>"$dir/install.log" 2>&1; then
    ln -sfn "$(cd "$dir"/disassembler/venv/lib/python3*/site-packages/nvidia/cu13/bin && pwd)" "$dir/disassembler/bin"
  else
    echo "Machine code is not tested: no disassembler could be had from PyPI ($dir/install.log)" >&2
  fi
  exit 0
done

fail() { echo "GPU parts not built: $1" >&2; exit 0; }
mkdir -p "$dir"
rm -rf "$dir/venv"  # of an attempt before; nothing else in DIR is ours to remove
[[ -L $dir/toolkit || ! -e $dir/toolkit ]] || fail "$dir/toolkit is there, and no link to a compiler"
log=$dir/install.log
echo "Installing a CUDA compiler in $dir" >&2
python3 -m venv "$dir/venv" >"$log" 2>&1 || fail "python3 -m venv does not work ($log)"
"$dir/venv/bin/pip" install --no-deps --no-cache-dir --require-hashes -r "$here/cuda-requirements.txt" \
  >>"$log" 2>&1 || fail "no CUDA compiler could be had from PyPI ($log)"
root=$(echo "$dir"/venv/lib/python3*/site-packages/nvidia/cu13)
root=$(cd "$root" && pwd)
ln -sfn lib "$root/lib64"  # nvcc.profile looks there
ln -sfn "$root" "$dir/toolkit"
is_cuda13 "$dir/toolkit/bin/nvcc" || fail "what was installed is no compiler ($log)"
