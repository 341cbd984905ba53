#!/bin/bash
# respawn_test.sh CASE BFRUN AFFINITY: ranks that bfrun --respawn starts again.
source "$(dirname "${BASH_SOURCE[0]}")/kit.sh"

# A rank says to its watcher, as Context::create does, that it joins the others, and goes on once all
# watchers have taken that.
join="kill -s RTMIN+2 \$PPID
  until [ \$(sed -n 's/^ShdPnd:.//p' /proc/\$PPID/status) = 0000000000000000 ]; do sleep 0.02; done
  touch $work/in.\$RANK
  until [ \$(ls $work/in.* | wc -l) = \$WORLD_SIZE ]; do sleep 0.02; done; sleep 0.1"
# Whoever is not rank 1 stays until bfrun has said $1.
others_stay() { echo "[ \$RANK != 1 ] && { until grep -q '$1' $work/err; do sleep 0.05; done; exit 0; }"; }
# A rank that fails at once when it was started again.
fail_again="[ \$BLUEFOG_JOIN ] && exit 3"
# run_job OPTIONS... WORDS: the ranks join, and then run WORDS.
run_job() { rm -f "$work"/in.*; run "$bfrun" "${@:1:$#-1}" bash -c "$join; ${*: -1}"; }
expect_lines() {  # of bfrun's on standard error, how many fit
  local found; found=$(grep -cE -- "$2" "$work/err")
  [[ "$found" == "$1" ]] || fail "expected $1 lines '$2' on standard error, found $found"
}
wait_for_error() {  # until standard error has it
  for _ in $(seq 200); do grep -qE -- "$1" "$work/err" && return; sleep 0.05; done
  fail "expected '$1' on standard error"
}

case "$case_name" in
refused)
  run "$bfrun" -np 2 --respawn 1 true
  expect_code 2; expect_error "--respawn starts lost ranks again .*expected --min-np N, .*found none"
  for bad in 0 -1 10001 two; do
    run "$bfrun" -np 2 --min-np 1 --respawn "$bad" true
    expect_code 2; expect_error "--respawn wants a number from 1 to 10000, found '$bad'"
  done
  found="--min-np and --respawn are for ranks that bfrun starts itself, .* found"
  run "$bfrun" -np 2 --min-np 1 --respawn 1 --launcher mpirun true
  expect_code 2; expect_error "$found --launcher mpirun"
  run "$bfrun" -np 2 --min-np 1 --respawn 1 -H elsewhere:2 true
  expect_code 2; expect_error "$found host 'elsewhere'"
  ;;
started_again)
  # With what it had, and BLUEFOG_JOIN besides; whatever ends a rank, its watcher's end included.
  what="echo \$RANK \$LOCAL_RANK \$WORLD_SIZE \${BLUEFOG_JOIN-no} \$(sed -n 's/^Cpus_allowed://p' /proc/self/status)"
  for way in 'kill -9 $$' 'exit 3' 'kill -9 $PPID; sleep 9'; do
    BLUEFOG_JOIN=7 run_job -np 2 --min-np 1 --respawn 2 "$what
      [ \$RANK = 1 ] && { [ \$BLUEFOG_JOIN ] || { $way; }; }; [ \$RANK = 0 ] && until [ -f $work/again ]; do sleep 0.05; done
      [ \$RANK = 1 ] && touch $work/again; exit 0"
    expect_code 0; expect_no_error "suffice"
    expect_lines 1 '^bfrun: rank 1 is started again: 1 of 2 restarts are left'
    grep -A1 -E '^bfrun: rank 1 on host .*(SIGKILL|code 3|without a word: its watching bfrun was killed)' "$work/err" |
      grep -q 'rank 1 is started again' || fail "expected what rank 1 died of, and then that it is started again"
    [[ "$(sort "$work/out" | cut -d' ' -f1-4)" == $'0 0 2 no\n1 1 2 1\n1 1 2 no' ]] || fail "other variables"
    [[ "$(grep '^1' "$work/out" | cut -d' ' -f5 | sort -u | wc -l)" == 1 ]] || fail "other cores"
    rm "$work/again"
  done
  ;;
input)
  # Rank 0 reads on where the process before it has stopped, from a pipe and from a terminal.
  words="$join; read x; echo \"got \$x \${BLUEFOG_JOIN-no}\" >>$work/got; echo \$x
    [ \$RANK = 0 ] || { until grep -q second $work/got; do sleep 0.05; done; exit 0; }
    [ \$BLUEFOG_JOIN ] || kill -9 \$\$"
  printf 'first\nsecond\n' | timeout -k 2 30 "$bfrun" -np 2 --min-np 1 --respawn 1 bash -c "$words" \
    >"$work/out" 2>"$work/err"; code=$?
  expect_code 0; grep -q 'got second 1' "$work/got" || fail "expected the second line in the second process"
  rm "$work"/in.* "$work/got"
  timeout -k 2 30 python3 - "$bfrun" "$words" "$work/got" >"$work/out" 2>"$work/err" <<'END'
