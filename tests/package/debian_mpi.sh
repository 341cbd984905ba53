#!/usr/bin/env bash
# debian_mpi.sh WORK_FOLDER: builds and installs the package with Debian's Open MPI
# (libopenmpi-dev) and the CMake that calls this, lets another project link it, and starts that
# project's program with Debian's mpirun. Ends with 77 where Debian's Open MPI is not installed.
set -euo pipefail
work=$1
source_folder=$(cd "$(dirname "$0")/../.." && pwd)
mpicxx=$(command -v mpicxx.openmpi || true)
mpirun=$(command -v mpirun.openmpi || true)
if [ -z "$mpicxx" ] || [ -z "$mpirun" ]; then
  echo "SKIPPED: needs Debian's Open MPI (apt-get install libopenmpi-dev openmpi-bin)"
  exit 77
fi
rm -rf "$work/prefix" "$work/project"
mkdir -p "$work/project"

# run LOG COMMAND …: quiet unless it fails.
run() {
  local log=$1
  shift
  "$@" >"$log" 2>&1 || { cat "$log"; echo "FAILED: $*"; exit 1; }
}

run "$work/configure.log" cmake -S "$source_folder" -B "$work/build" -G Ninja \
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_UNITY_BUILD=ON -DMPI_CXX_COMPILER="$mpicxx" \
  -DBLUEFOG_WITH_MPI=ON -DBLUEFOG_WITH_TORCH=OFF -DBLUEFOG_WITH_CUDA=OFF -DBLUEFOG_PYTHON=OFF \
  -DBLUEFOG_BUILD_TESTS=OFF -DBLUEFOG_BUILD_EXAMPLES=OFF
run "$work/build.log" cmake --build "$work/build"
run "$work/install.log" cmake --install "$work/build" --prefix "$work/prefix"

cp "$source_folder/examples/usage/neighbor_average.cpp" "$work/project"
cat >"$work/project/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.28)
project(averages LANGUAGES CXX)
find_package(bluefog_cpp 0.1 REQUIRED)
add_executable(averages neighbor_average.cpp)
target_link_libraries(averages PRIVATE bluefog::ops)
END
run "$work/consumer.log" cmake -S "$work/project" -B "$work/project/build" -G Ninja \
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$work/prefix" -DMPI_CXX_COMPILER="$mpicxx"
run "$work/link.log" cmake --build "$work/project/build"

# Ranks of the Open MPI that starts them: the one at run time is the one of the build.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
for ranks in 1 2 4; do
  output=$("$mpirun" --oversubscribe -np $ranks "$work/project/build/averages" | sort)
  mean=$(awk -v n=$ranks 'BEGIN { print (n - 1) / 2 }')
  expected=$(for ((rank = 0; rank < ranks; ++rank)); do echo "rank $rank: $mean"; done)
  if [ "$output" != "$expected" ]; then
    printf 'FAILED: %s ranks: expected\n%s\nfound\n%s\n' $ranks "$expected" "$output"
    exit 1
  fi
done
"$work/prefix/bin/bfrun" --check-build
