#!/usr/bin/env bash
# The templates of slurm/ on a Slurm of two hosts: what they write is what one rank writes, their exit codes are those
# of the ranks, and jobs that are stopped, lost or cancelled lose nothing that is finished and leave nothing behind.
# Runs where `hosts.sh with 2` has made hosts.
# usage: templates_test.sh MOESAIC DATA_DIR [--all]
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=tests/cluster/slurm/slurm.sh
source "$here/slurm.sh"
export MOESAIC=$1
data=$2 all=${3:-}
repository=$(readlink -f "$here/../../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
model=$data/demo-model
unset OMPI_MCA_plm_rsh_agent OMPI_MCA_plm_rsh_no_tree_spawn # Slurm starts MPI's daemons

# shellcheck source=tests/cluster/checks.sh
source "$here/../checks.sh"

# submit TEMPLATE WORDS... with the variables and sbatch's options in $with; prints the job
with=()
submit() {
  local template=$1
  shift
  env MOESAIC_SLURM="$repository/slurm" sbatch --parsable --nodes=2 --cpus-per-task=1 --job-name="$template" "${with[@]}" \
    "$repository/slurm/$template.sbatch" "$@"
}

over="COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL"
ended_with() { # JOB CODE
  wait_until job_is "$1" "$over" && [[ $(job_field "$1" ExitCode) == "$2:0" ]] && return
  tail -n 20 ./*-"$1".log
  scontrol show job "$1" | grep -E 'JobState|ExitCode'
  return 1
}
says() { grep -q -- "$2" ./*-"$1".log || { cat ./*-"$1".log; return 1; }; } # JOB WORDS

# Texts of a generation, without the first line of --out and the statistics at the end.
texts() { grep -v -e '^{"moesaic"' -e '"statistics"' "$1"; }
same_texts() { cmp <(texts "$1") <(texts "$2"); } # FILE FILE
has_texts() { [[ -s $1 ]] && (($(wc -l <"$1") >= $2)); } # FILE LINES
# What was finished is what one rank writes first.
is_beginning() { # FILE WHOLE
  local lines whole
  lines=$(texts "$1" | wc -l) whole=$(texts "$2" | wc -l)
  cmp <(texts "$1" | head -n $((lines < whole ? lines : whole))) <(texts "$2" | head -n "$lines")
}

ranks_of() { pgrep -f "^$MOESAIC .* $1" || true; } # PROMPTS
is_told() { # PROMPTS: a signal waits for each rank that is stopped
  local rank
  for rank in $(ranks_of "$1"); do
    grep -q '^ShdPnd:.*[1-9a-f]' "/proc/$rank/status" || return 1
  done
}
no_rank_of() { [[ -z $(ranks_of "$1") ]]; }
nothing_is_left() { # PROMPTS
  wait_until no_rank_of "$1" && for node in node1 node2; do
    [[ -z $("$here/../hosts.sh" on "$node" find /dev/shm -name 'moesaic*') ]] || return 1
  done
}

slurm_up "$work/slurm" 2 8

# Many prompts, for jobs that are caught at work: those that end, and those that are never done.
seq -f 'In the beginning of %g' 400 >many
seq -f 'In the beginning of %g' 100000 >endless
greedy=(--temp 0 --numerics portable)
"$MOESAIC" generate -m "$model" -f "$data/demo-prompts.txt" --out one.jsonl "${greedy[@]}" -n 16 >/dev/null 2>&1
"$MOESAIC" generate -m "$model" -f many --out many.jsonl "${greedy[@]}" -n 24 >/dev/null 2>&1
"$MOESAIC" score -m "$model" -f "$data/demo-prompts.txt" --json >score.json 2>/dev/null
sft=(--max-steps 2 --global-batch-size 2 --eval-split 0 --lora-targets attention --seed 1)
"$MOESAIC" sft -m "$model" --data "$data/demo-sft.jsonl" -o one "${sft[@]}" >/dev/null 2>&1

# All of these at the same time.
short=(generate "$model" "$data/demo-prompts.txt" "${greedy[@]}" -n 16)
by_srun=$(submit "${short[@]}")
with=("--export=ALL,MOESAIC_LAUNCHER=mpirun")
by_mpirun=$(submit "${short[@]}")
with=()
scored=$(submit score "$model" "$data/demo-prompts.txt")
tuned=$(submit sft "$model" "$data/demo-sft.jsonl" "$work/adapter" "${sft[@]}")
check "generate with srun" ended_with "$by_srun" 0
check "its texts" same_texts one.jsonl "generate-$by_srun.jsonl"
check "generate with mpirun" ended_with "$by_mpirun" 0
check "its texts" same_texts one.jsonl "generate-$by_mpirun.jsonl"
check "score" ended_with "$scored" 0
without_statistics() { sed 's/, "statistics".*//' "$1"; }
check "its sums" cmp <(without_statistics score.json) <(without_statistics "score-$scored.jsonl")
check "sft" ended_with "$tuned" 0
check "its adapter" cmp one/adapter_model.safetensors adapter/adapter_model.safetensors

# A study starts the ranks of its points itself.
cat >study.ini <<END
kind = weak
job = prompt
model = $model
text = $data/demo-heldout.txt
out = $work/study
ranks = 1,2
ranks-per-node = 1
threads = 1
repetitions = 1
n-prompt = 8
no-roofs = true
END
studied=$(submit study "$work/study.ini")
check "study" ended_with "$studied" 0
measured_on() { grep -qE "\"ranks\": ?$1, ?\"nodes\": ?$1,.*\"status\": ?\"measured\"" study/study.jsonl; } # NODES
check "its point on one node" measured_on 1
check "its point on two nodes" measured_on 2

# Where srun has no PMIx mpirun starts them, on nodes of the job.
mkdir poor
cat >poor/srun <<END
#!/bin/sh
case "\$*" in *--mpi=list*) echo "MPI plugin types are... none pmi2" ;; *) exec $(type -P srun) "\$@" ;; esac
END
chmod +x poor/srun
rm -r study
with=("--export=ALL,PATH=$work/poor:$PATH")
studied=$(submit study "$work/study.ini")
with=()
check "study without PMIx" ended_with "$studied" 0
check "study without PMIx: it says so" says "$studied" "srun has no PMIx"
check "its point on one node" measured_on 1
check "its point on two nodes" measured_on 2

