#!/usr/bin/env bash
# configure_words.sh WORK_FOLDER: what configure says to wishes it cannot grant,
# and that it goes without MPI and LibTorch when told to.
set -euo pipefail
source_folder=$(cd "$(dirname "$0")/../.." && pwd)
work=$1
rm -rf "$work"
failures=0

# expect CODE WORDS OPTION…: configure ends with CODE and says WORDS.
expect() {
  local wanted=$1 words=$2 output code=0
  shift 2
  output=$(cmake -S "$source_folder" -B "$work/build" -G Ninja --fresh -DBLUEFOG_BUILD_TESTS=OFF \
    "$@" 2>&1) || code=$?
  output=$(tr -s ' \n' ' ' <<<"$output")  # CMake breaks lines
  if [ $code -ne "$wanted" ] || ! grep -qF -- "$words" <<<"$output"; then
    printf 'FAILED: %s: exit code %d, expected %d and "%s" in:\n%s\n' "$*" "$code" "$wanted" \
      "$words" "$output"
    failures=$((failures + 1))
  else
    echo "ok: $*"
  fi
}

old=$work/old_torch
mkdir -p "$old/lib" "$old/include/torch" "$old/include/ATen"
touch "$old/lib/libtorch_cpu.so" "$old/include/ATen/ATen.h"
printf '#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 6\n#define TORCH_VERSION_PATCH 1\n' \
  >"$old/include/torch/version.h"

expect 1 "BLUEFOG_WITH_MPI must be ON, OFF or AUTO, not 'perhaps'" -DBLUEFOG_WITH_MPI=perhaps
expect 1 "MPI_HOME must be the folder of an MPI, with bin/mpicxx or include/mpi.h; there is no \
folder '/no/such/folder'" -DMPI_HOME=/no/such/folder
expect 1 "'$old' has neither" -DMPI_HOME="$old"
mkdir -p "$work/headers_alone/include" && touch "$work/headers_alone/include/mpi.h"
expect 1 "'$work/headers_alone'" -DMPI_HOME="$work/headers_alone"
MPI_HOME=/no/such/folder expect 1 "there is no folder '/no/such/folder'"
MPI_HOME=/no/such/folder expect 0 'MPI off (BLUEFOG_WITH_MPI=OFF)' -DBLUEFOG_WITH_MPI=OFF \
  -DBLUEFOG_WITH_TORCH=OFF
expect 1 "there is no file '/no/such/mpicxx'" -DMPI_CXX_COMPILER=/no/such/mpicxx
for jobs in 0 -1 many 12345; do
  expect 1 "BLUEFOG_TORCH_JOBS must be a whole number from 1 to 9999, not '$jobs'" \
    -DBLUEFOG_TORCH_JOBS=$jobs
done
expect 1 "BLUEFOG_COMPILE_JOBS must be a whole number from 1 to 9999, not '0'" \
  -DBLUEFOG_COMPILE_JOBS=0
expect 1 "BLUEFOG_SANITIZE must be empty, thread, address, undefined or address,undefined, not 'foo'" \
  -DBLUEFOG_SANITIZE=foo
expect 1 'CUDA is wanted (BLUEFOG_WITH_CUDA=ON), and cannot be used: no toolkit found' \
  -DBLUEFOG_WITH_CUDA=ON -DCUDAToolkit_ROOT=/no/such/folder
expect 0 'CUDA no toolkit found' -DCUDAToolkit_ROOT=/no/such/folder
expect 0 'CUDA off (BLUEFOG_WITH_CUDA=OFF)' -DBLUEFOG_WITH_CUDA=OFF
expect 1 'looked for lib/libtorch_cpu.so in BLUEFOG_TORCH_ROOT (/no/such/folder)' \
  -DBLUEFOG_TORCH_ROOT=/no/such/folder
expect 1 "LibTorch '2.6.1' in $old is older than 2.7" -DBLUEFOG_TORCH_ROOT="$old"
expect 0 'MPI off (BLUEFOG_WITH_MPI=OFF)' -DBLUEFOG_WITH_MPI=OFF -DBLUEFOG_WITH_TORCH=OFF
expect 0 'LibTorch off (BLUEFOG_WITH_TORCH=OFF)' -DBLUEFOG_WITH_MPI=OFF -DBLUEFOG_WITH_TORCH=OFF

rm -rf "$work"
exit $((failures > 0))
