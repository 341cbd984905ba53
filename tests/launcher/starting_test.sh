#!/bin/bash
# starting_test.sh CASE BFRUN AFFINITY PROGRAM: how the ranks of a launch come together
# (tests/mpi/starting.cpp), or why they do not.
source "$(dirname "${BASH_SOURCE[0]}")/kit.sh"
program="$4"

# Two processes with the variables of a launcher each, as launchers that cannot be joined start
# them.
start_two() {
  for rank in 0 1; do
    run env "${@//RANK_HERE/$rank}" "$program"
    [[ "$code" == 1 ]] || fail "$*: expected exit code 1 on rank $rank, found $code"
  done
}

case "$case_name" in
launchers_of_others)
  start_two RANK=RANK_HERE WORLD_SIZE=2; expect_error "^RANK=1 and WORLD_SIZE=2 say .* bfrun"
  start_two TORCHELASTIC_RUN_ID=none RANK=RANK_HERE WORLD_SIZE=2
  expect_error "^TORCHELASTIC_RUN_ID=none, RANK=1 and WORLD_SIZE=2 say that torchrun .* bfrun"
  start_two PMI_RANK=RANK_HERE PMI_SIZE=2; expect_error "^PMI_RANK=1 and PMI_SIZE=2 say .* bfrun"
  start_two PMI_SIZE=2; expect_error "^PMI_SIZE=2 says .* bfrun"
  start_two MV2_COMM_WORLD_RANK=RANK_HERE MV2_COMM_WORLD_SIZE=2; expect_error "^MV2_COMM_.* bfrun"
  start_two PALS_RANKID=RANK_HERE PALS_SIZE=2; expect_error "^PALS_RANKID=1 and PALS_SIZE=2 .* bfrun"
  start_two MPT_MPI_RANK=RANK_HERE MPT_MPI_SIZE=2; expect_error "^MPT_MPI_RANK=1 and MPT_MPI_SIZE=2 .* bfrun"
  # Variables that are missing, or make no sense.
  start_two RANK=RANK_HERE WORLD_SIZE=abc; expect_error "^RANK=1 and WORLD_SIZE=abc: expected a number of ranks"
  run env RANK=1 "$program"; expect_code 1; expect_error "^RANK=1: expected WORLD_SIZE beside it, found none"
  # The variables of an mpirun whose servers this MPI does not reach.
  start_two OMPI_COMM_WORLD_RANK=RANK_HERE OMPI_COMM_WORLD_SIZE=2
  expect_error "^OMPI_COMM_WORLD_RANK=1 and OMPI_COMM_WORLD_SIZE=2 say .* bfrun"
  run env WORLD_SIZE=4 "$program"; expect_code 1; expect_error "^WORLD_SIZE=4: expected 4 processes that a"
  run env SLURM_NTASKS=4 SLURM_PROCID=0 "$program"; expect_code 1
  expect_error "^SLURM_NTASKS=4: expected 4 processes .* BLUEFOG_EXPECT_SIZE=1"
  for quiet in RANK=0\ WORLD_SIZE=1 RANK=0 WORLD_SIZE=4\ BLUEFOG_EXPECT_SIZE=1 PMI_RANK=0\ PMI_SIZE=1 \
    MV2_COMM_WORLD_RANK=0\ MV2_COMM_WORLD_SIZE=1; do
    read -ra words <<<"$quiet"
    run env "${words[@]}" "$program"; expect_code 0; expect_output "rank 0 of 1"; expect_no_error .
  done
  ;;
variables_alone)
  # No launcher: RANK and its like, as Kubernetes sets them; and tasks of Slurm without PMIx.
  for host in 127.0.0.1 localhost ::1; do
    [[ "$host" == ::1 ]] && ! ip -6 addr show dev lo 2>/dev/null | grep -q ::1 && continue
    export WORLD_SIZE=3 MASTER_ADDR=$host MASTER_PORT=$((20000 + RANDOM % 10000)) BLUEFOG_LOG_LEVEL=info
    for rank in 2 0 1; do RANK=$rank "$program" & done >"$work/out" 2>"$work/err"
    wait; expect_output $'rank 0 of 3\nrank 1 of 3\nrank 2 of 3'
    expect_error "3 ranks, started by MASTER_ADDR and MASTER_PORT \(RANK=0 and WORLD_SIZE=3\), over the store of rank 0"
  done
  unset WORLD_SIZE MASTER_ADDR MASTER_PORT
  export SLURM_STEP_NUM_TASKS=2 SLURM_JOB_ID=$RANDOM SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n1
  for rank in 0 1; do SLURM_PROCID=$rank "$program" & done >"$work/out" 2>"$work/err"
  wait; expect_output $'rank 0 of 2\nrank 1 of 2'; expect_error "started by Slurm"
  # Nobody asked for two ranks where four are expected; and a rank that never comes is named.
  export BLUEFOG_EXPECT_SIZE=4
  for rank in 0 1; do SLURM_PROCID=$rank "$program" & done >"$work/out" 2>"$work/err"
  wait; expect_error "BLUEFOG_EXPECT_SIZE=4: expected that many ranks, found 2"; expect_output ""
  ;;
