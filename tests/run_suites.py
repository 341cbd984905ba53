"""Builds and tests every preset, and closes with one line over all of them.

    run_suites.py [PRESET …]        default: release tsan asan

Each preset is configured, built and run with CTest. A build that fails, a rung
or a launch that ran nothing and a failed test each count as a failure. Failures
are listed, and every skipped test with its reason (tests/counts.py). The last
line is `N passed, N failed, N skipped`. LEVEL=long also runs what takes long.

Where there is an nvcc, the kernels for GPUs must build (BLUEFOG_WITH_CUDA=ON), unless CMAKE_ARGS
says otherwise.

Tests wait for much of their time: meanwhile the presets after them are built, at the lowest
priority.
"""

import contextlib
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time

import counts
import launches as launch_list

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The rungs of each sanitized preset. Release and debug have all but the fuzzers.
SANITIZED_RUNGS = {"tsan": {"unit", "fabric"}, "asan": {"unit", "fabric", "mpi", "fuzz"}}
LONG_RUNGS = {"asan": {"launcher"}}
# Beyond the cores: ranks of most tests rather wait than compute.
JOBS_THAT_WAIT = 2
# Folders of tests/ that the rungs share; they register no tests of their own.
SHARED_FOLDERS = {"bodies", "support"}
# Folders in which CMake looks for nvcc besides PATH.
USUAL_NVCC = "/usr/local/cuda/bin/nvcc"
# A GPU's driver.
GPU = pathlib.Path("/dev/nvidiactl")
# Words that LEVEL adds to ctest's: tests with the label "long" take long and are rarely useful.
LEVELS = {"ci": ("-LE", "^long$"), "long": ()}


class Steps:
    """Numbers what is done, as cmake/setup/steps.sh does, and says how long it took."""

    def __init__(self):
        self.number = int(os.environ.get("STEP_NUMBER", "0"))
        self.total = os.environ.get("STEP_TOTAL", "?")

    def run(self, title, command):
        self.number += 1
        print(f"[{self.number}/{self.total}] {title}", flush=True)
        start = time.monotonic()
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        word = "done" if code == 0 else f"exit code {code}"
        print(f"      {word} ({time.monotonic() - start:.1f} s)", flush=True)
        return code


def configure_arguments(preset, level):
    arguments = ["cmake", "--preset", preset,
                 f"-DBLUEFOG_LONG_TESTS={'ON' if level == 'long' else 'OFF'}"]
    torch_root = os.environ.get("BLUEFOG_TORCH_ROOT")
    if torch_root and preset not in SANITIZED_RUNGS:
        arguments.append(f"-DBLUEFOG_TORCH_ROOT={torch_root}")
    if preset not in SANITIZED_RUNGS:
        has_nvcc = shutil.which("nvcc") or shutil.which(USUAL_NVCC)
        arguments.append(f"-DBLUEFOG_WITH_CUDA={'ON' if has_nvcc else 'AUTO'}")
        if has_nvcc and level != "long" and not GPU.exists() \
                and "TORCH_CUDA_ARCH_LIST" not in os.environ:
            arguments.append("-DTORCH_CUDA_ARCH_LIST=9.0")  # nothing runs them: one takes a sixth
    return arguments + shlex.split(os.environ.get("CMAKE_ARGS", ""))


class BuildsAhead:
    """Configures and builds presets one after the other, at the lowest priority, until they are
    asked for. What fails is made again, and says why, when its turn comes."""

    def __init__(self, presets, level):
        self._level = level
        self._ended = {preset: threading.Event() for preset in presets}
        self._is_over = False
        self._process = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run)

    def start(self):
        """The first call starts them."""
        if self._thread.ident is None:
            self._thread.start()

    def wait_for(self, preset):
        if self._thread.ident is not None and preset in self._ended:
            self._ended[preset].wait()

    def close(self):
        """Ends what is under way."""
        with self._lock:
            self._is_over = True
            if self._process:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGTERM)
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self):
        try:
            for preset, ended in self._ended.items():
                if self._call(configure_arguments(preset, self._level)) == 0:
                    self._call(["cmake", "--build", "--preset", preset])
                ended.set()
        finally:
            for ended in self._ended.values():
                ended.set()

    def _call(self, command):
        with self._lock:
            if self._is_over:
                return 1
            self._process = subprocess.Popen(["nice", "-n", "19", *command], cwd=ROOT,
                                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                             stderr=subprocess.DEVNULL, start_new_session=True)
            let_sessions_of_others_go_first(self._process.pid)
        return self._process.wait()


