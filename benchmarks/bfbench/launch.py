"""Starting measurements under bfrun and reading what they print."""

import contextlib
import copy
import json
import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Or installed from a wheel, with the commands beside Python's.
IS_CLONE = (ROOT / "CMakeLists.txt").exists()
WORKERS = "bfbench.workers"  # the package of programs that run as ranks
LONGEST_END_SEC = 30
# The launcher takes its ranks and hosts down, whatever ends this process.
ENDS_WITH_THIS = ("setpriv", "--pdeathsig", "TERM")


# The limit for jobs whose command derives no other from its options.
LONGEST_JOB_SEC = 3600.0


class LaunchFailed(RuntimeError):
    """A measurement that ended with an error; its text says which and why, `last_words` the latter
    in one line, `output` what it had printed."""

    def __init__(self, text, last_words, output=""):
        super().__init__(text)
        self.last_words = last_words
        self.output = output

    @property
    def records(self):
        """The records that it had measured."""
        return records_in(self.output)


class NoData(LaunchFailed):
    """No images or text where they were said to be; the text says what was expected."""

    def __init__(self, text):
        super().__init__(text, text)


class DeadlinePassed(LaunchFailed):
    """A measurement that was ended because it did not come back."""

    def __init__(self, words, longest_sec, errors, output=""):
        super().__init__(
            f"'{' '.join(words)}' was not done after {longest_sec:g} s:\n{errors[-2000:]}",
            f"not done after {longest_sec:g} s (--job-timeout)", output)


def last_words_of(errors):
    """The line that says why: who was killed, of whom the others' exceptions only hear; else that
    of the exception, which the launcher's lines follow; else who ended first; else the last one."""
    # torch marks lines of an exception with the rank.
    lines = [re.sub(r"^\[rank\d+\]:\s*", "", line).strip() for line in errors.splitlines()]
    lines = [line for line in without_boxes(lines) if re.search(r"\w", line)]
    # A rank with an uncaught exception ends in SIGABRT, and the exception says more.
    killed = [line for line in lines
              if re.match(r"bfrun: rank .* killed by signal (?!6\b)", line)]
    # Exceptions, recognised by their names or modules.
    named = [line for line in lines
             if re.match(r"(\w+\.)*\w*(Error|Exception)\b|(\w+\.)+[A-Z]\w*: ", line)]
    ended = [line for line in lines if line.startswith("bfrun: rank ")]
    others = [line for line in lines if not re.match(r"bfrun: \d+ ranks? on ", line)]
    found = (killed[:1] or named[-1:] or ended[:1] or others[-1:] or ["it said nothing"])[0]
    return re.sub(r" \(pid \d+\)", "", found)[:300]  # the same reason is listed once for all starts


def without_boxes(lines):
    """Without what mpirun says between two lines of dashes, after whatever ended the job."""
    kept, is_inside = [], False
    for line in lines:
        if re.fullmatch("-{20,}", line):
            is_inside = not is_inside
        elif not is_inside:
            kept.append(line)
    return kept


def records_in(output):
    """The JSON objects that a job printed, one a line. The last line may have been cut off."""
    found = []
    for line in output.splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            found += [json.loads(line)] if line.startswith("{") else []
    return found


def end(process):
    """Ends a launcher and its ranks. Returns what it had printed, and its errors."""
    process.terminate()  # launchers then end their ranks
    try:
        return process.communicate(timeout=LONGEST_END_SEC)
    except subprocess.TimeoutExpired as late:
        process.kill()
        return [(text or b"").decode(errors="replace") for text in (late.stdout, late.stderr)]


