#!/bin/bash
# elastic_test.sh CASE BFRUN AFFINITY: ranks that come and go by bfrun --max-np and --host-discovery.
source "$(dirname "${BASH_SOURCE[0]}")/../kit.sh"

# A discovery program that prints the file `hosts`, or does what the file `do` says.
cat >"$work/discover" <<END
#!/bin/bash
echo \$\$ >>$work/runs
[ -f $work/do ] && . $work/do
cat $work/hosts
END
chmod +x "$work/discover"
echo localhost:2 >"$work/hosts"
# A rank that says to its watcher that it joins the others, leaves when it is told to, and otherwise
# stays until there is a file `end`.
rank="trap 'exit 0' TERM; kill -s RTMIN+2 \$PPID
  echo \"\$RANK \$LOCAL_RANK \$WORLD_SIZE \$LOCAL_WORLD_SIZE \${BLUEFOG_JOIN-no}\"
  until [ -f $work/end ]; do sleep 0.05; done"
wait_for() {  # WORDS in standard error
  for _ in $(seq 200); do
    grep -qE -- "$1" "$work/err" && return
    sleep 0.05
  done
  fail "no '$1' on standard error"
}
finish() { touch "$work/end"; wait "$job"; code=$?; }
begin() { start -np 2 --min-np 1 --host-discovery "$work/discover" "$@"; }
# Whether the program was run again, and its answer taken.
run_twice() {
  local before; before=$(wc -l <"$work/runs")
  for _ in $(seq 200); do (($(wc -l <"$work/runs") >= before + 2)) && return; sleep 0.05; done
  fail "the discovery is not run again"
}

case "$case_name" in
refused)
  # One that hangs, meanwhile.
  printf '#!/bin/bash\necho $$ >%s/hangs\nexec sleep 600\n' "$work" >"$work/hang"; chmod +x "$work/hang"
  "$bfrun" -np 2 --min-np 1 --host-discovery "$work/hang" true >"$work/hang.out" 2>"$work/hang.err" </dev/null & job=$!
  words=(-np 2 --min-np 1 --host-discovery)
  run "$bfrun" "${words[@]}" "$work/nowhere" true
  expect_code 127; expect_error "--host-discovery '.*nowhere': no such program"
  run "$bfrun" "${words[@]}" /etc/passwd true
  expect_code 126; expect_error "'/etc/passwd': not an executable file"
  run "$bfrun" "${words[@]}" "$work/discover" --launcher mpirun true
  expect_code 2; expect_error "--max-np and --host-discovery are for ranks that bfrun starts itself"
  # The first answer has none before it.
  answers=('exit 3' 'kill -9 $$' 'echo "<html>"' 'echo localhost:x' 'printf "a:1\na:2\n"' 'head -c 99999 /dev/zero')
  found=('ended with code 3' 'killed by signal 9' "line 1 '<html>'" "found 'x'" "host 'a' was given before" 'found more')
  for i in "${!answers[@]}"; do
    echo "${answers[i]}" >"$work/do"
    run "$bfrun" "${words[@]}" "$work/discover" true
    expect_code 2; expect_error "${found[i]}"
  done
  rm "$work/do"
  for few in "" localhost:0 localhost:1; do
    echo "$few" >"$work/hosts"
    run "$bfrun" -np 2 --min-np 2 --elastic-timeout 1 --host-discovery "$work/discover" true
    expect_code 2; expect_error "bfrun: waits for 2 slots"; expect_error "expected --min-np 2 slots within 1 s"
  done
  wait "$job"; code=$?; job=""; mv "$work/hang.err" "$work/err"; mv "$work/hang.out" "$work/out"
  expect_code 2; expect_error "was still there after 10 s, and was killed"
  [[ ! -d "/proc/$(cat "$work/hangs")" ]] || fail "the discovery lives on"
  ;;
