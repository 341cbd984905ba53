#!/usr/bin/env bash
# toolkit_hidden.sh BUILD_FOLDER: sets up, configures and builds in a mount
# namespace in which no CUDA toolkit is to be found, as on a user's fresh
# machine. The CPU build must come about by itself.
set -euo pipefail
source_folder=$(cd "$(dirname "$0")/../.." && pwd)

skip() {
  echo "SKIPPED: $*"
  exit 77
}

if [ "${1:-}" != --hidden ]; then
  [ "$(uname)" = Linux ] || skip "mount namespaces need Linux"
  if unshare --mount true 2>/dev/null; then
    exec unshare --mount "$0" --hidden "$1"
  elif unshare --map-root-user --mount true 2>/dev/null; then
    exec unshare --map-root-user --mount "$0" --hidden "$1"
  fi
  skip "this user may not make a mount namespace (unshare --mount)"
fi
build=$2

# An empty folder over each toolkit, /dev/null over each nvcc that is left.
empty=$(mktemp -d)
trap 'rmdir "$empty"' EXIT
for toolkit in /usr/local/cuda* /opt/cuda* /usr/lib/cuda* /usr/lib/nvidia-cuda-toolkit; do
  [ -d "$toolkit" ] && [ ! -L "$toolkit" ] || continue
  mount --bind "$empty" "$toolkit" || skip "mounting over $toolkit is not permitted"
done
for nvcc in $(type -aP nvcc); do
  [ ! -x "$nvcc" ] || mount --bind /dev/null "$nvcc" || skip "mounting over $nvcc is not permitted"
done
unset CUDA_HOME CUDA_PATH CUDACXX CUDAToolkit_ROOT

"$source_folder/cmake/setup/install.sh"
rm -rf "$build"
log=$build.log
cmake -S "$source_folder" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Debug \
  -DBLUEFOG_BUILD_EXAMPLES=OFF -DBLUEFOG_VENV="$BLUEFOG_VENV" | tee "$log"
grep -q 'CUDA  *no toolkit found' "$log" || { echo 'FAILED: a CUDA toolkit was found'; exit 1; }
grep -q 'LibTorch  *LibTorch .* (CPU)' "$log" || { echo 'FAILED: LibTorch was not found'; exit 1; }
cmake --build "$build" --target torch_smoke
"$build/tests/package/torch_smoke"
rm -rf "$build"
