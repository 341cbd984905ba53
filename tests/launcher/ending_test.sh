#!/bin/bash
# ending_test.sh CASE BFRUN AFFINITY [PROGRAM]: one job that ends, or is ended, in some way; what
# bfrun says then, and leaves.
source "$(dirname "${BASH_SOURCE[0]}")/kit.sh"

case "$case_name" in
hung_mpirun_is_ended)
  make_mpirun "exec sleep 600"
  for code_of_ranks in 0 3; do
    run "$bfrun" --mpirun "$work/mpirun" -np 2 sh -c "echo \$\$ >$work/pid.\$RANK; exit $code_of_ranks"
    expect_code "$code_of_ranks"; expect_error "mpirun was still there 3 s after the end of the last rank"
    expect_no_orphan; rm "$work"/pid.*
  done
  # A failure ends the job, whatever becomes of the others.
  run "$bfrun" --mpirun "$work/mpirun" -np 2 sh -c "[ \$RANK = 1 ] && kill -9 \$\$; $stay"
  expect_code 137; expect_error "bfrun: rank 1 .* killed by signal 9"; expect_no_orphan
  ;;
hung_mpirun_and_signals)
  make_mpirun "exec sleep 600"
  for signal in TERM:143 INT:130 HUP:129; do
    env --default-signal=INT "$bfrun" --mpirun "$work/mpirun" -np 2 sh -c "trap '' TERM HUP INT; $stay" \
      >"$work/out" 2>"$work/err" </dev/null & job=$!
    wait_for_ranks 4
    kill "-${signal%:*}" "$job"; wait "$job"; code=$?
    expect_code "${signal#*:}"; expect_no_orphan; rm "$work"/pid.*
  done
  start --mpirun "$work/mpirun" -np 2 sh -c "trap '' TERM HUP INT; $stay"; wait_for_ranks 4
  kill -KILL "$job"; wait "$job" 2>/dev/null; expect_no_orphan
  ;;
hung_version)
  printf '#!/bin/sh\necho $$ >%s/pid.0; trap "" TERM; sleep 600' "$work" >"$work/mpirun"
  chmod +x "$work/mpirun"
  run "$bfrun" --mpirun "$work/mpirun" -np 2 true
  expect_code 2; expect_error "$work/mpirun does not answer .* --version"; expect_no_orphan
  rm "$work/pid.0"; mkdir "$work/tmp"
  TMPDIR="$work/tmp" start --mpirun "$work/mpirun" -np 2 true; wait_for_ranks 1
  kill -TERM "$job"; wait "$job"; code=$?
  expect_code 143; expect_no_orphan
  [[ -z "$(ls "$work/tmp")" ]] || fail "files were left behind"
  ;;
lost_ranks_are_named)
  # The watcher of rank 1 dies, and this mpirun ends with 0 as if nothing had happened.
  make_mpirun "wait; exit 0"
  run "$bfrun" --mpirun "$work/mpirun" -np 2 sh -c '[ $RANK = 1 ] && kill -9 $PPID; exit 0'
  expect_code 1; expect_error 'bfrun: rank 1 on host .* ended without a word'
  # Without the line to bfrun, as on another machine.
  make_mpirun "wait; exit 0"; sed -i 's/env --default-signal/& -u BFRUN_LINE/' "$work/mpirun"
  run "$bfrun" --mpirun "$work/mpirun" -np 2 sh -c '[ $RANK = 1 ] && kill -9 $PPID; exit 0'
  expect_code 1; expect_error 'bfrun: rank 1 on host .* ended without a word: the connection to its host'
  run "$bfrun" --mpirun "$work/mpirun" -np 2 true; expect_code 0; expect_no_error "ended without"
  make_mpirun "wait; exit 0"; sed -i 's/rank < OMPI/rank + 1 < OMPI/' "$work/mpirun"
  run "$bfrun" --mpirun "$work/mpirun" -np 2 true
  expect_code 1; expect_error 'bfrun: rank 1 was never heard of'
  ;;
