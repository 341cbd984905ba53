# shellcheck shell=bash
# Sourced by the other scripts: numbered steps with their time, clear endings.
# STEP_TOTAL is the number of steps of the whole command; a script that goes on
# after another one takes over its count through STEP_NUMBER.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
setup_folder=$root/cmake/setup
venv=${BLUEFOG_VENV:-$root/.venv}
export BLUEFOG_VENV=$venv
STEP_NUMBER=${STEP_NUMBER:-0}
step_open=

step() {
  STEP_NUMBER=$((STEP_NUMBER + 1))
  step_started=$(date +%s%N)
  step_open=1
  printf '[%d/%d] %s\n' "$STEP_NUMBER" "$STEP_TOTAL" "$*"
}

# step_end WORDS…: prints how the open step ended.
step_end() {
  local tenths=$((($(date +%s%N) - step_started) / 100000000))
  step_open=
  printf '      %s (%d.%d s)\n' "$*" $((tenths / 10)) $((tenths % 10))
}

# stop WORDS…: ends the command; says what went wrong and what the user can do.
stop() {
  [ -z "$step_open" ] || step_end 'failed' >&2
  printf '\nCannot go on: %s\n' "$1" >&2
  shift
  [ $# -eq 0 ] || printf '  %s\n' "$@" >&2
  exit 1
}

# set_up [FILE…]: installs what is missing (install.sh, three steps), and goes to the root with the
# environment's commands at hand.
set_up() {
  "$setup_folder/install.sh" "$@"
  STEP_NUMBER=3
  export PATH=$venv/bin:$PATH
  cd "$root" || stop "cannot enter $root."
}

# configure PRESET: by CMake, with the caller's LibTorch and CMAKE_ARGS; its words are for failures.
configure() {
  # shellcheck disable=SC2086
  cmake --preset "$1" ${BLUEFOG_TORCH_ROOT:+-DBLUEFOG_TORCH_ROOT="$BLUEFOG_TORCH_ROOT"} \
    ${CMAKE_ARGS:-} || stop 'CMake could not configure the build; its words are above.'
}

# build PRESET [TARGET…]
build() {
  local preset=$1
  shift
  cmake --build --preset "$preset" ${1:+--target "$@"} ||
    stop 'the build failed; the compiler says why above.'
}

# link_command PROGRAM: the environment's bin folder has the command, unless pip has installed it
# there.
link_command() {
  local link
  link=$venv/bin/$(basename "$1")
  if [ -x "$1" ] && { [ -L "$link" ] || [ ! -e "$link" ]; }; then
    ln -sfn "$1" "$link"
  fi
}
