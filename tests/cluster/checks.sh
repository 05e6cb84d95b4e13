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

# beside COMMAND...: beside what follows, in a shell of its own: a check, or a function that makes some. tell_all waits
# for all of these and tells what they found, one after the other.
under_way=()
beside() {
  (
    failures=0
    "$@"
    exit "$failures"
  ) >"$work/beside-${#under_way[@]}" 2>&1 &
  under_way+=($!)
}
tell_all() {
  local number failed
  for number in "${!under_way[@]}"; do
    failed=0
    wait "${under_way[number]}" || failed=$?
    cat "$work/beside-$number"
    failures=$((failures + failed))
  done
  under_way=()
}
