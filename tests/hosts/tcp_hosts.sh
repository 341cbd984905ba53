#!/bin/bash
# tcp_hosts.sh CASE ROUNDS [KILLED]: ranks on the hosts of netns.sh, started by RANK and MASTER_ADDR
# without MPI, so that they talk over TCP. ROUNDS is exchange_rounds, with two ranks on a host;
# KILLED is killed_rank of tests/mpi, with one.
set -uo pipefail

case_name="$1"
rounds="$2"
killed="${3:-}"
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
read -ra hosts <<<"${BF_NETNS_HOSTS:?}"
per_host=$((${#killed} > 0 ? 1 : 2))
ranks=$((per_host * ${#hosts[@]}))
work="$BF_NETNS_WORK"
export WORLD_SIZE="$ranks" BLUEFOG_TIMEOUT=60
pids=()
codes=()

fail() {
  echo "FAILED: $case_name: $*; exit codes ${codes[*]}"
  tail -n +1 "$work"/out.* "$work"/err.*
  exit 1
}

# start NAME=VALUE... -- COMMAND...: COMMAND as every rank, with these in its environment.
start() {
  local entries=(MASTER_PORT=$((20000 + RANDOM % 10000)))
  while [[ "$1" != -- ]]; do entries+=("$1"); shift; done
  shift
  pids=()
  codes=()
  for ((rank = 0; rank < ranks; ++rank)); do
    "$here/netns_agent.sh" --exec "${hosts[rank / per_host]}" env "MASTER_ADDR=${hosts[0]}" \
      "${entries[@]}" "RANK=$rank" "$@" \
      >"$work/out.$rank" 2>"$work/err.$rank" </dev/null &
    pids+=("$!")
  done
}

# Waits for all ranks, whose codes are then in `codes`. The limit is a bound alone: ranks that hang
# are killed, and have the code 137.
finish() {
  (sleep 120; kill -KILL "${pids[@]}") 2>/dev/null &
  local limit=$!
  codes=()
  for pid in "${pids[@]}"; do
    local code=0
    wait "$pid" || code=$?
    codes+=("$code")
  done
  kill "$limit" 2>/dev/null
}

run() { start "$@"; finish; }

# until_found FILE WORDS: waits until they are in the file.
until_found() {
  for ((tenths = 0; tenths < 300; ++tenths)); do
    grep -qF "$2" "$1" 2>/dev/null && return
    sleep 0.1
  done
  fail "no '$2' in $1"
}

# A rank that has started knows that all have come, not that they have heard so of each other.
until_under_way() {
  local rank
  for ((rank = 0; rank < ranks; ++rank)); do until_found "$work/out.$rank" "under way"; done
}

# The link of a host, seen from outside: its own interface stays as it is. Process 1 is outside.
set_link() { nsenter --target 1 --net ip link set "bfport${1#bfhost}" "$2"; }

# on_host HOST WORDS...: `ip` for a host.
on_host() { nsenter --target 1 --net ip -n "$@"; }

# Addresses of interfaces stay known, as those behind a router do, so that silence is all there is.
keep_neighbors() {
  local i link
  for i in 1 2; do
    link="$(on_host "bfhost$((3 - i))" -br link show eth0)"
    on_host "bfhost$i" neigh replace "198.18.0.$((3 - i))" dev eth0 nud permanent \
      lladdr "$(awk '{print $3}' <<<"$link")"
  done
}

expect_codes() { [[ "${codes[*]}" == "$1" ]] || fail "expected exit codes $1"; }
# expect RANK PATTERN: on the rank's standard output.
expect() { grep -qE -- "$2" "$work/out.$1" || fail "expected '$2' of rank $1"; }
expect_all() {  # PATTERN: of every rank, which has failed
  for ((rank = 0; rank < ranks; ++rank)); do
    [[ "${codes[rank]}" == [34] ]] || fail "expected exit code 3 or 4 of rank $rank"
    expect "$rank" "$1"
  done
}
# expect_lost_hosts WORDS: every rank has lost those of the other host, for this reason, which it may
# have of the rank beside it.
expect_lost_hosts() {
  local rank other
  expect_codes "3 3 3 3"
  for rank in 0 1 2 3; do
    other="[23]"
    ((rank < 2)) || other="[01]"
    expect "$rank" "^rank $rank lost rank [0-3]: .*for rank $other, but $1"
  done
}
expect_right() {
  expect_codes "0 0 0 0"
  for ((rank = 0; rank < ranks; ++rank)); do expect "$rank" "^rank $rank of $ranks: right$"; done
}

case "$case_name" in
ipv6)
  # Hosts without an address of IPv4 (netns.sh -6), by rank 0's address and by name.
  own=fd00::1
  for master in "$own" "${hosts[0]}"; do
    run "MASTER_ADDR=$master" -- "$rounds" 3
    expect_right
  done
  # A name with an address of each family, of which one leads nowhere; rank 0 comes last.
  printf '%s bfboth\n' 198.18.0.1 "$own" >>"$work/hosts"
  run MASTER_ADDR=bfboth -- sh -c '[ $RANK = 0 ] && sleep 1; exec "$@"' sh "$rounds" 3
  expect_right
  run BLUEFOG_TCP_INTERFACE=eth0 -- "$rounds" 3
  expect_right
  run -- sh -c 'export BLUEFOG_TCP_INTERFACE=fd00::$((RANK / 2 + 1)); exec "$@"' sh "$rounds" 3
  expect_right
  # Addresses of one link (fe80::) mean something else on another interface: none is used.
  run BLUEFOG_TCP_INTERFACE=eth9 -- "$rounds" 1
  expect_all "there are eth0 \(fd00::[12]\), lo \(127.0.0.1\), lo \(::1\)"
  ;;
survivors)
  # The others go on, in the store of rank 0, whose host is not the lost rank's.
  run BLUEFOG_ON_FAILURE=shrink -- "$rounds" kill
  expect_codes "0 0 137 0"
  for rank in 0 1 3; do expect "$rank" "of 3 \(epoch 1\), sum 3, without 2,"; done
  # With the store's own rank, and so the store, nobody does, and nobody hangs.
  run BLUEFOG_ON_FAILURE=shrink BLUEFOG_TIMEOUT=20 -- "$rounds" first
  expect_codes "137 1 1 1"
  for rank in 1 2 3; do
    grep -qE "shrink on rank $rank, over the store |gave up in the middle of it: .*rank 0 " \
      "$work/err.$rank" || fail "expected rank $rank to name the store, or who has lost rank 0"
  done
  ;;
silence_that_ends)
  # A link that is down for a while is no loss: for longer than from one sign of life to the next
  # (4 s), and so short that what is sent again finds it up in time.
  start BLUEFOG_TCP_SILENCE=12 -- "$rounds" until "$work/end"
  until_under_way
  set_link bfhost2 down
  sleep 5
  set_link bfhost2 up
  touch "$work/end"
  finish
  expect_right
  ;;
silence_for_good)
  start BLUEFOG_TCP_SILENCE=3 BLUEFOG_TIMEOUT=600 -- "$rounds" until "$work/end"
  until_under_way
  set_link bfhost2 down
  finish
  expect_lost_hosts "the connection to it broke: .*its host has answered nothing for 3 s"
  ;;
heartbeat)
  # A link that is down shows within a few signs of life, long before the system gives the host up.
  start BLUEFOG_HEARTBEAT=1 BLUEFOG_TIMEOUT=600 -- "$rounds" until "$work/end"
  until_under_way
  set_link bfhost2 down
  finish
  expect_lost_hosts "that rank's process has shown no sign of life for 1 s .BLUEFOG_HEARTBEAT"
  ;;
silence_that_ends_and_on)
  # Nor where ranks go on without those that are lost: all are together at the end.
  start BLUEFOG_ON_FAILURE=shrink BLUEFOG_TCP_SILENCE=12 -- "$rounds" until "$work/end"
  until_under_way
  set_link bfhost2 down
  sleep 3
  set_link bfhost2 up
  touch "$work/end"
  finish
  expect_codes "0 0 0 0"
  for rank in 0 1 2 3; do expect "$rank" "of 4 \(epoch 0\), sum 4, without,"; done
  ;;
