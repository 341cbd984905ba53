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

# link_command PROGRAM: the environment's bin folder has the command, unless pip has installed it there.
link_command() {
  local link
  link=$venv/bin/$(basename "$1")
  if [ -x "$1" ] && { [ -L "$link" ] || [ ! -e "$link" ]; }; then
    ln -sfn "$1" "$link"
  fi
}