waits)
  # Ranks are started once there are enough slots; fewer than -np are.
  echo localhost:0 >"$work/hosts"
  start -np 3 --min-np 2 --host-discovery "$work/discover" bash -c "$rank"
  wait_for "waits for 2 slots .--min-np., --host-discovery names 0"
  echo localhost:2 >"$work/hosts"
  wait_for "2 ranks on 1 host"; finish
  expect_code 0; expect_output $'0 0 2 2 no\n1 1 2 2 no'
  echo >"$work/hosts"
  env --default-signal=TERM "$bfrun" -np 2 --min-np 2 --host-discovery "$work/discover" true \
    >"$work/out" 2>"$work/err" </dev/null & job=$!
  wait_for "waits for 2 slots"; kill -TERM "$job"; wait "$job"; code=$?
  expect_code 143
  ;;
grows_and_shrinks)
  begin --max-np 3 bash -c "$rank"
  run_twice; echo localhost:5 >"$work/hosts"
  wait_for "rank 2 is started, to join the others: this machine has 5 slots now"
  run_twice; echo localhost:1 >"$work/hosts"
  wait_for "rank 2 has left"; wait_for "rank 1 has left"
  echo localhost:2 >"$work/hosts"
  wait_for "rank 1 is started, to join"; finish
  expect_code 0; expect_no_error "suffice|never heard|without a word"
  expect_output $'0 0 2 2 no\n1 1 2 2 1\n1 1 2 2 no\n2 2 3 3 1'
  [[ "$(grep -c "is told to leave" "$work/err")" == 2 ]] || fail "expected two that are told to leave"
  ;;
bad_answers)
  # Each changes nothing, and is said once.
  begin --max-np 4 bash -c "$rank"; wait_for "2 ranks on 1 host"
  answers=('exit 3' 'echo "<html>"' 'printf "a:1\na:2\n"' 'exit 0' 'echo localhost:0; exit 0')
  found=('ended with code 3' "line 1 '<html>'" "was given before" "names 0 slots, fewer than --min-np 1" "names 0 slots")
  for i in "${!answers[@]}"; do
    echo "${answers[i]}" >"$work/do"
    wait_for "${found[i]}.*; its answer before that holds"
    [[ $i != 0 ]] || run_twice
  done
  run_twice
  rm "$work/do"; run_twice
  [[ "$(grep -c "answer before that holds" "$work/err")" == 4 ]] || fail "expected each problem once"
  expect_no_error "told to leave"
  # One that hangs delays nobody's end, and ends with the job.
  echo "sleep 600 & echo \$! >$work/child; sleep 600" >"$work/do"
  until [ -s "$work/child" ]; do sleep 0.05; done
  finish; expect_code 0
  for pid in "$(tail -1 "$work/runs")" "$(cat "$work/child")"; do
    for _ in $(seq 100); do [[ -d "/proc/$pid" ]] || continue 2; sleep 0.05; done
    fail "the discovery lives on"
  done
  ;;
by_signal)
  start -np 2 --min-np 1 --max-np 3 bash -c "$rank"
  wait_for "2 ranks on 1 host"
  until [ "$(wc -l <"$work/out")" = 2 ]; do sleep 0.05; done
  kill -s RTMIN+4 "$job"; wait_for "rank 2 is started, to join the others: 3 ranks are wanted .signal."
  until [ "$(wc -l <"$work/out")" = 3 ]; do sleep 0.05; done
  kill -s RTMIN+4 "$job"; wait_for "asked for one rank more: there are 3, which is --max-np"
  for leaver in 2 1; do kill -s RTMIN+5 "$job"; wait_for "rank $leaver has left"; done
  kill -s RTMIN+5 "$job"; wait_for "asked for one rank fewer: there are 1, --min-np is 1"
  finish; expect_code 0
  rm "$work/end"; start -np 1 bash -c "$rank"; wait_for "1 rank on 1 host"
  kill -s RTMIN+4 "$job"; wait_for "another number of ranks, which is fixed: expected --max-np N"; finish; expect_code 0
  ;;
