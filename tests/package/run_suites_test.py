"""The counting behind `make test`: what passed, failed, was skipped, or is missing."""

import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock as mock
import xml.etree.ElementTree as ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import counts
import launches
import run_suites


def case(text):
    return ElementTree.fromstring(text)


class Suites(unittest.TestCase):
    """Fakes what CTest and run_ranks.py write down, and counts it."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def launches(self, text, names=(), exit_code=0, preset="release"):
        """CTest's results, of which it listed `names` (by default those that it has)."""
        junit = self.folder / "results.xml"
        junit.write_text(f"<testsuite>{text}</testsuite>")
        expected = {name: counts.Expected() for name in names}
        return counts.launches_of(preset, junit, expected, self.folder, exit_code)

    def write_cases(self, launch, **states):
        cases = {name: {"function": name, "state": state, "text": f"rank 0: why {name}\n"}
                 for name, state in states.items()}
        (self.folder / f"{launch}.json").write_text(json.dumps(cases))

    def states(self, launches):
        return {name: function.state for name, function in counts.functions_of(launches).items()}

    def lines(self, launches):
        return counts.report(launches)


def passed(name):
    return f'<testcase name="{name}" status="run"/>'


def failed(name):
    return f'<testcase name="{name}" status="fail"><failure message="Timeout"/></testcase>'


def not_run(name, message, said=""):
    return (f'<testcase name="{name}" status="notrun"><skipped message="{message}"/>'
            f"<system-out>{said}</system-out></testcase>")


def skipped(name, reason):
    return not_run(name, "SKIP_RETURN_CODE=77", f"SKIPPED: {reason}\n")


