#!/usr/bin/env bash
# Jobs of the templates that are told to end, lose a rank or lose a node, on a Slurm of two hosts: nothing that is
# finished is lost, what can go on does, to the bytes of a run that never stopped, and nothing stays behind.
# Runs where `hosts.sh with 2` has made hosts. TEST_SLURM=all: also what waits for Slurm's own clocks, and mpirun.
# usage: ends_test.sh MOESAIC DATA_DIR
set -euo pipefail
# shellcheck source=tests/cluster/slurm/jobs.sh
source "$(dirname "$(readlink -f "$0")")/jobs.sh"

# Many prompts, for jobs that are caught at work: those that end, and those that are never done.
seq -f 'In the beginning of %g' 400 >many
seq -f 'In the beginning of %g' 100000 >endless
long=(generate "$model" "$work/many" "${greedy[@]}" -n 24)
endless=(generate "$model" "$work/endless" "${greedy[@]}" -n 24)
alone generate -m "$model" -f many --out many.jsonl "${greedy[@]}" -n 24
sft=(--max-steps 40 --global-batch-size 2 --eval-split 0 --lora-targets attention --seed 1)
alone sft -m "$model" --data "$data/demo-sft.jsonl" -o one "${sft[@]}"
"$MOESAIC" score -m "$model" -f "$work/many" --json --threads 1 --logprobs-out many.logprobs >many.json 2>alone.err

is_at_work() { wait_until has_texts_or_is_over "$1" && job_is "$1" RUNNING; } # JOB
has_texts_or_is_over() { has_texts "generate-$1.jsonl" 2 || job_is "$1" "$over"; }
keeps_texts() { is_beginning "generate-$1.jsonl" many.jsonl; }
# The time is over. However fast ranks are, they have not done all when the signal comes: they stand still until then.
ends_in_time() { # JOB
  signal_ranks "$1" STOP
  scancel --signal=USR1 --batch "$1"
  wait_until is_told "$1" || return 1
  signal_ranks "$1" CONT
  comes_to "$1" PENDING
}
starts_again() { # JOB: by itself Slurm waits two minutes
  wait_until has_no_step "$1"
  sleep 1.1 # slurmd refuses a start of the second in which it was told to end the job
  scontrol update JobId="$1" StartTime=now
}

goes_on() { # JOB of $long
  is_at_work "$1" && ends_in_time "$1" && keeps_texts "$1" || return 1
  ! same_texts "generate-$1.jsonl" many.jsonl 2>/dev/null || { echo "all was done before"; return 1; }
  starts_again "$1" && ended_with "$1" 0 && says "$1" ", start 2" && same_texts "generate-$1.jsonl" many.jsonl
}

steps_of() { grep -s '"event": *"step"' "$1/metrics.jsonl" | wc -l; } # OUT
has_steps() { (($(steps_of "$1") >= $2)); }                            # OUT STEPS
trains_on() { # JOB
  wait_until has_steps adapter 2 && ends_in_time "$1" || return 1
  ! has_steps adapter 40 || { echo "all was done before"; return 1; }
  starts_again "$1" && ended_with "$1" 0 && says "$1" ", start 2" &&
    cmp one/adapter_model.safetensors adapter/adapter_model.safetensors
}

scores_on() { # JOB: what it prints at last is of all tokens
  local logprobs=score-$1.logprobs.jsonl
  wait_until has_texts "$logprobs" 2 && ends_in_time "$1" || return 1
  ! cmp -s many.logprobs "$logprobs" || { echo "all was done before"; return 1; }
  starts_again "$1" && ended_with "$1" 0 && says "$1" ", start 2" && cmp many.logprobs "$logprobs" &&
    cmp <(without_statistics many.json) <(without_statistics "score-$1.jsonl")
}

# SIGUSR1 comes before env.sh is read, and before a rank listens: the third start does all.
mkdir early
cat >early/env.sh <<END
touch "$work/template"
until [[ -e "$work/env" ]]; do sleep 0.1; done
source "$repository/slurm/env.sh"
END
cat >early/moesaic <<END
#!/bin/bash
if [[ ! -e "$work/listens" ]]; then
  touch "$work/deaf"
  sleep 1000
