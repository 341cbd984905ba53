#!/bin/bash
# survivors_test.sh CASE BFRUN AFFINITY PROGRAM: ranks that go on without those that are lost, under
# bfrun --min-np.
source "$(dirname "${BASH_SOURCE[0]}")/kit.sh"
program=$4

# expect_survivors LINES SIZE EPOCH LOST: so many ranks have come to the end, together.
expect_survivors() {
  local found
  found=$(grep -c "of $2 (epoch $3), sum $2, without$4, " "$work/out")
  [[ "$found" == "$1" ]] || fail "expected $1 survivors of epoch $3 without$4, found $found"
}

case "$case_name" in
refused_min_np)
  run "$bfrun" -np 2 --min-np 3 true
  expect_code 2; expect_error "--min-np wants a number from 1 to 2, found '3'"
  run "$bfrun" -np 2 --min-np 0 true
  expect_code 2; expect_error "--min-np wants a number from 1 to 2, found '0'"
  run "$bfrun" -np 2 --min-np 1 --launcher mpirun true
  expect_code 2; expect_error "--min-np is for ranks that bfrun starts itself.* found --launcher mpirun"
  run "$bfrun" -np 2 --min-np 1 --fault-tolerant true
  expect_code 2; expect_error "give one of them"
  ;;
enough_are_left)
  # Whatever ends a rank: so many suffice, and fewer do not.
  for way in 'kill -9 $$' 'exit 3'; do
    run "$bfrun" -np 3 --min-np 2 sh -c "[ \$RANK = 1 ] && $way; sleep 1; echo alive \$RANK"
    expect_code 0; expect_output $'alive 0\nalive 2'
    expect_error "bfrun: rank 1 "; expect_error "2 of 3 ranks have ended well, 2 suffice"
  done
  run "$bfrun" -np 3 --min-np 2 sh -c '[ $RANK != 1 ] && exit 3; sleep 30; echo alive'
  expect_code 3; expect_no_error "suffice"
  run "$bfrun" -np 2 --min-np 2 sh -c '[ $RANK = 1 ] && kill -9 $$; sleep 30'
  expect_code 137
  run "$bfrun" -np 2 --min-np 1 sh -c 'echo $BLUEFOG_ON_FAILURE'
  expect_code 0; expect_output $'shrink\nshrink'; expect_no_error "suffice"
  BLUEFOG_ON_FAILURE=raise run "$bfrun" -np 1 --min-np 1 sh -c 'echo $BLUEFOG_ON_FAILURE'
  expect_output raise
  ;;
killed)
  run "$bfrun" -np 4 --min-np 2 "$program" kill
  expect_code 0; expect_survivors 3 3 1 " 2"; expect_error "bfrun: rank 2 .*killed by signal 9"
  ;;
first)
  run "$bfrun" -np 4 --min-np 3 "$program" first
  expect_code 0; expect_survivors 3 3 1 " 0"
  ;;
in_a_sum)
  # In place, results overwrite what they are formed from: at whatever moment a rank is killed, elements
  # are those from before the average or from after it, and nothing else.
  for percent in ${percents:-0 50 100}; do
    BLUEFOG_SYNCHRONISATION=component run "$bfrun" -np 4 --min-np 2 "$program" "$percent"
    expect_code 0; expect_error "bfrun: rank 2 .*killed by signal 9"
    # The others have formed their shares, the dead one a part of its own.
    [[ "$(grep -cE "^rank [013] of 3: [1-9][0-9]{0,6} of 4194304 elements were left" "$work/out")" == 3 ]] ||
      fail "expected three survivors of a kill after $percent % of its share"
    ! grep -q ": 4194304 of" "$work/out" || fail "expected a kill in the middle of an average"
  done
  ;;
