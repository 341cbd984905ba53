#!/bin/bash
# ssh_test.sh CASE BFRUN AFFINITY [JOINING]: ranks that bfrun --host-discovery starts through a real sshd,
# which has a port of its own on the loopback interface, and its keys and settings in a folder that goes
# away. The system's own ssh is left as it is.
source "$(dirname "${BASH_SOURCE[0]}")/../kit.sh"

skip() { echo "SKIPPED: $*"; exit 77; }
sshd="$(PATH="$PATH:/usr/sbin:/sbin" command -v sshd)" || skip "sshd is not installed (Debian: openssh-server)"
for tool in ssh ssh-keygen; do
  command -v "$tool" >/dev/null || skip "$tool is not installed (Debian: openssh-client)"
done
unset SSH_CONNECTION
port=$((20000 + RANDOM % 10000))
mkdir -m 700 "$work/ssh"
for key in host user stranger; do
  ssh-keygen -q -t ed25519 -N '' -C "" -f "$work/ssh/$key" || skip "ssh-keygen makes no key"
done
cp "$work/ssh/user.pub" "$work/ssh/authorized"
echo "bffar $(cat "$work/ssh/host.pub")" >"$work/ssh/known"
cat >"$work/ssh/sshd_config" <<END
ListenAddress 127.0.0.1
Port $port
HostKey $work/ssh/host
AuthorizedKeysFile $work/ssh/authorized
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
END
# client KEY: the settings of an ssh that comes with that key.
client() {
  cat <<END
Host bffar
HostName 127.0.0.1
HostKeyAlias bffar
IdentityFile $work/ssh/$1
IdentitiesOnly yes
StrictHostKeyChecking yes
UserKnownHostsFile $work/ssh/known
GlobalKnownHostsFile none
END
}
client user >"$work/ssh/config"
client stranger >"$work/ssh/stranger_config"

# sshd wants a folder /run/sshd where root starts it: here one that is seen by itself alone.
start_sshd=("$sshd" -D -e -f "$work/ssh/sshd_config")
if [[ "$(id -u)" == 0 && ! -d /run/sshd ]]; then
  unshare --mount true 2>/dev/null || skip "/run/sshd is missing, and no mount namespace is allowed"
  start_sshd=(unshare --mount bash -c
    'mount -t tmpfs tmpfs /run && mkdir -m 755 /run/sshd && exec "$@"' bash "${start_sshd[@]}")
fi
"${start_sshd[@]}" 2>"$work/ssh/log" </dev/null & server=$!
trap '[[ -z "${job:-}" ]] || kill "$job" 2>/dev/null
  kill "$server" 2>/dev/null; wait "$server" 2>/dev/null; rm -rf "$work"' EXIT
until (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
  kill -0 "$server" 2>/dev/null || skip "sshd does not start: $(tail -1 "$work/ssh/log")"
  sleep 0.05
done
ssh -F "$work/ssh/config" -p "$port" -o BatchMode=yes bffar true 2>"$work/ssh/first" </dev/null ||
  skip "sshd lets nobody in: $(tail -1 "$work/ssh/first") $(tail -1 "$work/ssh/log")"

printf '#!/bin/sh\ncat %s/hosts\n' "$work" >"$work/discover"
chmod +x "$work/discover"
hosts() { printf '%s\n' "$@" >"$work/hosts.new"; mv "$work/hosts.new" "$work/hosts"; }
hosts localhost:1 bffar:1
by_ssh=(--host-discovery "$work/discover" --ssh-port "$port" --remote-shell)
wait_for() {  # WORDS [FILE]
  for _ in $(seq 300); do
    grep -qE -- "$1" "${2:-$work/err}" 2>/dev/null && return
    sleep 0.1
  done
  fail "no '$1' in ${2:-standard error}"
}
rank="trap 'echo left >>$work/left; exit 0' TERM; echo \$\$ >$work/pid.\$RANK; kill -s RTMIN+2 \$PPID
  echo \"\$RANK \${SSH_CONNECTION:+by ssh} \${MY_KEY-none} \${MY_NAME-none} \$PWD\"
  until [ -f $work/end ]; do sleep 0.1; done"
cd "$work" || exit 1

case "$case_name" in
ranks)
  MY_KEY=secret MY_NAME="two words" start -np 2 --min-np 1 --max-np 2 -x MY_NAME \
    "${by_ssh[@]}" "ssh -F $work/ssh/config" bash -c "$rank"
  wait_for "^bfrun: 2 ranks on 2 hosts: 1 on bffar, 1 on this machine"
  wait_for "^0 " "$work/out"; wait_for "^1 " "$work/out"
  hosts localhost:1
  wait_for "rank 1 is told to leave .SIGTERM.: bffar has 0 slots now"; wait_for "rank 1 has left"
  hosts localhost:1 bffar:1
  wait_for "rank 1 is started, to join the others: bffar has 1 slot now"
  until [[ "$(grep -c "^1 " "$work/out")" == 2 ]]; do sleep 0.1; done
  touch "$work/end"; wait "$job"; code=$?; expect_code 0
  expect_output "0  secret two words $work
