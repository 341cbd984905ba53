#!/usr/bin/env bash
# make tidy: installs, configures, and runs clang-tidy over all C++.
#   ARGS        further words for tests/package/tidy.py: --only 'tools/'
#   CMAKE_ARGS  further options of the configure step
set -euo pipefail
export STEP_TOTAL=5
# shellcheck source=cmake/setup/steps.sh
source "$(dirname "$0")/steps.sh"

"$setup_folder/install.sh" requirements.txt test-requirements.txt
STEP_NUMBER=3
export PATH=$venv/bin:$PATH
cd "$root"

step 'configure (CMake preset release)'
# shellcheck disable=SC2086
cmake --preset release ${BLUEFOG_TORCH_ROOT:+-DBLUEFOG_TORCH_ROOT="$BLUEFOG_TORCH_ROOT"} \
  ${CMAKE_ARGS:-} >/dev/null || stop 'CMake could not configure the build.'
step_end 'build/release/compile_commands.json'

step 'clang-tidy, with the checks of .clang-tidy'
# shellcheck disable=SC2086
"$venv/bin/python" tests/package/tidy.py "$root" build/release ${ARGS:-} ||
  stop 'clang-tidy found something, above.'
step_end 'nothing was found'
