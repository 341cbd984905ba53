"""The launch of a test's ranks: what their cases come to, and the exit code that CTest sees."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest
import unittest.mock as mock
import xml.etree.ElementTree as ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import run_ranks


class MergeTest(unittest.TestCase):
    def merge(self, *ranks):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for rank, text in enumerate(ranks):
                if text:
                    (folder / f"rank{rank}.xml").write_text(f"<testsuites>{text}</testsuites>")
            return run_ranks.merge(folder, len(ranks))

    def states(self, *ranks):
        return {name: found["state"] for name, found in self.merge(*ranks)[0].items()}

    def test_one_failing_rank_fails_the_case(self):
        passed = '<testcase classname="A" name="B" status="run"/>'
        failed = '<testcase classname="A" name="B" status="run"><failure message="x"/></testcase>'
        cases, missing = self.merge(passed, failed, passed)
        self.assertEqual(cases["A.B"],
                         {"function": "A.B", "state": "failed", "text": "rank 1: x\n"})
        self.assertEqual(missing, [])

    def test_a_case_is_skipped_where_no_rank_ran_it(self):
        passed = '<testcase classname="A" name="B" status="run"/>'
        skipped = ('<testcase classname="A" name="B" status="run">'
                   '<skipped message="/src/a.cpp:30&#x0A;no GPU"/></testcase>')
        cases, _ = self.merge(skipped, skipped)
        self.assertEqual((cases["A.B"]["state"], cases["A.B"]["text"]),
                         ("skipped", "rank 0: no GPU\nrank 1: no GPU\n"))
        self.assertEqual(self.states(skipped, passed), {"A.B": "passed"})

    def test_a_case_for_other_numbers_of_ranks_is_elsewhere(self):
        record = '<properties><property name="{}" value="yes"/></properties>'
        other, ran = record.format(run_ranks.OTHER_RANKS), record.format(run_ranks.RAN)
        skipped = ('<testcase classname="A" name="B" status="run"><skipped message="x"/>{}'
                   "</testcase>")
        self.assertEqual(self.states(skipped.format(other)), {"A.B": "elsewhere"})
        # Some of the several bodies of one case ran.
        self.assertEqual(self.states(skipped.format(other + ran)), {"A.B": "passed"})

    def test_a_disabled_case_has_failed(self):
        self.assertEqual(self.states('<testcase classname="A" name="DISABLED_B" status="notrun"/>'),
                         {"A.DISABLED_B": "failed"})

    def test_a_rank_without_results_is_named(self):
        _, missing = self.merge('<testcase classname="A" name="B" status="run"/>', "")
        self.assertEqual(missing, [1])

    def test_a_case_that_one_rank_did_not_run_has_failed(self):
        case = '<testcase classname="A" name="{}" status="run"/>'
        cases, missing = self.merge(case.format("x") + case.format("y"), case.format("x"))
        self.assertEqual({name: found["state"] for name, found in cases.items()},
                         {"A.x": "passed", "A.y": "failed"})
        self.assertIn("rank 1: ", cases["A.y"]["text"])
        self.assertEqual(missing, [])
        self.assertEqual(self.states(case.format("x"), "<testsuite/>"), {"A.x": "failed"})

    def test_a_case_filtered_out_is_not_counted(self):
        self.assertEqual(self.states('<testcase classname="A" name="B" status="notrun"/>'), {})

    def test_cases_of_pytest_have_no_status_and_may_err_outside(self):
        passed = '<testcase classname="a" name="b"/>'
        erred = ('<testcase classname="a" name="b"><error message="at teardown">why</error>'
                 '</testcase>')
        skipped = '<testcase classname="a" name="c"><skipped message="needs 3"/></testcase>'
        cases, _ = self.merge(passed + skipped, erred + skipped)
        self.assertEqual((cases["a.b"]["state"], cases["a.b"]["text"]), ("failed", "rank 1: why\n"))
        self.assertEqual(cases["a.c"]["state"], "skipped")

    def test_a_parametrised_case_is_one_function(self):
        of_gtest = '<testcase classname="{}" name="{}" file="{}/tests/unit/a_test.cpp" {}/>'
        for suite, name, parameter in (("A", "B", ""), ("All/A", "B/7", 'value_param="7"'),
                                       ("A/1", "B", 'type_param="int"'),
                                       ("All/A/1", "B", 'type_param="int"')):
            for folder in ("/src/tests/x", "../.."):
                text = of_gtest.format(suite, name, folder, parameter)
                self.assertEqual(run_ranks.function_of(ElementTree.fromstring(text)),
                                 "tests/unit/a_test.cpp:A.B", text)
        of_pytest = '<testcase classname="ranks.test_a" name="test_b[x-[1]]"/>'
        self.assertEqual(run_ranks.function_of(ElementTree.fromstring(of_pytest)),
                         "ranks.test_a.test_b")


class LaunchTest(unittest.TestCase):
    """run_ranks.py with a shell in the place of a test program."""

    def run_ranks(self, text, code=0):
        with tempfile.TemporaryDirectory() as name:
            results = f"<testsuites>{text}</testsuites>"
            script = f"printf %s '{results}' >\"${{GTEST_OUTPUT#xml:}}\"; exit {code}"
            arguments = ["run_ranks.py", "--ranks", "1", "--name", "unit.a", "--results", name,
                         "--", "sh", "-c", script]
            with mock.patch.object(sys, "argv", arguments), \
                    contextlib.redirect_stdout(io.StringIO()):
                ended = run_ranks.main()
            return ended, json.loads(pathlib.Path(name, "unit.a.json").read_text())

    def test_exit_codes(self):
        passed = '<testcase classname="A" name="B" status="run"/>'
        skipped = '<testcase classname="A" name="C" status="run"><skipped message="x"/></testcase>'
        self.assertEqual(self.run_ranks(passed + skipped)[0], 0)
        self.assertEqual(self.run_ranks(skipped)[0], 77)
        ended, cases = self.run_ranks(passed, code=3)
        self.assertEqual(ended, 1)
        self.assertEqual(cases["launch"]["text"], "the launcher ended with exit code 3")
        self.assertEqual(self.run_ranks("")[1]["launch"]["text"], "no test case ran")

    def test_a_launch_that_no_case_is_for_fails(self):
        elsewhere = ('<testcase classname="A" name="C" status="run"><skipped message="x"/>'
                     f'<properties><property name="{run_ranks.OTHER_RANKS}" value=""/></properties>'
                     "</testcase>")
        ended, cases = self.run_ranks(elsewhere)
        self.assertEqual(ended, 1)
        self.assertEqual(cases["launch"]["text"], "every case needs another number of ranks than 1")



if __name__ == "__main__":
    unittest.main()
