#!/bin/bash
# One torchrun on each host of netns.sh, two ranks each, which train together without MPI:
#
#   torchrun_nodes.sh PYTHON PROGRAM
#
# PROGRAM (tests/python/programs/starting.py) prints a line for each rank.
set -euo pipefail

python="$1"
program="$2"
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
read -ra hosts <<<"$BF_NETNS_HOSTS"
port=29400
ranks=$((2 * ${#hosts[@]}))

jobs=()
for node in "${!hosts[@]}"; do
  BLUEFOG_LOG_LEVEL=info "$here/netns_agent.sh" --exec "${hosts[node]}" "$python" \
    -m torch.distributed.run "--nnodes=${#hosts[@]}" "--node-rank=$node" --nproc-per-node=2 \
    "--master-addr=${hosts[0]}" "--master-port=$port" "$program" \
    >"$BF_NETNS_WORK/out.$node" 2>"$BF_NETNS_WORK/err.$node" &
  jobs+=("$!")
done
code=0
for job in "${jobs[@]}"; do wait "$job" || code=$?; done

expected=$(for ((rank = 0; rank < ranks; ++rank)); do
  "$python" -c "print('rank $rank of $ranks:', ($ranks - 1) / 2)"
done)
found=$(cat "$BF_NETNS_WORK"/out.* | sort)
by="$ranks ranks, started by torchrun \(RANK=0 and WORLD_SIZE=$ranks\), over the store of torchrun at ${hosts[0]}:$port"
if [[ $code != 0 || "$found" != "$expected" ]] || ! grep -qE "$by" "$BF_NETNS_WORK/err.0"; then
  echo "FAILED: expected code 0, the words '$by' and the lines"
  echo "$expected"
  echo "found code $code and"
  cat "$BF_NETNS_WORK"/out.* "$BF_NETNS_WORK"/err.*
  exit 1
fi