fi
exec $MOESAIC "\$@"
END
chmod +x early/moesaic
is_early() { # JOB
  wait_until test -e template
  scancel --signal=USR1 --batch "$1"
  touch env
  comes_to "$1" PENDING && says "$1" "the time was over before anything was started" || return 1
  starts_again "$1"
  wait_until test -e deaf
  scancel --signal=USR1 --batch "$1"
  comes_to "$1" PENDING && [[ ! -e generate-$1.jsonl ]] || return 1
  touch listens
  starts_again "$1" && ended_with "$1" 0 && says "$1" ", start 3" && same_texts "generate-$1.jsonl" many.jsonl
}

# SIGUSR1 ends one rank, and srun the other, before they listen: the next start does all.
cat >early/half_deaf <<END
#!/bin/bash
if [[ ! -e "$work/hears" ]]; then
  ((\$SLURM_PROCID == 0)) || trap '' USR1
  touch "$work/half.\$SLURM_PROCID"
  sleep 1000
fi
exec $MOESAIC "\$@"
END
chmod +x early/half_deaf
is_heard_by_one() { # JOB
  wait_until test -e half.0 && wait_until test -e half.1
  scancel --signal=USR1 --batch "$1"
  comes_to "$1" PENDING || return 1
  touch hears
  starts_again "$1" && ended_with "$1" 0 && says "$1" ", start 2" && same_texts "generate-$1.jsonl" many.jsonl
}

# The second signal ends at once: also ranks that wait for one that stands still. It may not be queued again.
is_told_twice() { # JOB
  local stopped
  is_at_work "$1" || return 1
  stopped=$(ranks_of "$1" | tail -1)
  kill -STOP "$stopped"
  scancel --signal=USR1 --batch "$1"
  wait_until grep -q '^ShdPnd:.*[1-9a-f]' "/proc/$stopped/status"
  sleep 1 # within half a second it would be the same request
  scancel --signal=USR1 --batch "$1"
  ended_with "$1" 6 && wait_until has_no_rank "$1" && keeps_texts "$1"
}

# scancel ends ranks in order.
is_cancelled() { # JOB
  is_at_work "$1" || return 1
  scancel "$1"
  comes_to "$1" CANCELLED && wait_until has_no_rank "$1" && keeps_texts "$1"
}

# One rank ends by a signal, or stands still: all end.
loses_a_rank() { # JOB SIGNAL CODE
  is_at_work "$1" || return 1
  kill "-$2" "$(ranks_of "$1" | tail -1)"
  ended_with "$1" "$3" && wait_until has_no_rank "$1" && keeps_texts "$1"
}

# All of these at the same time.
beside check_job "SIGUSR1, then the rest" goes_on "$(submit "${long[@]}")"
beside check_job "sft: SIGUSR1, then the rest" trains_on \
  "$(submit sft "$model" "$data/demo-sft.jsonl" "$work/adapter" "${sft[@]}")"
beside check_job "score: SIGUSR1, then the rest" scores_on "$(submit score "$model" "$work/many" -b 16)"
env_folder=$work/early with=("--export=ALL,MOESAIC=$work/early/moesaic")
beside check_job "SIGUSR1 before anything is ready" is_early "$(submit "${long[@]}")"
env_folder="" with=("--export=ALL,MOESAIC=$work/early/half_deaf")
beside check_job "SIGUSR1 that one rank hears before it listens" is_heard_by_one "$(submit "${long[@]}")"
with=(--no-requeue)
beside check_job "SIGUSR1 twice" is_told_twice "$(submit "${endless[@]}")"
with=()
cancelled=$(submit "${endless[@]}")
beside check_job "scancel" is_cancelled "$cancelled"
names_lost_rank() { # JOB: a rank of the other node
  says "$1" 'rank 0/2 node1\] error: rank 1 (node2) has ended' || says "$1" 'rank 1/2 node2\] error: rank 0 (node1) has ended'
}
killed=$(submit "${endless[@]}") broken=$(submit "${endless[@]}")
beside check_job "a killed rank" loses_a_rank "$killed" KILL 137
beside check_job "a segmentation fault" loses_a_rank "$broken" SEGV 139
beside check_job "a stopped rank" loses_a_rank "$(submit "${endless[@]}" --timeout 30)" STOP 5
tell_all
check_job "scancel: ranks end in order" says "$cancelled" "warning: interrupted ("
check_job "a killed rank is named by the other" names_lost_rank "$killed"
check_job "one with a segmentation fault, too" names_lost_rank "$broken"
check "nothing is left on the nodes" nothing_is_left