class ListTest(unittest.TestCase):
    def test_a_launch_that_vanishes_fails(self):
        named = {"unit.a", "mpi.b.np2", "mpi.b.np4"}
        self.assertEqual(launches.problems(named, named, set()), {})
        self.assertEqual(list(launches.problems(named, {"unit.a", "mpi.b.np2"}, set())),
                         ["mpi.b.np4"])
        # A skipped one in its place says why it cannot run here, and one that runs does not.
        self.assertEqual(launches.problems(named, {"unit.a", "mpi.b"}, {"mpi.b"}), {})
        self.assertEqual(launches.problems(named, {"unit", "mpi"}, {"unit", "mpi"}), {})
        self.assertEqual(list(launches.problems(named, {"unit.a", "mpi.b"}, set())),
                         ["mpi.b.np2", "mpi.b.np4"])

    def test_a_launch_that_is_not_listed_fails(self):
        found = launches.problems({"unit.a"}, {"unit.a", "unit.b"}, set())
        self.assertIn("python tests/launches.py", found["unit.b"])

    def test_the_list_is_read_by_preset(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "launches.txt"
            path.write_text("[release]\nunit.a\nunit.b\n\n[tsan]\nunit.a\n")
            self.assertEqual(launches.read(path), {"release": {"unit.a", "unit.b"},
                                                   "tsan": {"unit.a"}})


class LaunchesTest(Suites):
    def test_a_script_passes_fails_or_skips(self):
        found = self.launches(passed("unit.a") + failed("unit.b") +
                              skipped("hosts.c", "needs root"))
        self.assertEqual([launch.state for launch in found], ["passed", "failed", "skipped"])
        self.assertIn("skipped: hosts.c (release hosts.c): needs root", self.lines(found))
        self.assertTrue(any(line.startswith("failed: unit.b (release unit.b): Timeout after ")
                            for line in self.lines(found)))

    def test_a_failure_shows_what_was_said_last(self):
        silent = ('<testcase name="unit.a" status="fail" time="30.2"><failure message=""/>{}'
                  "</testcase>")
        lines = [f"line {number}" for number in range(30)]
        said = silent.format("<system-out>{}\n</system-out>".format("\n\n".join(lines)))
        self.assertEqual(self.launches(said)[0].cases[0].text,
                         "\n".join(["after 30 s; its last words:", *lines[-counts.LAST_WORDS:]]))
        self.assertTrue(self.launches(said.replace('message=""', 'message="Failed"'))[0].cases[0]
                        .text.startswith("Failed after 30 s; its last words:\nline "))
        self.assertIn("it said nothing", self.launches(silent.format(""))[0].cases[0].text)

    def test_ranks_that_end_before_their_tests_show_what_was_said_last(self):
        (self.folder / "mpi.a.np2.json").write_text(json.dumps({"launch": {
            "function": "mpi.a.np2", "state": "failed", "text": "rank 0 wrote no results\n"}}))
        found = self.launches('<testcase name="mpi.a.np2" status="fail" time="3"><failure '
                              'message="Failed"/><system-out>terminate called</system-out>'
                              "</testcase>")
        self.assertEqual([case.text for case in found[0].cases],
                         ["rank 0 wrote no results\nafter 3 s; its last words:\nterminate called"])

    def test_what_did_not_run_without_the_skip_code_failed(self):
        for message in ("Unable to find executable", "Fixture dependency failed",
                        "SKIP_REGULAR_EXPRESSION_MATCHED", ""):
            found = self.launches(not_run("unit.a", message, "SKIPPED: really"))
            self.assertEqual(self.states(found), {"unit.a": "failed"}, message)
        disabled = '<testcase name="unit.a" status="disabled"/>'
        self.assertEqual(self.states(self.launches(disabled)), {"unit.a": "failed"})

    def test_a_skip_without_a_reason_failed(self):
        found = self.launches(not_run("unit.a", "SKIP_RETURN_CODE=77", "nothing here"))
        self.assertEqual(self.states(found), {"unit.a": "failed"})

    def test_a_launch_that_vanished_failed(self):
        found = self.launches(passed("unit.a"), names=("unit.a", "mpi.b.np2"))
        self.assertEqual(self.states(found), {"unit.a": "passed", "mpi.b.np2": "failed"})

    def test_ctests_exit_code_counts_where_nothing_else_failed(self):
        found = self.launches(passed("unit.a"), exit_code=8)
        self.assertEqual(self.states(found), {"unit.a": "passed", "ctest": "failed"})
        found = self.launches(failed("unit.a"), exit_code=8)
        self.assertEqual(self.states(found), {"unit.a": "failed"})

    def test_no_results_at_all_are_a_failure(self):
        found = counts.launches_of("tsan", self.folder / "none.xml", {}, self.folder, -9)
        self.assertEqual(self.lines(found)[-1], "0 passed, 1 failed, 0 skipped")

    def test_a_rung_without_tests_is_a_failure(self):
        found = counts.missing_rungs("tsan", self.launches(passed("unit.a")), {"unit", "fabric"})
        self.assertEqual(self.states(found), {"fabric": "failed"})

    def test_every_folder_of_tests_is_a_rung_or_shared(self):
        self.assertEqual(run_suites.rungs_of("release", "ci"),
                         {"unit", "fabric", "mpi", "hosts", "launcher", "examples", "package",
                          "python", "bfbench", "soak", "chaos", "cuda", "clusters"})
        self.assertEqual(run_suites.rungs_of("asan", "ci"), {"unit", "fabric", "mpi", "fuzz"})
        self.assertEqual(run_suites.rungs_of("asan", "long"),
                         {"unit", "fabric", "mpi", "launcher", "fuzz"})
        self.assertEqual(run_suites.rungs_of("tsan", "long"), {"unit", "fabric"})

    def test_what_ctest_lists_is_expected(self):
        listed = {"tests": [
            {"name": "unit.a", "command": ["python3", "/src/tests/run_ranks.py", "--ranks", "1"],
             "properties": [{"name": "LABELS", "value": ["unit", "stand_in"]}]},
            {"name": "package.b"},
            {"name": "mpi.c", "command": ["/bin/sh", "-c", counts.SKIPS, "sh", "no MPI"]}]}
        self.assertEqual(counts.expected_launches(json.dumps(listed)),
                         {"unit.a": counts.Expected(("unit", "stand_in"), has_cases=True),
                          "package.b": counts.Expected(),
                          "mpi.c": counts.Expected(only_skips=True)})

    def test_what_cmake_registers_to_skip_is_known(self):
        self.assertIn(counts.SKIPS.replace('"', '\\"'),
                      (run_suites.ROOT / "cmake" / "BluefogTests.cmake").read_text())


class CasesTest(Suites):
    def test_a_launch_counts_by_its_cases(self):
        self.write_cases("mpi.a.np2", b="passed", c="skipped")
        found = self.launches(passed("mpi.a.np2"))
        self.assertEqual(self.states(found), {"b": "passed", "c": "skipped"})
        self.assertIn("skipped: c (release mpi.a.np2): why c", self.lines(found))

    def test_a_launch_that_timed_out_failed_although_its_cases_passed(self):
        self.write_cases("mpi.a.np2", b="passed")
        found = self.launches(failed("mpi.a.np2"))
        self.assertEqual(self.states(found), {"b": "passed", "mpi.a.np2": "failed"})

    def test_a_launch_that_wrote_down_no_case_failed(self):
        junit = self.folder / "results.xml"
        junit.write_text(f"<testsuite>{passed('mpi.a.np2')}</testsuite>")
        expected = {"mpi.a.np2": counts.Expected(has_cases=True)}
        found = counts.launches_of("release", junit, expected, self.folder, 0)
        self.assertEqual(self.states(found), {"mpi.a.np2": "failed"})

    def test_a_function_counts_once_over_ranks_and_presets(self):
        self.write_cases("fabric.a", b="passed")
        self.write_cases("mpi.a.np2", b="passed")
        found = self.launches(passed("fabric.a") + passed("mpi.a.np2"))
        found += self.launches(passed("fabric.a"), preset="tsan")
        self.assertEqual(self.lines(found),
                         ["launches: fabric 2, mpi 1, of them 0 failed, 0 skipped",
                          "1 passed, 0 failed, 0 skipped"])

    def test_a_function_that_ran_in_one_preset_is_not_skipped(self):
        found = self.launches(skipped("unit.a", "no GPU"))
        self.assertEqual(self.states(found), {"unit.a": "skipped"})
        found += self.launches(passed("unit.a"), preset="asan")
        self.assertEqual(self.states(found), {"unit.a": "passed"})

    def test_a_function_that_failed_once_failed(self):
        self.write_cases("mpi.a.np2", b="passed")
        found = self.launches(passed("mpi.a.np2"))
        self.write_cases("mpi.a.np2", b="failed")
        found += self.launches(passed("mpi.a.np2"), preset="debug")
        self.assertEqual(self.states(found), {"b": "failed"})
        self.assertIn("launches: mpi 2, of them 1 failed, 0 skipped", self.lines(found))
        self.assertIn("failed: b (debug mpi.a.np2): rank 0: why b", self.lines(found))

    def test_a_case_counts_where_it_has_its_ranks(self):
        self.write_cases("mpi.a.np1", b="elsewhere", c="passed")
        self.write_cases("mpi.a.np2", b="passed", c="passed")
        found = self.launches(passed("mpi.a.np1") + passed("mpi.a.np2"))
        self.assertEqual(self.states(found), {"b": "passed", "c": "passed"})

    def test_a_case_that_ran_on_no_number_of_ranks_failed(self):
        self.write_cases("mpi.a.np1", b="elsewhere", c="passed")
        found = self.launches(passed("mpi.a.np1"))
        self.assertEqual(self.states(found), {"b": "failed", "c": "passed"})
        self.assertIn("failed: b (release mpi.a.np1): ran on no number of ranks: why b",
                      self.lines(found))

    def test_a_launch_is_named_once_for_all_cases_of_a_function(self):
        cases = {f"b[{value}]": {"function": "b", "state": "skipped", "text": "needs a GPU"}
                 for value in (1, 2, 3)}
        (self.folder / "cuda.a.json").write_text(json.dumps(cases))
        found = self.launches(passed("cuda.a"))
        found += self.launches(passed("cuda.a"), preset="debug")
        self.assertIn("skipped: b (release cuda.a, debug cuda.a): needs a GPU", self.lines(found))

    def test_stand_ins_have_a_line_of_their_own(self):
        on_stand_in = counts.Expected(labels=("fabric", "stand_in"))
        device = case(passed("fabric.device"))
        found = [counts.launch_of("release", device, on_stand_in, self.folder),
                 *self.launches(passed("fabric.a") + failed("fabric.b"))]
        self.assertEqual(self.lines(found)[-3:],
                         ["tests of the product: 1 passed, 1 failed, 0 skipped",
                          "tests on a stand-in alone: 1 passed, 0 failed, 0 skipped",
                          "2 passed, 1 failed, 0 skipped"])


class MainTest(unittest.TestCase):
    def run_main(self, *launches, level="ci"):
        with tempfile.TemporaryDirectory() as name, \
                mock.patch.object(run_suites, "ROOT", pathlib.Path(name)), \
                mock.patch.object(run_suites, "run_preset", return_value=list(launches)), \
                mock.patch.dict(os.environ, {"LEVEL": level}), \
                mock.patch.object(sys, "argv", ["run_suites.py", "release"]), \
                contextlib.redirect_stdout(io.StringIO()) as said:
            code = run_suites.main()
            written = pathlib.Path(name, "build", "test-total.txt").read_text()
        self.assertTrue(said.getvalue().endswith("\n" + written))
        return code, written

    def test_the_last_line_is_the_total_and_the_exit_code_follows_it(self):
        good = counts.Launch("release", "unit.a", "passed", [counts.Case("a", "passed")])
        bad = counts.failed_launch("release", "build", "why")
        self.assertEqual(self.run_main(good), (0, "1 passed, 0 failed, 0 skipped\n"))
        self.assertEqual(self.run_main(good, bad), (1, "1 passed, 1 failed, 0 skipped\n"))
        self.assertEqual(self.run_main(), (1, "0 passed, 0 failed, 0 skipped\n"))

    def test_an_unknown_level_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "LEVEL is one of ci, long, not short"):
            self.run_main(level="short")


