"""The counting behind `make test`: what passed, failed, was skipped, or is missing."""

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
import run_ranks
import run_suites


def case(text):
    return ElementTree.fromstring(text)


class ResultsTest(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)

    def tearDown(self):
        self.temporary.cleanup()

    def results(self, text):
        return list(run_suites.results_of("release", case(text), self.folder))

    def test_states_of_single_tests(self):
        passed = '<testcase name="unit.a" status="run"/>'
        failed = '<testcase name="unit.a" status="fail"><failure message=""/></testcase>'
        not_run = '<testcase name="unit.a" status="notrun"><skipped message="no file"/></testcase>'
        self.assertEqual([r.state for r in self.results(passed)], ["passed"])
        self.assertEqual([r.state for r in self.results(failed)], ["failed"])
        self.assertEqual(self.results(not_run)[0].state, "skipped")

    def test_reasons_of_skipped_tests(self):
        script = (
            '<testcase name="hosts.a" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/>'
            "<system-out>SKIPPED: needs root\n</system-out></testcase>")
        gtest = ('<testcase name="unit.a" status="notrun"><skipped message="regex"/><system-out>'
                 "a_test.cpp:4: Skipped\nno GPU\n[  SKIPPED ] A.B (0 ms)\n</system-out></testcase>")
        self.assertEqual(self.results(script)[0].text, "needs root")
        self.assertEqual(self.results(gtest)[0].text, "no GPU")

    def test_a_launch_counts_by_its_cases(self):
        cases = {"A.B": {"state": "passed", "text": ""}, "A.C": {"state": "skipped", "text": "why"}}
        (self.folder / "mpi.a.np2.json").write_text(json.dumps(cases))
        found = self.results('<testcase name="mpi.a.np2" status="run"/>')
        self.assertEqual([(r.name, r.state) for r in found],
                         [("mpi.a.np2.A.B", "passed"), ("mpi.a.np2.A.C", "skipped")])

    def test_a_launch_that_timed_out_fails_although_its_cases_passed(self):
        cases = {"A.B": {"state": "passed", "text": ""}}
        (self.folder / "mpi.a.np2.json").write_text(json.dumps(cases))
        found = self.results('<testcase name="mpi.a.np2" status="fail"/>')
        self.assertEqual([r.state for r in found], ["passed", "failed"])

    def test_a_rung_without_tests_is_a_failure(self):
        found = list(run_suites.missing_suites("tsan", []))
        self.assertIn("unit", [r.name for r in found])
        self.assertEqual({r.state for r in found}, {"failed"})

    def test_every_folder_of_tests_is_a_rung_or_shared(self):
        rungs = {"unit", "fabric", "mpi", "hosts", "launcher", "examples", "package",
                 "python", "bfbench", "soak", "cuda"}
        found = run_suites.missing_suites("release", [])
        self.assertEqual({r.name for r in found}, rungs)
        of_all = [run_suites.Result("release", f"{rung}.a", "passed", "") for rung in rungs]
        self.assertEqual(list(run_suites.missing_suites("release", of_all)), [])


class ConfigureTest(unittest.TestCase):
    def with_cuda(self, preset, nvcc, arguments=""):
        with tempfile.TemporaryDirectory() as name:
            program = pathlib.Path(name, "nvcc")
            program.touch(mode=0o755)
            elsewhere = str(pathlib.Path(name, "none"))
            environment = {"PATH": name if nvcc == "path" else elsewhere, "CMAKE_ARGS": arguments}
            usual = str(program) if nvcc == "usual" else elsewhere
            with mock.patch.dict(os.environ, environment), \
                    mock.patch.object(run_suites, "USUAL_NVCC", usual):
                found = run_suites.configure_arguments(preset)
        return [argument for argument in found if argument.startswith("-DBLUEFOG_WITH_CUDA")]

    def test_kernels_must_build_where_there_is_an_nvcc(self):
        self.assertEqual(self.with_cuda("release", "path"), ["-DBLUEFOG_WITH_CUDA=ON"])
        self.assertEqual(self.with_cuda("debug", "usual"), ["-DBLUEFOG_WITH_CUDA=ON"])
        self.assertEqual(self.with_cuda("release", ""), ["-DBLUEFOG_WITH_CUDA=AUTO"])
        self.assertEqual(self.with_cuda("tsan", "path"), [])

    def test_the_users_wish_comes_last(self):
        found = self.with_cuda("release", "path", "-DBLUEFOG_WITH_CUDA=OFF")
        self.assertEqual(found[-1], "-DBLUEFOG_WITH_CUDA=OFF")