descendants_end_with_their_rank)
  # A daemon in a session of its own, which keeps the outputs of its rank.
  daemon="(setsid sh -c 'echo \$\$ >$work/pid.\$RANK; trap \"\" TERM; sleep 600; true' &)"
  wait_for_it="until [ -s $work/pid.\$RANK ]; do sleep 0.05; done"
  run "$bfrun" -np 2 sh -c "$daemon; $wait_for_it"; expect_code 0; expect_no_orphan
  rm "$work"/pid.*
  run "$bfrun" -np 2 sh -c "$daemon; $wait_for_it; [ \$RANK = 1 ] && kill -9 \$\$; sleep 600"
  expect_code 137; expect_no_orphan; rm "$work"/pid.*
  # The watcher is killed, too.
  run "$bfrun" -np 2 sh -c "$daemon; $wait_for_it; [ \$RANK = 1 ] && kill -9 \$PPID; sleep 600"
  [[ "$code" != 0 ]] || fail "expected a failure"
  expect_error 'bfrun: rank 1 .* ended without a word'; expect_no_orphan; rm "$work"/pid.*
  start -np 2 sh -c "$daemon; sleep 600"; wait_for_ranks 2
  kill -KILL "$job"; wait "$job" 2>/dev/null; expect_no_orphan
  ;;
exit_at_start)
  # Open MPI's mpirun hangs at times where a rank ends while another one starts.
  for _ in 1 2 3; do
    run "$bfrun" -np 2 bash -c '[ $RANK = 1 ] && exit 3; exec "$0" exit' "$4"
    expect_code 3; expect_error '^bfrun: rank 1 on host .* exited with code 3$'
  done
  ;;
exit_while_others_compute)
  # Rank 1 waits in MPI_Finalize for rank 0, which sees nothing of it.
  run "$bfrun" -np 2 "$4" exit sleep
  expect_code 6; expect_error '^bfrun: rank 1 on host .* exited with code 6$'; expect_no_error 'rank 0 on'
  # A script around it knows nothing before its program has ended.
  run "$bfrun" -np 2 sh -c '"$0" exit sleep; exit $?' "$4"
  expect_code 6; expect_error '^bfrun: rank 1 on host .* exited with code 6$'
  ;;
lost_hosts)
  # One host's daemon is killed; then a host's network goes, and no word comes from there any more.
  netns=("$here/../hosts/netns.sh" -n 2 -- "$bfrun" -np 4 -H bfhost1:2,bfhost2:2)
  kill_daemon='kill -9 $(cut -d" " -f4 /proc/$PPID/stat)'
  up="touch $work/up.\$RANK; until [ \$(ls $work/up.* | wc -l) = 4 ]; do sleep 0.05; done"
  run "${netns[@]}" sh -c "$up; [ \$RANK = 3 ] && $kill_daemon; sleep 600"
  [[ "$code" == 77 ]] && { sed -n 's/.*SKIPPED/SKIPPED/p' "$work/err"; exit 77; }
  [[ "$code" != 0 && "$code" != 124 && "$code" != 137 ]] || fail "expected a failure"
  # The daemon may have died with the word on a rank's start.
  expect_error 'bfrun: rank 2 (on host bfhost2 .* the connection to its host was lost|was never heard of)'
  expect_error 'bfrun: rank 3 (on host bfhost2 .* the connection to its host was lost|was never heard of)'
  rm "$work"/up.*
  run "${netns[@]}" sh -c "$up;"'[ $RANK = 3 ] && ip link set eth0 down; sleep 2; [ $RANK -lt 2 ] && exit 7; sleep 600'
  expect_code 7; expect_error 'bfrun: rank [01] on host bfhost1 .* exited with code 7'
  expect_error 'bfrun: rank 3 (on host bfhost2 .* the connection to its host was lost|was never heard of)'
  ;;
lost_link)
  # The link to a host goes for good, and its ranks end after that: nobody is left who would hear of
  # it.
  netns=("$here/../hosts/netns.sh" -n 2 -- "$bfrun" --host-silence 4 -np 4 -H bfhost1:2,bfhost2:2)
  up="echo \$\$ >$work/pid.\$RANK; until [ \$(ls $work/pid.* | wc -l) = 4 ]; do sleep 0.05; done"
  cut='[ $RANK = 3 ] && ip link set eth0 down'
  lost='bfrun: host bfhost2 is lost, with ranks 2, 3: it has answered nothing for 4 s'
  run "${netns[@]}" sh -c "$up; $cut; sleep 1"
  [[ "$code" == 77 ]] && { sed -n 's/.*SKIPPED/SKIPPED/p' "$work/err"; exit 77; }
  expect_code 1; expect_error "$lost"
  expect_error 'bfrun: rank 2 on host bfhost2 .* ended without a word: the connection to its host was lost'
  expect_no_error 'bfrun: rank [01]'; rm "$work"/pid.*
  # The others compute on; and where they may go on without it, they end by themselves.
  run "${netns[@]}" sh -c "$up; $cut; sleep 600"; expect_code 1; expect_error "$lost"; rm "$work"/pid.*
  run "${netns[@]}" --fault-tolerant sh -c "$up; $cut; sleep 8; echo alive \$RANK"
  expect_code 1; expect_error "$lost"; expect_output $'alive 0\nalive 1'; rm "$work"/pid.*
  # A link that comes back in time is no loss, and silence on a link that is there neither.
  run "${netns[@]}" sh -c "$up; $cut && sleep 2 && ip link set eth0 up; sleep 8; echo alive \$RANK"
  expect_code 0; expect_no_error 'is lost'; expect_output $'alive 0\nalive 1\nalive 2\nalive 3'
  ;;
