#!/bin/bash
# hierarchical_benchmark.sh [RATE [arguments of the benchmark]]: hierarchical against flat neighbour
# averages on two hosts of two ranks each, network namespaces whose link carries RATE (200mbit).
# Needs root; build/release has to be built.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
build="${BUILD:-$here/build/release}"
rate="${1:-200mbit}"
export PATH="$here/.venv/bin:$PATH"
exec "$here/tests/hosts/netns.sh" -n 2 -r "$rate" -- "$build/tools/bfrun/bfrun" \
  -np 4 -H bfhost1:2,bfhost2:2 "$build/benchmarks/hierarchical_benchmark" "${@:2}"
