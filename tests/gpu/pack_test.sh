#!/usr/bin/env bash
# The archive for a machine with a GPU is small, needs glibc alone, and runs as far as a machine without one lets it. Its
# reports: of a GPU that is the PTX machine, and of one that gives wrong bytes; of a sanitizer that finds something.
# usage: pack_test.sh GPU_CHECK FAKE_DRIVER
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

"$here/run.sh" --pack "$dir/gpu.tar.gz" --program "$1"
size=$(stat -c %s "$dir/gpu.tar.gz")
((size <= 40 << 20)) || { echo "the archive has $size bytes"; exit 1; }
mkdir "$dir/there"
tar xzf "$dir/gpu.tar.gz" -C "$dir/there"
foreign=$(env -i PATH="$PATH" ldd "$dir/there/gpu-check/gpu_check" | grep -v "$dir/there" |
  grep -vE '(linux-vdso|/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*))\.so' || true)
[[ -z $foreign ]] || { echo "it needs more than glibc: $foreign"; exit 1; }
set +e
said=$(cd "$dir/there" && env -i PATH="$PATH" ./gpu-check/run.sh check --driver /no/libcuda.so.1 2>&1)
code=$?
set -e
[[ $code == 4 && $said == "no GPU: no NVIDIA driver: /no/libcuda.so.1"* ]] || { echo "$code: $said"; exit 1; }

# What was found stands in the report, with what it was made of.
cd "$dir/there"
check() { ./gpu-check/run.sh check --driver "$1" --only mma/nvfp4 --report "$2" >"$2.out"; }
check "$2" right || { echo "the PTX machine's bytes differ"; cat right.out; exit 1; }
grep -q '"mismatches": 0,' right.json
grep -q '"release": ' right.json
grep -q '^# PTX machine (sm_90)$' right.md
code=0
MOESAIC_FAKE_FLIPS=1 check "$2" wrong || code=$?
[[ $code == 1 ]] || { echo "code $code for wrong bytes"; exit 1; }
grep -Eq '"row": 0, "column": 0, "got": "[0-9a-f]{8}", "wanted": "[0-9a-f]{8}", "input": \{"mlp": [0-9]+, "x": "([0-9a-f]{4})+"\}' wrong.json
code=0
./gpu-check/run.sh check --driver "$2" --only no/such >none.out 2>&1 || code=$?
[[ $code == 2 && $(<none.out) == *"no kernels of this GPU have no/such in their name"* ]] || { cat none.out; exit 1; }

# A sanitizer that finds a race: the tools after it run too.
mkdir bin
cat >bin/compute-sanitizer <<'END'
#!/usr/bin/env bash
[[ $1 == --version ]] && { echo "Version 2025.3"; exit 0; }
[[ $1 == --tool && $3 == --log-file && $5 == --error-exitcode ]] || exit 99
if [[ $2 == racecheck ]]; then
  echo "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)" >"$4"; exit "$6"
fi
echo "========= ERROR SUMMARY: 0 errors" >"$4"
"${@:7}"
END
chmod +x bin/compute-sanitizer
code=0
PATH=$PWD/bin:$PATH ./gpu-check/run.sh sanitize --driver "$2" --only mma/mxfp4 --report found >found.out 2>&1 || code=$?
[[ $code == 1 ]] || { echo "code $code of a sanitizer that found a race"; cat found.out; exit 1; }
for line in '{"part": "sanitize", "findings": 1, "tools": \[' \
  '{"tool": "racecheck", "code": 10, "summary": "RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)", "log": "found-racecheck.log"},' \
  '{"tool": "initcheck", "code": 0, "summary": "ERROR SUMMARY: 0 errors", "log": "found-initcheck.log"}'; do
  grep -q "^$line$" found.json || { echo "not in the report: $line"; cat found.json; exit 1; }
done
[[ -s found-memcheck.json && -s found-memcheck.md && $(<found.md) == *"Version 2025.3"*"| synccheck | 0 |"* ]]
PATH=$PWD/bin:$PATH ./gpu-check/run.sh sanitize --tool memcheck --driver "$2" --only mma/mxfp4 --report one >one.out
