#!/usr/bin/env bash
# make install: sets up, builds the libraries and commands, and installs them below PREFIX.
#   PREFIX  a folder, default /usr/local
#   CMAKE_ARGS  further options of the configure step
set -euo pipefail
export STEP_TOTAL=5
# shellcheck source=cmake/setup/steps.sh
source "$(dirname "$0")/steps.sh"
prefix=${PREFIX:-/usr/local}

# shellcheck disable=SC2119
set_up

step 'configure and build the libraries and commands (CMake preset release)'
configure release >/dev/null
build release bluefog_package
step_end 'built'

step "install below $prefix"
cmake --install build/release --prefix "$prefix" --component bluefog_cpp >/dev/null ||
  stop "nothing, or not everything, was installed below $prefix." \
    'Name a folder that you may write to: make install PREFIX=$HOME/bluefog_cpp'
step_end "find_package(bluefog_cpp) finds it with CMAKE_PREFIX_PATH=$prefix"
