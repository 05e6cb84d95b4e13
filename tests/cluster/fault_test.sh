#!/usr/bin/env bash
# Faults on three hosts with a rank each, and on one with three: a rank is stopped, computes for ever or is killed, a host
# is cut off, while the model is loaded, in prompts and while texts are generated. The rank is named, the others say where
# they are, everything ends, nothing of ours is left, and each rank leaves a trace.
# Runs where `hosts.sh with 3` has made hosts. A wait ends when something has happened; no limit depends on speed.
# TEST_FAULTS=all: each fault in each place; =timed: and all ends within 5 s of the deadline, on a machine that has
# nothing else to do.
# usage: fault_test.sh MOESAIC DATA_DIR [ENDLESS_LOOP SLOW_READS]    libraries to preload; else without these faults
set -euo pipefail
moesaic=$1 data=$2 endless_loop=${3:-} slow_reads=${4:-}
hosts=$(dirname "$(readlink -f "$0")")/hosts.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
readonly patience=120  # s: far more than anything takes
readonly timeout=4     # s: of the ranks
for ((line = 0; line < 4000; ++line)); do  # more than is ever done
  echo "In the beginning of" >&3
  echo '{"text": "In the beginning of all"}' >&4
done 3>"$work/lines" 4>"$work/texts"
printf '%s\n' "$work/lines" "$work/texts" >"$work/names"

until_true() {  # COMMAND...
  local end=$((SECONDS + patience))
  until "$@"; do
    ((SECONDS < end)) || return 1
    sleep 0.2
  done
}
# The ranks, and what has started them: whatever was told to read the lines.
processes() { grep -lzxFsf "$work/names" /proc/[0-9]*/cmdline | cut -d/ -f3; }
process_of() {  # RANK
  local process
  for process in $(processes); do
    if grep -qzsx "OMPI_COMM_WORLD_RANK=$1" "/proc/$process/environ"; then echo "$process"; fi
  done
}
all_gone() { [[ -z $(processes) ]]; }
has_ended() { ! kill -0 "$job" 2>/dev/null; }
is_there_or_over() {
  if has_ended; then return; fi
  if [[ $place == loading ]]; then
    grep -qs '"what": "done".*"phase": "loading"' "$work/trace/rank-1.jsonl"
  else
    (($(wc -l <"$work/out") > 3))
  fi
}
milliseconds() { echo $((${EPOCHREALTIME/[.,]/} / 1000)); }

# shellcheck source=tests/cluster/checks.sh
source "$(dirname "$0")/checks.sh"
says() { grep -qE -- "$1" "$work/err"; }
is_silent_about() { ! says "$1"; }

start() {  # LAYOUT PLACE: starts a job, which is in PLACE when this returns
  local task=(generate -f "$work/lines" -n 64 --ignore-eos) slow=
  place=$2
  if [[ $place == prompt ]]; then task=(score -f "$work/texts"); fi
  if [[ $place == loading ]]; then slow=$slow_reads; fi  # of rank 1, for which the others wait
  rm -rf "$work/trace"
  : >"$work/out"
  # shellcheck disable=SC2016
  FAULTS=$endless_loop:$slow MOESAIC_READ_MS=100 "$hosts" run tcp "$1" -x FAULTS -x MOESAIC_READ_MS \
    sh -c 'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then export LD_PRELOAD="$FAULTS"; fi; exec "$@"' sh \
    "$moesaic" "${task[@]}" -m "$data/demo-model" --json -t 1 --timeout "$timeout" --trace-dir "$work/trace" \
    >"$work/out" 2>"$work/err" &
  job=$!
  until_true is_there_or_over && ! has_ended
}
has_no_files() {  # in the shared memory of the hosts
  local host
  for host in node1 node2 node3; do [[ -z $("$hosts" on "$host" ls -A /dev/shm) ]] || return; done
}
finish() {  # WHAT: the job and all its processes end; sets code and took
  local begin
  begin=$(milliseconds)
  until_true has_ended || { echo "$1: FAILED: the job does not end"; cat "$work/err"; exit 1; }
  took=$(($(milliseconds) - begin))
  code=0
  wait "$job" || code=$?
  check "$1: no process is left, after $took ms" until_true all_gone
  check "$1: no file is left" has_no_files
}
has_traces() {  # each of them of exchanges that were done
  local rank
  for rank in 0 1 2; do grep -q '"what": "done"' "$work/trace/rank-$rank.jsonl" || return 1; done
}

keep_alive() {
  export OMPI_MCA_oob_tcp_keepalive_time=3 OMPI_MCA_oob_tcp_keepalive_intvl=1 OMPI_MCA_oob_tcp_keepalive_probes=3
}

silence() {  # LAYOUT PLACE stopped|looping: rank 1 says nothing any more
  local what="$3 in $2 on $1" host=node2 signal=STOP where='pass [0-9]+, '
  [[ $1 == 3x1 ]] || host=node1
  [[ $3 == stopped ]] || signal=USR2
  [[ $2 != loading ]] || where='loading: '
  if [[ $signal == USR2 && -z $endless_loop ]] || [[ $2 == loading && -z $slow_reads ]]; then return; fi
  check "$what: the job starts" start "$1" "$2"
  kill -"$signal" "$(process_of 1)"
  finish "$what"
  check "$what: the code" test "$code" = 5
  check "$what: the rank is named" says "error: all wait for rank 1 \($host\), silent"
  check "$what: the others say where they are" says "^  rank [02] \(node[13]\): $where.*waiting for"
  check "$what: no warning" is_silent_about 'mpirun waits for ever'
  check "$what: traces" has_traces
  if [[ ${TEST_FAULTS:-} == timed ]]; then check "$what: in time" test "$took" -le $((1000 * (timeout + 5))); fi
}

check "killed: the job starts" start 3x1 generation
kill -KILL "$(process_of 1)"
finish killed
check "killed: the code is the rank's, or 5" test "$code" = 137 -o "$code" = 5
check "killed: the others name the rank and its host" says '\[rank [02]/3 node[13]\] error: rank 1 \(node2\) has ended'
check "killed: without keepalives there is a warning" says 'mpirun waits for ever .*OMPI_MCA_oob_tcp_keepalive_probes=3'
check "killed: traces" has_traces

keep_alive
if [[ -n ${TEST_FAULTS:-} ]]; then
  for layout in 3x1 1x3; do
    for place in loading prompt generation; do
      for fault in stopped looping; do silence "$layout" "$place" "$fault"; done
    done
  done
else  # tests/launch has those in prompts and generation on one host
  silence 3x1 generation stopped
  silence 3x1 prompt looping
  silence 3x1 loading stopped
  silence 1x3 loading looping
fi

check "cut: the job starts" start 3x1 generation
"$hosts" cut node3
finish cut
"$hosts" join node3
check "cut: the code" test "$code" != 0
check "cut: rank or host are named" says 'all wait for rank 2 \(node3\)|node3'
check "cut: traces" has_traces
exit $((failures > 0))
