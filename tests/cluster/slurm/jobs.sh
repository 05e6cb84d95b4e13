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
trap 'rm -rf "$work"' EXIT
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

over="COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL"
ended_with() { # JOB CODE, or one of CODE|CODE
  wait_until job_is "$1" "$over" && [[ $(job_field "$1" ExitCode) =~ ^($2):0$ ]] && return
  tail -n 20 ./*-"$1".log
  scontrol show job "$1" | grep -E 'JobState|ExitCode'
  return 1
}
comes_to() { # JOB STATE, or it is over otherwise
  wait_until job_is "$1" "$2|$over" && job_is "$1" "$2" && return
  tail -n 20 ./*-"$1".log
  scontrol show job "$1" | grep -E 'JobState|ExitCode'
  return 1
}
says() { grep -q -- "$2" ./*-"$1".log || { cat ./*-"$1".log; return 1; }; } # JOB WORDS
says_once() { (($(grep -c -- "$2" ./*-"$1".log) == 1)) || { cat ./*-"$1".log; return 1; }; } # JOB WORDS

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

ranks_of() { pgrep -f "^$MOESAIC .* $1" || true; } # FILE that they read
signal_ranks() { ranks_of "$1" | xargs kill "-$2"; } # FILE SIGNAL
is_told() { # FILE: a signal waits for each rank that is stopped
  local rank
  for rank in $(ranks_of "$1"); do
    grep -q '^ShdPnd:.*[1-9a-f]' "/proc/$rank/status" || return 1
  done
}
no_rank_of() { [[ -z $(ranks_of "$1") ]]; }
no_step_runs() { ! pgrep -x slurmstepd >/dev/null; }
nothing_is_left() { # FILE that ranks read
  wait_until no_rank_of "$1" && for node in node1 node2; do
    "$here/../hosts.sh" on "$node" find /dev/shm -type f >left
    [[ ! -s left ]] || { cat left; return 1; }
  done
}

# What jobs are compared with, by one rank, and what they do.
greedy=(--temp 0 --numerics portable)
alone() { "$MOESAIC" "$@" >/dev/null 2>&1; }

slurm_up "$work/slurm" 2 8
