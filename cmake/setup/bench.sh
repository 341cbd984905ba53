#!/usr/bin/env bash
# make bench: installs, builds the benchmarks, and runs them: several fresh starts of the one for
# neighbor_allreduce, window calls, and training steps of each algorithm against steps without communication.
#   NP    ranks, default 2
#   ARGS  further options of benchmarks/fresh_starts.py
set -euo pipefail
export STEP_TOTAL=7
# shellcheck source=cmake/setup/steps.sh
source "$(dirname "$0")/steps.sh"
np=${NP:-2}
[[ $np =~ ^[1-9][0-9]*$ ]] || stop "NP must be a number of ranks, not '$np'." "make bench NP=4"

"$setup_folder/install.sh"
STEP_NUMBER=3
export PATH=$venv/bin:$PATH
cd "$root"

step 'configure and build the benchmarks and bfrun (CMake preset release)'
# shellcheck disable=SC2086
cmake --preset release ${CMAKE_ARGS:-} >/dev/null || stop 'CMake could not configure the build.'
cmake --build --preset release --target neighbor_allreduce_benchmark window_benchmark \
  training_benchmark hierarchical_benchmark bfrun ||
  stop 'the build failed; the compiler says why above.'
step_end 'built'

step "time neighbor_allreduce on $np ranks"
# shellcheck disable=SC2086
python3 benchmarks/fresh_starts.py --ranks "$np" ${ARGS:-}
step_end 'timed'

step "time window calls on $np ranks"
build/release/tools/bfrun/bfrun -np "$np" build/release/benchmarks/window_benchmark
step_end 'timed'

step "time training steps on $np ranks"
build/release/tools/bfrun/bfrun -np "$np" build/release/benchmarks/training_benchmark
step_end 'timed'
