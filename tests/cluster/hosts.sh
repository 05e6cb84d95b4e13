#!/usr/bin/env bash
# Several hosts on this machine: each has a network, a hostname, a /dev/shm and an MPI daemon of its own. Made of
# namespaces, as root; nothing of them is seen outside, and all of it ends with the command that they are made for.
# usage: hosts.sh with N COMMAND...    runs COMMAND where hosts node1 to nodeN are; exit code 77 if they cannot be made.
# Then, as COMMAND or from it:
#        hosts.sh on HOST COMMAND...               runs COMMAND on a host
#        hosts.sh run tcp|ucx HxR COMMAND...       COMMAND under mpirun, on H hosts with R ranks each, from node1
#        hosts.sh rate RATE|off [BURST]            limits what each host sends, such as 1gbit or 100mbit; after a silence it
#                                                  sends BURST at once, such as 16kb (default: what passes in 4 ms)
#        hosts.sh cut HOST; hosts.sh join HOST     takes a host off the network and back, without a word to anybody
# For example: hosts.sh with 2 hosts.sh run tcp 2x1 hostname
set -euo pipefail

self=$(readlink -f "$0")
network=10.99.0  # node K is $network.K, where COMMAND runs is $network.254

usage() {
  sed -n '/^# usage/,/^# For example/s/^# //p' "$self" >&2
  exit 2
}

on() {  # HOST COMMAND...
  local pids number=${1#node}
  read -ra pids <<<"${CLUSTER_HOST_PIDS:?only where \"hosts.sh with\" runs a command}"
  if ! [[ $1 =~ ^node[1-9][0-9]*$ ]] || ((number > ${#pids[@]})); then
    echo "hosts.sh: no host $1 among node1 to node${#pids[@]}" >&2
    exit 2
  fi
  shift
  nsenter --target "${pids[number - 1]}" --net --uts --ipc --mount --wd=. -- "$@"
}

each_host() {  # COMMAND... on every host
  local number=0
  for _ in ${CLUSTER_HOST_PIDS:?only where \"hosts.sh with\" runs a command}; do on node$((++number)) "$@"; done
}

# The first half of `with`: namespaces for all hosts together. The shell that makes the hosts is their process 1,
# so that all their processes end with it.
with() {  # N COMMAND...
  [[ $1 =~ ^[1-9][0-9]?$ ]] || usage
  local cannot="not root"
  if ((EUID == 0)) && cannot=$(unshare --net --pid --mount --uts --ipc --fork --mount-proc \
    sh -ec 'ip link add hosts type bridge; tc qdisc add dev lo root tbf rate 1gbit burst 512kb latency 1s' 2>&1); then
    exec unshare --net --pid --mount --uts --ipc --fork --kill-child --mount-proc "$self" _all "$@"
  fi
  echo "skipped, no hosts of namespaces: $cannot" >&2
  exit 77
}

all() {  # N COMMAND...: the second half
  local hosts=$1 pids=() number ready file
  shift
  hostname front
  ip link set lo up
  ip link add hosts type bridge
  ip link set hosts up
  ip address add $network.254/24 dev hosts
  file=$(mktemp)  # a file that is bound to another's place may be removed
  { echo 127.0.0.1 localhost; echo $network.254 front; for ((number = 1; number <= hosts; ++number)); do echo $network.$number node$number; done; } >"$file"
  mount --bind "$file" /etc/hosts
  rm "$file"
  for ((number = 1; number <= hosts; ++number)); do
    exec {ready}< <(exec unshare --net --uts --ipc --mount "$self" _host $number)
    pids+=($!)
    read -r -u $ready
    ip link set node$number master hosts up
  done
  export CLUSTER_HOST_PIDS="${pids[*]}"
  # As root, without ssh; every host believes that the cores of the machine are its own.
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  export OMPI_MCA_plm_rsh_agent="$self _shell" OMPI_MCA_plm_rsh_no_tree_spawn=1
  export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1 MOESAIC_PIN=off
  # Open MPI names its files by host and process, which other hosts made here at the same time have as well.
  TMPDIR=$(mktemp -d)
  export TMPDIR
  local code=0
  "$@" || code=$?
  rm -rf "$TMPDIR"
  exit $code
}

host() {  # NUMBER: becomes a host and stays until it is killed
  hostname "node$1"
  ip link set lo up
  ip link add eth0 type veth peer name "node$1" netns 1
  ip address add "$network.$1/24" dev eth0
  ip link set eth0 up
  # UCX and hwloc look for networks in /sys, and UCX tells machines by the id of their boot.
  local groups file
  groups=$(mktemp -d)
  mount --rbind /sys/fs/cgroup "$groups"
  mount -t sysfs sysfs /sys
  mount --rbind "$groups" /sys/fs/cgroup
  umount --recursive --lazy "$groups"
  rmdir "$groups"
  mount -t tmpfs tmpfs /dev/shm
  file=$(mktemp)
  cat /proc/sys/kernel/random/uuid >"$file"
  mount --bind "$file" /proc/sys/kernel/random/boot_id
  rm "$file"
  echo ready
  exec sleep infinity >/dev/null
}

run() {  # tcp|ucx HxR COMMAND...
  local way=$1 number names=()
  [[ $way =~ ^(tcp|ucx)$ && ${2:-} =~ ^([1-9][0-9]*)x([1-9][0-9]*)$ ]] || usage
  for ((number = 1; number <= BASH_REMATCH[1]; ++number)); do names+=("node$number:${BASH_REMATCH[2]}"); done
  shift 2
  if [[ $way == ucx ]]; then  # which Debian's settings leave out, and Open MPI takes with InfiniBand only
    export OMPI_MCA_pml=ucx OMPI_MCA_osc=ucx OMPI_MCA_pml_ucx_tls=any OMPI_MCA_pml_ucx_devices=any
  fi
  on node1 mpirun --host "$(IFS=,; echo "${names[*]}")" "$@"
}

rate() {  # RATE|off [BURST]
  # A bucket smaller than what passes while a busy core is late for its timer loses some of the rate.
  local burst=${2:-}
  each_host tc qdisc delete dev eth0 root 2>/dev/null || true
  [[ $1 != off ]] || return 0
  [[ $1 =~ ^([1-9][0-9]*)([mg])bit$ ]] || usage
  local mbits=${BASH_REMATCH[1]}
  [[ ${BASH_REMATCH[2]} == m ]] || ((mbits *= 1000))
  each_host tc qdisc add dev eth0 root tbf rate "$1" burst "${burst:-$((mbits * 500 > 16384 ? mbits * 500 : 16384))}" latency 100ms
}

link() {  # HOST up|down
  on "$1" true
  nsenter --target 1 --net ip link set "$1" "$2"
}

verb=${1:-}
(($# > 0)) && shift
case $verb:$# in
  with:0 | with:1 | on:0 | on:1 | run:[0-2]) usage ;;
  with:*) with "$@" ;;
  on:*) on "$@" ;;
  run:*) run "$@" ;;
  rate:1 | rate:2) rate "$@" ;;
  cut:1) link "$1" down ;;
  join:1) link "$1" up ;;
  _all:*) all "$@" ;;
  _host:1) host "$1" ;;
  _shell:*) on "$1" sh -c "${*:2}" ;;  # for mpirun, in the place of ssh
  *) usage ;;
esac