import os, pathlib, pty, sys, time
child, terminal = pty.fork()
if child == 0:
    os.execv(sys.argv[1], [sys.argv[1], *"-np 2 --min-np 1 --respawn 1 bash -c".split(), sys.argv[2]])
os.write(terminal, b"first\n")
seen = b""
while b"is started again" not in seen:
    seen += os.read(terminal, 1000)
os.write(terminal, b"second\n")
try:
    while os.read(terminal, 1000):
        pass
except OSError:
    pass  # the terminal's last user is gone
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
END
  code=$?
  expect_code 0; grep -q 'got second 1' "$work/got" || fail "expected the second line in the second process"
  ;;
used_up)
  # A rank that always fails. Its second restart waits for a second; and then it counts.
  run "$bfrun" -np 3 --min-np 2 --respawn 2 bash -c "$fail_again; $join; $(others_stay 'rank 1 is not started'); exit 3"
  expect_code 0; expect_error '2 of 3 ranks have ended well, 2 suffice'
  expect_lines 3 '^bfrun: rank 1 on host .* exited with code 3$'
  expect_lines 1 'rank 1 is started again: 1 of 2'
  expect_lines 1 'rank 1 is started again in 1 s, as it ended within 1 s of its start: 0 of 2'
  expect_lines 1 'rank 1 is not started again: 0 of 2 restarts are left'
  run_job -np 2 --min-np 2 --respawn 1 '[ $RANK = 1 ] && exit 3; sleep 30'
  expect_code 3; expect_lines 1 'rank 1 is started again: 0 of 1'; expect_no_error 'suffice'
  ;;
too_early)
  # As long as not all have come to init, one that has begun it is not replaced there, and another
  # one is, without BLUEFOG_JOIN.
  run "$bfrun" -np 3 --min-np 2 --respawn 1 bash -c "[ \$RANK = 2 ] || kill -s RTMIN+2 \$PPID
    sleep 0.3; [ \$RANK = 1 ] && exit 3; $(others_stay 'rank 1 is not')"
  expect_code 0; expect_error '2 suffice'
  expect_error 'rank 1 is not started again: it ended in init .*, to which 2 of 3 ranks have come'
  run "$bfrun" -np 3 --min-np 2 --respawn 1 bash -c "echo \$RANK \${BLUEFOG_JOIN-no}
    [ \$RANK = 1 ] && { [ -f $work/first ] || { touch $work/first; exit 3; }; touch $work/second; exit 0; }
    kill -s RTMIN+2 \$PPID; until [ -f $work/second ]; do sleep 0.05; done"
  expect_code 0; expect_output $'0 no\n1 no\n1 no\n2 no'
  expect_error 'rank 1 is started again, since the others wait for it in init: 0 of 1'
  run "$bfrun" -np 2 --min-np 1 bash -c "$join; $(others_stay 'rank 1 on'); exit 3"
  expect_code 0; expect_no_error 'started again'
  ;;
nearly_over)
  # One has ended well, and its watcher is gone.
  run_job -np 3 --min-np 2 --respawn 1 "echo \$PPID >$work/watcher.\$RANK; [ \$RANK = 0 ] && exit 0
    until [ -s $work/watcher.0 ]; do sleep 0.02; done; while [ -d /proc/\$(cat $work/watcher.0) ]; do sleep 0.02; done
    $(others_stay 'rank 1 is not started'); exit 3"
  expect_code 0; expect_error 'rank 1 is not started again: rank 0 has ended well'; expect_error '2 suffice'
  # One that waits for its restart then counts as lost: with one more there are too few.
  rm -f "$work"/in.*
  run "$bfrun" -np 4 --min-np 3 --respawn 5 bash -c "$fail_again; $join; [ \$RANK = 1 ] && exit 3
    until grep -q 'again in 1 s' $work/err; do sleep 0.02; done; [ \$RANK = 0 ] && exit 0
    until grep -q 'not started again after all' $work/err; do sleep 0.02; done; [ \$RANK = 2 ] && exit 5; sleep 30"
  expect_code 3; expect_error 'rank 2 on host .* exited with code 5'; expect_no_error 'suffice|was still there'
  ;;
