#!/usr/bin/env bash
# make install: sets up, builds the libraries and commands, and installs them below PREFIX.
#   PREFIX  a folder, default /usr/local
#   CMAKE_ARGS  further options of the configure step
set -euo pipefail
export STEP_TOTAL=5
# shellcheck source=cmake/setup/steps.sh
source "$(dirname "$0")/steps.sh"
prefix=${PREFIX:-/usr/local}

"$setup_folder/install.sh"
STEP_NUMBER=3
export PATH=$venv/bin:$PATH
cd "$root"

step 'configure and build the libraries and commands (CMake preset release)'
# shellcheck disable=SC2086
cmake --preset release ${BLUEFOG_TORCH_ROOT:+-DBLUEFOG_TORCH_ROOT="$BLUEFOG_TORCH_ROOT"} \
  ${CMAKE_ARGS:-} >/dev/null || stop 'CMake could not configure the build.'
cmake --build --preset release --target bluefog_package ||
  stop 'the build failed; the compiler says why above.'
step_end 'built'

step "install below $prefix"
cmake --install build/release --prefix "$prefix" --component bluefog_cpp >/dev/null ||
  stop "nothing, or not everything, was installed below $prefix." \
    'Name a folder that you may write to: make install PREFIX=$HOME/bluefog_cpp'
step_end "find_package(bluefog_cpp) finds it with CMAKE_PREFIX_PATH=$prefix"