stopped_in_a_sum)
  # The one that is stopped has the others' old memory, and writes there when it wakes.
  for percent in ${percents:-40}; do
    rm -f "$work"/woken*
    BLUEFOG_SYNCHRONISATION=component BLUEFOG_TIMEOUT=2 run "$bfrun" -np 4 --min-np 2 bash -c '
      [ $RANK = 2 ] || exec "$0" "$@"
      "$0" "$@" & until [ -f "$2.anew" ]; do sleep 0.1; done; sleep 0.5; kill -CONT $!; sleep 1; touch "$2"; wait $!' "$program" "$percent" "$work/woken"
    [[ "$(grep -cE "^rank [013] of 3: [0-9]+ of 4194304 elements were left" "$work/out")" == 3 ]] ||
      fail "expected three survivors of a stop after $percent % of its share"
    expect_error "have gone on without this one"
  done
  ;;
two)
  run "$bfrun" -np 4 --min-np 1 "$program" two
  expect_code 0; expect_survivors 2 2 2 " 3 0"
  ;;
stop)
  # Who is stopped is left out after a while; when it wakes it finds the others gone.
  BLUEFOG_TIMEOUT=2 run "$bfrun" -np 4 --min-np 2 bash -c '
    if [ $RANK = 1 ]; then
      "$0" stop & until [ "$(ls "$1".* 2>/dev/null | wc -l)" = 3 ]; do sleep 0.1; done; kill -CONT $!; wait $!
    else
      "$0" stop; touch "$1.$RANK"
    fi' "$program" "$work/gone_on"
  expect_survivors 3 3 1 " 1"
  expect_error "rank 1"
  ;;
stop_for_good)
  # One that never wakes is killed in the end, and the job ends.
  limit=70 BLUEFOG_TIMEOUT=2 run "$bfrun" -np 4 --min-np 2 "$program" stop
  expect_code 0; expect_survivors 3 3 1 " 1"
  expect_error "rank 1 is killed: the others have gone on without it 30 s ago"
  expect_error "rank 1 .*was killed by signal 9"
  ;;
exits)
  run "$bfrun" -np 4 --min-np 2 "$program" exit
  expect_code 0; expect_survivors 3 3 1 " 2"; expect_error "bfrun: rank 2 .*exited with code 3"
  ;;
missing)
  # One that ends before it comes to init: the others hear of it at once, by name and cause.
  for rank in 0 1; do
    for end in 'exit 3' 'kill -9 $$' 'exit 0'; do
      run "$bfrun" -np 3 --min-np 2 bash -c "[ \$RANK = $rank ] && $end; exec $program kill 10"
      [[ "$code" != 0 ]] || fail "expected a failure"
      expect_error "bootstrap start on rank [0-2], over bfrun's store .*expected all 3 ranks, found that one has ended before it came: rank $rank on host .* (exited with code [03]|was killed by signal 9)"
    done
  done
  run "$bfrun" -np 2 bash -c "[ \$RANK = 1 ] && exit 0; exec $program kill 10"
  expect_code 1; expect_error "before it came: rank 1 on host .* exited with code 0"
  ;;
missing_again)
  # With --respawn it is started anew, and the start goes on with it.
  for rank in 0 1; do
    rm -f "$work"/was_here*
    run "$bfrun" -np 3 --min-np 2 --respawn 3 bash -c "
      [ \$RANK = $rank ] && { echo \${BLUEFOG_JOIN-no} >>$work/was_here; [ \$(wc -l <$work/was_here) = 1 ] && exit 3; }
      exec $program kill 10"
    expect_code 0; expect_survivors 3 3 0 ""; expect_no_error "Error|not started|suffice"
    expect_error "rank $rank is started again, since the others wait for it in init: 2 of 3"
    [[ "$(cat "$work/was_here")" == $'no\nno' ]] || fail "expected two starts without BLUEFOG_JOIN"
  done
  run "$bfrun" -np 2 --min-np 1 --respawn 1 bash -c "[ \$RANK = 1 ] && exit 3; exec $program kill 10"
  expect_code 3; expect_error "rank 1 is not started again: 0 of 1 restarts"
  expect_error "bootstrap start on rank 0, .*before it came: rank 1 on host .* exited with code 3"
  ;;
*)
  fail "no such case"
  ;;
esac
