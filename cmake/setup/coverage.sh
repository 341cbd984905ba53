#!/usr/bin/env bash
# make coverage: installs, builds with counters, runs the tests, writes docs/coverage.md.
#   CMAKE_ARGS  further options of the configure step
set -euo pipefail
export STEP_TOTAL=5
# shellcheck source=cmake/setup/steps.sh
source "$(dirname "$0")/steps.sh"

set_up requirements.txt test-requirements.txt

step 'configure and build with counters (CMake preset coverage)'
configure coverage >/dev/null
build coverage
step_end 'built'

step 'run the tests and count'
"$venv/bin/python" tests/coverage.py build/coverage docs/coverage.md ||
  stop 'a test failed: the figures in docs/coverage.md are of an incomplete run.'
step_end 'docs/coverage.md'
