#!/bin/bash
# run_test.sh CASE BFRUN AFFINITY [PROGRAM]: one run of bfrun with a real mpirun, and its result.
source "$(dirname "${BASH_SOURCE[0]}")/kit.sh"

case "$case_name" in
usage_errors)
  run "$bfrun" -np 0 true; expect_code 2; expect_error "-np wants a number.*'0'"
  run "$bfrun" -np -1 true; expect_code 2; expect_error "'-1'"
  run "$bfrun" -np two true; expect_code 2; expect_error "'two'"
  run "$bfrun" -np 2; expect_code 2; expect_error "no command"
  run "$bfrun" -np 3 -H here:1,there:1 true; expect_code 2; expect_error "-np 3 .*2 slots"
  printf 'a\nb slots=x\n' >"$work/hosts"
  run "$bfrun" -np 1 --hostfile "$work/hosts" true; expect_code 2; expect_error "line 2 'b slots=x'"
  run "$bfrun" -np 1 --extra-mpi-flags "'a" true; expect_code 2; expect_error "no closing '"
  run "$bfrun" -np 1 --network-interface nonexistent7 true; expect_code 2
  expect_error "no interface 'nonexistent7'"
  run "$bfrun" -np 100000 true; expect_code 2
  expect_error "-np 100000: .* at most $((64 * cores)) ranks.*--oversubscribe"
  run "$bfrun" -np 4096 --bind-to core true; expect_code 2; expect_error "a core for each rank"
  ;;
missing_command)
  run "$bfrun" -np 2 "$work/nothing"; expect_code 127; expect_error "no such program"
  run "$bfrun" -np 2 no-such-program-7; expect_code 127
  echo text >"$work/text"
  run "$bfrun" -np 2 "$work/text"; expect_code 126; expect_error "not an executable"
  run "$bfrun" -np 2 "$work"; expect_code 126
  ;;
version_and_build)
  run "$bfrun" --version; expect_code 0; grep -qE '^bfrun [0-9.]+$' "$work/out" || fail "no version"
  run "$bfrun" --check-build; expect_code 0
  for word in 'transports  shared memory, TCP' mpirun LibTorch CUDA SIMD; do
    grep -q "$word" "$work/out" || fail "$word is missing"
  done
  ;;
exit_code)
  run "$bfrun" -np 2 true; expect_code 0; expect_no_error "exited"
  run "$bfrun" -np 2 sh -c 'exit 3'; expect_code 3
  ;;
rank_variables)
  run "$bfrun" -np 2 sh -c 'echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR'
  expect_code 0; expect_output $'0/2 0/2 127.0.0.1\n1/2 1/2 127.0.0.1'
  run "$bfrun" -np 2 sh -c 'echo $((MASTER_PORT > 0))'; expect_output $'1\n1'
  run "$bfrun" --launcher own -np 1 sh -c 'env | grep -E "^(BFRUN_(REPORT|BIND|LINE|SESSION)|OMPI)" | grep -v yield'
  expect_output ""
  run "$bfrun" --launcher mpirun -np 1 sh -c 'env | grep -E "^(BFRUN_(REPORT|BIND|LINE|SESSION|STORE)|OMPI_ARGV)"'; expect_output "OMPI_ARGV=-c env | grep -E \"^(BFRUN_(REPORT|BIND|LINE|SESSION|STORE)|OMPI_ARGV)\""
  ;;
ranks_without_watcher)
  make_mpirun 'wait; exit 0'
  run "$bfrun" --mpirun "$work/mpirun" -H elsewhere:2 -np 2 sh -c 'echo $RANK/$WORLD_SIZE'
  expect_code 0; expect_output $'0/2\n1/2'; expect_no_error 'rank [01]'
  run "$bfrun" --mpirun "$work/mpirun" -H elsewhere:2 -np 2 sh -c 'exit $((3 * RANK))'
  expect_code 3; expect_error '^bfrun: rank 1 on host .* exited with code 3$'
  run "$bfrun" --mpirun "$work/mpirun" -H elsewhere:2 -np 2 sh -c '[ $RANK = 0 ] || kill -9 $$'
  expect_code 137; expect_error '^bfrun: rank 1 on host .* killed by signal 9 \(SIGKILL\)$'
  ;;
