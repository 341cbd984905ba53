#!/bin/bash
# elastic_hosts.sh CASE BFRUN [JOINING]: ranks that bfrun --host-discovery starts on the hosts of netns.sh.
set -uo pipefail

case_name="$1"
bfrun="$2"
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
work="$(mktemp -d)"  # hosts share the files of this machine
trap 'rm -rf "$work"' EXIT
code=0
fail() {
  echo "FAILED: $case_name: $*; exit code $code"
  tail -n +1 "$work"/out "$work"/err
  exit 1
}
expect_code() { [[ "$code" == "$1" ]] || fail "expected exit code $1"; }
expect_error() { grep -qE -- "$1" "$work/err" || fail "expected '$1' on standard error"; }
wait_for() {  # WORDS [FILE]
  for _ in $(seq 300); do
    grep -qE -- "$1" "${2:-$work/err}" && return
    sleep 0.1
  done
  fail "no '$1' in ${2:-standard error}"
}
# As ssh, it hands on no variables.
agent="env -i PATH=$PATH BF_NETNS_WORK=$BF_NETNS_WORK $here/netns_agent.sh"
printf '#!/bin/sh\ncat %s/hosts\n' "$work" >"$work/discover"
chmod +x "$work/discover"
hosts() { printf '%s\n' "$@" >"$work/hosts.new"; mv "$work/hosts.new" "$work/hosts"; }
cd "$work" || exit 1
start() {  # OPTIONS... -- COMMAND
  "$bfrun" --host-discovery "$work/discover" --remote-shell "$agent" "$@" \
    >"$work/out" 2>"$work/err" </dev/null & job=$!
}
finish() { touch "$work/end"; wait "$job"; code=$?; }
until_gone() {  # process ids
  for _ in $(seq 100); do
    local alive=""
    for pid in $(cat "$work"/pid.*); do [[ -d "/proc/$pid" ]] && alive="$alive $pid"; done
    [[ -z "$alive" ]] && return
    sleep 0.1
  done
  fail "processes are still there:$alive"
}
# A rank that says to its watcher that it joins, leaves when it is told to, and stays until `end`.
rank="trap 'echo left >>$work/left; exit 0' TERM; echo \$\$ >$work/pid.\$RANK; kill -s RTMIN+2 \$PPID
  echo \"\$RANK \$(hostname) \$LOCAL_RANK/\$LOCAL_WORLD_SIZE of \$WORLD_SIZE \${BLUEFOG_JOIN-no} \${MY_KEY-none} \${MY_NAME-none} \$PWD\"
  until [ -f $work/end ]; do sleep 0.1; done"

case "$case_name" in
ranks)
  # They come and go on three hosts, with the variables that they are meant to have.
  hosts bfhost1:1 bfhost2:2
  MY_KEY=secret MY_NAME=bluefog start -np 3 --min-np 2 --max-np 4 -x MY_NAME bash -c "$rank"
  wait_for "^bfrun: 3 ranks on 2 hosts: 2 on bfhost2, 1 on this machine"
  for rank_number in 0 1 2; do wait_for "^$rank_number " "$work/out"; done
  hosts bfhost1:1 bfhost2:1 bfhost3:3
  wait_for "rank 2 is told to leave .SIGTERM.: bfhost2 has 1 slot now"; wait_for "rank 2 has left"
  wait_for "rank [23] is started, to join the others: bfhost3 has 3 slots now"
  wait_for " bfhost3 1/2 of 3 1 " "$work/out"
  finish; expect_code 0
  sed "s#$work#WORK#" "$work/out" | sort >"$work/sorted"
  for line in "0 bfhost1 0/1 of 3 no secret bluefog WORK" "1 bfhost2 0/2 of 3 no none bluefog WORK" \
    "2 bfhost2 1/2 of 3 no none bluefog WORK"; do
    grep -qxF "$line" "$work/sorted" || fail "expected '$line'"
  done
  [[ "$(wc -l <"$work/sorted")" == 5 && "$(wc -l <"$work/left")" == 1 ]] || fail "expected five ranks, one that left"
  ;;
