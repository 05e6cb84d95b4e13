#!/usr/bin/env bash
# The one list of Debian packages that Moesaic needs. Installs those that are missing with apt-get and says
# which; silent and quick when all are there.
# usage: tools/packages.sh [--tests] [--studies] [--rivals] [--list]
#   --tests   also what the tests need: GoogleTest, clang with its sanitizers, clang-format
#   --studies also what reports and predictions of studies are checked with: Chromium, SimGrid, rsvg-convert (300 MB)
#   --rivals  also what benchmarks can measure beside Moesaic: oneDNN
#   --list    print the names, install nothing
set -euo pipefail

packages=(
  g++ cmake ninja-build pkg-config
  openmpi-bin libopenmpi-dev        # ranks
  libhwloc-dev                      # cores and NUMA nodes
  libboost-program-options-dev      # flags, environment, .ini
  nlohmann-json3-dev libfmt-dev     # JSON, formatting
  libpcre2-dev libutf8proc-dev      # tokenizers
  libxxhash-dev                     # checksums
  libedit-dev                       # lines of moesaic chat
  libeigen3-dev                     # least squares of studies
)
test_packages=(
  libgtest-dev clang libclang-rt-dev clang-format
  python3-venv                      # a CUDA compiler from PyPI: tools/cuda.sh
  iproute2                          # hosts of network namespaces
  slurm-wlm munge                   # a Slurm of theirs
  shellcheck
)
study_packages=(chromium libsimgrid-dev librsvg2-bin)
rival_packages=(libdnnl-dev)          # moesaic bench kernels --rival onednn

list=0
for argument in "$@"; do
  case $argument in
    --tests) packages+=("${test_packages[@]}") ;;
    --studies) packages+=("${study_packages[@]}") ;;
    --rivals) packages+=("${rival_packages[@]}") ;;
    --list) list=1 ;;
    *) echo "usage: tools/packages.sh [--tests] [--studies] [--rivals] [--list]" >&2; exit 2 ;;
  esac
done
if ((list)); then
  printf '%s\n' "${packages[@]}"
  exit
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || status=absent
  [[ $status == installed ]] || missing+=("$package")
done
((${#missing[@]} > 0)) || exit 0

echo "Installing ${missing[*]}" >&2
as_root=()
if ((EUID != 0)); then
  command -v sudo >/dev/null || { echo "run as root, or install: ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
apt=("${as_root[@]}" apt-get -q -o DPkg::Lock::Timeout=300)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
