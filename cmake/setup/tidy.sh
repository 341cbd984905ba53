#!/usr/bin/env bash
# make tidy: installs, configures, and runs clang-tidy over all C++.
#   ARGS        further words for tests/package/tidy.py: --only 'tools/'
#   CMAKE_ARGS  further options of the configure step
set -euo pipefail
export STEP_TOTAL=5
# shellcheck source=cmake/setup/steps.sh
source "$(dirname "$0")/steps.sh"

set_up requirements.txt test-requirements.txt

step 'configure (CMake preset release)'
configure release >/dev/null
step_end 'build/release/compile_commands.json'

step 'clang-tidy, with the checks of .clang-tidy'
# shellcheck disable=SC2086
"$venv/bin/python" tests/package/tidy.py "$root" build/release ${ARGS:-} ||
  stop 'clang-tidy found something, above.'
step_end 'nothing was found'
