#!/bin/bash
# host_limits.sh PROGRAM CASE: ranks of a host share memory although a limit is low or a stranger
# connects (addresses, descriptors, stranger), or say which limit kept them (no_descriptors).
set -u
program=$1
case=$2
ranks=3
if ! mpirun --version 2>/dev/null | grep -q 'Open MPI'; then
  echo "SKIPPED: needs Open MPI's mpirun"
  exit 77
fi

start() {
  BLUEFOG_TRANSPORT=auto timeout 60 mpirun --allow-run-as-root --oversubscribe --bind-to none \
    -n "$ranks" "$program" "$1" 2>&1
}

# expect TRANSPORT OUTPUT: all ranks reach the next one by it.
expect() {
  local found
  found=$(grep -c "^rank [0-9]*: $1\$" <<<"$2")
  if [[ $found -ne $ranks ]]; then
    echo "$2"
    echo "expected $ranks ranks that say $1, found $found"
    exit 1
  fi
}

case $case in
  addresses)
    ulimit -v $((4 * 1024 * 1024)) || exit 77
    expect shm "$(start addresses)"
    ;;
  descriptors)
    ulimit -Sn 256 || exit 77
    [[ $(ulimit -Hn) != 256 ]] || exit 77
    expect shm "$(start descriptors)"
    ;;
  no_descriptors)
    ulimit -n 256 || exit 77
    output=$(start descriptors)
    expect mpi "$output"
    if ! grep -q 'no shared memory on this host: .*256 descriptors (RLIMIT_NOFILE' <<<"$output"; then
      echo "$output"
      echo "expected a warning that names the limit"
      exit 1
    fi
    if grep -Eq 'refused|Broken pipe' <<<"$output"; then
      echo "$output"
      echo "expected no other reason"
      exit 1
    fi
    ;;
  stranger)
    if [[ $(id -u) -ne 0 ]]; then
      echo "SKIPPED: needs root, to become another user"
      exit 77
    fi
    coproc STRANGER { exec "$program" stranger; }
    trap 'kill "$STRANGER_PID"' EXIT
    read -r -t 20 _ <&"${STRANGER[0]}" || { echo "no stranger came"; exit 1; }
    for _ in 1 2 3 4 5; do
      expect shm "$(start plain)"
    done
    ;;
esac
