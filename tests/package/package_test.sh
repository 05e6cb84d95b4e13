#!/usr/bin/env bash
# Installs the build into a temporary prefix and builds a program of somebody else against it, with
# nothing of the source tree: the program says what `moesaic generate` says, and every installed
# header stands alone.
# usage: package_test.sh BUILD_DIR MODEL_DIR
set -euo pipefail
build=$1 model=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/prefix" >/dev/null
"$work/prefix/bin/moesaic" --version
cp -r "$here/example" "$work/example"
cmake -S "$work/example" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build "$work/build" >/dev/null
text="In the beginning"
"$work/build/count_tokens" "$model" "$text" | tee "$work/out"
"$work/prefix/bin/moesaic" generate -m "$model" -p "$text" -n 8 --temp 0 --numerics portable 2>/dev/null >"$work/generated"
grep -qF "tokens, continued: $(sed "1s/^$text//" "$work/generated" | head -1)" "$work/out"
if "$work/build/count_tokens" "$work" "$text" 2>"$work/err"; then exit 1; fi
grep -q "not a checkpoint" "$work/err"

headers=0
while read -r header; do
  headers=$((headers + 1))
  echo "#include \"$header\"" >"$work/header.cpp"
  "${CXX:-c++}" -std=c++20 -Wall -Wextra -Werror -fsyntax-only -I "$work/prefix/include/moesaic" "$work/header.cpp"
done < <(cd "$work/prefix/include/moesaic" && find . -name '*.h')
echo "$headers public headers"
((headers > 0 && headers < 20))
