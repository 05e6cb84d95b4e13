#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test. Ends with ctest's summary.
# usage: tests/run.sh [--all]
#   --all   also the slow checks: the whole suite under AddressSanitizer and UBSan
set -euo pipefail
cd "$(dirname "$0")/.."

all=0
for argument in "$@"; do
  case $argument in
    --all) all=1 ;;
    *) echo "usage: tests/run.sh [--all]" >&2; exit 2 ;;
  esac
done

tools/packages.sh --tests
# mpirun in containers: as root, with more ranks than cores, yielding while it waits.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1

run() {  # preset, label of the tests or nothing for all
  echo "== $1 ${2:-}"
  cmake --preset "$1" >/dev/null
  cmake --build --preset "$1" --target "${2:+tests_}${2:-all}" -- --quiet
  ctest --preset "$1" -j "$(nproc)" ${2:+-L "$2"}
}
# Sanitizers first: ranks that are threads under ThreadSanitizer, readers of foreign bytes under
# AddressSanitizer. The whole suite is last, so that its summary ends the run.
run tsan threads
if ((all)); then run asan; else run asan foreign; fi
run dev
