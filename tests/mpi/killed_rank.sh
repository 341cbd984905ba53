#!/bin/bash
# killed_rank.sh PROGRAM RANKS TRANSPORT [WAY]: PROGRAM's last rank ends (kill, orphan, _exit, exit)
# or stops; every other one must report PeerFailure and end, under MPI's fault tolerance (ULFM).
set -u
program=$1
ranks=$2
transport=$3
way=${4:-kill}
if ! mpirun --version 2>/dev/null | grep -q 'Open MPI'; then
  echo "SKIPPED: needs Open MPI's mpirun"
  exit 77
fi
output=$(BLUEFOG_TRANSPORT=$transport timeout 120 mpirun --allow-run-as-root --oversubscribe \
  --bind-to none --with-ft ulfm -n "$ranks" "$program" "$way" 2>&1)
status=$?
echo "$output"
if [[ $output =~ child\ ([0-9]+) ]]; then
  kill "${BASH_REMATCH[1]}"
fi
if grep -q 'with-ft' <<<"$output"; then
  echo "SKIPPED: this mpirun has no fault tolerance"
  exit 77
fi
survivors=$(grep -c '^survivor .* heard of rank' <<<"$output")
# The exit code of a rank that ended by itself is mpirun's too.
case $way in
  kill | orphan) expected=0 ;;
  stop) expected=7 ;;
  *) expected=6 ;;
esac
if [[ $status -ne $expected || $survivors -ne $((ranks - 1)) ]]; then
  echo "expected $((ranks - 1)) survivors and exit code $expected, found $survivors and $status"
  exit 1
fi
