#!/bin/bash
# killed_rank.sh PROGRAM RANKS TRANSPORT: PROGRAM's last rank kills itself; every other one
# must report PeerFailure and end, under MPI's fault tolerance (ULFM).
set -u
program=$1
ranks=$2
transport=$3
if ! mpirun --version 2>/dev/null | grep -q 'Open MPI'; then
  echo "SKIPPED: needs Open MPI's mpirun"
  exit 77
fi
output=$(BLUEFOG_TRANSPORT=$transport timeout 120 mpirun --allow-run-as-root --oversubscribe \
  --bind-to none --with-ft ulfm -n "$ranks" "$program" 2>&1)
status=$?
echo "$output"
if grep -q 'with-ft' <<<"$output"; then
  echo "SKIPPED: this mpirun has no fault tolerance"
  exit 77
fi
survivors=$(grep -c '^survivor .* heard of rank' <<<"$output")
if [[ $status -ne 0 || $survivors -ne $((ranks - 1)) ]]; then
  echo "expected $((ranks - 1)) survivors and exit code 0, found $survivors and $status"
  exit 1
fi