stale_allocations)
  for variables in "SLURM_JOBID=17" \
    "SLURM_JOB_ID=17 SLURM_JOBID=17 SLURM_NODELIST=n[1-2] SLURM_JOB_NODELIST=n[1-2] SLURM_TASKS_PER_NODE=2(x2)" \
    "PBS_ENVIRONMENT=x PBS_JOBID=5 PBS_NODEFILE=/nonexistent" \
    "LSB_JOBID=3 LSB_HOSTS=a LSB_AFFINITY_HOSTFILE=/nonexistent LSF_ENVDIR=/nonexistent"; do
    read -ra words <<<"$variables"
    run env "${words[@]}" "$bfrun" -np 2 sh -c 'echo $RANK'; expect_code 0; expect_output $'0\n1'
    # Programs still see them.
    run env "${words[@]}" "$bfrun" -np 1 sh -c "env | grep -c '^${words[0]%%=*}='"
    expect_code 0; expect_output 1
  done
  ;;
slurm_allocation)
  mkdir "$work/bin"; printf '#!/bin/sh\nexit 1\n' >"$work/bin/srun"; chmod +x "$work/bin/srun"
  export PATH="$work/bin:$PATH" SLURM_JOB_ID=17 SLURM_TASKS_PER_NODE=2
  export SLURM_JOB_NODELIST="$(hostname)"
  run "$bfrun" -np 2 sh -c 'echo $RANK'; expect_code 0; expect_output $'0\n1'
  expect_no_error "Slurm"
  run "$bfrun" -np 3 sh -c 'echo $RANK'; expect_code 0; expect_output $'0\n1\n2'
  expect_error "-np 3 is more than the 2 tasks that Slurm has granted"
  ;;
unusable_tmpdir)
  unshare --mount true 2>/dev/null || { echo "SKIPPED: this machine allows no new namespaces"; exit 77; }
  mkdir "$work/tmp"
  export TMPDIR="$work/tmp"
  run unshare --mount sh -c 'mount -t tmpfs -o ro none "$TMPDIR"; exec "$@"' sh "$bfrun" --launcher mpirun -np 1 true
  expect_code 2; expect_error "^bfrun: TMPDIR: expected .* '$work/tmp' takes none: Read-only"
  run unshare --mount sh -c 'mount -t tmpfs -o size=64k none "$TMPDIR"
    head -c 65536 /dev/zero >"$TMPDIR/full" 2>/dev/null; exec "$@"' sh "$bfrun" --launcher mpirun -np 1 true
  expect_code 2; expect_error "^bfrun: TMPDIR: expected .* '$work/tmp' takes none: No space"
  ;;
own_names)
  own="$(hostname)"
  for hosts in LOCALHOST:2 "${own^^}:2" "$own.:2" localhost.:2 "localhost:1,$own:1"; do
    run "$bfrun" -H "$hosts" -np 2 sh -c 'echo $RANK'; expect_code 0; expect_output $'0\n1'
    expect_error "2 ranks on 1 host"
  done
  ;;
mpirun_refuses)
  run "$bfrun" -np 1 --extra-mpi-flags "--nonsense" true; expect_code 2
  expect_error "^bfrun: mpirun ended with code 213 .*--extra-mpi-flags '--nonsense'"
  run "$bfrun" -np 1 --extra-mpi-flags "stray" true; expect_code 66
  expect_error "^bfrun: mpirun ended with code 66 .*'stray'"
  ;;
user_signal_reaches_ranks)
  start -np 2 sh -c "trap 'echo usr \$RANK; exit 0' USR1; echo \$\$ >$work/pid.\$RANK; while :; do sleep 0.1; done"
  wait_for_ranks 2
  kill -USR1 "$job"; wait "$job"; code=$?
  expect_code 0; expect_output $'usr 0\nusr 1'
  ;;