# A node is gone, and Slurm has noticed that it does not answer when the ranks give up: the job goes on when it is back.
survives() { # JOB
  comes_to "$1" "PENDING|COMPLETING" && keeps_texts "$1" || return 1
  find_host node2
  comes_to "$1" PENDING
  starts_again "$1" && ended_with "$1" 0 && says "$1" ", start 2" && same_texts "generate-$1.jsonl" many.jsonl
}
# An answer from before, which Slurm reads late, would count as one of now.
is_over_without_node2() { # JOB
  scontrol update NodeName=node2 State=NoResp
  ! job_is "$1" RUNNING
}
loses_a_node() { # JOB
  is_at_work "$1" || return 1
  lose_host node2
  wait_until is_over_without_node2 "$1"
  survives "$1" && says "$1" "error: all wait for rank 1 (node2)"
}
check_job "a dead node" loses_a_node "$(submit "${long[@]}" --timeout 6)"

if [[ ${TEST_SLURM:-} == all ]]; then
  with=("--export=ALL,MOESAIC_LAUNCHER=mpirun")
  beside check_job "SIGUSR1 with mpirun, then the rest" goes_on "$(submit "${long[@]}")"
  beside check_job "scancel with mpirun" is_cancelled "$(submit "${endless[@]}")"
  beside check_job "a killed rank with mpirun" loses_a_rank "$(submit "${endless[@]}")" KILL 137
  beside check_job "a segmentation fault with mpirun" loses_a_rank "$(submit "${endless[@]}")" SEGV 139
  beside check_job "a stopped rank with mpirun" loses_a_rank "$(submit "${endless[@]}" --timeout 30)" STOP 5
  # srun may not hear of it before the others, whose node's ranks see it at once, have waited for that.
  with=(--ntasks-per-node=2)
  beside check_job "a killed rank among two of a node" loses_a_rank "$(submit "${endless[@]}")" KILL "137|5"
  tell_all

  # Slurm's own clock: it looks at times twice a minute. With nobody to wake, ranks hear of the end like of scancel.
  with=(--time=1 --signal=B:USR1@30)
  in_time=$(submit "${long[@]}")
  with=(--time=1 --signal=B:CONT@1)
  too_late=$(submit "${endless[@]}")
  with=()
  is_woken() { # JOB
    is_at_work "$1" || return 1
    signal_ranks "$1" STOP
    wait_until is_told "$1"
    signal_ranks "$1" CONT
    comes_to "$1" PENDING && keeps_texts "$1" || return 1
    scontrol update JobId="$1" TimeLimit=60
  }
  check_job "a time limit" is_woken "$in_time"
  times_out() { # JOB
    comes_to "$1" TIMEOUT && wait_until has_no_rank "$1" && keeps_texts "$1" &&
      says "$1" "warning: interrupted (SIGTERM)"
  }
  check_job "a time limit that comes without a word" times_out "$too_late"
  check "nothing is left on the nodes of these" nothing_is_left
  is_finished() { starts_again "$1" && ended_with "$1" 0 && same_texts "generate-$1.jsonl" many.jsonl; } # JOB
  check_job "a time limit: the rest" is_finished "$in_time"

  # Slurm's own look at nodes.
  sed -i 's/^SlurmdTimeout=.*/SlurmdTimeout=15/' "$SLURM_CONF"
  scontrol reconfigure
  is_missed() { # JOB
    is_at_work "$1" || return 1
    lose_host node2
    survives "$1"
  }
  check_job "a dead node that Slurm misses" is_missed "$(submit "${long[@]}")"
fi
exit $((failures > 0))