nobody_left)
  # The new process has not joined when the last of the others ends: well, and badly.
  again="[ \$BLUEFOG_JOIN ] && { echo \$\$ >$work/pid.\$RANK; exec sleep 600; }"
  for end in 0 4; do
    rm -f "$work"/in.* "$work"/pid.*
    run "$bfrun" -np 2 --min-np 1 --respawn 5 bash -c "$again; $join
      [ \$RANK = 1 ] && kill -9 \$\$; until [ -s $work/pid.1 ]; do sleep 0.02; done; exit $end"
    expect_error 'rank 1 is ended: no rank is left that it could join'; expect_no_error 'was still there'; expect_no_orphan
    [[ $end == 0 ]] && { expect_code 0; expect_error '1 of 2 ranks have ended well, 1 suffice'; }
  done
  expect_code 137  # of the rank that has failed first
  # One that waits for its restart does so in vain.
  rm -f "$work"/in.*
  run "$bfrun" -np 2 --min-np 1 --respawn 5 bash -c "$fail_again; $join; $(others_stay 'rank 1 is started again in 1 s'); exit 3"
  expect_code 0; expect_lines 1 'rank 1 is not started again after all'; expect_lines 2 'rank 1 .*exited with code 3'
  ;;
departed)
  # A rank that has left the others before the end says so; they are replaced all the same.
  run_job -np 3 --min-np 1 --respawn 1 "[ \$RANK = 0 ] && { kill -s RTMIN+6 \$PPID; exit 0; }
    [ \$BLUEFOG_JOIN ] && { touch $work/back; exit 0; }; sleep 0.5; [ \$RANK = 1 ] && exit 3
    until [ -f $work/back ]; do sleep 0.02; done"
  expect_code 0; expect_lines 1 'rank 1 is started again: 0 of 1'; expect_no_error 'suffice'
  ;;
not_joined)
  # A process that was to join, and ends with 0 before it has, is no rank that has ended well.
  for least in 2 1; do
    rm -f "$work"/in.*
    run "$bfrun" -np 2 --min-np $least --respawn 2 bash -c "[ \$BLUEFOG_JOIN ] && exit 0; $join; $(others_stay 'before it had joined'); exit 3"
    expect_lines 1 '^bfrun: rank 1 on host .* exited with code 0 before it had joined the others'
    expect_lines 1 'is started again'; expect_code $((least == 2 ? 3 : 0))
  done
  expect_error '1 of 2 ranks have ended well'
  ;;
interrupted)
  # While a rank waits for its restart, and while it runs again.
  for moment in 'is started again in 1 s' 'is started again: 2 of 3'; do
    again="$stay"; [[ "$moment" == *1\ s ]] && again="echo again >>$work/again; exit 3"
    rm -f "$work"/in.* "$work"/pid.* "$work/err"
    env --default-signal=INT "$bfrun" -np 2 --min-np 1 --respawn 3 \
      bash -c "[ \$BLUEFOG_JOIN ] && { $again; }; $join; [ \$RANK = 1 ] && exit 3; $stay" \
      >"$work/out" 2>"$work/err" </dev/null & job=$!
    wait_for_error "$moment"; wait_for_ranks "$([[ "$moment" == *1\ s ]] && echo 2 || echo 4)"
    kill -INT "$job"; wait "$job"; code=$?
    expect_code 130; expect_no_orphan; expect_no_error 'not started|is ended'
    [[ "$(wc -l <"$work/again")" == 1 ]] || fail "expected no further start"
  done
  ;;
leaves_nothing)
  # Twenty restarts take no descriptor and no process of bfrun's for good.
  start -np 21 --min-np 1 --respawn 20 --oversubscribe bash -c "$join; echo \$\$ >$work/pid.\$RANK.\$BLUEFOG_JOIN
    until [ -f $work/go ]; do sleep 0.1; done; [ \$RANK = 0 ] || [ \$BLUEFOG_JOIN ] || kill -9 \$\$
    until [ -f $work/end ]; do sleep 0.1; done"
  wait_for_ranks 21; before="$(ls "/proc/$job/fd" | wc -l)"
  touch "$work/go"; wait_for_ranks 41
  after="$(ls "/proc/$job/fd" | wc -l)"
  [[ "$after" == "$before" ]] || fail "expected $before descriptors, found $after"
  read -ra children <"/proc/$job/task/$job/children"
  [[ ${#children[@]} == 21 ]] || fail "expected 21 children, found ${#children[@]}"
  touch "$work/end"; wait "$job"; code=$?
  expect_code 0; expect_lines 20 'is started again'; expect_error '0 of 20 restarts are left'; expect_no_error 'suffice'
  ;;
*)
  fail "no such case"
  ;;
esac
echo "passed"
