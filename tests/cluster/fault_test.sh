#!/usr/bin/env bash
# Faults on three hosts with a rank each, while texts are generated: a rank is stopped, a rank is killed, a host is cut
# off. The rank is named, the others say where they are, everything ends, and each rank leaves a trace.
# Runs where `hosts.sh with 3` has made hosts. A wait ends when something has happened; no limit depends on speed.
# usage: fault_test.sh MOESAIC DATA_DIR
set -euo pipefail
moesaic=$1 data=$2
hosts=$(dirname "$(readlink -f "$0")")/hosts.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
readonly patience=120  # s: far more than anything takes
for ((line = 0; line < 4000; ++line)); do echo "In the beginning of"; done >"$work/lines"  # more than is ever done

echo "$work/lines" >"$work/name"

until_true() {  # COMMAND...
  local end=$((SECONDS + patience))
  until "$@"; do
    ((SECONDS < end)) || return 1
    sleep 0.2
  done
}
# The ranks, and what has started them: whatever was told to read the lines.
processes() { grep -lzxFsf "$work/name" /proc/[0-9]*/cmdline | cut -d/ -f3; }
process_of() {  # RANK
  local process
  for process in $(processes); do
    if grep -qzsx "OMPI_COMM_WORLD_RANK=$1" "/proc/$process/environ"; then echo "$process"; fi
  done
}
all_gone() { [[ -z $(processes) ]]; }
has_ended() { ! kill -0 "$job" 2>/dev/null; }
is_at_work_or_over() { has_ended || (($(wc -l <"$work/out") > 3)); }

# shellcheck source=tests/cluster/checks.sh
source "$(dirname "$0")/checks.sh"
says() { grep -qE -- "$1" "$work/err"; }
is_silent_about() { ! says "$1"; }

start() {  # starts a job, which is at work when this returns
  rm -rf "$work/trace"
  : >"$work/out"
  "$hosts" run tcp 3x1 "$moesaic" generate -m "$data/demo-model" -f "$work/lines" -n 64 --ignore-eos --json -t 1 --timeout 4 \
    --trace-dir "$work/trace" >"$work/out" 2>"$work/err" &
  job=$!
  until_true is_at_work_or_over && ! has_ended
}
finish() {  # WHAT: the job and all its processes end; sets code
  until_true has_ended || { echo "$1: FAILED: the job does not end"; cat "$work/err"; exit 1; }
  code=0
  wait "$job" || code=$?
  check "$1: no process is left" until_true all_gone
}
has_traces() {  # each of them of exchanges that were done
  local rank
  for rank in 0 1 2; do grep -q '"what": "done"' "$work/trace/rank-$rank.jsonl" || return 1; done
}

keep_alive() {
  export OMPI_MCA_oob_tcp_keepalive_time=3 OMPI_MCA_oob_tcp_keepalive_intvl=1 OMPI_MCA_oob_tcp_keepalive_probes=3
}

check "killed: the job starts" start
kill -KILL "$(process_of 1)"
finish killed
check "killed: the code is the rank's, or 5" test "$code" = 137 -o "$code" = 5
check "killed: the rank is named" says 'rank 1 .*node2'
check "killed: without keepalives there is a warning" says 'mpirun waits for ever .*OMPI_MCA_oob_tcp_keepalive_probes=3'
check "killed: traces" has_traces

keep_alive
check "stopped: the job starts" start
kill -STOP "$(process_of 1)"
finish stopped
check "stopped: the code" test "$code" = 5
check "stopped: the rank is named" says 'error: all wait for rank 1 \(node2\)'
check "stopped: the others say where they are" says '^  rank [02] \(node[13]\): step [0-9]+, .*waiting for'
check "stopped: no warning" is_silent_about 'mpirun waits for ever'
check "stopped: traces" has_traces

check "cut: the job starts" start
"$hosts" cut node3
finish cut
"$hosts" join node3
check "cut: the code" test "$code" != 0
check "cut: rank or host are named" says 'all wait for rank 2 \(node3\)|node3'
check "cut: traces" has_traces
exit $((failures > 0))