split)
  # A network in two halves for good: the one that has the store goes on, and the other ends, each with
  # a word, so that never both do.
  start BLUEFOG_ON_FAILURE=shrink BLUEFOG_TCP_SILENCE=3 BLUEFOG_TIMEOUT=20 -- "$rounds" until "$work/end"
  until_under_way
  set_link bfhost2 down
  finish
  expect_codes "0 0 1 1"
  for rank in 0 1; do expect "$rank" "of 2 \(epoch 1\), sum 2, without 2 3,"; done
  for rank in 2 3; do
    grep -qE "shrink on rank $rank, over the store .*" "$work/err.$rank" ||
      fail "expected rank $rank to name the store"
  done
  ;;
reset | reset_and_on)
  # Connections of a rank that lives are reset: it is lost to the others, and they to it.
  port=$((20000 + RANDOM % 10000))
  entries=(MASTER_PORT=$port BLUEFOG_TIMEOUT=30)
  [[ "$case_name" == reset ]] || entries+=(BLUEFOG_ON_FAILURE=shrink)
  start "${entries[@]}" -- "$rounds" until "$work/end"
  until_under_way
  count="$(python3 "$here/reset_connections.py" "${pids[3]}" "$port")"
  [[ "$count" -ge 2 ]] || fail "expected connections of rank 3 with both ranks of the other host, found '$count'"
  finish
  if [[ "$case_name" == reset ]]; then
    expect_codes "3 3 3 3"
    for rank in 0 1 2 3; do expect "$rank" "^rank $rank lost rank "; done
    # Whoever sees it first; the others may hear of it from that one, or that it has left.
    grep -qE "lost rank [0-3]: .* but the connection to it broke: Connection reset by peer" "$work"/out.* ||
      fail "expected a rank to name the reset"
  else
    expect_codes "0 0 0 1"
    for rank in 0 1 2; do expect "$rank" "of 3 \(epoch 1\), sum 3, without 3,"; done
    grep -q "have gone on without this one" "$work/err.3" || fail "expected rank 3 to hear of it"
  fi
  ;;
