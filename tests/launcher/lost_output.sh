#!/bin/bash
# lost_output.sh PROGRAM WORDS…: what it prints is lost, on a full device and on a closed stream; it
# says so, and fails.
set -u
failures=0

expect_failure() {
  local what="$1" words="$2" code="$3"
  if [[ $code == 0 ]] || ! grep -q 'cannot write standard output' <<<"$words"; then
    echo "FAILED: expected 'cannot write standard output' and a failure where it is $what, found code $code:"
    echo "$words"
    failures=1
  fi
}

words=$("$@" 2>&1 >/dev/full </dev/null)
expect_failure full "$words" $?
words=$("$@" 2>&1 >&- </dev/null)
expect_failure closed "$words" $?
exit $failures
