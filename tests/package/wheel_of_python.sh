#!/usr/bin/env bash
# wheel_of_python.sh WORK_FOLDER VERSION: makes the wheel for another Python (3.12), in an environment
# of its own with that one's torch, and tests it (wheel.sh). Interpreters are looked for in PATH and
# among pyenv's.
set -euo pipefail
source_folder=$(cd "$(dirname "$0")/../.." && pwd)
work=$1 version=$2

# A shim of pyenv's may stand for an interpreter that is not there.
python=
for candidate in $(type -aP "python$version") \
  "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/"python$version"; do
  if "$candidate" -c 'import venv' 2>/dev/null; then
    python=$candidate
    break
  fi
done
if [ -z "$python" ]; then
  echo "SKIPPED: python$version is not installed (looked in PATH and in pyenv's versions)"
  exit 77
fi
mkdir -p "$work"
export PYTHON=$python BLUEFOG_VENV=$work/venv
exec "$source_folder/tests/package/wheel.sh" "$work"
