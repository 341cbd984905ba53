#!/bin/bash
# Several hosts on one machine: network namespaces joined by a bridge, each with its own host name.
#
#   netns.sh [-n HOSTS] [-r RATE] [-6] [--] COMMAND...
#
#   -n HOSTS   how many hosts (2 to 200, default 2); they are named bfhost1, bfhost2, ...
#   -r RATE    limit what each host can send, in tc's words (400mbit); default: no limit
#   -6         hosts and their names have addresses of IPv6 alone
#
# COMMAND runs on bfhost1. It finds the names of all hosts in BF_NETNS_HOSTS (separated by blanks),
# and Open MPI finds its way to the other hosts through PRTE_MCA_plm_ssh_agent, so that this works:
#
#   netns.sh -n 2 -- bfrun -np 4 -H bfhost1:2,bfhost2:2 ./program
#
# The exit code is COMMAND's; 77 when the machine cannot do this (not root, no `ip`).
# Everything lives in private network, mount and process namespaces: when this script ends, in
# whatever way, interfaces, names and processes are gone. Addresses are of 198.18.0.0/24, a range
# for benchmarks of network devices (RFC 2544), or of fd00::/64, which is for private networks
# (RFC 4193), and never leave the private namespaces.
set -euo pipefail

readonly kSkipped=77

hosts=2
rate=""
network=198.18.0.
prefix=24
while [[ $# -gt 0 ]]; do
  case "$1" in
    -n) hosts="${2:?-n wants a number}"; shift 2 ;;
    -r) rate="${2:?-r wants a rate such as 400mbit}"; shift 2 ;;
    -6) network=fd00::; prefix=64; shift ;;
    --) shift; break ;;
    -*) echo "netns.sh: unknown option '$1'" >&2; exit 2 ;;
    *) break ;;
  esac
done
[[ "$hosts" =~ ^[0-9]+$ && "$hosts" -ge 2 && "$hosts" -le 200 ]] ||
  { echo "netns.sh: -n wants a number from 2 to 200, found '$hosts'" >&2; exit 2; }
[[ $# -gt 0 ]] || { echo "netns.sh: no command given" >&2; exit 2; }

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

# wait_for PID: leaves its code in `status`; a trap interrupts the wait that bash has.
wait_for() {
  status=0
  wait "$1" || status=$?
  while kill -0 "$1" 2>/dev/null; do status=0; wait "$1" || status=$?; done
}

if [[ -z "${BF_NETNS_INSIDE:-}" ]]; then
  [[ "$(id -u)" == 0 ]] || { echo "SKIPPED: netns.sh needs root"; exit "$kSkipped"; }
  for tool in ip unshare tc mount pkill; do
    command -v "$tool" >/dev/null ||
      { echo "SKIPPED: $tool is not installed (Debian: iproute2, util-linux, procps)"
        exit "$kSkipped"; }
  done
  [[ "$network" != fd00:: || -e /proc/net/if_inet6 ]] ||
    { echo "SKIPPED: this machine has no IPv6"; exit "$kSkipped"; }
  private=(unshare --net --mount --uts --pid --fork --kill-child --mount-proc)
  "${private[@]}" true 2>/dev/null ||
    { echo "SKIPPED: this machine allows no new namespaces"; exit "$kSkipped"; }
  work="$(mktemp -d)"
  trap 'rm -rf "$work"' EXIT
  # The script runs in the background, so that a signal reaches the trap at once and is passed on.
  # The redirection keeps standard input, which bash otherwise takes away from background commands.
  options=(-n "$hosts" ${rate:+-r "$rate"})
  [[ "$network" != fd00:: ]] || options+=(-6)
  BF_NETNS_INSIDE="$work" "${private[@]}" "$here/netns.sh" "${options[@]}" -- "$@" <&0 &
  inside=$!
  # COMMAND may end by itself first; unshare hears no other signal, and takes everything with it.
  stop() {
    pkill -TERM -P "$inside" || true
    for ((tenths = 0; tenths < 100; ++tenths)); do
      kill -0 "$inside" 2>/dev/null || return 0
      sleep 0.1
    done
    kill -KILL "$inside" 2>/dev/null || true
  }
  trap stop INT TERM HUP
  wait_for "$inside"
  exit "$status"
fi

# The lines below run in the private namespaces.
work="$BF_NETNS_INSIDE"
unset BF_NETNS_INSIDE
mkdir -p /run/netns
mount -t tmpfs tmpfs /run/netns
# Open MPI names its files there by hosts and processes, whose names and numbers other runs have too.
mount -t tmpfs tmpfs /dev/shm

names=()
for ((i = 1; i <= hosts; ++i)); do names+=("bfhost$i"); done
{
  echo "127.0.0.1 localhost"
  for ((i = 1; i <= hosts; ++i)); do echo "$network$i bfhost$i"; done
} >"$work/hosts"
mount --bind "$work/hosts" /etc/hosts

nodad=""
[[ "$network" != fd00:: ]] || nodad=nodad
ip link set lo up
ip link add bfbridge type bridge
ip link set bfbridge up
for ((i = 1; i <= hosts; ++i)); do
  ip netns add "bfhost$i"
  ip link add "bfport$i" type veth peer name eth0 netns "bfhost$i"
  ip link set "bfport$i" master bfbridge up
  # An address of IPv6 otherwise waits until nobody else is found to have it.
  ip -n "bfhost$i" address add "$network$i/$prefix" dev eth0 $nodad
  ip -n "bfhost$i" link set lo up
  ip -n "bfhost$i" link set eth0 up
  if [[ -n "$rate" ]]; then
    ip netns exec "bfhost$i" "$here/netns_rate.sh" "$rate"
  fi
done

export BF_NETNS_WORK="$work"
export BF_NETNS_HOSTS="${names[*]}"
export PRTE_MCA_plm_ssh_agent="$here/netns_agent.sh"
"$here/netns_agent.sh" --exec bfhost1 "$@" <&0 &
command=$!
trap 'kill -TERM "$command" 2>/dev/null' TERM
wait_for "$command"
exit "$status"
