#!/bin/bash
# run_pipetransformer.sh on each host of netns.sh, two ranks each, which train one elastic pipeline:
#
#   pipetransformer_nodes.sh PYTHON SCRIPT
set -euo pipefail

python="$1"
script="$2"
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
read -ra hosts <<<"$BF_NETNS_HOSTS"
nodes=${#hosts[@]}
ranks=$((2 * nodes))
port=29400
"$python" -c 'import yaml' 2>/dev/null || { echo "SKIPPED: PyYAML is not installed"; exit 77; }

work="$(mktemp -d)"  # hosts share the files of this machine
trap 'rm -rf "$work"' EXIT
cd "$work"
for ((i = 0; i < 400; ++i)); do printf abcdefgh; done >text
cat >run.yaml <<'END'
model: bert
tokens: 16
layers: 2
width: 16
heads: 2
epochs: 4
batch_size: 24
alpha: 0.6
by_gradients: false
cache: true
cache_memory_mib: 1
cache_disk_mib: 0
END

jobs=()
for node in "${!hosts[@]}"; do
  PYTHON="$python" "$here/netns_agent.sh" --exec "${hosts[node]}" "$script" 2 "$nodes" "$node" \
    "${hosts[0]}" "$port" run.yaml trial --data text >"out.$node" 2>"err.$node" &
  jobs+=("$!")
done
code=0
for job in "${jobs[@]}"; do wait "$job" || code=$?; done

fail() {
  echo "FAILED: expected $1; code $code"
  tail -n +1 out.* err.*
  exit 1
}
[[ $code == 0 ]] || fail "that all nodes end well"
[[ "$(grep -c '^Epoch ' out.0)" == 4 ]] || fail "four epochs on the first node"
grep -qE "^Epoch 1: 1 x $ranks stages, 0 of 6 layers frozen" out.0 || fail "a pipeline of all ranks"
grep -qE "^Epoch 4: 2 x $nodes stages, 4 of 6 layers frozen" out.0 || fail "two pipelines at the end"
for node in "${!hosts[@]}"; do
  [[ $node == 0 || ! -s "out.$node" ]] || fail "that rank 0 alone prints"
done
"$python" - "$ranks" <<'END' || fail "a metrics file of all ranks"
import json
import sys

events = [json.loads(line) for line in open("trial.jsonl")]
ranks = int(sys.argv[1])
steps = [event for event in events if event["event"] == "step"]
first = [one["stage_bytes"] for one in steps[0]["ranks"]]
cached = sum(one["cached_rows"] for step in steps for one in step["ranks"])
assert len(first) == ranks and min(first) > 0, first
far = [one["machine_syncs"] for one in steps[0]["ranks"]]  # a border behind every second rank
assert far[0] == far[-1] == 0 and min(far[1:-1]) > 0, far
assert [one["allreduce_parameters"] > 0 for one in steps[-1]["ranks"]] == [True] * ranks
assert cached > 0 and events[-1]["event"] == "result" and len(events[-1]["memory_mib"]) == ranks
END
echo passed
