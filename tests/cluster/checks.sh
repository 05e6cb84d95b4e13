# shellcheck shell=bash
# For the tests of this folder: `check` tells what came out as expected, `failures` counts what did not.

: "${work:?the folder of the test}"
failures=0
check() { # WHAT COMMAND...
  local what=$1
  shift
  if "$@"; then echo "$what: as expected"; else
    echo "$what: FAILED: $*"
    find "$work" -maxdepth 1 -name '*err' -exec tail -v -n 20 {} +
    failures=$((failures + 1))
  fi
}
