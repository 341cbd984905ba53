#!/usr/bin/env bash
# make chaos: installs, builds the Python package and bfrun, and trains while ranks are killed,
# stopped and started again, at random.
#   MINUTES     how long, default 10, and as long undisturbed before
#   SEED        of what happens, default 1
#   ARGS        further options of tests/chaos/chaos_test.py
#   CMAKE_ARGS  further options of the configure step
set -euo pipefail
export STEP_TOTAL=5
# shellcheck source=cmake/setup/steps.sh
source "$(dirname "$0")/steps.sh"
minutes=${MINUTES:-10} seed=${SEED:-1}
[[ $minutes =~ ^[1-9][0-9]*$ ]] || stop "MINUTES must be a number of minutes, not '$minutes'." \
  'make chaos MINUTES=10'
[[ $seed =~ ^[0-9]+$ ]] || stop "SEED must be a number, not '$seed'." 'make chaos SEED=7'

# shellcheck disable=SC2119
set_up

step 'configure and build the Python package and bfrun (CMake preset release)'
configure release >/dev/null
build release bfrun bluefog_core
step_end 'built'

step "train for $minutes minutes undisturbed, and as long with what happens by seed $seed"
# shellcheck disable=SC2086
PYTHONPATH=build/release/python "$venv/bin/python" tests/chaos/chaos_test.py \
  --minutes "$minutes" --seed "$seed" ${ARGS:-} ||
  stop 'the training did not come through; the lines above that begin with "chaos:" say why.' \
    "Again: make chaos MINUTES=$minutes SEED=$seed"
step_end 'all ranks trained together again after each event'