leave)
  # SIGTERM reaches the command alone; one that dies of it is lost to the others, and no failure.
  begin bash -c "if [ \$RANK = 1 ] && [ ! \$BLUEFOG_JOIN ]; then
      kill -s RTMIN+2 \$PPID; bash -c 'trap \"touch $work/loader\" TERM; sleep 60' &
      trap 'sleep 0.5; [ -f $work/loader ] || exit 0; exit 9' TERM; wait; wait
    else $rank; fi"
  run_twice; echo localhost:1 >"$work/hosts"
  wait_for "rank 1 has left"
  echo localhost:2 >"$work/hosts"; wait_for "rank 1 is started"; finish; expect_code 0
  rm "$work/end"; begin bash -c "[ \$RANK = 0 ] && { $rank; exit 0; }; kill -s RTMIN+2 \$PPID; exec sleep 600"
  run_twice; echo localhost:1 >"$work/hosts"
  wait_for "rank 1 on host .*killed by signal 15 .SIGTERM., told to leave"; finish
  expect_code 0; expect_no_error "suffice"
  ;;
lost)
  # A slot whose rank is lost is not filled again, unless there are restarts.
  fails="[ \$RANK = 1 ] && [ ! \$BLUEFOG_JOIN ] && { kill -s RTMIN+2 \$PPID; until [ -f $work/now ]; do sleep 0.05; done; exit 3; }; $rank"
  begin bash -c "$fails"
  touch "$work/now"; wait_for "rank 1 on host .* exited with code 3"; run_twice; finish
  expect_code 0; expect_no_error "is started"; expect_error "1 of 2 ranks have ended well"
  rm "$work/end" "$work/now" "$work/err"; begin --respawn 1 bash -c "$fails"
  wait_for "2 ranks on 1 host"; until [ -s "$work/out" ]; do sleep 0.05; done; sleep 0.5
  touch "$work/now"; wait_for "rank 1 is started again"; until [ "$(wc -l <"$work/out")" = 2 ]; do sleep 0.05; done; finish
  expect_code 0; expect_output $'0 0 2 2 no\n1 1 2 2 1'
  ;;
training_killed)
  # In C++: a rank is lost, and another process takes its place in the middle of an epoch.
  run "$bfrun" -np 3 --min-np 2 --respawn 2 "$4" killed
  expect_code 0; expect_error "rank 1 is started again: 1 of 2"
  for each in 0 2 3; do
    grep -qE "^rank $each of 3: ranks 0 2 3, lost 1, joined 1, looked at 3 epochs, 1 hosts, trained" "$work/out" ||
      fail "expected rank $each to have trained with the others"
  done
  ;;
training_grown)
  start -np 2 --min-np 1 --max-np 3 --host-discovery "$work/discover" "$4" grown
  run_twice; echo localhost:3 >"$work/hosts"; wait "$job"; code=$?
  expect_code 0; expect_error "rank 2 is started, to join the others"
  for each in 0 1 2; do
    grep -qE "^rank $each of 3: ranks 0 1 2, lost 0, joined 1, looked at 3 epochs, 1 hosts, trained" "$work/out" ||
      fail "expected rank $each to have trained with the others"
  done
  ;;
training_from_one)
  echo localhost:1 >"$work/hosts"
  start -np 1 --min-np 1 --max-np 2 --host-discovery "$work/discover" "$4" grown
  run_twice; echo localhost:2 >"$work/hosts"; wait "$job"; code=$?
  expect_code 0; expect_error "rank 1 is started, to join the others"
  for each in 0 1; do
    grep -qE "^rank $each of 2: ranks 0 1, lost 0, joined 1, looked at 3 epochs, 1 hosts, trained" "$work/out" ||
      fail "expected rank $each to have trained with the other"
  done
  ;;
*)
  fail "no such case"
  ;;
esac
echo "passed"
