#!/usr/bin/env bash
# Installs the build into a temporary prefix and builds a program of somebody else against it.
# usage: package_test.sh BUILD_DIR MODEL_DIR
set -euo pipefail
build=$1 model=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/prefix" >/dev/null
"$work/prefix/bin/moesaic" --version
cmake -S "$here/example" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build "$work/build" >/dev/null
"$work/build/count_tokens" "$model" "In the beginning" | tee "$work/out"
grep -q 'tokens, continued: .' "$work/out"