other_hosts)
  # Without MPI hosts reach each other over TCP, and where MPI is asked for it is missed.
  run "$bfrun" --launcher own -np 2 sh -c "BLUEFOG_HOST_ID=\$RANK exec $program"
  expect_code 0; expect_output $'rank 0 of 2\nrank 1 of 2'
  run "$bfrun" --launcher own -np 2 -x BLUEFOG_NETWORK=mpi sh -c "BLUEFOG_HOST_ID=\$RANK exec $program"
  expect_code 1  # bfrun ends the others when the first has failed
  expect_error "rank [01], BLUEFOG_NETWORK=mpi: expected ranks that MPI has started"
  ;;
descriptor_limit)
  # bfrun raises its soft limit. Where the hard one is too low, a rank says so at once.
  few() { local most=$1; shift; run bash -c "ulimit $most; exec \"\$@\"" few "$bfrun" -np 16 "$@"; }
  few "-Sn 24" "$program"; expect_code 0; [[ "$(wc -l <"$work/out")" == 16 ]] || fail "expected 16 ranks"
  few "-n 24" "$program"; expect_code 1
  expect_error "has no room for this process: .* process [0-9]+ may have 24 descriptors \(RLIMIT_NOFILE, ulimit -n\); 96 suffice for 16 ranks"
  few "-n 24" true; expect_code 0
  few "-n 6" true; expect_code 1; expect_error "^bfrun: .*: Too many open files: this process may have 6 descriptors \(RLIMIT"
  # The store of rank 0, which is in its own process.
  export WORLD_SIZE=16 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + RANDOM % 10000))
  : >"$work/out"; : >"$work/err"
  for rank in $(seq 15); do RANK=$rank "$program" & done >>"$work/out" 2>>"$work/err"  # as rank 0 does below
  (ulimit -n 20; RANK=0 BLUEFOG_TIMEOUT=10 "$program") >>"$work/out" 2>>"$work/err"
  wait  # Rank 0 has none left for itself either, or a rank is told that it cannot be served: who is first.
  expect_error "the store of rank 0 at .* may have 20 descriptors \(RLIMIT_NOFILE, ulimit -n\)"
  ;;
lonely_mpi)
  # A program with MPI of its own, which no mpirun has started.
  run "$bfrun" --launcher own -np 2 "$4" first
  expect_code 1; expect_error "BFRUN_RANK=[01] and BFRUN_SIZE=2 say .* found itself alone.* bfrun --launcher mpirun"
  run "$bfrun" --launcher mpirun -np 2 "$4" first; expect_code 0; expect_output $'rank 0 of 2\nrank 1 of 2'
  ;;
refused_options)
  run "$bfrun" --launcher none -np 1 true; expect_code 2; expect_error "--launcher wants own, mpirun or auto, found 'none'"
  run "$bfrun" --launcher own -np 2 -H elsewhere:2 true; expect_code 2
  expect_error "--launcher own starts ranks on this machine alone, found host 'elsewhere'"
  run "$bfrun" --launcher own --mpirun /bin/true -np 2 true; expect_code 2; expect_error "starts no mpirun, and --mpirun is for"
  run env BLUEFOG_TRANSPORT=mpi "$bfrun" --launcher own -np 2 true; expect_code 2; expect_error "BLUEFOG_TRANSPORT=mpi is for mpirun"
  ;;
