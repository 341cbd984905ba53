#!/usr/bin/env bash
# install_and_consume.sh BUILD_FOLDER WORK_FOLDER: installs the build, moves the
# installed files elsewhere, and builds and runs a project that uses them.
set -euo pipefail
build=$1 work=$2
source_folder=$(cd "$(dirname "$0")/../.." && pwd)

rm -rf "$work"
cmake --install "$build" --prefix "$work/first" >"$work.log" || { cat "$work.log"; exit 1; }
mv "$work/first" "$work/prefix"

if grep -rlF "$source_folder/bluefog_cpp" "$work/prefix/lib"*/cmake; then
  echo 'FAILED: the installed package refers to the source folder'
  exit 1
fi
cmp "$source_folder/LICENSE" "$work/prefix/share/doc/bluefog_cpp/LICENSE"
cmake -S "$source_folder/tests/package/consumer" -B "$work/build" -G Ninja \
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$work/prefix"
cmake --build "$work/build"
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
