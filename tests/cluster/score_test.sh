#!/usr/bin/env bash
# Scores a text with the demo model on 2 and 4 hosts, and expects the bytes of one rank: every token's log probability
# and the sums; with --combine fast those of as many ranks on nodes of one machine. Runs where `hosts.sh with 4` has made hosts.
# usage: score_test.sh MOESAIC DATA_DIR
set -euo pipefail
moesaic=$1 data=$2
hosts=$(dirname "$(readlink -f "$0")")/hosts.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
head -c 1500 "$data/demo-heldout.txt" >"$work/text"

score() {  # NAME STARTER...: writes NAME.bytes, and NAME.statistics as "ranks" and "nodes"
  local out=$work/$1
  shift
  rm -f "$out.bytes"  # of other options, it is not gone on with
  "$@" "$moesaic" score -m "$data/demo-model" -f "$work/text" -c 64 --threads 1 --json --logprobs-out "$out.bytes" \
    "${options[@]}" >"$out.json" 2>"$out.err" || { cat "$out.err" >&2; return 1; }
  sed 's/, "statistics".*//' "$out.json" >>"$out.bytes"
  grep -oE '"(ranks|nodes)": [0-9]+' "$out.json" | tr '\n' ' ' >"$out.statistics"
}

failures=0
reference=()
expect_bytes_of_one_rank() {  # WAY/HxR..., with $options; or those of what $reference starts
  local layout way shape nodes
  score one "${reference[@]}"
  for layout in "$@"; do
    way=${layout%/*} shape=${layout#*/} nodes=${layout:4:1}
    if score "$way$shape" "$hosts" run "$way" "$shape" && cmp "$work/one.bytes" "$work/$way$shape.bytes" &&
      [[ $(<"$work/$way$shape.statistics") == "\"ranks\": $((nodes * ${shape#*x})) \"nodes\": $nodes " ]]; then
      echo "$layout ${options[*]}: the same bytes"
    else
      echo "$layout ${options[*]}: FAILED"
      failures=$((failures + 1))
    fi
  done
}

options=()
expect_bytes_of_one_rank {tcp,ucx}/{2x1,2x2,4x1,4x2}
options=(--defer 2)
expect_bytes_of_one_rank {tcp,ucx}/2x1 tcp/4x2
options=(--half-batches on -b 24)
expect_bytes_of_one_rank {tcp,ucx}/2x1 tcp/2x2
options=(--wire bf16)
expect_bytes_of_one_rank tcp/2x1 ucx/2x2
options=(--wire int8)
expect_bytes_of_one_rank tcp/2x2
options=(--defer 4 --placement round_robin)  # all choices of a token
expect_bytes_of_one_rank ucx/2x1 tcp/2x2
options=(--wire int8 --defer 3 --half-batches on)
expect_bytes_of_one_rank tcp/2x2 ucx/4x1
options=(--combine fast)  # depends on the nodes, however these are made
reference=(env MOESAIC_RANKS_PER_NODE=2 mpirun --oversubscribe -n 4)
expect_bytes_of_one_rank {tcp,ucx}/2x2
options=(--combine fast --wire int8 --defer 2 --half-batches on)
expect_bytes_of_one_rank tcp/2x2
exit $((failures > 0))
