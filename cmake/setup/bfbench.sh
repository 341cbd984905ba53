#!/usr/bin/env bash
# make bfbench: installs, builds what bfbench measures, links it into the environment, and runs it.
#   ARGS        words of bfbench, default "ops"
#   CMAKE_ARGS  further options of the configure step
set -euo pipefail
export STEP_TOTAL=5
# shellcheck source=cmake/setup/steps.sh
source "$(dirname "$0")/steps.sh"

set_up requirements.txt test-requirements.txt

step 'configure and build what is measured (CMake preset release)'
configure release >/dev/null
build release bfrun bftopo operations_benchmark hierarchical_benchmark train_pipeline bluefog_core
link_command "$root/benchmarks/bfbench/bfbench"
link_command "$root/build/release/tools/bfrun/bfrun"
step_end "$venv/bin/bfbench and bfrun"

step "bfbench ${ARGS:-ops}"
# shellcheck disable=SC2086
bfbench ${ARGS:-ops} || stop "bfbench ended with exit code $?." 'Its options: bfbench --help'
step_end 'measured'