silence_at_first_that_ends)
  # The ranks have met, and no connection between the hosts is there yet.
  start BLUEFOG_TCP_SILENCE=20 -- "$rounds" after "$work/go"
  until_under_way
  set_link bfhost2 down
  touch "$work/go"
  sleep 5
  set_link bfhost2 up
  finish
  expect_right
  ;;
silence_at_first_for_good)
  start BLUEFOG_TCP_SILENCE=3 BLUEFOG_TIMEOUT=600 -- "$rounds" after "$work/go"
  until_under_way
  set_link bfhost2 down
  keep_neighbors
  touch "$work/go"
  finish
  expect_lost_hosts "it cannot be reached: .*: no answer in time"
  ;;
slow_at_first)
  # Ranks that take connections and do not come to answer, on hosts with two addresses each.
  for i in 1 2; do on_host "bfhost$i" address add "198.18.1.$i/24" dev eth0; done
  start -- "$rounds" after "$work/go"
  until_under_way
  kill -STOP "${pids[2]}" "${pids[3]}"
  touch "$work/go"
  sleep 5
  kill -CONT "${pids[2]}" "${pids[3]}"
  finish
  expect_right
  ;;
rest)
  # Messages that fill all buffers before the rank that rests have no answer for long.
  run BLUEFOG_TCP_SILENCE=1 -- "$rounds" rest 3
  expect_right
  ;;
killed | orphan | stopped | silent)
  # The last rank is killed, also while a child of it lives, or it is stopped, and its host answers
  # for it.
  declare -A ways=([killed]=kill [orphan]=orphan [stopped]=stop [silent]=stop)
  declare -A expected=([killed]="0 0" [orphan]="0 0" [stopped]="7 7" [silent]="7 7")
  reason="waited for rank 2, but its process has ended"
  beats=0
  [[ "$case_name" == stopped ]] && reason="\\(BLUEFOG_TIMEOUT\\): no message from rank 2"
  [[ "$case_name" == silent ]] && reason="no sign of life for 1 s .BLUEFOG_HEARTBEAT" && beats=1
  start BLUEFOG_TCP_SILENCE=1 BLUEFOG_HEARTBEAT=$beats -- "$killed" "${ways[$case_name]}"
  disown "${pids[2]}"
  unset 'pids[2]'
  finish
  expect_codes "${expected[$case_name]}"
  for rank in 0 1; do expect "$rank" "^survivor $rank heard of rank [0-2]: .*$reason"; done
  ;;
refused)
  # Settings that do not fit one rank, or one of a host.
  run -- sh -c '[ $RANK = 3 ] && export BLUEFOG_TCP_INTERFACE=eth9; exec "$@"' sh "$rounds" 1
  expect_codes "3 3 3 4"
  expect 3 "BLUEFOG_TCP_INTERFACE=eth9: expected an interface of this host .* eth0 \(198.18.0.2\)"
  for rank in 0 1 2; do expect "$rank" "^rank -1 lost rank 3: rank $rank, .*=eth9: expected"; done
  run MASTER_PORT=29500 BLUEFOG_TCP_PORTS=21000 -- "$rounds" 1
  expect_all "^rank -1.* expected a free port from 21000 to 21000 \(BLUEFOG_TCP_PORTS\)"
  # Places at which rank 0 is not: nowhere, no host, one out of reach, and another rank's.
  export BLUEFOG_TIMEOUT=3
  for place in nowhere.invalid=Host.not.found 198.18.0.9=No.route.to.host \
    203.0.113.7=Network.is.unreachable bfhost2=Connection.refused; do
    run "MASTER_ADDR=${place%=*}" -- "$rounds" 1
    expect_all "over the store of rank 0 at ${place%=*}:.*cannot connect: .*${place#*=}"
  done
  ;;
strangers)
  # One that writes what is no greeting, one a part of it, and one nothing, at every port of the
  # ranks of a host, which then call each other.
  start BLUEFOG_TCP_PORTS=21000-21001 MASTER_PORT=29500 -- "$rounds" after "$work/go"
  until_under_way
  "$here/netns_agent.sh" --exec bfhost2 bash -c '
    for port in 29500 21000 21001; do
      for words in "$(printf "GET / HTTP/1.1 %0200d" 1)" half ""; do
        exec {stranger}<>"/dev/tcp/bfhost1/$port" && printf "%s" "$words" >&"$stranger"
      done
    done
    echo "in the way"
    exec sleep 100' >"$work/strangers" 2>&1 &
  until_found "$work/strangers" "in the way"
  touch "$work/go"
  finish
  expect_right
  ;;
*)
  fail "unknown case"
  ;;
esac
echo "passed"
