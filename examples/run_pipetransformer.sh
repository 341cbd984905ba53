#!/usr/bin/env bash
# Trains in an elastic pipeline on one host or several, by torchrun: the same line on each host, with
# a RANK of its own.
#
#   examples/run_pipetransformer.sh NPROC NNODES RANK HOST PORT config.yaml RUN_ID [OPTION…]
#
#   NPROC        ranks on this host        NNODES  hosts         RANK  of this host, from 0
#   HOST PORT    of host 0                 RUN_ID  names the metrics file, RUN_ID.jsonl
#   config.yaml  as in examples/pipeline_configurations
#   OPTION…      further options of examples/pytorch_pipeline.py
#
# PYTHON is the Python that has torch and bluefog_cpp, python3 by default.
set -euo pipefail

stop() {
  printf 'run_pipetransformer.sh: %s\n' "$1" >&2
  exit 2
}

is_number() { [[ $1 =~ ^(0|[1-9][0-9]{0,8})$ ]]; }

[ $# -ge 7 ] || stop "expected NPROC NNODES RANK HOST PORT config.yaml RUN_ID, found $# words"
nproc=$1 nnodes=$2 rank=$3 host=$4 port=$5 config=$6 run_id=$7
shift 7
is_number "$nproc" && ((nproc > 0)) || stop "expected NPROC to be 1 or more, found '$nproc'"
is_number "$nnodes" && ((nnodes > 0)) || stop "expected NNODES to be 1 or more, found '$nnodes'"
is_number "$rank" && ((rank < nnodes)) ||
  stop "expected RANK to be from 0 to $((nnodes - 1)), found '$rank'"
[ -n "$host" ] || stop 'expected a HOST, found none'
is_number "$port" && ((port > 0 && port < 65536)) ||
  stop "expected PORT to be from 1 to 65535, found '$port'"
[ -f "$config" ] || stop "expected config.yaml to be a file, found '$config'"
[[ $run_id =~ ^[A-Za-z0-9][A-Za-z0-9._-]*$ ]] ||
  stop "expected RUN_ID of letters, digits, '.', '_' and '-', found '$run_id'"

exec "${PYTHON:-python3}" -m torch.distributed.run \
  --nproc-per-node "$nproc" --nnodes "$nnodes" --node-rank "$rank" \
  --master-addr "$host" --master-port "$port" \
  "$(dirname "$(readlink -f "$0")")/pytorch_pipeline.py" "$config" --metrics "$run_id.jsonl" "$@"