def output_of(words, environment, longest_sec=None):
    """The output of a command. However this function ends, the command has ended too."""
    words = [str(word) for word in words]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=environment)
    try:
        output, errors = process.communicate(timeout=longest_sec)
    except subprocess.TimeoutExpired as late:
        output, errors = end(process)
        raise DeadlinePassed(words, longest_sec, errors, output) from late
    except BaseException as stop:
        # The output of the job, for its maker.
        stop.records = records_in(end(process)[0])  # type: ignore[attr-defined]  # new on it
        raise
    if process.returncode != 0:
        raise LaunchFailed(f"'{' '.join(words)}' ended with code {process.returncode}:\n"
                           f"{errors[-2000:]}", last_words_of(errors), output)
    return output


def program_at(build, folder, name):
    """A program of the build folder, or of the environment that the wheel is installed in."""
    built = build / folder / name
    return built if IS_CLONE or built.exists() else pathlib.Path(
        sysconfig.get_path("scripts"), name)


class Launcher:
    def __init__(self, build, longest_sec=LONGEST_JOB_SEC):
        self.longest_sec = longest_sec
        """After which a job is ended."""
        self.bfrun = program_at(build, "tools/bfrun", "bfrun")
        self.build = build
        self.operations = self.program("operations_benchmark")
        self.operations_words: tuple = ()
        # The Python package of the same build, and this one.
        paths = [str(build / "python"), str(ROOT / "benchmarks"), os.environ.get("PYTHONPATH", "")]
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}

    def program(self, name):
        """A benchmark of the build."""
        return self.build / "benchmarks" / name

    @staticmethod
    def require(program):
        if not program.exists():
            raise LaunchFailed(f"expected {program}, found nothing there: build the target "
                               f"{program.name}, or name the build folder with --build",
                               f"{program.name} is not built")

    def run(self, ranks, *command):
        """The records that a job prints, one JSON object per line."""
        self.require(self.bfrun)
        return records_in(output_of(self.words(ranks, *command), self.environment,
                                    self.longest_sec))

    hosts = 1
    pause_ms = 0
    """Before each timed batch of calls of `bfbench ops`."""

    def with_environment(self, **variables):
        """The same with variables of its own for the ranks."""
        other = copy.copy(self)
        other.environment = {**self.environment, **variables}
        return other

    def words(self, ranks, *command):
        return [*ENDS_WITH_THIS, *self.bfrun_words(ranks, *command)]

    def bfrun_words(self, ranks, *command):
        # MPI is a peer, which the environment of a wheel may lack.
        launcher = ["--launcher", "mpirun"] if IS_CLONE else []
        return [self.bfrun, *launcher, "-np", ranks, *command]

    def own_and_mpi(self, ranks, sizes, dtype, seconds):
        self.require(self.operations)
        return self.operations_of(ranks, sizes, dtype, seconds, *self.operations_words)

    def mpi_alone(self, ranks, sizes, dtype, seconds):
        """Open MPI's own all-reduce, under settings of the launcher's environment."""
        return self.operations_of(ranks, sizes, dtype, seconds, "--ops", "MPI_Allreduce",
                                  "--without-gloo", "measured beside Open MPI's defaults")

    def operations_of(self, ranks, sizes, dtype, seconds, *words):
        return self.run(ranks, self.operations, *words, "--json", "--sizes",
                        ",".join(map(str, sizes)), "--dtype", dtype, "--seconds", seconds,
                        "--pause-ms", self.pause_ms)

    def gloo(self, ranks, sizes, dtype, seconds, *flags):
        return self.worker("gloo_worker", ranks, "--sizes", ",".join(map(str, sizes)), "--dtype",
                           dtype, "--seconds", seconds, "--hosts", self.hosts, "--pause-ms",
                           self.pause_ms, *flags)

    def backends(self, ranks, sizes, dtype, seconds):
        """torch.distributed over this project's backend and gloo's."""
        return self.worker("backend_worker", ranks, "--sizes", ",".join(map(str, sizes)), "--dtype",
                           dtype, "--seconds", seconds, "--hosts", self.hosts)

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
            return self.run(ranks, sys.executable, "-m", f"{WORKERS}.{name}", "--store",
                            f"{folder}/store", *options)
