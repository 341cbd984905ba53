# For run_test.sh, ending_test.sh and others, which source it with their arguments CASE BFRUN AFFINITY
# [PROGRAM]. Exit code 0: passed; 77: cannot run here; else failed, with the reason.
set -u

case_name="$1"
bfrun="$2"
bfrun_itself="$bfrun"
affinity="$3"
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
unset OMP_NUM_THREADS MKL_NUM_THREADS MASTER_ADDR MASTER_PORT
work="$(mktemp -d)"
trap '[[ -z "${job:-}" ]] || kill "$job" 2>/dev/null; rm -rf "$work"' EXIT  # a case that fails leaves none
code=0
# LAUNCHER: who starts the ranks, where a case does not say.
if [[ -n "${LAUNCHER:-}" ]]; then
  printf '#!/bin/sh\nexec "%s" --launcher %s "$@"\n' "$bfrun" "$LAUNCHER" >"$work/bfrun"
  chmod +x "$work/bfrun"
  bfrun="$work/bfrun"
fi

# Runs the words with both outputs caught; `code` is the exit code. A run that hangs is killed.
run() { timeout -k 2 "${limit:-30}" "$@" >"$work/out" 2>"$work/err" </dev/null; code=$?; }
# Starts bfrun in the background; `job` is its pid.
start() { "$bfrun" "$@" >"$work/out" 2>"$work/err" </dev/null & job=$!; }

fail() {
  echo "FAILED: $case_name: $*"
  echo "--- exit code $code, standard output:"; cat "$work/out"
  echo "--- standard error:"; cat "$work/err"
  exit 1
}
expect_code() { [[ "$code" == "$1" ]] || fail "expected exit code $1, found $code"; }
expect_error() { grep -qE -- "$1" "$work/err" || fail "expected '$1' on standard error"; }
expect_no_error() { ! grep -qE -- "$1" "$work/err" || fail "found '$1' on standard error"; }
expect_output() {  # the lines of standard output, sorted
  [[ "$(sort "$work/out")" == "$1" ]] || fail "expected output '$1'"
}
# Waits until `$1` ranks have written their pid into $work/pids.
wait_for_ranks() {
  for _ in $(seq 200); do
    [[ "$(cat "$work"/pid.* 2>/dev/null | wc -l)" == "$1" ]] && return
    sleep 0.1
  done
  fail "the ranks did not start"
}
# Every process that wrote its pid must be gone soon.
expect_no_orphan() {
  for _ in $(seq 100); do
    alive=""
    for pid in $(cat "$work"/pid.*); do
      [[ -d "/proc/$pid" && "$(cut -d' ' -f3 "/proc/$pid/stat")" != Z ]] && alive="$alive $pid"
    done
    [[ -z "$alive" ]] && return
    sleep 0.1
  done
  fail "processes of the job are still there:$alive"
}
# A rank that leaves its pid and that of a child, and stays.
stay="echo \$\$ >$work/pid.\$RANK; sleep 600 & echo \$! >>$work/pid.\$RANK; wait"
# An mpirun that starts the ranks on this machine, then runs the lines of $1 and listens to nobody.
make_mpirun() {
  cat >"$work/mpirun" <<END
#!/bin/bash
[[ "\$1" == --version ]] && exec echo "mpirun (Open MPI) 5.0.11"
trap "" TERM INT HUP QUIT
while [[ "\$1" != -np ]]; do shift; done
export OMPI_COMM_WORLD_SIZE="\$2" OMPI_COMM_WORLD_LOCAL_SIZE="\$2"
while [[ "\$1" != "$bfrun_itself" && "\$1" != /bin/sh ]]; do shift; done
words=("\$@")
[[ "\$1" == /bin/sh ]] && words[3]=/nonexistent  # bfrun is not installed there
for ((rank = 0; rank < OMPI_COMM_WORLD_SIZE; ++rank)); do
  OMPI_COMM_WORLD_RANK=\$rank OMPI_COMM_WORLD_LOCAL_RANK=\$rank env --default-signal "\${words[@]}" &
done
$1
END
  chmod +x "$work/mpirun"
}
cores="$("$affinity" | cut -d: -f2 | tr ',' '\n' | wc -l)"

