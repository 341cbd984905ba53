#!/bin/bash
# killed_pipeline_rank.sh BFRUN PROGRAM PHASE: PROGRAM's rank 1 of 4 is killed in that phase; the
# three others must hear of it, those that work with it by its name.
set -u
output=$(timeout 100 "$1" -np 4 "$2" "$3" 2>&1)
echo "$output"
survivors=$(grep -c 'survivor . heard of rank' <<<"$output")
named=$(grep -c 'survivor . heard of rank 1:' <<<"$output")
if [[ $survivors -ne 3 || $named -lt 1 ]]; then
  echo "expected 3 survivors, one of which names rank 1, found $survivors and $named"
  exit 1
fi