own_variables)
  run "$bfrun" -np 2 "$program"; expect_code 0; expect_output $'rank 0 of 2\nrank 1 of 2'
  # A shell around the program, and one program after another, are a rank each.
  run "$bfrun" -np 2 sh -c "$program; exit \$?"; expect_code 0; expect_output $'rank 0 of 2\nrank 1 of 2'
  run "$bfrun" -np 2 sh -c "TORCHELASTIC_RUN_ID=x RANK=\$((2 * RANK)) WORLD_SIZE=4 $program"
  expect_code 1; expect_error "^RANK=[02] and WORLD_SIZE=4, by torchrun, and OMPI_COMM_WORLD_RANK=[01] and OMPI_COMM_WORLD_SIZE=2, by Open MPI|^BFRUN_RANK=[01] and BFRUN_SIZE=2, by bfrun, and RANK=[02] and WORLD_SIZE=4, by torchrun"
  ;;
children_are_refused)
  run "$bfrun" -np 2 "$program" 3; expect_code 0; expect_output $'rank 0 of 2\nrank 1 of 2'
  expect_error "^rank 1 of this launch is process [0-9]+ already, and process [0-9]+ was started .*(OMPI_COMM_WORLD|BFRUN)_RANK=1"
  expect_error "^process [0-9]+ was forked from process [0-9]+, which is rank 0"
  ;;
rank_that_never_comes)
  export BLUEFOG_TIMEOUT=3 BLUEFOG_STALL_WARNING=1
  run "$bfrun" -np 2 sh -c "echo \$\$ >$work/pid.\$RANK; [ \$RANK = 1 ] && exec sleep 600; exec $program"
  expect_code 1; expect_no_orphan
  expect_error "rank 0\].* has been waiting for .* s for all 2 ranks: (seen on this host: 0; not seen: 1|rank 1 has not come)"
  expect_error "on rank 0(, over .*)?: expected all 2 ranks within 3 s \(BLUEFOG_TIMEOUT\), (seen on this host: 0; not seen: 1|rank 1 has not come)"
  ;;
late_rank)
  # Rank 1 comes when rank 0 has complained of it.
  export BLUEFOG_TIMEOUT=60 BLUEFOG_STALL_WARNING=1
  run "$bfrun" -np 2 sh -c "[ \$RANK = 0 ] && exec $program 2>$work/words
    until grep -qE 'not seen: 1|rank 1 has not come' $work/words 2>/dev/null; do sleep 0.1; done; exec $program"
  expect_code 0; expect_output $'rank 0 of 2\nrank 1 of 2'
  # Or when rank 0 has given up once, and tries again.
  export BLUEFOG_TIMEOUT=1
  run "$bfrun" -np 2 sh -c "[ \$RANK = 0 ] && exec $program again 2>$work/more
    until grep -qE 'not seen: 1|rank 1 has not come' $work/more 2>/dev/null; do sleep 0.1; done; exec $program again"
  expect_code 0; expect_output $'rank 0 of 2\nrank 1 of 2'
  ;;
slurms_security)
  # Slurm says nothing of where Open MPI lies, and offers ways of showing who one is that a wheel
  # lacks.
  run "$bfrun" --launcher mpirun -np 2 env -u OPAL_PREFIX -u PMIX_PREFIX PMIX_SECURITY_MODE=munge,native "$program"
  expect_code 0; expect_output $'rank 0 of 2\nrank 1 of 2'
  expect_no_error "Sorry|not found"
  ;;
missing_on_another_host)
  # The ranks of the first host cannot see which one of the others is missing.
  export BLUEFOG_TIMEOUT=6 BLUEFOG_STALL_WARNING=2
  run "$here/../hosts/netns.sh" -n 2 -- "$bfrun" -np 4 -H bfhost1:2,bfhost2:2 \
    sh -c "[ \$RANK = 3 ] && exec sleep 600; exec $program"
  [[ "$code" == 77 ]] && { sed -n 's/.*SKIPPED/SKIPPED/p' "$work/err"; exit 77; }
  expect_code 1
  missing='rank 3 on host bfhost2 \(pid [0-9]+\)$'
  expect_error "^bfrun: 3 of 4 ranks have waited 2 s in init .*: $missing"
  expect_error "^bfrun: ranks waited in init .* had not come to it: $missing"
  expect_error "on rank [012]: .*, seen on this host: (0, 1; not seen: 2, 3|2; not seen: 0, 1, 3) \(those of other hosts never are\)"
  ;;
*)
  fail "unknown case"
  ;;
esac
echo "passed"
