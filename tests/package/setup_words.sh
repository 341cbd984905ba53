#!/usr/bin/env bash
# setup_words.sh WORK_FOLDER: the words of cmake/setup/install.sh about things that cannot be had.
# Stand-ins on PATH play the machines that lack them.
set -euo pipefail
source_folder=$(cd "$(dirname "$0")/../.." && pwd)
work=$1
rm -rf "$work"
failures=0

# stand_in CASE PROGRAM BODY: a program of that name for one case.
stand_in() {
  mkdir -p "$work/$1/bin"
  printf '#!/bin/sh\n%s\n' "$3" >"$work/$1/bin/$2"
  chmod +x "$work/$1/bin/$2"
}

# expect CASE WORDS [NAME=VALUE…]: install.sh, or SCRIPT of its folder, fails and says WORDS.
expect() {
  local case=$1 words=$2 output code=0
  shift 2
  mkdir -p "$work/$case/bin"
  output=$(env PATH="$work/$case/bin:$PATH" "$@" "$source_folder/cmake/setup/${SCRIPT:-install.sh}" 2>&1 \
    </dev/null) || code=$?
  if [ $code -eq 0 ] || ! grep -qF -- "$words" <<<"$output"; then
    printf 'FAILED: %s: exit code %d, expected the words "%s" in:\n%s\n' "$case" "$code" \
      "$words" "$output"
    failures=$((failures + 1))
  else
    echo "ok: $case"
  fi
}

stand_in not_root id 'echo 1000'
stand_in not_root sudo 'exit 1'
stand_in not_root dpkg-query 'exit 1'
stand_in not_root apt-get 'exit 1'
expect not_root 'apt-get install -y --no-install-recommends dataset-fashion-mnist doxygen g++'

stand_in apt_fails id 'echo 0'
stand_in apt_fails dpkg-query 'exit 1'
stand_in apt_fails apt-get 'echo "E: Unable to fetch some archives"; exit 100'
expect apt_fails 'Unable to fetch some archives'
expect apt_fails 'apt-get could not install: dataset-fashion-mnist'

# `make test` refuses words that it does not know before it installs anything.
stand_in bad_words dpkg-query 'echo installed things; exit 1'
SCRIPT=test.sh expect bad_words "PRESETS are some of release debug tsan asan, not 'foo'" \
  PRESETS='release foo'
SCRIPT=test.sh expect bad_words "PRESETS are some of release debug tsan asan, not 'coverage'" \
  PRESETS=coverage
SCRIPT=test.sh expect bad_words "LEVEL is ci or long, not 'slow'" PRESETS=release LEVEL=slow

expect no_compiler "there is no C++ compiler 'no-such-compiler'" \
  BLUEFOG_SKIP_PACKAGES=1 CXX=no-such-compiler

mkdir -p "$work/foreign/venv" && touch "$work/foreign/venv/something"
expect foreign 'is no working virtual environment' \
  BLUEFOG_SKIP_PACKAGES=1 BLUEFOG_VENV="$work/foreign/venv"
[ -e "$work/foreign/venv/something" ] || { echo 'FAILED: a foreign folder was touched'; exit 1; }

for name in python3 python3.10 python3.11 python3.12 python3.13; do
  stand_in old_python $name '[ "$1" = --version ] && echo "Python 3.9.2"; exit 1'
done
expect old_python 'found: Python 3.9.2' \
  BLUEFOG_SKIP_PACKAGES=1 BLUEFOG_VENV="$work/old_python/venv" PYTHON=

python3 -m venv "$work/empty"
stand_in no_disk df 'printf "filesystem\\n/dev/disk 9 9 2097152 0%% /\\n"'
expect no_disk 'and '"$work"'/empty has 2 GiB' BLUEFOG_SKIP_PACKAGES=1 BLUEFOG_VENV="$work/empty"
stand_in no_network df 'printf "filesystem\\n/dev/disk 9 9 99999999 0%% /\\n"'
expect no_network 'pip cannot reach the package index' BLUEFOG_SKIP_PACKAGES=1 \
  BLUEFOG_VENV="$work/empty" PIP_INDEX_URL=http://127.0.0.1:9/simple PIP_RETRIES=0 PIP_CONFIG_FILE=

# Built programs become commands of the environment, and programs that pip installed stay.
(
  export BLUEFOG_VENV=$work/linked
  mkdir -p "$BLUEFOG_VENV/bin"
  # shellcheck source=cmake/setup/steps.sh
  source "$source_folder/cmake/setup/steps.sh"
  stand_in built first 'echo built'
  stand_in built second 'echo built'
  printf '#!/bin/sh\necho installed\n' >"$BLUEFOG_VENV/bin/second"
  chmod +x "$BLUEFOG_VENV/bin/second"
  for name in first first second; do link_command "$work/built/bin/$name"; done
  [ "$("$BLUEFOG_VENV/bin/first") $("$BLUEFOG_VENV/bin/second")" = 'built installed' ]
) && echo 'ok: link_command' || { echo 'FAILED: link_command'; failures=$((failures + 1)); }

# Every command that is installed is one of the environment's after make train.
commands=$(sed -n 's/^ *foreach(command \(.*\))$/\1/p' "$source_folder/cmake/BluefogInstall.cmake")
for name in ${commands:?}; do
  if grep -q "^link_command .*$name\"\$" "$source_folder/cmake/setup/train.sh"; then
    echo "ok: make train links $name"
  else
    echo "FAILED: make train does not link $name"
    failures=$((failures + 1))
  fi
done

rm -rf "$work"
exit $((failures > 0))