more_ranks_than_cores)
  run "$bfrun" -np $((4 * cores)) sh -c 'echo $WORLD_SIZE'
  expect_code 0; [[ "$(grep -c "^$((4 * cores))$" "$work/out")" == $((4 * cores)) ]] || fail "ranks"
  expect_error "$((4 * cores)) ranks on 1 host, not bound"
  run "$bfrun" --oversubscribe -np $((64 * cores + 1)) --mpirun "$work/none" true
  expect_code 2; expect_error "--mpirun.*$work/none"
  ;;
environment_is_exported)
  export BF_TEST_HERE="from here"
  run "$bfrun" -np 2 -x BF_TEST_A="a b=c" -x BF_TEST_MISSING --timeline-filename tl \
    sh -c 'echo "$BF_TEST_HERE|$BF_TEST_A|$BLUEFOG_TIMELINE"'
  expect_code 0; expect_output $'from here|a b=c|tl\nfrom here|a b=c|tl'
  expect_error "-x BF_TEST_MISSING: not set"
  ;;
threads_are_set)
  run "$bfrun" -np 1 sh -c 'echo $OMP_NUM_THREADS $MKL_NUM_THREADS'
  threads="$(sed -nE 's/.* ([0-9]+) threads? per rank$/\1/p' "$work/err")"
  [[ -n "$threads" ]] || fail "no thread count was printed"
  expect_output "$threads $threads"
  run "$bfrun" -np $((2 * cores)) sh -c 'echo $OMP_NUM_THREADS'
  [[ "$(sort -u "$work/out")" == 1 ]] || fail "expected one thread for each rank"
  OMP_NUM_THREADS=5 run "$bfrun" -np 1 sh -c 'echo $OMP_NUM_THREADS'
  expect_output 5; expect_error "OMP_NUM_THREADS=5 as set"
  ;;
binding_is_true)
  ((cores % 2 == 0)) || { echo "SKIPPED: needs an even number of cores, found $cores"; exit 77; }
  run "$bfrun" -np 2 "$affinity"; expect_code 0
  each="$(sed -nE 's/.* ([0-9]+) cores? each \(bound\).*/\1/p' "$work/err")"
  [[ -n "$each" ]] || { expect_error "not bound"; echo "SKIPPED: a CPU quota forbids binding"; exit 77; }
  all="$(cut -d: -f2 "$work/out" | tr ',' '\n')"
  [[ "$(sort -u <<<"$all" | wc -l)" == "$(wc -l <<<"$all")" ]] || fail "shares overlap"
  [[ "$(wc -l <<<"$all")" -ge $((2 * each)) ]] || fail "fewer cores than printed"
  run "$bfrun" -np 2 --bind-to none "$affinity"; expect_error "not bound"
  everything="$("$affinity" | cut -d: -f2)"
  expect_output "0:$everything"$'\n'"1:$everything"
  ;;
narrow_mask_is_respected)
  ((cores >= 2)) || { echo "SKIPPED: needs two cores"; exit 77; }
  last="$("$affinity" | cut -d: -f2 | tr ',' '\n' | tail -1)"
  run taskset -c "$last" "$bfrun" -np 1 "$affinity"; expect_output "0:$last"; expect_error "\(1 core\)"
  run taskset -c "$last" "$bfrun" -np 1 --bind-to core "$affinity"; expect_output "0:$last"
  ;;
closed_input)
  timeout -k 2 30 "$bfrun" -np 2 sh -c 'read x; echo "$RANK:$x"' <&- >"$work/out" 2>"$work/err"; code=$?
  expect_code 0; expect_output $'0:\n1:'
  run "$bfrun" -np 2 sh -c 'read x; echo "$RANK:$x"'; expect_code 0; expect_output $'0:\n1:'
  ;;
input_reaches_rank_zero)
  echo hello | timeout -k 2 30 "$bfrun" -np 2 sh -c 'read x; echo "$RANK:$x"' >"$work/out" 2>"$work/err"; code=$?
  expect_code 0; expect_output $'0:hello\n1:'
  ;;
