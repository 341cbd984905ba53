#!/usr/bin/env bash
# make fuzz: installs, builds the fuzzers, and lets them look for inputs that break a parser.
#   MINUTES     how long in all, default 60
#   CMAKE_ARGS  further options of the configure step
# What they learn stays in build/asan/tests/fuzz/inputs; found-… beside it is what broke one.
set -euo pipefail
export STEP_TOTAL=5
# shellcheck source=cmake/setup/steps.sh
source "$(dirname "$0")/steps.sh"
minutes=${MINUTES:-60}
[[ $minutes =~ ^[1-9][0-9]*$ ]] || stop "MINUTES must be a number of minutes, not '$minutes'." \
  'make fuzz MINUTES=10'

set_up requirements.txt test-requirements.txt

step 'configure and build the fuzzers (CMake preset asan)'
configure asan >/dev/null
build asan fuzz
step_end 'built'

folder=build/asan/tests/fuzz
parsers=$(find "$folder" -maxdepth 1 -name 'fuzz_*' -type f -perm -u+x -printf '%f\n' | sed 's/^fuzz_//' | sort)
[ -n "$parsers" ] || stop 'no fuzzer was built: g++ and libFuzzer (libclang-rt-dev) are needed.'
cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
seconds=$((minutes * 60 * cores / $(wc -w <<<"$parsers")))

step "$(wc -w <<<"$parsers") parsers, each for $seconds s, $cores at once"
# shellcheck disable=SC2016
xargs -P "$cores" -I NAME sh -c '
  cd "$1" && ./fuzz_NAME -max_total_time="$2" -timeout=30 -malloc_limit_mb=256 \
    -artifact_prefix=found-NAME- inputs/NAME "$3/tests/fuzz/seeds/NAME" >NAME.log 2>&1 ||
    { tail -n 40 NAME.log; echo "NAME: see $1/NAME.log"; exit 1; }
' sh "$folder" "$seconds" "$root" <<<"$parsers" ||
  stop 'an input breaks a parser: mend it, and make a unit test of it.' \
    "The inputs: $folder/found-*"
step_end 'nothing was found'
