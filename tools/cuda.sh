#!/usr/bin/env bash
# Makes sure of a CUDA 13 compiler for the kernels of GPUs (105 MB from PyPI, 260 MB on disk; no GPU and no
# driver are needed). Does nothing where DIR has one or one is installed; says so and ends well where there
# is no network: Moesaic is then built without GPU parts.
# usage: tools/cuda.sh [DIR]     DIR: build/cuda of the sources, where CMake looks for it
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=${1:-$here/../build/cuda}

is_cuda13() { [[ -x $1 ]] && "$1" --version | grep -q 'release 13\.'; }
for nvcc in "$dir/toolkit/bin/nvcc" /usr/local/cuda/bin/nvcc "$(command -v nvcc || true)"; do
  if [[ -n $nvcc ]] && is_cuda13 "$nvcc"; then exit 0; fi
done

fail() { echo "GPU parts not built: $1" >&2; exit 0; }
rm -rf "$dir"
mkdir -p "$dir"
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
