"""Starting measurements under bfrun and reading what they print."""

import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


class LaunchFailed(RuntimeError):
    """A measurement that ended with an error; its text says which and why."""


class Launcher:
    def __init__(self, build):
        self.bfrun = build / "bluefog_cpp" / "bfrun" / "bfrun"
        self.operations = build / "benchmarks" / "operations_benchmark"
        for program in (self.bfrun, self.operations):
            if not program.exists():
                raise LaunchFailed(
                    f"expected {program}, found nothing there: build the targets bfrun and "
                    "operations_benchmark, or name the build folder with --build")

    def run(self, ranks, *command):
        """The records that a job prints, one JSON object per line."""
        words = [str(word) for word in (self.bfrun, "-np", ranks, *command)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise LaunchFailed(f"'{' '.join(words)}' ended with code {done.returncode}:\n"
                               f"{done.stderr[-2000:]}")
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    def own_and_mpi(self, ranks, sizes, dtype, seconds):
        return self.run(ranks, self.operations, "--json", "--sizes", ",".join(map(str, sizes)),
                        "--dtype", dtype, "--seconds", seconds)

    def gloo(self, ranks, sizes, dtype, seconds):
        with tempfile.TemporaryDirectory() as folder:
            worker = pathlib.Path(__file__).with_name("gloo_worker.py")
            return self.run(ranks, sys.executable, worker, "--store", f"{folder}/store", "--sizes",
                            ",".join(map(str, sizes)), "--dtype", dtype, "--seconds", seconds)
