#!/usr/bin/env bash
# make wheel: sets up, builds the Python package for the environment's Python, and writes it below
# build/wheels: a wheel with all that it needs but torch, and the sources that it is built from.
#   WHEELS      another folder, default build/wheels
#   CMAKE_ARGS  further options of the configure step
set -euo pipefail
export STEP_TOTAL=6
# shellcheck source=cmake/setup/steps.sh
source "$(dirname "$0")/steps.sh"
folder=${WHEELS:-build/wheels}
# Libraries of other packages: torch's, and MPI's, which is loaded where ranks join over it.
others=(libtorch.so libtorch_cpu.so libtorch_python.so libc10.so libmpi.so.40)

# Libraries of this machine have other places on others.
export CMAKE_ARGS="-DCMAKE_INSTALL_RPATH_USE_LINK_PATH=OFF ${CMAKE_ARGS:-}"

set_up requirements.txt wheel-requirements.txt
python=$venv/bin/python

# scikit_build build_wheel|build_sdist FOLDER: what pip calls to build a package; prints its name.
scikit_build() {
  "$python" -c 'import sys, scikit_build_core.build as build
getattr(build, sys.argv[1])(sys.argv[2])' "$@"
}

step "build the package for $("$python" --version) (scikit-build-core)"
rm -rf "$folder"
scikit_build build_wheel "$folder/unrepaired" ||
  stop 'the build failed; the compiler says why above.'
step_end "$(basename "$folder"/unrepaired/*.whl)"

step 'copy in the libraries that other machines may lack (auditwheel)'
auditwheel repair --wheel-dir "$folder" "${others[@]/#/--exclude=}" "$folder"/unrepaired/*.whl ||
  stop 'auditwheel cannot make it fit other machines; it says why above.'
step_end "$(cd "$folder" && du -h ./*.whl | tr '\t' ' ')"

step 'the sources as a package (sdist)'
scikit_build build_sdist "$folder" >/dev/null || stop 'the sources could not be packed.'
step_end "$(basename "$folder"/*.tar.gz)"
