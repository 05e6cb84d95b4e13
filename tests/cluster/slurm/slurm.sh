# shellcheck shell=bash
# Sourced where `hosts.sh with N` has made hosts: a Slurm of theirs, without an init system. munged and slurmctld run
# where the hosts are made, a slurmd on each host, all with their state in one directory. They end with the hosts.

# slurm_up DIR HOSTS CPUS: exports SLURM_CONF. A host may have more CPUs than the machine.
slurm_up() {
  local dir=$1 hosts=$2 cpus=$3 number
  mkdir -p "$dir"/{state,log,run}
  chmod 755 "$dir" "$dir"/*
  dd if=/dev/urandom of="$dir/munge.key" bs=128 count=1 status=none
  chmod 400 "$dir/munge.key"
  munged --force --key-file="$dir/munge.key" --socket="$dir/run/munge" --pid-file="$dir/run/munged.pid" \
    --log-file="$dir/log/munged" --seed-file="$dir/run/munged.seed" --num-threads=2 2>"$dir/log/munge" ||
    { cat "$dir/log/munge"; return 1; }
  write_slurm_conf "$dir" "$hosts" "$cpus" >"$dir/slurm.conf"
  export SLURM_CONF=$dir/slurm.conf
  slurmctld -i -c
  for ((number = 1; number <= hosts; ++number)); do slurm_join "node$number"; done
  wait_until slurm_has "$hosts" || { tail -n 20 "$dir"/log/*; return 1; }
}

# slurm_down DIR: ends the daemons, so that nobody writes there any more.
slurm_down() {
  local file daemon
  for file in "$1"/run/*.pid; do
    [[ -e $file ]] || continue # they have not come up
    daemon=$(<"$file")
    if kill -KILL "$daemon" 2>/dev/null; then wait_until test ! -e "/proc/$daemon"; fi
  done
}

slurm_join() { # NODE
  mkdir -p "$(dirname "$SLURM_CONF")"/{spool,tmp}/"$1"
  "$(dirname "${BASH_SOURCE[0]}")/../hosts.sh" on "$1" slurmd -N "$1" -c
}

# lose_host NODE: it is off the network without a word to anybody, and all that ran on it is gone.
lose_host() {
  "$(dirname "${BASH_SOURCE[0]}")/../hosts.sh" cut "$1"
  end_processes "$1"
}
# Back, without what steps have left there: slurmstepd of 22.05 cannot bind to the socket of one that was killed.
find_host() { # NODE
  rm -rf "$(dirname "$SLURM_CONF")"/{spool,tmp}/"$1"
  "$(dirname "${BASH_SOURCE[0]}")/../hosts.sh" join "$1"
  slurm_join "$1"
}
end_processes() { # NODE: all but that which is the host
  local keepers keeper network process
  read -ra keepers <<<"$CLUSTER_HOST_PIDS"
  keeper=/proc/${keepers[${1#node} - 1]}
  network=$(readlink "$keeper/ns/net")
  for process in /proc/[0-9]*; do
    if [[ $process != "$keeper" && $(readlink "$process/ns/net") == "$network" ]]; then kill -KILL "${process#/proc/}" || true; fi
  done
}

slurm_has() { (($(sinfo -h -N -t idle -o %N | sort -u | wc -l) == $1)); }

write_slurm_conf() { # DIR HOSTS CPUS
  local dir=$1 hosts=$2 cpus=$3 number
  cat <<END
ClusterName=test
SlurmctldHost=$(hostname -s)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/run/munge
CredType=cred/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$dir/run/slurmctld.pid
SlurmdPidFile=$dir/run/slurmd.%n.pid
SlurmctldLogFile=$dir/log/slurmctld
SlurmdLogFile=$dir/log/slurmd.%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TmpFS=$dir/tmp/%n
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
InactiveLimit=0
KillWait=10
SlurmdTimeout=300
END
  for ((number = 1; number <= hosts; ++number)); do echo "NodeName=node$number CPUs=$cpus RealMemory=1000"; done
  echo "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP"
}

# job_field JOB NAME, such as JobState or ExitCode
job_field() {
  [[ " $(scontrol --oneliner show job "$1")" =~ [[:space:]]$2=([^[:space:]]+) ]] && echo "${BASH_REMATCH[1]}"
}

job_is() { [[ $(job_field "$1" JobState) =~ ^($2)$ ]]; } # JOB STATES, such as COMPLETED|FAILED

# wait_until COMMAND...: looks five times a second until it succeeds; fails after five minutes. (Looking costs a core some
# milliseconds, which jobs that others wait for at the same time could have.)
wait_until() {
  local look
  for ((look = 0; look < 1500; ++look)); do
    if "$@"; then return; fi
    sleep 0.2
  done
  echo "in vain: $*" >&2
  return 1
}
