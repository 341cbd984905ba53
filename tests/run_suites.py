"""Builds and tests every preset, and closes with one line over all of them.

    run_suites.py [PRESET …]        default: release tsan asan

Each preset is configured, built and run with CTest. A launch of several ranks
counts by its cases (see run_ranks.py). A build that fails, a suite that ran no
test and a failed test each count as a failure. Failures are listed, and every
skipped test with its reason. The last line is `N passed, N failed, N skipped`.

Where there is an nvcc, the kernels for GPUs must build (BLUEFOG_WITH_CUDA=ON), unless CMAKE_ARGS
says otherwise.

Tests wait for much of their time: meanwhile the presets after them are built, at the lowest
priority.
"""

import collections
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
SANITIZED = ("tsan", "asan")
SANITIZED_RUNGS = ("unit", "fabric")
# Beyond the cores: ranks of most tests rather wait than compute.
JOBS_THAT_WAIT = 2
# Folders of tests/ that the rungs share; they register no tests of their own.
SHARED_FOLDERS = {"bodies", "support"}
# Where CMake looks for nvcc besides PATH.
USUAL_NVCC = "/usr/local/cuda/bin/nvcc"

Result = collections.namedtuple("Result", "preset name state text")


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
        return code == 0


def configure_arguments(preset):
    arguments = ["cmake", "--preset", preset]
    torch_root = os.environ.get("BLUEFOG_TORCH_ROOT")
    if torch_root and preset not in SANITIZED:
        arguments.append(f"-DBLUEFOG_TORCH_ROOT={torch_root}")
    if preset not in SANITIZED:
        has_nvcc = shutil.which("nvcc") or shutil.which(USUAL_NVCC)
        arguments.append(f"-DBLUEFOG_WITH_CUDA={'ON' if has_nvcc else 'AUTO'}")
    return arguments + shlex.split(os.environ.get("CMAKE_ARGS", ""))


class BuildsAhead:
    """Configures and builds presets one after the other, at the lowest priority, until they are
    asked for. What fails is made again, and says why, when its turn comes."""

    def __init__(self, presets):
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
                self._process.terminate()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self):
        try:
            for preset, ended in self._ended.items():
                if self._call(configure_arguments(preset)) == 0:
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
                                             stderr=subprocess.DEVNULL)
        return self._process.wait()


def run_preset(steps, preset, builds_ahead):
    """Yields the results of one preset; the caller judges what is missing."""
    build = ROOT / "build" / preset
    junit = build / "Testing" / "results.xml"
    junit.unlink(missing_ok=True)
    shutil.rmtree(build / "Testing" / "ranks", ignore_errors=True)
    jobs = str(len(os.sched_getaffinity(0)) + JOBS_THAT_WAIT)
    builds_ahead.wait_for(preset)
    if not steps.run(f"{preset}: configure", configure_arguments(preset)):
        yield Result(preset, "configure", "failed", "CMake's words are above")
        return
    if not steps.run(f"{preset}: build", ["cmake", "--build", "--preset", preset]):
        yield Result(preset, "build", "failed", "the compiler's words are above")
        return
    builds_ahead.start()
    steps.run(f"{preset}: test", ["ctest", "--preset", preset, "-j", jobs, "--no-tests=ignore",
                                  "--output-junit", str(junit)])
    if not junit.exists():
        yield Result(preset, "ctest", "failed", "CTest wrote no results")
        return
    for case in ElementTree.parse(junit).getroot().iter("testcase"):
        yield from results_of(preset, case, build / "Testing" / "ranks")


def results_of(preset, case, ranks_folder):
    """One result, or for a launch of several ranks one for each of its cases."""
    name = case.get("name")
    launch = ranks_folder / f"{name}.json"
    output = case.findtext("system-out", "")
    if case.get("status") == "fail":
        state = "failed"
    elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
        state = "skipped"
    else:
        state = "passed"
    if launch.exists():
        cases = json.loads(launch.read_text())
        for inner, result in cases.items():
            yield Result(preset, f"{name}.{inner}", result["state"], result["text"].strip())
        if state != "failed" or any(result["state"] == "failed" for result in cases.values()):
            return
    text = skip_reason(case, output) if state == "skipped" else ""
    yield Result(preset, name, state, text)


def skip_reason(case, output):
    said = re.search(r"SKIPPED: (.*)", output)
    if said:
        return said.group(1).strip()
    gtest = re.search(r": Skipped\n(.*?)\n\[  SKIPPED \]", output, re.DOTALL)
    if gtest and gtest.group(1).strip():
        return " ".join(gtest.group(1).split())
    skipped = case.find("skipped")
    return skipped.get("message", "") if skipped is not None else case.get("status")


def missing_suites(preset, results):
    """A rung that the tests folder has, and of which this preset registered nothing."""
    if any(result.name in ("configure", "build", "ctest") for result in results):
        return
    rungs = {path.parent.name for path in (ROOT / "tests").glob("*/CMakeLists.txt")}
    rungs -= SHARED_FOLDERS
    if preset in SANITIZED:
        rungs &= set(SANITIZED_RUNGS)
    ran = {result.name.split(".")[0] for result in results}
    for rung in sorted(rungs - ran):
        yield Result(preset, rung, "failed", "this suite ran no test")


def print_summary(results):
    rows = collections.defaultdict(collections.Counter)
    for result in results:
        rows[result.preset, result.name.split(".")[0]][result.state] += 1
    print("\nsuite                 passed  failed  skipped")
    for (preset, rung), counts in rows.items():
        print(f"{preset + ' ' + rung:20}  {counts['passed']:6}  {counts['failed']:6}  "
              f"{counts['skipped']:7}")
    for state in ("skipped", "failed"):
        for result in results:
            if result.state == state:
                text = result.text.replace("\n", "\n    ")
                print(f"{state}: {result.preset} {result.name}" + (f": {text}" if text else ""))


def main():
    presets = sys.argv[1:] or ["release", *SANITIZED]
    steps = Steps()
    results = []
    builds_ahead = BuildsAhead(presets[1:])
    try:
        for preset in presets:
            of_preset = list(run_preset(steps, preset, builds_ahead))
            results += of_preset
            results += missing_suites(preset, of_preset)
    finally:
        builds_ahead.close()
    print_summary(results)
    counts = collections.Counter(result.state for result in results)
    total = f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped"
    (ROOT / "build").mkdir(exist_ok=True)
    (ROOT / "build" / "test-total.txt").write_text(total + "\n")
    print(total)
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