bad_option=$(submit generate "$model" "$data/demo-prompts.txt" --no-such-option)
no_model=$(submit generate "$work/nothing" "$data/demo-prompts.txt")
no_words=$(submit generate)
with=(--export="ALL,MOESAIC=no-such-program")
no_program=$(submit "${short[@]}")
with=()
check "a bad option" ended_with "$bad_option" 2
check "a missing model" ended_with "$no_model" 3
check "no words" ended_with "$no_words" 2
check "no words: the usage" says "$no_words" "usage: sbatch"
check "no program" ended_with "$no_program" 2
check "no program: one line" [ "$(wc -l <"generate-$no_program.log")" = 1 ]
check "no program: how to name it" says "$no_program" "set MOESAIC"

no_step_runs() { ! pgrep -x slurmstepd >/dev/null; }
# The time is over: the job ends, is queued again, and goes on.
long=(generate "$model" "$work/many" "${greedy[@]}" -n 24)
goes_on() { # JOB: from SIGUSR1 to its end
  wait_until has_texts "generate-$1.jsonl" 2
  # However fast they are, they have not done all when the signal comes: they stand still until it is there.
  ranks_of "$work/many" | xargs kill -STOP
  scancel --signal=USR1 --batch "$1"
  wait_until is_told "$work/many" || return 1
  ranks_of "$work/many" | xargs kill -CONT
  wait_until job_is "$1" PENDING || return 1
  is_beginning "generate-$1.jsonl" many.jsonl || return 1
  ! same_texts "generate-$1.jsonl" many.jsonl 2>/dev/null || { echo "all was done before"; return 1; }
  # Slurm waits two minutes before it starts a job again: till the first start is over everywhere.
  wait_until no_step_runs
  scontrol update JobId="$1" StartTime=now
  ended_with "$1" 0 && says "$1" ", start 2" && same_texts "generate-$1.jsonl" many.jsonl
}
check "SIGUSR1 with srun, then the rest" goes_on "$(submit "${long[@]}")"

endless=(generate "$model" "$work/endless" "${greedy[@]}" -n 24)
# scancel ends ranks in order.
is_cancelled() { # JOB
  wait_until has_texts "generate-$1.jsonl" 2
  scancel "$1"
  wait_until job_is "$1" CANCELLED && nothing_is_left "$work/endless" && is_beginning "generate-$1.jsonl" many.jsonl
}
cancelled=$(submit "${endless[@]}")
check "scancel" is_cancelled "$cancelled"
check "scancel: ranks end in order" says "$cancelled" "warning: interrupted ("

# One rank is killed: all end.
is_killed() { # JOB
  wait_until has_texts "generate-$1.jsonl" 2
  kill -9 "$(ranks_of "$work/endless" | tail -1)"
  ended_with "$1" 137 && nothing_is_left "$work/endless" && is_beginning "generate-$1.jsonl" many.jsonl
}
check "a killed rank" is_killed "$(submit "${endless[@]}")"
# One rank is stopped: the other gives up.
is_stopped() { # JOB
  wait_until has_texts "generate-$1.jsonl" 2
  kill -STOP "$(ranks_of "$work/endless" | tail -1)"
  ended_with "$1" 5 && nothing_is_left "$work/endless" && is_beginning "generate-$1.jsonl" many.jsonl
}
check "a stopped rank" is_stopped "$(submit "${endless[@]}" --timeout 8)"

if [[ $all == --all ]]; then
  with=("--export=ALL,MOESAIC_LAUNCHER=mpirun")
  check "SIGUSR1 with mpirun, then the rest" goes_on "$(submit "${long[@]}")"
  check "scancel with mpirun" is_cancelled "$(submit "${endless[@]}")"
  check "a killed rank with mpirun" is_killed "$(submit "${endless[@]}")"
  check "a stopped rank with mpirun" is_stopped "$(submit "${endless[@]}" --timeout 8)"
  with=()
fi
exit $((failures > 0))
