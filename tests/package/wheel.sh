#!/usr/bin/env bash
# wheel.sh WORK_FOLDER [OPTION…]: makes the wheel as `make wheel` does, and tests it by
# wheel_test.py, which gets the options. BLUEFOG_VENV has torch, and Open MPI where it is pip's.
set -euo pipefail
source_folder=$(cd "$(dirname "$0")/../.." && pwd)
work=$1
shift
python=$BLUEFOG_VENV/bin/python
export PATH=$BLUEFOG_VENV/bin:$PATH

WHEELS=$work/wheels "$source_folder/cmake/setup/wheel.sh"
packages=$("$python" -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parents[1])')
mpi=()
[ ! -e "$BLUEFOG_VENV/lib/libmpi.so.40" ] || mpi=(--mpi "$BLUEFOG_VENV")
"$python" "$source_folder/tests/package/wheel_test.py" "$work"/wheels/*.whl "$work" \
  --packages "$packages" "${mpi[@]}" "$@"
