#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test. Ends with ctest's summary.
# usage: tests/run.sh [--all]
#   --all   also the slow checks: the whole suite by clang, and under AddressSanitizer and UBSan, with more kills and faults
#           of ranks; jobs that wait for Slurm's clocks; kernels of GPUs by CUTLASS (7 GB of memory); studies beside
#           SimGrid and in Chromium, which it installs, and one that is killed again and again
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
tools/cuda.sh
if ((all)); then tools/packages.sh --studies; tools/cutlass.sh; fi
# mpirun in containers: as root, with more ranks than cores, yielding while it waits.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1

run() {  # preset, labels of the tests or nothing for all
  local preset=$1 targets=all isas="scalar;avx2;avx512;avx512_bf16;amx" linked="" options
  shift
  echo "== $preset $*"
  (($# > 0)) && targets=$(printf 'tests_%s ' "$@")
  if ((all)); then
    options=(-DMOESAIC_THOROUGH=ON)
    [[ $preset == dev ]] && options+=(-DMOESAIC_CUTLASS=ON)
  else
    options=(-DMOESAIC_THOROUGH=OFF -DMOESAIC_JOIN_SOURCES=ON -DMOESAIC_CUTLASS=OFF)  # a third of the time; --all finds what a source forgets to include
    # Kernels know nothing of threads, nor of foreign bytes, and readers of these nothing of ranks; but clang is to have
    # compiled each kernel.
    case $preset in
      tsan) isas="scalar;avx2"; linked="chat;jinja;tokenizer" ;;
      asan) isas="scalar;avx512;avx512_bf16;amx"; linked="comm;generate;kernels;moe;parallel;train" ;;
    esac
    [[ $preset == dev ]] && options+=("-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O2 -DNDEBUG")  # nobody debugs it
  fi
  options+=("-DMOESAIC_CUDA_CHIPS=80;86;89;90a;100a;103a;120a;121a")  # 8 s
  mkdir -p build
  cmake --preset "$preset" "-DMOESAIC_ISAS=$isas" "-DMOESAIC_ONLY_LINKED=$linked" "${options[@]}" >build/configure.log
  grep -o "GPU parts.*" build/configure.log || true
  # shellcheck disable=SC2086
  cmake --build --preset "$preset" --target $targets -- --quiet
  local only=()
  (($# > 0)) && only=(-L "^($(IFS='|'; echo "$*"))\$")
  ctest --preset "$preset" -j "$((2 * $(nproc)))" "${only[@]}"  # many of them wait
}
# clang builds the sanitizers and g++ the rest, so that both compilers build all but launch/ (by clang: --all): ranks
# that are threads under ThreadSanitizer, readers of foreign bytes under AddressSanitizer, 20 s of
# fuzzing each. The whole suite is last, so that its summary ends the run.
run tsan threads
if ((all)); then
  export TEST_FAULTS=all TEST_KILLS=100 TEST_PLANS=all TEST_SLURM=all
fi
if ((all)); then run asan; else run asan foreign fuzz; fi
check() {  # a script that may be skipped, what it is told
  echo "== $1"
  "$@" || { local code=$?; ((code == 77)) || exit "$code"; }
}
if ((all)); then
  run clang
  check tests/launch/simgrid_check.sh "$PWD/build/clang/bin/moesaic"
  check tests/launch/simgrid_check.sh "$PWD/build/clang/bin/moesaic" 256 4
  check tests/launch/study_kill_check.sh "$PWD/build/clang/bin/moesaic"
  check tests/launch/report_check.sh "$PWD/build/clang/bin/moesaic" "$PWD/tests/data"
fi
run dev