class BuildsAheadTest(unittest.TestCase):
    def setUp(self):
        self.called = []
        self.code = 0
        self.ahead = run_suites.BuildsAhead(["tsan", "asan"])
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
        self.assertEqual(self.called, ["cmake --preset tsan", "cmake --build --preset tsan",
                                       "cmake --preset asan", "cmake --build --preset asan"])

    def test_what_cannot_be_configured_is_not_built_and_waited_for(self):
        self.code = 1
        self.ahead.start()
        self.ahead.wait_for("asan")
        self.ahead.close()
        self.assertEqual(self.called, ["cmake --preset tsan", "cmake --preset asan"])

    def test_nobody_waits_for_what_cannot_run(self):
        self.code = None
        excepthook, threading.excepthook = threading.excepthook, lambda args: None
        self.addCleanup(setattr, threading, "excepthook", excepthook)
        self.ahead.start()
        self.ahead.wait_for("asan")
        self.ahead.close()
        self.assertEqual(self.called, ["cmake --preset tsan"])

    def test_closing_ends_what_is_under_way(self):
        ahead = run_suites.BuildsAhead(["tsan", "asan"])
        original = run_suites.configure_arguments
        self.addCleanup(setattr, run_suites, "configure_arguments", original)
        run_suites.configure_arguments = lambda preset: ["sleep", "600"]
        ahead.start()
        start = time.monotonic()
        while ahead._process is None and time.monotonic() < start + 60:
            time.sleep(0.01)
        ahead.close()
        ahead.wait_for("asan")
        self.assertNotEqual(ahead._process.returncode, 0)


class MergeTest(unittest.TestCase):
    def merge(self, *ranks):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for rank, text in enumerate(ranks):
                if text:
                    (folder / f"rank{rank}.xml").write_text(f"<testsuites>{text}</testsuites>")
            return run_ranks.merge(folder, len(ranks))

    def test_one_failing_rank_fails_the_case(self):
        passed = '<testcase classname="A" name="B" status="run"/>'
        failed = '<testcase classname="A" name="B" status="run"><failure message="x"/></testcase>'
        cases, missing = self.merge(passed, failed, passed)
        self.assertEqual(cases["A.B"], {"state": "failed", "text": "rank 1: x\n"})
        self.assertEqual(missing, [])

    def test_a_rank_without_results_is_named(self):
        _, missing = self.merge('<testcase classname="A" name="B" status="run"/>', "")
        self.assertEqual(missing, [1])

    def test_a_case_filtered_out_is_not_counted(self):
        cases, _ = self.merge('<testcase classname="A" name="B" status="notrun"/>')
        self.assertEqual(cases, {})

    def test_cases_of_pytest_have_no_status_and_may_err_outside(self):
        passed = '<testcase classname="a" name="b"/>'
        erred = ('<testcase classname="a" name="b"><error message="at teardown">why</error>'
                 "</testcase>")
        skipped = '<testcase classname="a" name="c"><skipped message="needs 3"/></testcase>'
        cases, _ = self.merge(passed + skipped, erred + skipped)
        self.assertEqual(cases["a.b"], {"state": "failed", "text": "rank 1: why\n"})
        self.assertEqual(cases["a.c"]["state"], "skipped")


if __name__ == "__main__":
    unittest.main()