# What LEVEL=long adds to the configure step.
LONG = "-DBLUEFOG_LONG_TESTS=ON"


class ConfigureTest(unittest.TestCase):
    def arguments(self, preset, nvcc, arguments="", gpu=True, level="ci"):
        with tempfile.TemporaryDirectory() as name:
            program = pathlib.Path(name, "nvcc")
            program.touch(mode=0o755)
            elsewhere = str(pathlib.Path(name, "none"))
            there = program if gpu else pathlib.Path(elsewhere)
            environment = {"PATH": name if nvcc == "path" else elsewhere, "CMAKE_ARGS": arguments}
            usual = str(program) if nvcc == "usual" else elsewhere
            with mock.patch.dict(os.environ, environment), \
                    mock.patch.object(run_suites, "USUAL_NVCC", usual), \
                    mock.patch.object(run_suites, "GPU", there):
                os.environ.pop("TORCH_CUDA_ARCH_LIST", None)
                return run_suites.configure_arguments(preset, level)

    def with_cuda(self, *words):
        return [argument for argument in self.arguments(*words)
                if argument.startswith("-DBLUEFOG_WITH_CUDA")]

    def test_kernels_must_build_where_there_is_an_nvcc(self):
        self.assertEqual(self.with_cuda("release", "path"), ["-DBLUEFOG_WITH_CUDA=ON"])
        self.assertEqual(self.with_cuda("debug", "usual"), ["-DBLUEFOG_WITH_CUDA=ON"])
        self.assertEqual(self.with_cuda("release", ""), ["-DBLUEFOG_WITH_CUDA=AUTO"])
        self.assertEqual(self.with_cuda("tsan", "path"), [])

    def test_kernels_are_built_for_one_gpu_where_there_is_none(self):
        one = "-DTORCH_CUDA_ARCH_LIST=9.0"
        self.assertIn(one, self.arguments("release", "path", gpu=False))
        self.assertNotIn(one, self.arguments("release", "path"))
        self.assertNotIn(one, self.arguments("release", "path", gpu=False, level="long"))
        self.assertNotIn(one, self.arguments("release", "", gpu=False))
        self.assertNotIn(one, self.arguments("tsan", "path", gpu=False))

    def test_what_takes_long_is_built_where_it_runs(self):
        for level, word in {"ci": "OFF", "long": "ON"}.items():
            self.assertIn(f"-DBLUEFOG_LONG_TESTS={word}",
                          run_suites.configure_arguments("tsan", level))

    def test_the_users_wish_comes_last(self):
        found = self.with_cuda("release", "path", "-DBLUEFOG_WITH_CUDA=OFF")
        self.assertEqual(found[-1], "-DBLUEFOG_WITH_CUDA=OFF")


