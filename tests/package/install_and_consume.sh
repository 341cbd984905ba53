#!/usr/bin/env bash
# install_and_consume.sh BUILD_FOLDER WORK_FOLDER [PYTHON]: installs the build, moves the
# installed files elsewhere, and builds and runs a project that uses them. With PYTHON, which has
# torch, the project has the blocks of docs/your_own_algorithm.md, and Python loads their library.
set -euo pipefail
build=$1 work=$2 python=${3:-}
source_folder=$(cd "$(dirname "$0")/../.." && pwd)

rm -rf "$work"
cmake --install "$build" --prefix "$work/first" >"$work.log" || { cat "$work.log"; exit 1; }
mv "$work/first" "$work/prefix"

if grep -rlF "$source_folder/bluefog_cpp" "$work/prefix/lib"*/cmake; then
  echo 'FAILED: the installed package refers to the source folder'
  exit 1
fi
cmp "$source_folder/LICENSE" "$work/prefix/share/doc/bluefog_cpp/LICENSE"

# first_block KIND: the first block of this kind of the page.
first_block() {
  awk -v begin="^\`\`\`$1\$" '$0 ~ begin && !seen { seen = inside = 1; next }
    /^```$/ { inside = 0 } inside' "$source_folder/docs/your_own_algorithm.md"
}
blocks=
if [ -n "$python" ]; then
  blocks=$work/page
  mkdir -p "$blocks" "$work/bin"
  first_block cmake >"$blocks/CMakeLists.txt"
  first_block cpp >"$blocks/partial_average.cpp"
  printf '#!/bin/sh\nexec "%s" "$@"\n' "$python" >"$work/bin/python"
  chmod +x "$work/bin/python"
  export PATH="$work/bin:$PATH" PYTHONPATH="$build/python" PYTHONDONTWRITEBYTECODE=1
fi
cmake -S "$source_folder/tests/package/consumer" -B "$work/build" -G Ninja \
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$work/prefix" -DPAGE_BLOCKS="$blocks"
cmake --build "$work/build"

# Another MPI than that of the build is refused where the consumer is configured, with both names.
mpicxx=$(sed -n 's/^MPI_CXX_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
headers=$(sed -n 's/^MPI_CXX_HEADER_DIR:[A-Z]*=//p' "$build/CMakeCache.txt")
if grep -q '^ *# *define OMPI_MAJOR_VERSION' "$headers/mpi.h" 2>/dev/null; then
  mkdir -p "$work/other_mpi"
  cp -r "$headers" "$work/other_mpi/include"
  sed -i 's/\(define OMPI_MAJOR_VERSION\) .*/\1 3/; s/\(define OMPI_MINOR_VERSION\) .*/\1 1/
    s/\(define OMPI_RELEASE_VERSION\) .*/\1 4/' "$work/other_mpi/include/mpi.h"
  printf '#!/bin/sh\n"%s" "$@" | sed "s|%s|%s|g"\n' "$mpicxx" "$headers" \
    "$work/other_mpi/include" >"$work/other_mpi/mpicxx"
  chmod +x "$work/other_mpi/mpicxx"
  if cmake -S "$source_folder/tests/package/consumer" -B "$work/other_build" -G Ninja \
    -DCMAKE_PREFIX_PATH="$work/prefix" -DMPI_CXX_COMPILER="$work/other_mpi/mpicxx" \
    >"$work/other.log" 2>&1 ||
    ! tr -s ' \n' ' ' <"$work/other.log" |
      grep -q 'was built with Open MPI [0-9.]*, and the MPI found is Open MPI 3.1.4 '; then
    cat "$work/other.log"
    echo 'FAILED: expected another MPI to be refused by name'
    exit 1
  fi
fi
"$work/build/consumer"
for program in "$work/build/torch_consumer" "$work/prefix/bin/bfrun" \
  "$work/prefix/bin/bftopo"; do
  case $program in
    */bfrun) arguments=--check-build ;;
    */bftopo) arguments='check base --n 25 --k 1' ;;
    *) arguments= ;;
  esac
  [ ! -x "$program" ] || "$program" $arguments
done
[ -z "$python" ] || python -c "from bluefog_cpp import algorithms
names = algorithms.load('$work/build/page/libpartial_average.so')
assert names == ['partial_average'], names"
