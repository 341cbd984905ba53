#!/usr/bin/env bash
# make train: installs, builds what training needs, trains on Fashion-MNIST.
#   NP    ranks, default 2
#   ARGS  further options of examples/train_images
#   CMAKE_ARGS  further options of the configure step
set -euo pipefail
export STEP_TOTAL=6
# shellcheck source=cmake/setup/steps.sh
source "$(dirname "$0")/steps.sh"
np=${NP:-2}
[[ $np =~ ^[1-9][0-9]*$ ]] || stop "NP must be a number of ranks, not '$np'." "make train NP=4"

# shellcheck disable=SC2119
set_up

step 'configure (CMake preset release)'
configure release
step_end 'build/release'

step 'build train_images, bfrun, bftopo and bftrace'
build release train_images bfrun bftopo bftrace
step_end 'built'

bfrun=$(find build/release -name bfrun -type f -perm -u+x | head -n 1)
program=$(find build/release -name train_images -type f -perm -u+x | head -n 1)
[ -n "$bfrun" ] && [ -n "$program" ] || stop 'the build made no bfrun or no train_images.' \
  'What configure said of MPI and LibTorch, above, tells why.'

link_command "$bfrun"
link_command "$root/build/release/tools/bftopo/bftopo"
link_command "$root/build/release/tools/bftrace/bftrace"

step "train on $np ranks: bfrun -np $np $program ${ARGS:-}"
# shellcheck disable=SC2086
"$bfrun" -np "$np" "$program" ${ARGS:-} ||
  stop "training ended with exit code $?." \
    "Its options: $program --help"
step_end 'trained'
