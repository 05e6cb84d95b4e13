#!/usr/bin/env bash
# Which jobs the templates queue again: those that have more to go on from than when they began, and others a few times.
# Scripts play Slurm, the launcher and the program; nothing else is needed.
set -euo pipefail
repository=$(readlink -f "$(dirname "$(readlink -f "$0")")/../../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
# shellcheck source=tests/cluster/checks.sh
source "$repository/tests/cluster/checks.sh"

mkdir bin
bin=$work/bin
play() { # NAME, its lines from the standard input
  { echo '#!/bin/bash' && cat; } >"bin/$1"
  chmod +x "bin/$1"
}
play scontrol <<<'echo "$@" >>"$PLAYED/requeued"'
play sinfo <<<'echo "$NODE_STATE"'
play mpirun <<<'while [[ $1 != */moesaic ]]; do shift; done; exec "$@"'
# What is saved meanwhile, then the signal, and the end.
play moesaic <<'END'
eval "$SAVES"
if [[ $CODE == 6 ]]; then kill -USR1 "$PPID"; fi
sleep 0.5
exit "$CODE"
END

# start NUMBER TEMPLATE WORDS...: as the job's so many-th start, which saves as $saves says; its end is in `ended`. In a
# folder of its own, so that several can go on at the same time.
saves=: ends=6 node=idle ended=0
start() {
  local number=$1 template=$2
  shift 2
  rm -f requeued
  ended=0
  env PATH="$bin:$PATH" PLAYED="$work" SAVES="$saves" CODE="$ends" NODE_STATE="$node" MOESAIC=moesaic \
    MOESAIC_LAUNCHER=mpirun MOESAIC_SLURM="$repository/slurm" SLURM_JOB_NAME=job SLURM_JOB_ID=7 \
    SLURM_JOB_NODELIST=here SLURM_RESTART_COUNT=$((number - 1)) \
    bash "$repository/slurm/$template.sbatch" "$@" >log 2>err || ended=$?
}
is_queued() { start "$@" && [[ $ended == "$ends" && $(cat requeued) == "requeue 7" ]]; }
is_ended() { start "$@" && [[ $ended == "$ends" && ! -e requeued ]] && grep -q "nothing was saved in 3 starts, the last of them start $1:" err; }

in_folder() { # NAME COMMAND...
  work=$work/$1
  mkdir "$work"
  cd "$work"
  "${@:2}"
}

is_queued_while_it_saves() { # TEMPLATE
  local template=$1 words saving
  case $template in
    generate) words=(generate model prompts) saving='echo "{}" >>job-7.jsonl' ;;
    score) words=(score model texts) saving='echo "{}" >>job-7.logprobs.jsonl' ;;
    sft) words=(sft model data adapter) saving='mkdir -p adapter/checkpoint-$RANDOM$$' ;;
    study) words=(study study.ini) saving='mkdir -p "a study/points"; echo "{}" >"a study/points/$RANDOM$$.json"' ;;
  esac
  printf 'ranks = 1\n  out = "a study"  # here\n' >study.ini
  check "$template that saves nothing: start 1" is_queued 1 "${words[@]}"
  check "$template that saves nothing: start 2" is_queued 2 "${words[@]}"
  check "$template that saves nothing: start 3" is_ended 3 "${words[@]}"
  saves=$saving
  check "$template that saves something: start 3" is_queued 3 "${words[@]}"
  check "$template that saves something: start 40" is_queued 40 "${words[@]}"
  saves=:
  check "$template that has saved before: start 41" is_queued 41 "${words[@]}"
  check "$template that has saved before: start 42" is_queued 42 "${words[@]}"
  check "$template that has saved before: start 43" is_ended 43 "${words[@]}"
  check "$template leaves nothing behind" test ! -e .job-7.idle
}
for template in generate score sft study; do beside in_folder "$template" is_queued_while_it_saves "$template"; done

# A file of log-probabilities that the user names is what a job has saved.
saves_in() { # FILE TEMPLATE WORDS...
  saves="echo >>'$1'; echo \"\$*\" >words"
  is_queued 1 "${@:2}" && [[ -e $1 && ! -e .job-7.idle ]] && ! grep -F job-7.logprobs.jsonl words
}
score_saves_where_it_is_told() {
  local words=(score model texts --stride 8)
  check "score --logprobs-out FILE" saves_in one "${words[@]}" --logprobs-out one -b 8
  check "score --logprobs-out=FILE" saves_in "a file" "${words[@]}" "--logprobs-out=a file"
  check "score logprobs-out=FILE" saves_in three "${words[@]}" logprobs-out=three
  export MOESAIC_LOGPROBS_OUT=four
  check "score with MOESAIC_LOGPROBS_OUT" saves_in four "${words[@]}"
  check "score with both" saves_in five "${words[@]}" logprobs-out=five
}
beside in_folder told score_saves_where_it_is_told

is_queued_for_a_lost_node() {
  ends=5 node='idle*'
  check "a lost node: start 1" is_queued 1 generate model prompts
  check "a lost node: start 2" is_queued 2 generate model prompts
  check "a lost node at each start: start 3" is_ended 3 generate model prompts
}
beside in_folder lost is_queued_for_a_lost_node
tell_all
exit $((failures > 0))
