# shellcheck shell=bash
# Sourced by the templates beside it: where the program is, what MPI has to be told, and how a job
# ends in time. Lines marked "site:" are those that differ from cluster to cluster.

# site: the modules of the compiler and MPI that moesaic was built with
# module purge; module load gcc openmpi

# site: the program, a path or a name in PATH
: "${MOESAIC:=moesaic}"
# site: srun or mpirun; empty: srun if it can start MPI ranks (PMIx), else mpirun
: "${MOESAIC_LAUNCHER:=}"
export -n MOESAIC_LAUNCHER MOESAIC_SLURM # moesaic takes MOESAIC_NAME for its option --name
export SLURM_EXPORT_ENV=ALL              # of this script, not again what sbatch --export=ALL,... names

# site: the network between nodes, if MPI takes a wrong one or Debian's Open MPI should use UCX
# export OMPI_MCA_btl_tcp_if_include=eth0
# export OMPI_MCA_pml=ucx OMPI_MCA_osc=ucx OMPI_MCA_pml_ucx_tls=any OMPI_MCA_pml_ucx_devices=any

# srun of Slurm 22.05 to 23.02 does not take over --cpus-per-task by itself.
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
# Ranks that wait give the core to others; matters when ranks share cores.
export OMPI_MCA_mpi_yield_when_idle=1
# mpirun waits for ever for a node that it cannot reach, unless it looks whether it is there.
export OMPI_MCA_oob_tcp_keepalive_time=3 OMPI_MCA_oob_tcp_keepalive_intvl=1 OMPI_MCA_oob_tcp_keepalive_probes=3
# site: seconds that mpirun waits before it passes SIGTERM on, a second signal to ranks that have
# one from Slurm, and as many before it kills them; less than Slurm's KillWait. So long, twice, it
# also waits when ranks have ended with a code other than 0.
export OMPI_MCA_odls_base_sigkill_timeout=20

# site: a job is queued again until so many starts in a row have saved nothing: its time may be too
# short, or the signal come too early
most_idle_starts=3
idle_starts=.$SLURM_JOB_NAME-$SLURM_JOB_ID.idle # has a line for each of them, where the job runs

: "${time_is_up:=0}" # 1 if SIGUSR1 has come before

# Prints what the next start has to go on from, in any words; the templates say it.
saved_work() { :; }

# Ends the job before a rank is started.
refuse() {
  echo "$SLURM_JOB_NAME: $*" >&2
  exit 2
}

# Prints the launcher: MOESAIC_LAUNCHER, or what works here.
find_launcher() {
  if [[ -n $MOESAIC_LAUNCHER ]]; then
    echo "$MOESAIC_LAUNCHER"
  elif srun --mpi=list 2>&1 | grep -q pmix; then
    echo srun
  else
    echo mpirun
  fi
}

# Prints the path of the program, or ends the job.
find_program() {
  type -P "$MOESAIC" ||
    refuse "no program $MOESAIC on $(hostname): set MOESAIC to its path (sbatch --export=ALL,MOESAIC=/path/to/moesaic)"
}

# run_in_time COMMAND ARGUMENTS: runs it to its end; sets `code` to its exit code.
# --signal=B: sends SIGUSR1 to this shell alone, which passes it on; `time_is_up` is 1 then. Of
# scancel ranks hear from Slurm itself: the shell waits for them.
run_in_time() {
  local running="" begin=$SECONDS passed=0 interrupted=1
  saved_before=$(saved_work)
  trap 'time_is_up=1 interrupted=1; pass_on' USR1 # in the place of the template's
  trap 'interrupted=1' TERM
  echo "$SLURM_JOB_NAME: job $SLURM_JOB_ID on $SLURM_JOB_NODELIST, start $((${SLURM_RESTART_COUNT:-0} + 1))" >&2
  code=6
  if ((time_is_up)); then
    echo "$SLURM_JOB_NAME: the time was over before anything was started" >&2
    return
  fi
  "$@" &
  running=$!
  if ((time_is_up && !passed)); then pass_on; fi
  while ((interrupted)); do # a signal ends wait, not what it waits for
    interrupted=0 code=0
    wait "$running" || code=$?
  done
  trap '' USR1
  trap - TERM
  # Ended by SIGUSR1 itself: they did not listen yet, or it came twice. Where one of them ends so before others have the
  # signal, srun ends these by SIGTERM, and tells of that. What is finished is there.
  if ((time_is_up && (code == 128 + $(kill -l USR1) || code == 128 + $(kill -l TERM)))); then code=6; fi
}

# Sends SIGUSR1 to what run_in_time runs: srun forgets one that comes before its tasks have started.
pass_on() {
  if [[ -z $running ]]; then return; fi
  passed=1
  while ((SECONDS - begin < 5)) && kill -0 "$running" 2>/dev/null; do sleep 0.2; done
  kill -USR1 "$running" 2>/dev/null || true
}

# run_ranks ARGUMENTS: moesaic on all tasks of the job, as run_in_time.
run_ranks() {
  local program launch
  program=$(find_program) || exit
  case $(find_launcher) in
    srun) launch=(srun --mpi=pmix --kill-on-bad-exit=1 --cpu-bind=cores) ;;
    mpirun) launch=(mpirun --map-by "ppr:${SLURM_NTASKS_PER_NODE:-1}:node" --bind-to none) ;;
    *) refuse "MOESAIC_LAUNCHER is $MOESAIC_LAUNCHER: it can be srun or mpirun" ;;
  esac
  run_in_time "${launch[@]}" "$program" "$@"
}

# Slurm marks nodes that do not answer by a star before it calls them down.
node_is_lost() { sinfo -h -n "$SLURM_JOB_NODELIST" -o %T | grep -e '[*]$' -e down >/dev/null; }

# Whether this start, and as many before it as may, have saved nothing: another one would do no more.
stands_still() {
  if [[ $(saved_work) != "$saved_before" ]]; then
    rm -f "$idle_starts"
    return 1
  fi
  echo >>"$idle_starts"
  (($(wc -l <"$idle_starts") >= most_idle_starts))
}

# Ends the job with the exit code of its ranks. If its time was over before all was done (code 6),
# or they have given up waiting for a lost node (5), it is queued again first, unless it may not
# (sbatch --no-requeue), or it stands still.
end_or_requeue() {
  if ((code == 6 && time_is_up)) || { ((code == 5)) && node_is_lost; }; then
    if stands_still; then
      echo "$SLURM_JOB_NAME: nothing was saved in $most_idle_starts starts, the last of them start $((${SLURM_RESTART_COUNT:-0} + 1)): it is not queued again" >&2
    else
      scontrol requeue "$SLURM_JOB_ID" || true
      exit "$code"
    fi
  fi
  if ((code == 5)); then
    echo "$SLURM_JOB_NAME: no node is known to be lost: it is not queued again" >&2
  fi
  rm -f "$idle_starts"
  exit "$code"
}