class BuildsAheadTest(unittest.TestCase):
    def setUp(self):
        self.called = []
        self.code = 0
        self.ahead = run_suites.BuildsAhead(["tsan", "asan"], "long")
        self.ahead._call = self.call

    def call(self, command):
        self.called.append(" ".join(command))
        if self.code is None:
            raise FileNotFoundError("nice")
        return self.code

    def test_presets_are_built_one_after_the_other(self):
        self.ahead.wait_for("tsan")  # not started: nothing to wait for
        self.assertEqual(self.called, [])
        self.ahead.start()
        self.ahead.start()
        self.ahead.wait_for("asan")
        self.ahead.close()
        self.assertEqual(self.called, [f"cmake --preset tsan {LONG}", "cmake --build --preset tsan",
                                       f"cmake --preset asan {LONG}",
                                       "cmake --build --preset asan"])

    def test_what_cannot_be_configured_is_not_built_and_waited_for(self):
        self.code = 1
        self.ahead.start()
        self.ahead.wait_for("asan")
        self.ahead.close()
        self.assertEqual(self.called,
                         [f"cmake --preset tsan {LONG}", f"cmake --preset asan {LONG}"])

    def test_nobody_waits_for_what_cannot_run(self):
        self.code = None
        excepthook, threading.excepthook = threading.excepthook, lambda args: None
        self.addCleanup(setattr, threading, "excepthook", excepthook)
        self.ahead.start()
        self.ahead.wait_for("asan")
        self.ahead.close()
        self.assertEqual(self.called, [f"cmake --preset tsan {LONG}"])

    def test_closing_ends_what_is_under_way(self):
        ahead = run_suites.BuildsAhead(["tsan", "asan"], "long")
        original = run_suites.configure_arguments
        self.addCleanup(setattr, run_suites, "configure_arguments", original)
        run_suites.configure_arguments = lambda preset, level: ["sleep", "600"]
        ahead.start()
        start = time.monotonic()
        while ahead._process is None and time.monotonic() < start + 60:
            time.sleep(0.01)
        ahead.close()
        ahead.wait_for("asan")
        self.assertNotEqual(ahead._process.returncode, 0)



if __name__ == "__main__":
    unittest.main()
