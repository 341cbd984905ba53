#!/usr/bin/env bash
# configure_words.sh WORK_FOLDER: the words of configure about wishes that it cannot grant, and that
# it goes without MPI and LibTorch when told to.
# configure_words.sh WORK_FOLDER cuda: the same about GPUs, with a CUDA toolkit.
set -euo pipefail
source_folder=$(cd "$(dirname "$0")/../.." && pwd)
work=$1
rm -rf "$work"
failures=0

# expect CODE WORDS OPTION…: configure ends with CODE and says WORDS.
expect() {
  local wanted=$1 words=$2 output code=0
  shift 2
  rm -f "$work/build/CMakeCache.txt"  # what is known of the compilers stays
  output=$(cmake -S "$source_folder" -B "$work/build" -G Ninja -DBLUEFOG_BUILD_TESTS=OFF \
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

finish() {
  rm -rf "$work"
  exit $((failures > 0))
}

if [ "${2:-}" = cuda ]; then
  unset TORCH_CUDA_ARCH_LIST
  alone=(-DBLUEFOG_WITH_MPI=OFF -DBLUEFOG_WITH_TORCH=OFF)
  expect 0 'sm_90, without sm_50 (kernels need sm_70), sm_9990 (unknown to nvcc)' "${alone[@]}" \
    -DBLUEFOG_WITH_CUDA=ON '-DTORCH_CUDA_ARCH_LIST=999.0;9.0;5.0'
  TORCH_CUDA_ARCH_LIST=Hopper expect 0 'sm_90 -- jobs' "${alone[@]}" -DBLUEFOG_WITH_CUDA=ON
  none="of the GPUs wanted (TORCH_CUDA_ARCH_LIST, else torch's) none is left: sm_60 (kernels need \
sm_70). Toolkit"
  expect 0 "CUDA $none" "${alone[@]}" -DTORCH_CUDA_ARCH_LIST=6.0
  expect 1 "and cannot be used: $none" "${alone[@]}" -DBLUEFOG_WITH_CUDA=ON \
    -DTORCH_CUDA_ARCH_LIST=6.0
  # No torch to ask: the first of each generation.
  expect 0 'sm_80 sm_90' "${alone[@]}" -DBLUEFOG_WITH_CUDA=ON
  finish
fi

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
without_cuda=-DBLUEFOG_WITH_CUDA=OFF
# A limit on OpenMP's threads is none on compilers.
OMP_NUM_THREADS=1 expect 0 "($(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc) cores, " \
  -DBLUEFOG_WITH_MPI=OFF -DBLUEFOG_WITH_TORCH=OFF $without_cuda
MPI_HOME=/no/such/folder expect 0 'MPI off (BLUEFOG_WITH_MPI=OFF)' -DBLUEFOG_WITH_MPI=OFF \
  -DBLUEFOG_WITH_TORCH=OFF $without_cuda
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
expect 1 "torch's names of them" -DTORCH_CUDA_ARCH_LIST=Hoper -DCUDAToolkit_ROOT=/no/such/folder
expect 0 'CUDA no toolkit found' -DCUDAToolkit_ROOT=/no/such/folder
expect 0 'CUDA off (BLUEFOG_WITH_CUDA=OFF)' -DBLUEFOG_WITH_CUDA=OFF
expect 1 'looked for lib/libtorch_cpu.so in BLUEFOG_TORCH_ROOT (/no/such/folder)' \
  -DBLUEFOG_TORCH_ROOT=/no/such/folder
expect 1 "LibTorch '2.6.1' in $old is older than 2.7" -DBLUEFOG_TORCH_ROOT="$old"
expect 0 'MPI off (BLUEFOG_WITH_MPI=OFF)' -DBLUEFOG_WITH_MPI=OFF -DBLUEFOG_WITH_TORCH=OFF \
  $without_cuda
expect 0 'LibTorch off (BLUEFOG_WITH_TORCH=OFF)' -DBLUEFOG_WITH_MPI=OFF -DBLUEFOG_WITH_TORCH=OFF \
  $without_cuda

finish
