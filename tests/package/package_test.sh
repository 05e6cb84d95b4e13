#!/usr/bin/env bash
# Installs the build into a temporary prefix and builds programs of somebody else against it, with
# nothing of the source tree: the programs say what `moesaic generate` says, and every installed
# header stands alone.
# usage: package_test.sh BUILD_DIR MODEL_DIR MPIRUN
set -euo pipefail
build=$1 model=$2 mpirun=$3
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
"$mpirun" -n 2 "$work/build/continue_on_ranks" "$model" "$text" | tee "$work/ranks"
[[ $(cut -d: -f2- "$work/ranks") == "$(cut -d: -f2- "$work/out")" ]]
if "$work/build/count_tokens" "$work" "$text" 2>"$work/err"; then exit 1; fi
grep -q "not a checkpoint" "$work/err"

# The manual page, the completion, and what the README points to.
man_page=$work/prefix/share/man/man1/moesaic.1
grep -q 'expert\\-format' "$man_page"
if command -v man >/dev/null; then LC_ALL=C.UTF-8 man --warnings -l "$man_page" 2>&1 >/dev/null | { ! grep .; }; fi
completion=$work/prefix/share/bash-completion/completions/moesaic
complete_words() { # the words of a command line; prints what the last could become
  bash -c 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _moesaic; echo "${COMPREPLY[@]}"' \
    - "$completion" moesaic "$@"
}
[[ $(complete_words gen) == generate ]]
[[ $(complete_words bench lay) == layer ]]
[[ $(complete_words bench ru) == "" ]]
[[ $(complete_words study ru) == run ]]
[[ $(complete_words study export e) == extrap ]]
[[ $(complete_words study run --ret) == --retry ]]
[[ $(complete_words study run configs/) == "" ]]
[[ $(complete_words generate --expert-f) == --expert-format ]]
[[ $(complete_words bench kernels --precision) == "" ]]
[[ $(complete_words generate --precision f) == fp32 ]]
readme=$(find "$work/prefix/share/doc" -name README.md -maxdepth 2)
grep -oE '\]\([^):#]+' "$readme" | cut -c3- | while read -r link; do
  [[ -e $(dirname "$readme")/$link ]] || { echo "$readme: nothing at $link"; exit 1; }
done

headers=0
while read -r header; do
  headers=$((headers + 1))
  echo "#include \"$header\"" >"$work/header.cpp"
  "${CXX:-c++}" -std=c++20 -Wall -Wextra -Werror -fsyntax-only -I "$work/prefix/include/moesaic" "$work/header.cpp"
done < <(cd "$work/prefix/include/moesaic" && find . -name '*.h')
echo "$headers public headers"
((headers > 0 && headers < 20))
