#!/usr/bin/env bash
# make coverage: installs, builds with counters, runs the tests, writes docs/coverage.md.
#   CMAKE_ARGS  further options of the configure step
set -euo pipefail
export STEP_TOTAL=5
# shellcheck source=cmake/setup/steps.sh
source "$(dirname "$0")/steps.sh"

"$setup_folder/install.sh" requirements.txt test-requirements.txt
STEP_NUMBER=3
export PATH=$venv/bin:$PATH
cd "$root"

step 'configure and build with counters (CMake preset coverage)'
# shellcheck disable=SC2086
cmake --preset coverage ${BLUEFOG_TORCH_ROOT:+-DBLUEFOG_TORCH_ROOT="$BLUEFOG_TORCH_ROOT"} \
  ${CMAKE_ARGS:-} >/dev/null || stop 'CMake could not configure the build.'
cmake --build --preset coverage || stop 'the build failed; the compiler says why above.'
step_end 'built'

step 'run the tests and count'
"$venv/bin/python" tests/coverage.py build/coverage docs/coverage.md ||
  stop 'a test failed: the figures in docs/coverage.md are of an incomplete run.'
step_end 'docs/coverage.md'
