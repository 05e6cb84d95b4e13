#!/usr/bin/env bash
# The floors check must find a breach of each kind in a small tree, and accept the tree without them.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree"/{comm,kernels,launch/job,launch/verbs,base,src/moe}
echo '#include "base/error.h"' >"$tree/src/moe/good.cpp"
: >"$tree/comm/empty.h"

expect() {  # the line to add to a file, the file, a part of the message
  echo "$1" >"$tree/$2"
  if output=$("$here/check_floors.sh" "$tree"); then
    echo "not found: $1 in $2"
    exit 1
  fi
  grep -qF "$3" <<<"$output" || { echo "unexpected message for $1 in $2: $output"; exit 1; }
  rm "$tree/$2"
}
"$here/check_floors.sh" "$tree"
expect '#include "src/moe/router.h"' base/up.h "base must not include src/moe"
expect '#include "launch/verbs/plan.h"' launch/job/up.h "launch/job must not include launch/verbs"
expect '#include "launch/main.h"' launch/verbs/up.h "launch/verbs must not include launch"
expect '#include "comm/communicator.h"' kernels/sideways.h "kernels must not include comm"
expect '#include "router.h"' src/moe/relative.h "is not a path from the root"
expect '#include <mpi.h>' src/moe/mpi.cpp "<mpi.h> may only be included by"
expect '#include <immintrin.h>' src/moe/simd.cpp "may only be included by"
"$here/check_floors.sh" "$tree"
