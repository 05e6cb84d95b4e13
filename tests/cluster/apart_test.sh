#!/usr/bin/env bash
# Two ranks of one host that cannot map each other's memory: each has processes, a /dev/shm and a namespace of its own, as
# in a container of its own. Whatever the transport, they score what one rank scores; where memory is asked for, they say
# why they refuse. Runs where `hosts.sh with 1` has made a host.
# usage: apart_test.sh MOESAIC DATA_DIR
set -euo pipefail
moesaic=$1 data=$2
hosts=$(dirname "$(readlink -f "$0")")/hosts.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
head -c 1500 "$data/demo-heldout.txt" >"$work/text"
export OMPI_MCA_btl=self,tcp  # MPI's own shared memory is not what is tested

apart=(unshare --pid --mount --ipc --fork --kill-child --mount-proc sh -c 'mount -t tmpfs tmpfs /dev/shm && exec "$@"' sh)

score() {  # NAME STARTER... -- OPTION...: writes NAME.bytes, and NAME.statistics
  local out=$work/$1 starter=()
  shift
  while [[ $1 != -- ]]; do starter+=("$1"); shift; done
  shift
  "${starter[@]}" "$moesaic" score -m "$data/demo-model" -f "$work/text" -c 64 --threads 1 --json --logprobs-out "$out.bytes" \
    "$@" >"$out.json" 2>"$out.err" || return
  grep -oE '"(ranks|nodes)": [0-9]+' "$out.json" | tr '\n' ' ' >"$out.statistics"
}

# shellcheck source=tests/cluster/checks.sh
source "$(dirname "$0")/checks.sh"

score one -- || { cat "$work/one.err"; exit 1; }
for transport in auto mpi; do
  check "--transport $transport: they run" score "$transport" "$hosts" run tcp 1x2 "${apart[@]}" -- --transport "$transport"
  check "--transport $transport: the bytes of one rank" cmp "$work/one.bytes" "$work/$transport.bytes"
  check "--transport $transport: each is a node" test "$(<"$work/$transport.statistics")" = '"ranks": 2 "nodes": 2 '
done
code=0
score shm "$hosts" run tcp 1x2 "${apart[@]}" -- --transport shm || code=$?
check "--transport shm: the code" test "$code" = 4
check "--transport shm: the reason" grep -q "error: --transport shm: ranks of one node cannot map each other's memory: shared memory: " "$work/shm.err"
exit $((failures > 0))
