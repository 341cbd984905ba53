#!/bin/bash
# killed_pipeline_rank.sh BFRUN PROGRAM PHASE: PROGRAM's rank 1 of 4 is killed in that phase; the
# three others must hear of it by its name, and train in a pipeline of their own.
set -u
output=$(timeout 100 "$1" -np 4 --min-np 1 "$2" "$3" 2>&1)
echo "$output"
survivors=$(grep -c 'survivor . heard of rank' <<<"$output")
named=$(grep -c 'survivor . heard of rank 1:' <<<"$output")
rebuilt=$(grep -c 'survivor . trained in a pipeline of 3 stages' <<<"$output")
if [[ $survivors -ne 3 || $named -ne 3 || $rebuilt -ne 3 ]]; then
  echo "expected 3 survivors that name rank 1 and train on, found $survivors, $named and $rebuilt"
  exit 1
fi
