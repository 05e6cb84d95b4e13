#!/usr/bin/env bash
# What a study tells of many ranks, beside SimGrid on the same link figures: replays the traces of moesaic study export smpi
# and compares. Skipped (77) without SimGrid.
# usage: simgrid_check.sh MOESAIC [RANKS [RANKS_PER_NODE]]      64 1 takes seconds, 256 4 four minutes
set -euo pipefail
moesaic=$1
ranks=${2:-64}
per_node=${3:-1}
if ! command -v smpirun >/dev/null; then
  echo "skipped: no smpirun (Debian: libsimgrid-dev)"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >study.ini <<END
kind = weak
job = exchange,layer
shape = 256x256x64x8
routing = even,zipf:1
out = out
launcher = mpirun --oversubscribe --bind-to none -n {ranks}
ranks = $per_node,$((2 * per_node))
ranks-per-node = $per_node
threads = 1
n-prompt = 64
repetitions = 1
no-roofs = true
END
"$moesaic" study run study.ini --log-level warning
"$moesaic" study predict study.ini --ranks "$ranks" --log-level warning
# Links of 10 Gbit/s, 2 us a message; in a node nothing takes time; and products at 10^10 operations a second.
figure() { sed -i -E "s/(\"name\": *\"$1\", *\"value\": *)[^,]*/\\1$2/" out/model.json; }
figure link.messages 2e-6
figure link.bytes 8e-10
figure products.bf16 1e-10
for term in products.f32 weights rows jobs steps node.messages node.bytes; do figure "$term" 0; done
"$moesaic" study export smpi study.ini --ranks "$ranks" >folders
[[ $(wc -l <folders) == 4 ]] || { echo "not four folders:"; cat folders; exit 1; }
while read -r traces; do
  told=$(sed -E 's/.*"seconds": *([^,]*),.*/\1/' "$traces/told.json" | head -1)
  seen=$("$traces/run.sh" 2>&1 | sed -nE 's/.*Simulated time: ([^ ]*) seconds.*/\1/p')
  [[ -n $seen ]] || { echo "$traces: SimGrid tells no time"; "$traces/run.sh"; exit 1; }
  awk -v told="$told" -v seen="$seen" -v traces="$traces" 'BEGIN {
    printf "%s: told %.6f s, simulated %.6f s: %+.1f %%\n", traces, told, seen, 100 * (told / seen - 1)
    exit !(told / seen > 0.85 && told / seen < 1.15) }'
done <folders