missing_mpirun)
  run "$bfrun" --mpirun "$work/none" -np 1 true; expect_code 2; expect_error "--mpirun.*$work/none"
  BLUEFOG_MPIRUN=/bin/echo run "$bfrun" -np 1 true; expect_code 2; expect_error "not Open MPI"
  ;;
output_is_untouched)
  run "$bfrun" -np 1 sh -c 'seq 20000 >&2; printf "no end" >&2'
  expect_code 0
  sed 1d "$work/err" | cmp -s - <(seq 20000; printf "no end") || fail "standard error was changed"
  ;;
leftover_session_folder)
  # Process ids start anew in a process namespace: mpirun gets the same low number again and again.
  unshare --pid --fork --mount-proc true 2>/dev/null ||
    { echo "SKIPPED: this machine allows no new namespaces"; exit 77; }
  mkdir "$work/tmp"; export TMPDIR="$work/tmp"
  for pid in $(seq 2 40); do
    mkdir "$TMPDIR/ompi.$pid"; touch "$TMPDIR/ompi.$pid/pmix.$(hostname).tool"
  done
  run unshare --pid --fork --mount-proc "$bfrun" --launcher mpirun -np 2 sh -c 'echo $RANK'
  expect_code 0; expect_output $'0\n1'
  [[ -z "$(find "$TMPDIR" -name 'bfrun.*')" ]] || fail "bfrun left its folder behind"
  # A place that the user has chosen stays.
  mkdir "$work/base"
  run "$bfrun" --extra-mpi-flags "--prtemca prte_tmpdir_base $work/base" -np 1 sh -c 'echo $PMIX_SERVER_TMPDIR'
  expect_code 0; grep -q "^$work/base/" "$work/out" || fail "not in $work/base"
  PRTE_MCA_prte_tmpdir_base="$work/base" run "$bfrun" --launcher mpirun -np 1 sh -c 'echo $PMIX_SERVER_TMPDIR'
  expect_code 0; grep -q "^$work/base/" "$work/out" || fail "not in $work/base"
  ;;
two_hosts)
  # Keys stay on their host, unless they are named.
  export BF_TEST_TOKEN=secret BF_TEST_NAMED=known
  run "$here/../hosts/netns.sh" -n 2 -- "$bfrun" --verbose -np 2 -H bfhost1,bfhost2 \
    -x BF_TEST_NAMED sh -c 'echo "$RANK $BF_TEST_NAMED"'
  if [[ "$code" != 77 ]]; then
    expect_output $'0 known\n1 known'
    expect_error "-x BF_TEST_NAMED"; expect_error "-x PATH"; expect_no_error "BF_TEST_TOKEN"
  fi
  run "$here/../hosts/netns.sh" -n 2 -- "$bfrun" -np 4 -H bfhost2:2,bfhost1:2 \
    -x BF_TEST_A="a b" --network-interface eth0 \
    sh -c 'echo "$RANK/$WORLD_SIZE $(hostname) $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR $BF_TEST_A"'
  [[ "$code" == 77 ]] && { sed -n 's/.*SKIPPED/SKIPPED/p' "$work/err"; exit 77; }
  expect_code 0
  expect_output $'0/4 bfhost2 0/2 bfhost2 a b\n1/4 bfhost2 1/2 bfhost2 a b\n2/4 bfhost1 0/2 bfhost2 a b\n3/4 bfhost1 1/2 bfhost2 a b'
  expect_error "bfrun: 4 ranks on 2 hosts"
  run "$here/../hosts/netns.sh" -n 2 -- "$bfrun" -np 2 -H bfhost1,bfhost2 \
    sh -c '[ $RANK = 1 ] && kill -9 $$; sleep 600'
  expect_code 137; expect_error 'bfrun: rank 1 on host bfhost2 .* killed by signal 9'
  ;;
*)
  fail "unknown case"
  ;;
esac
echo "passed"
