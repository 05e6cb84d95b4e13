#!/usr/bin/env bash
# configs/study-demo.ini, whose driver is killed 20 times at random and started again: at the end there are the same points,
# none twice, and nothing else is left of what was killed: no rank, no memory, no file.
# usage: study_kill_check.sh MOESAIC [SEED]      five minutes on 2 cores
set -euo pipefail
moesaic=$(realpath "$1")
seed=${2:-$SRANDOM}
RANDOM=$seed
echo "seed $((seed))"
root=$(realpath "$(dirname "$0")/../..")
folder=$(mktemp -d)
mark=STUDY_KILL_CHECK=$$.$seed
trap 'stop_all; rm -rf "$folder"' EXIT

# Processes that a driver has started, and theirs.
marked() { grep -lsaF "$mark" /proc/[0-9]*/environ | cut -d/ -f3 || true; }
stop_all() {
  local process
  for process in $(marked); do kill -KILL "$process" 2>/dev/null || true; done
}
fail() {
  echo "$*" >&2
  exit 1
}
await_end() {
  local i
  for ((i = 0; i < 600; ++i)); do
    [[ -z $(marked) ]] && return
    sleep 0.1
  done
  ps -o pid,args -p "$(marked | paste -sd,)" >&2 || true
  fail "$1: these are there a minute later"
}
# Of /dev/shm, what is new and no process has open.
left_memory() {
  local file
  comm -13 "$folder/memory" <(find /dev/shm -mindepth 1 | sort) | while read -r file; do
    grep -qsF "$file" /proc/[0-9]*/maps || echo "$file"
  done
}

find /dev/shm -mindepth 1 | sort >"$folder/memory"
cd "$folder"  # the study names its files from here
ln -s "$root/tests" "$root/configs" .
study=configs/study-demo.ini
out="study-demo"
points=$("$moesaic" study points "$study")
for ((i = 1; i <= 20; ++i)); do
  env "$mark" setsid "$moesaic" study run "$study" --log-level warning 2>log &
  driver=$!
  sleep "$(printf '%d.%03d' $((RANDOM % 12)) $((RANDOM % 1000)))"
  kill -KILL -- "-$driver" 2>/dev/null || true  # not there: it has begun no group yet, or all is done
  kill -KILL "$driver" 2>/dev/null || true
  { wait "$driver" || true; } 2>/dev/null
  await_end "kill $i"
  echo "kill $i: $(find $out/points -name '*.json' 2>/dev/null | wc -l) of $points points"
done
env "$mark" "$moesaic" study run "$study" --log-level warning
await_end "the end"

lines=$(wc -l <$out/study.jsonl)
ids=$(grep -oE '^\{"point": *"[^"]*"' $out/study.jsonl | sort -u | wc -l)
[[ $lines == "$points" && $ids == "$points" ]] || fail "$lines lines of $ids points, not $points"
grep -q '"status": *"failed"' $out/study.jsonl && fail "points failed: $(grep -m1 '"failed"' $out/study.jsonl)"
[[ $(find $out/points -type f | wc -l) == "$points" ]] || fail "not $points files: $(ls $out/points)"
others=$(find $out -type f ! -path '*/points/*.json' ! -name 'study.jsonl' ! -name 'study.jsonl.lock')
[[ -z $others ]] || fail "temporary files: $others"
memory=$(left_memory)
[[ -z $memory ]] || fail "left in /dev/shm: $memory"
echo "$points points, each once"