first_to_exit_is_named)
  # Rank 2 waits in MPI_Finalize while the others die of what they heard.
  run "$bfrun" -np 3 "$4" exit abort
  expect_code 6; expect_error '^bfrun: rank 2 on host .* exited with code 6$'
  [[ "$(grep -m1 '^bfrun: rank' "$work/err")" == *"rank 2 "* ]] || fail "expected rank 2 first"
  # The exit code of a child of the command is the command's own matter.
  run "$bfrun" -np 1 sh -c '"$0" exit; exit 0' "$4"; expect_code 0; expect_no_error 'bfrun: rank 0'
  ;;
killed_rank_is_named)
  run "$bfrun" -np 3 sh -c '[ $RANK = 2 ] && kill -9 $$; sleep 600'
  expect_code 137; expect_error '^bfrun: rank 2 on host .* \(pid [0-9]+\) was killed by signal 9 \(SIGKILL\)$'
  expect_no_error 'bfrun: rank [01]'
  ;;
failed_rank_is_named)
  run "$bfrun" -np 3 sh -c '[ $RANK = 1 ] && exit 3; sleep 600'
  expect_code 3; expect_error '^bfrun: rank 1 on host .* exited with code 3$'
  expect_no_error 'bfrun: rank [02]'
  ;;
term_while_starting)
  # This mpirun starts no rank and listens to nobody.
  printf '#!/bin/sh\n[ "$1" = --version ] && exec echo "mpirun (Open MPI) 5.0.11"
trap "" TERM INT\necho $$ >%s/pid.0\nexec sleep 600\n' "$work" >"$work/mpirun"
  chmod +x "$work/mpirun"
  start --mpirun "$work/mpirun" -np 3 true; wait_for_ranks 1
  kill -TERM "$job"; wait "$job"; code=$?
  expect_code 143; expect_no_orphan
  ;;
kill_leaves_no_orphan)
  mkdir "$work/tmp"; export TMPDIR="$work/tmp"
  start -np 3 sh -c "$stay"; wait_for_ranks 6
  kill -KILL "$job"; wait "$job" 2>/dev/null; expect_no_orphan
  for _ in $(seq 100); do [[ -z "$(ls "$work/tmp")" ]] && break; sleep 0.1; done
  [[ -z "$(ls "$work/tmp")" ]] || fail "files were left behind"
  rm "$work"/pid.*
  start -np 3 sh -c "$stay"; wait_for_ranks 6
  kill -KILL "$(cut -d' ' -f1 "/proc/$job/task/$job/children")"  # mpirun, or the watcher of a rank
  wait "$job"; code=$?
  expect_code 137; expect_no_orphan
  ;;
fault_tolerant_names_rank)
  run "$bfrun" --fault-tolerant -np 3 sh -c '[ $RANK = 2 ] && kill -9 $$; sleep 1; echo alive $RANK'
  expect_code 137; expect_error 'bfrun: rank 2 .* killed by signal 9'; expect_output $'alive 0\nalive 1'
  run "$bfrun" --fault-tolerant -np 2 true; expect_code 0
  ;;
fault_tolerant_watcher_killed)
  run "$bfrun" --fault-tolerant -np 2 sh -c '[ $RANK = 1 ] && kill -9 $PPID; sleep 1; echo alive $RANK'
  [[ "$code" != 0 ]] || fail "expected a failure"
  expect_error 'bfrun: rank 1 .* ended without a word'; expect_output 'alive 0'
  ;;
term_ends_all | interrupt_ends_all)
  if [[ "$case_name" == term_ends_all ]]; then signal=TERM; wanted=143; else signal=INT; wanted=130; fi
  # A shell starts background jobs with SIGINT ignored; env puts it back.
  env --default-signal=INT "$bfrun" -np 3 sh -c "$stay" >"$work/out" 2>"$work/err" </dev/null & job=$!
  wait_for_ranks 6
  kill -"$signal" "$job"; wait "$job"; code=$?
  expect_code "$wanted"; expect_no_orphan
  ;;
*)
  fail "unknown case"
  ;;
esac
echo "passed"