1 by ssh none two words $work
1 by ssh none two words $work"
  [[ "$(cat "$work/left")" == left ]] || fail "expected that the far rank hears SIGTERM"
  ;;
ends)
  run "$bfrun" -np 2 --min-np 2 "${by_ssh[@]}" "ssh -F $work/ssh/config" bash -c \
    "[ \$RANK = 1 ] && exit 7; $rank"
  expect_code 7; expect_error "rank 1 on host .* exited with code 7"
  run "$bfrun" -np 2 --min-np 2 "${by_ssh[@]}" "ssh -F $work/ssh/config" bash -c \
    "[ \$RANK = 1 ] && kill -9 \$\$; $rank"
  expect_code 137; expect_error "rank 1 on host .*killed by signal 9"
  # bfrun's own end leaves nobody behind.
  rm -f "$work"/pid.*
  start -np 2 --min-np 1 "${by_ssh[@]}" "ssh -F $work/ssh/config" bash -c "$rank"
  wait_for "^0 " "$work/out"; wait_for "^1 " "$work/out"
  kill -KILL "$job"; wait "$job" 2>/dev/null
  expect_no_orphan
  # A key that the server does not know, and a server whose key is not the one that is known.
  run "$bfrun" -np 2 --min-np 2 "${by_ssh[@]}" "ssh -F $work/ssh/stranger_config" true
  [[ "$code" != 0 ]] || fail "expected a failure"
  expect_error "Permission denied"; expect_error "rank 1: the connection to host bffar could not be made"
  echo "bffar $(cat "$work/ssh/stranger.pub")" >"$work/ssh/known"
  run "$bfrun" -np 2 --min-np 2 "${by_ssh[@]}" "ssh -F $work/ssh/config" true
  [[ "$code" != 0 ]] || fail "expected a failure"
  expect_error "Host key verification failed"
  ;;
training)
  # The rank that ssh has started is killed, and started again by ssh, and trains with the others.
  hosts localhost:1 bffar:2
  run "$bfrun" -np 3 --min-np 2 --respawn 2 "${by_ssh[@]}" "ssh -F $work/ssh/config" bash -c \
    '[ "$SSH_CONNECTION" ] && echo by ssh; exec "$0" killed' "$4"
  expect_code 0; expect_error "rank 1 is started again"
  for each in 0 2 3; do
    grep -qE "^rank $each of 3: ranks 0 2 3, lost 1, joined 1, looked at 3 epochs, " "$work/out" ||
      fail "expected rank $each to have trained with the others"
  done
  [[ "$(grep -cx "by ssh" "$work/out")" == 3 ]] || fail "expected three starts by ssh"
  ;;
*)
  fail "no such case"
  ;;
esac
echo "passed"