ends)
  # A rank that fails far away is named with its code, and restarts are made there.
  hosts bfhost1:1 bfhost2:1
  start -np 2 --min-np 2 bash -c "[ \$RANK = 1 ] && exit 7; $rank"
  wait "$job"; code=$?; expect_code 7; expect_error "rank 1 on host bfhost2 .* exited with code 7"
  start -np 2 --min-np 1 --respawn 1 bash -c "[ \$RANK = 0 ] || [ \$BLUEFOG_JOIN ] || { kill -s RTMIN+2 \$PPID
    until [ -f $work/pid.0 ]; do sleep 0.1; done; sleep 0.5; kill -9 \$\$; }; $rank"
  wait_for "^1 bfhost2 0/1 of 2 1 " "$work/out"; finish
  expect_code 0; expect_error "rank 1 on host bfhost2 .*killed by signal 9"; expect_error "rank 1 is started again"
  rm "$work/end"
  # Signals, and bfrun's own end.
  for signal in TERM KILL; do
    rm -f "$work"/pid.* "$work/left"
    env --default-signal=TERM "$bfrun" --host-discovery "$work/discover" \
      --remote-shell "$agent" -np 2 --min-np 1 bash -c "$rank" >"$work/out" 2>"$work/err" </dev/null & job=$!
    for rank_number in 0 1; do wait_for "^$rank_number " "$work/out"; done
    kill -s "$signal" "$job"; wait "$job"; code=$?
    until_gone
    [[ $signal == KILL ]] || { expect_code 143; [[ "$(wc -l <"$work/left")" == 2 ]] || fail "expected that SIGTERM reaches both"; }
  done
  # A host that cannot be reached, and no program to reach one.
  hosts bfhost1:1 nowhere:1
  "$bfrun" --host-discovery "$work/discover" --remote-shell "$agent" -np 2 --min-np 2 \
    bash -c "sleep 60" >"$work/out" 2>"$work/err" </dev/null; code=$?
  [[ "$code" != 0 ]] || fail "expected a failure"
  "$bfrun" --host-discovery "$work/discover" --remote-shell /nowhere/ssh -np 2 --min-np 2 true \
    >"$work/out" 2>"$work/err" </dev/null; code=$?
  expect_code 2; expect_error "on which ranks are started by --remote-shell: expected a program, found '/nowhere/ssh'"
  ;;
training)
  # Ranks of three hosts train together over TCP: one joins, one is killed, and another takes its place.
  hosts bfhost1:1 bfhost2:1
  start -np 2 --min-np 1 --max-np 3 -x BLUEFOG_TIMEOUT=30 "$3" grown
  wait_for "2 ranks on 2 hosts"; sleep 1; hosts bfhost1:1 bfhost2:1 bfhost3:1
  wait "$job"; code=$?; expect_code 0; expect_error "rank 2 is started, to join the others: bfhost3"
  for rank_number in 0 1 2; do
    grep -qE "^rank $rank_number of 3: ranks 0 1 2, lost 0, joined 1, looked at 3 epochs, 3 hosts, trained" "$work/out" ||
      fail "expected that rank $rank_number has trained with the others"
  done
  start -np 3 --min-np 2 --respawn 1 -x BLUEFOG_TIMEOUT=30 "$3" killed
  wait "$job"; code=$?; expect_code 0; expect_error "rank 1 on host bfhost2 .*killed by signal 9"
  for rank_number in 0 2 3; do
    grep -qE "^rank $rank_number of 3: ranks 0 2 3, lost 1, joined 1, looked at 3 epochs, 3 hosts, trained" "$work/out" ||
      fail "expected that rank $rank_number has trained with the others"
  done
  ;;
by_hand)
  # A process that nobody but its user starts, beside ranks that have the store of rank 0 (MASTER_ADDR).
  export MASTER_ADDR=bfhost1 MASTER_PORT=$((20000 + RANDOM % 10000)) WORLD_SIZE=2 BLUEFOG_TIMEOUT=30
  export BLUEFOG_ON_FAILURE=shrink
  pids=()
  for number in 0 1 1; do
    joins=""
    ((${#pids[@]} < 2)) || { joins="BLUEFOG_JOIN=1"; sleep 1; }
    "$here/netns_agent.sh" --exec "bfhost$((${#pids[@]} + 1))" env RANK=$number $joins "$3" grown \
      >>"$work/out" 2>>"$work/err" </dev/null & pids+=("$!")
  done
  for pid in "${pids[@]}"; do wait "$pid"; code=$?; expect_code 0; done
  for rank_number in 0 1 2; do
    grep -qE "^rank $rank_number of 3: ranks 0 1 2, lost 0, joined 1, looked at 3 epochs, 3 hosts, trained" "$work/out" ||
      fail "expected that rank $rank_number has trained with the others"
  done
  ;;
*)
  fail "no such case"
  ;;
esac
echo "passed"
