"""Starting measurements under bfrun and reading what they print."""

import copy
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
LONGEST_END_SEC = 30
# Whatever ends this process, the launcher hears of it and takes its ranks and hosts down.
ENDS_WITH_THIS = ("setpriv", "--pdeathsig", "TERM")


class LaunchFailed(RuntimeError):
    """A measurement that ended with an error; its text says which and why, `last_words` the latter
    in one line."""

    def __init__(self, text, last_words):
        super().__init__(text)
        self.last_words = last_words


def last_words_of(errors):
    """The line that says why: that of the exception, which the launcher's lines follow."""
    # torch marks lines of an exception with the rank.
    lines = [re.sub(r"^\[rank\d+\]:\s*", "", line).strip() for line in errors.splitlines()]
    lines = [line for line in lines if line]
    # Exceptions, by what they are called or by their module.
    named = [line for line in lines
             if re.match(r"(\w+\.)*\w*(Error|Exception)\b|(\w+\.)+[A-Z]\w*: ", line)]
    return (named or lines or ["it said nothing"])[-1][:300]


def output_of(words, environment):
    """What a command prints. However this function ends, the command has ended too."""
    words = [str(word) for word in words]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=environment)
    try:
        output, errors = process.communicate()
    except BaseException:
        process.terminate()  # launchers then end their ranks
        try:
            process.communicate(timeout=LONGEST_END_SEC)
        except subprocess.TimeoutExpired:
            process.kill()
        raise
    if process.returncode != 0:
        raise LaunchFailed(f"'{' '.join(words)}' ended with code {process.returncode}:\n"
                           f"{errors[-2000:]}", last_words_of(errors))
    return output


class Launcher:
    def __init__(self, build):
        self.bfrun = build / "bluefog_cpp" / "bfrun" / "bfrun"
        self.operations = build / "benchmarks" / "operations_benchmark"
        self.operations_words = ()
        # The Python package of the same build, and this one.
        paths = [str(build / "python"), str(ROOT / "benchmarks"), os.environ.get("PYTHONPATH", "")]
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}

    @staticmethod
    def require(program):
        if not program.exists():
            raise LaunchFailed(f"expected {program}, found nothing there: build the target "
                               f"{program.name}, or name the build folder with --build",
                               f"{program.name} is not built")

    def run(self, ranks, *command):
        """The records that a job prints, one JSON object per line."""
        self.require(self.bfrun)
        output = output_of(self.words(ranks, *command), self.environment)
        return [json.loads(line) for line in output.splitlines() if line.startswith("{")]

    hosts = 1

    def with_environment(self, **variables):
        """The same with variables of its own for the ranks."""
        other = copy.copy(self)
        other.environment = {**self.environment, **variables}
        return other

    def words(self, ranks, *command):
        return [*ENDS_WITH_THIS, *self.bfrun_words(ranks, *command)]

    def bfrun_words(self, ranks, *command):
        return [self.bfrun, "-np", ranks, *command]

    def own_and_mpi(self, ranks, sizes, dtype, seconds):
        self.require(self.operations)
        return self.run(ranks, self.operations, *self.operations_words, "--json", "--sizes",
                        ",".join(map(str, sizes)), "--dtype", dtype, "--seconds", seconds)

    def gloo(self, ranks, sizes, dtype, seconds, *flags):
        return self.worker("gloo_worker", ranks, "--sizes", ",".join(map(str, sizes)), "--dtype",
                           dtype, "--seconds", seconds, "--hosts", self.hosts, *flags)

    def gpus(self, ranks, sizes, dtype, seconds):
        """This project and NCCL, on a GPU for each rank."""
        return self.worker("device_worker", ranks, "--sizes", ",".join(map(str, sizes)), "--dtype",
                           dtype, "--seconds", seconds, "--device", "cuda")

    def gloo_bound(self, ranks, sizes, dtype, seconds):
        """Its threads share the cores of their rank's."""
        return self.gloo(ranks, sizes, dtype, seconds, "--bound")

    def worker(self, name, ranks, *options):
        """Ranks of Python; those of gloo meet in the file that --store names."""
        with tempfile.TemporaryDirectory() as folder:
            return self.run(ranks, sys.executable, "-m", f"bfbench.{name}", "--store",
                            f"{folder}/store", *options)
