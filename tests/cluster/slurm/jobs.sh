# shellcheck shell=bash disable=SC2034
# Sourced by the tests beside it, where `hosts.sh with 2` has made hosts: brings Slurm up on them, and has what jobs of
# the templates are asked. usage of these tests: NAME_test.sh MOESAIC DATA_DIR
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# shellcheck source=tests/cluster/slurm/slurm.sh
source "$here/slurm.sh"
export MOESAIC=$1
data=$2
repository=$(readlink -f "$here/../../..")
work=$(mktemp -d)
trap 'slurm_down "$work/slurm"; rm -rf "$work"' EXIT
cd "$work" || exit
model=$data/demo-model
unset OMPI_MCA_plm_rsh_agent OMPI_MCA_plm_rsh_no_tree_spawn # Slurm starts MPI's daemons

# shellcheck source=tests/cluster/checks.sh
source "$here/../checks.sh"

# submit TEMPLATE WORDS... with the variables and sbatch's options in $with; prints the job
with=()
submit() {
  local template=$1
  shift
  env MOESAIC_SLURM="${env_folder:-$repository/slurm}" sbatch --parsable --nodes=2 --cpus-per-task=1 --job-name="$template" \
    "${with[@]}" "$repository/slurm/$template.sbatch" "$@"
}

# Checks what became of a job; of one that fails its log and its state are shown.
check_job() { # WHAT COMMAND JOB...
  local before=$failures
  check "$@"
  if ((failures > before)); then
    tail -n 40 ./*-"$3".log || true
    cat study/points/*.log 2>/dev/null || true # of points that failed
    scontrol show job "$3" | grep -E 'JobState|ExitCode' || true
  fi
}
over="COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL"
ended_with() { # JOB CODE, or one of CODE|CODE
  wait_until job_is "$1" "$over" && [[ $(job_field "$1" ExitCode) =~ ^($2):0$ ]]
}
comes_to() { wait_until job_is "$1" "$2|$over" && job_is "$1" "$2"; } # JOB STATE, or it is over otherwise
says() { grep -q -- "$2" ./*-"$1".log; } # JOB WORDS
says_nothing_of() { ! says "$1" "$2"; } # JOB WORDS
says_once() { (($(grep -c -- "$2" ./*-"$1".log) == 1)); } # JOB WORDS

# Texts of a generation, without the first line of --out and the statistics at the end.
texts() { grep -v -e '^{"moesaic"' -e '"statistics"' "$1"; }
same_texts() { cmp <(texts "$1") <(texts "$2"); } # FILE FILE
# Results of scoring, whose last line has statistics.
without_statistics() { sed 's/, "statistics".*//' "$1"; }
has_texts() { [[ -s $1 ]] && (($(wc -l <"$1") >= $2)); } # FILE LINES
# What was finished is what one rank writes first.
is_beginning() { # FILE WHOLE
  local lines whole
  lines=$(texts "$1" | wc -l) whole=$(texts "$2" | wc -l)
  cmp <(texts "$1" | head -n $((lines < whole ? lines : whole))) <(texts "$2" | head -n "$lines")
}

ranks_of() { # JOB: by what Slurm tells them, and mpirun hands on
  local rank
  for rank in $(pgrep -f "^$MOESAIC "); do
    if grep -qszx "SLURM_JOB_ID=$1" "/proc/$rank/environ"; then echo "$rank"; fi
  done
}
signal_ranks() { ranks_of "$1" | xargs kill "-$2"; } # JOB SIGNAL
is_told() { # JOB: a signal waits for each of its ranks, which are stopped
  local rank
  for rank in $(ranks_of "$1"); do
    grep -q '^ShdPnd:.*[1-9a-f]' "/proc/$rank/status" || return 1
  done
}
has_no_rank() { [[ -z $(ranks_of "$1") ]]; } # JOB
has_no_step() { ! pgrep -f "^slurmstepd: \\[$1\\." >/dev/null; } # JOB

# What ranks have in memory that others map; while none runs there is nothing.
nothing_is_left() {
  local node left
  for node in node1 node2; do
    left=$("$here/../hosts.sh" on "$node" find /dev/shm -type f)
    [[ -z $left ]] || { echo "$node: $left"; return 1; }
  done
}

# What jobs are compared with, by one rank, and what they do.
greedy=(--temp 0 --numerics portable)
# One thread: several wait for each other, for minutes where others want the cores too.
alone() { "$MOESAIC" "$@" --threads 1 >/dev/null 2>alone.err || { cat alone.err; return 1; }; }

slurm_up "$work/slurm" 2 8
