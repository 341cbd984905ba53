#!/usr/bin/env bash
# make test: installs, builds, runs every suite; the last line is the total.
#   PRESETS     suites to run, default "release tsan asan"
#   LEVEL       ci (the default), or long: also what takes long and is rarely useful
#   CMAKE_ARGS  further options of the configure step
set -euo pipefail
presets=${PRESETS:-release tsan asan}
# shellcheck disable=SC2086
set -- $presets
export STEP_TOTAL=$((3 + 3 * $#))
# shellcheck source=cmake/setup/steps.sh
source "$(dirname "$0")/steps.sh"
# Words that no suite has are refused before anything is installed.
known=$(sed -n '/"testPresets"/,$ s/.*"name": "\([^"]*\)".*"configurePreset".*/\1/p' \
  "$root/CMakePresets.json" | tr '\n' ' ')
for preset in "$@"; do
  [[ " $known" == *" $preset "* ]] ||
    stop "make test: PRESETS are some of ${known% }, not '$preset'." 'make test PRESETS=release'
done
[[ ${LEVEL:-ci} == @(ci|long) ]] ||
  stop "make test: LEVEL is ci or long, not '$LEVEL'." 'make test LEVEL=long'

# Whoever reads only the last line must not take a set-up failure for nothing.
"$setup_folder/install.sh" requirements.txt test-requirements.txt || {
  echo '0 passed, 1 failed, 0 skipped'
  exit 1
}
export PATH=$venv/bin:$PATH STEP_NUMBER=3
cd "$root"
exec "$venv/bin/python" tests/run_suites.py "$@"