def let_sessions_of_others_go_first(process):
    """Ranks of tests are sessions of their own, and Linux shares a core between sessions first
    (sched(7), autogroups): `nice` orders the processes of one session alone."""
    with contextlib.suppress(OSError):
        pathlib.Path(f"/proc/{process}/autogroup").write_text("19")


def run_preset(steps, preset, builds_ahead, level):
    """The launches of one preset; a failure for what came to none."""
    build = ROOT / "build" / preset
    junit = build / "Testing" / "results.xml"
    junit.unlink(missing_ok=True)
    ranks_folder = build / "Testing" / "ranks"
    shutil.rmtree(ranks_folder, ignore_errors=True)
    builds_ahead.wait_for(preset)
    if steps.run(f"{preset}: configure", configure_arguments(preset, level)) != 0:
        return [counts.failed_launch(preset, "configure", "CMake's words are above")]
    if steps.run(f"{preset}: build", ["cmake", "--build", "--preset", preset]) != 0:
        return [counts.failed_launch(preset, "build", "the compiler's words are above")]
    builds_ahead.start()
    ctest = ["ctest", "--preset", preset, *LEVELS[level]]
    listed = subprocess.run([*ctest, "--show-only=json-v1"], cwd=ROOT, check=False,
                            stdout=subprocess.PIPE, text=True)
    if listed.returncode != 0:
        return [counts.failed_launch(preset, "ctest", f"it cannot list its tests (exit code "
                                                      f"{listed.returncode})")]
    jobs = str(len(os.sched_getaffinity(0)) + JOBS_THAT_WAIT)
    code = steps.run(f"{preset}: test", [*ctest, "-j", jobs, "--no-tests=ignore",
                                         "--output-junit", str(junit)])
    expected = counts.expected_launches(listed.stdout)
    launches = counts.launches_of(preset, junit, expected, ranks_folder, code)
    return (launches + counts.missing_rungs(preset, launches, rungs_of(preset, level))
            + unlisted(preset, level, expected))


def unlisted(preset, level, registered):
    """A failure for each launch that has vanished, or is not listed, where the list holds: at
    LEVEL=ci, of a build that is configured as it is by default."""
    named = launch_list.read()
    if level != "ci" or preset not in named or os.environ.get("CMAKE_ARGS"):
        return []
    return [counts.failed_launch(preset, name, problem)
            for name, problem in launch_list.problems(
                named[preset], set(registered),
                {name for name, launch in registered.items() if launch.only_skips}).items()]


def rungs_of(preset, level):
    """The rungs that the tests folder has for this preset."""
    rungs = {path.parent.name for path in (ROOT / "tests").glob("*/CMakeLists.txt")}
    rungs -= SHARED_FOLDERS
    if preset not in SANITIZED_RUNGS:
        return rungs - {"fuzz"}
    of_level = LONG_RUNGS.get(preset, set()) if level == "long" else set()
    return rungs & (SANITIZED_RUNGS[preset] | of_level)


def main():
    presets = sys.argv[1:] or ["release", *SANITIZED_RUNGS]
    level = os.environ.get("LEVEL") or "ci"
    if level not in LEVELS:
        sys.exit(f"make test: LEVEL is one of {', '.join(LEVELS)}, not {level}")
    start = time.monotonic()
    steps = Steps()
    launches = []
    builds_ahead = BuildsAhead(presets[1:], level)
    try:
        for preset in presets:
            launches += run_preset(steps, preset, builds_ahead, level)
    finally:
        builds_ahead.close()
    lines = counts.report(launches)
    lines.insert(-1, f"builds and tests took {(time.monotonic() - start) / 60:.1f} minutes")
    (ROOT / "build").mkdir(exist_ok=True)
    (ROOT / "build" / "test-total.txt").write_text(lines[-1] + "\n")
    print("", *lines, sep="\n")
    passed, failed = (int(words.split()[0]) for words in lines[-1].split(", ")[:2])
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
