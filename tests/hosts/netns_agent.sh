#!/bin/bash
# Stands in for ssh between the hosts of netns.sh:
#
#   netns_agent.sh [ssh options] HOST WORDS...    WORDS form one shell command, as with ssh
#   netns_agent.sh --exec HOST COMMAND...         COMMAND is run as it is
set -euo pipefail

as_is=""
while [[ $# -gt 0 ]]; do
  case "$1" in
    --exec) as_is=1; shift ;;
    -p | -o | -l | -i | -F) shift 2 ;;
    -*) shift ;;
    *) break ;;
  esac
done
host="${1:?netns_agent.sh: no host given}"
shift
# Hosts share the files of this machine, but not the folder where programs meet.
export TMPDIR="${BF_NETNS_WORK:?}/$host"
mkdir -p "$TMPDIR"
on_host=(ip netns exec "$host" unshare --uts bash -c 'hostname "$0" && exec "$@"' "$host")
if [[ -n "$as_is" ]]; then
  exec "${on_host[@]}" "$@"
fi
exec "${on_host[@]}" sh -c "$*"
