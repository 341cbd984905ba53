"""The figures that rung.py takes from its programs' words, with programs that only say them."""

import argparse
import contextlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import kit
import rung

CASES = """[ RUN      ] Sums.Whole
[       OK ] Sums.Whole (1 ms)
[ RUN      ] Sums.Half
[       OK ] Sums.Half (1 ms)
[ RUN      ] Sums.Nccl
sums_test.cpp:7: Skipped
there is one GPU

[  SKIPPED ] Sums.Nccl (0 ms)
"""
VARIABLES = ("LD_LIBRARY_PATH", "LD_PRELOAD", "NCCL_DEBUG", "NCCL_NVLS_ENABLE", "NCCL_MAX_CTAS",
             "GTEST_BRIEF")


class RungTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.arguments = argparse.Namespace(
            build=self.folder, sources=self.folder, out=self.folder / "out.json",
            python=sys.executable,
            ranks=[2], training=False, batch_size=4, parts=re.compile(""), part_timeout=30,
            nccl=None,
            libraries=None)
        for name in ("cuda_kernels", "cuda_device", "cuda_ranks"):
            self.program(name, f"cat <<'END'\n{CASES}END")
        self.program("cuda_benchmark", "echo noise; echo '{\"combine\": 1}'")
        self.program("cuda_killed_rank", "echo survivor 0 heard of it; exit 137")
        self.program("bfrun", 'shift 2; [ "$1" = --fault-tolerant ] && shift; exec "$@"')

    def program(self, name, body):
        path = self.folder / kit.PROGRAMS[name]
        self.file(path, f"#!/bin/sh\n{body}\n").chmod(0o755)

    def file(self, place, text=""):
        path = self.folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def run_rung(self):
        with mock.patch.object(rung, "find_gpus", lambda: (1, "")), \
                mock.patch.object(rung, "describe_machine", lambda python: {}), \
                contextlib.redirect_stdout(io.StringIO()) as said:
            code = rung.run(self.arguments)
        return code, self.written()["parts"], said.getvalue()

    def written(self):
        return json.loads(self.arguments.out.read_text())

    def results_of(self, call, gpus=1):
        """The result of a rung that makes one call."""
        made = rung.Rung(self.arguments, gpus)
        with contextlib.redirect_stdout(io.StringIO()):
            call(made)
        return made.results

    def variables_in(self, call, gpus=1, **environment):
        """What a program or script of a part finds of `VARIABLES`."""
        say = ("import json, os; print(json.dumps({name: os.environ.get(name) "
               f"for name in {VARIABLES}}}))")
        for program in ("cuda_benchmark", "cuda_kernels"):
            self.program(program,
                         f'exec "{sys.executable}" "{self.file("tests/cuda/training.py", say)}"')
        kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
        with mock.patch.dict(os.environ, {**kept, **environment}, clear=True):
            result, = self.results_of(call, gpus).values()
        return result["figures"]

    def python_with_nccl(self):
        """A Python that has the package of NCCL, and the package's folder."""
        for place in ("__init__.py", "nccl/__init__.py", "nccl/lib/libnccl.so.2"):
            self.file(self.folder / "site/nvidia" / place)
        python = self.file(
            "python", f'#!/bin/sh\nPYTHONPATH="{self.folder}/site" exec "{sys.executable}" "$@"\n')
        python.chmod(0o755)
        return str(python), str(self.folder / "site/nvidia/nccl/lib")

    # ---- what programs say

    def test_counts_and_figures(self):
        code, parts, said = self.run_rung()
        self.assertEqual(code, 0)
        self.assertEqual(parts["device.np2"],
                         {"state": "passed", "passed": 2, "skipped": 1, "failed": 0,
                          "why_skipped": ["there is one GPU"]})
        self.assertEqual(parts["bandwidth"], {"state": "passed", "figures": {"combine": 1}})
        self.assertEqual(parts["killed.np2"],
                         {"state": "passed", "survivors": ["survivor 0 heard of it"]})
        self.assertIn("10 passed, 0 failed, 0 skipped", said)

    def test_failures_and_skips(self):
        self.program("cuda_kernels", "echo broken; exit 1")
        self.program("cuda_device", "exit 77")
        self.program("cuda_ranks", "echo '[  SKIPPED ] Sums.Whole (0 ms)'")
        self.program("cuda_killed_rank", "exit 137")
        self.program("cuda_benchmark", "echo no figures")
        code, parts, _ = self.run_rung()
        self.assertEqual(code, 1)
        self.assertEqual({part: result["state"] for part, result in parts.items()},
                         {"kernels": "failed", "device.threads": "skipped", "device.np2": "skipped",
                          "killed.np2": "failed", "killed.np2.peer": "failed",
                          "killed.np2.host": "failed",
                          "bandwidth": "failed", "launch.np2": "failed",
                          "launch.np2.peer": "failed",
                          "launch.np2.host": "failed"})
        self.assertIn("broken", parts["kernels"]["text"])

    def test_cases_of_a_program_that_fails_are_counted(self):
        self.program("cuda_kernels", f"cat <<'END'\n{CASES}"
                     "[ RUN      ] Sums.Wide/0\n[  FAILED  ] Sums.Wide/0, where GetParam() = 1 (2 "
                     "ms)\n[  FAILED  ] 1 test, listed below:\n[  FAILED  ] Sums.Wide/0, where "
                     "GetParam() = 1\nEND\nexit 1")
        kernels = self.run_rung()[1]["kernels"]
        self.assertEqual((kernels["passed"], kernels["skipped"], kernels["failed"]), (2, 1, 1))
        self.assertNotIn("unfinished", kernels)

    def test_much_on_one_stream_leaves_the_other_its_place(self):
        self.program("cuda_kernels",
                     f"cat <<'END'\n{CASES}END\nhead -c 100000 /dev/zero | tr '\\0' x >&2; exit 1")
        self.assertIn("[  SKIPPED ] Sums.Nccl", self.run_rung()[1]["kernels"]["text"])

    def test_words_behind_the_figures(self):
        self.program("cuda_benchmark", "echo '{\"combine\": 1}'; echo NCCL WARN on its way out")
        self.assertEqual(self.run_rung()[1]["bandwidth"]["figures"], {"combine": 1})

    def test_training_is_read(self):
        self.file("examples/pytorch_benchmark.py",
                  "print('Total img/sec on 1 GPU(s): 123.4 +- 5.6')")
        self.assertEqual(
            self.results_of(lambda made: made.training(1, "neighbor_allreduce", "--atc-style")),
            {"training.np1.neighbor_allreduce.atc-style":
             {"state": "passed", "images_per_second": [123.4, 5.6]}})

    def test_trainings_are_compared(self):
        self.file("tests/cuda/training.py", "print('{\"different\": {\"win_put\": 0}}')")
        self.assertEqual(self.results_of(lambda made: made.compare_trainings(1)),
                         {"training.np1.bits": {"state": "passed",
                                                "figures": {"different": {"win_put": 0}}}})

    def test_calls_and_the_backend_are_compared(self):
        say = "import json, os; print(json.dumps({'different': {str(os.environ.get('NAME')): 0}}))"
        self.file("tests/cuda/calls.py", say.replace("NAME", "BLUEFOG_DEVICE_WAY"))
        self.file("tests/cuda/backend.py", say)
        self.assertEqual(self.results_of(lambda made: made.compare_calls(2, "peer")),
                         {"calls.np2.peer": {"state": "passed",
                                             "figures": {"different": {"peer": 0}}}})
        self.assertEqual(self.results_of(lambda made: made.compare_backend(2)),
                         {"backend.np2": {"state": "passed",
                                          "figures": {"different": {"None": 0}}}})
        self.file("python/bluefog_cpp/_c10d.cpython-399-x86_64-linux-gnu.so")
        backend = self.results_of(lambda made: made.compare_backend(2))["backend.np2"]
        self.assertEqual(backend["state"], "failed")
        self.assertIn("has _c10d for Python 3.99", backend["text"])

    def test_operations_are_read(self):
        self.file("benchmarks/bfbench/workers/device_worker.py",
                  "import json, sys\nfor peer in ('NCCL', 'memcpy'):\n"
                  "    print('a word'); print(json.dumps({'peer': peer, 'args': sys.argv[3:]}))")
        found = self.results_of(lambda made: made.operations(2))["operations.np2"]
        self.assertEqual([record["peer"] for record in found["records"]], ["NCCL", "memcpy"])
        self.assertIn("4096,1048576,16777216,104857600", found["records"][0]["args"])

    def test_operations_without_figures(self):
        self.file("benchmarks/bfbench/workers/device_worker.py", "print('no figures')")
        found = self.results_of(lambda made: made.operations(2))["operations.np2"]
        self.assertEqual(found["state"], "failed")
        self.assertIn("expected lines of JSON, found 'no figures", found["text"])

    # ---- what is cut off

    def test_a_part_that_does_not_end(self):
        self.arguments.part_timeout = 2
        self.program("cuda_kernels", f"cat <<'END'\n{CASES}[ RUN      ] Sums.Hangs\nEND\n"
                     "echo waiting >&2; exec sleep 60")
        code, parts, _ = self.run_rung()
        self.assertEqual((code, parts["kernels"]["state"]), (1, "failed"))
        for words in ("[ RUN      ] Sums.Hangs", "waiting", "not done after 2 s"):
            self.assertIn(words, parts["kernels"]["text"])
        self.assertEqual((parts["kernels"]["passed"], parts["kernels"]["unfinished"]),
                         (2, ["Sums.Hangs"]))

    def test_a_launcher_that_does_not_end_says_why(self):
        self.arguments.part_timeout = 2
        self.arguments.parts = re.compile("device.np2")
        self.program("bfrun", "trap 'echo rank 1 was in Sums.Hangs >&2; exit 1' TERM\n"
                     "while :; do sleep 0.1; done")
        self.assertIn("rank 1 was in Sums.Hangs", self.run_rung()[1]["device.np2"]["text"])

    def test_results_are_written_after_each_part(self):
        found = self.folder / "found.json"
        self.program("cuda_ranks", f'cp "{self.arguments.out}" "{found}"; exit 77')
        self.run_rung()
        parts = json.loads(found.read_text())["parts"]
        self.assertEqual(list(parts), ["kernels", "device.threads", "device.np2"])
        self.assertEqual(parts["kernels"]["passed"], 2)
        self.assertEqual(parts["device.np2"], {"state": "running"})

    def test_only_some_parts(self):
        self.arguments.parts = re.compile("^launch.*(peer|host)|kernels")
        code, parts, _ = self.run_rung()
        self.assertEqual((code, list(parts)),
                         (0, ["kernels", "launch.np2.peer", "launch.np2.host"]))

    def test_no_such_part(self):
        self.arguments.parts = re.compile("lunch")
        with mock.patch.object(rung, "find_gpus", lambda: (1, "")), \
                mock.patch.object(rung, "describe_machine", lambda python: {}), \
                contextlib.redirect_stdout(io.StringIO()) as said:
            self.assertEqual(rung.run(self.arguments), 2)
        self.assertIn("launch.np2.peer", said.getvalue())
        self.assertIn("found lunch", said.getvalue())

    # ---- what is around them

    def test_nccl_of_the_python_in_use(self):
        self.arguments.python, folder = self.python_with_nccl()
        variables = self.variables_in(lambda made: made.figures("bandwidth", 1),
                                      LD_LIBRARY_PATH="/before")
        self.assertEqual(variables["LD_LIBRARY_PATH"], f"{folder}:/before")
        self.assertIsNone(self.variables_in(lambda made: made.compare_trainings(1))["LD_PRELOAD"])

    def test_nccl_that_is_named(self):
        self.arguments.python, _ = self.python_with_nccl()
        self.arguments.nccl = self.file("own/libnccl.so.2").parent
        self.arguments.libraries = self.folder / "lib"
        program = self.variables_in(lambda made: made.figures("bandwidth", 1))
        self.assertEqual(program["LD_LIBRARY_PATH"], f"{self.folder}/own:{self.folder}/lib")
        self.assertIsNone(program["LD_PRELOAD"])
        script = self.variables_in(lambda made: made.compare_trainings(1))
        self.assertEqual(script["LD_PRELOAD"], f"{self.folder}/own/libnccl.so.2")

    def test_nccl_of_ranks_that_share_a_gpu(self):
        def found(gpus, **environment):
            variables = self.variables_in(lambda made: made.figures("launch.np2", 2), gpus,
                                          **environment)
            return tuple(variables[name]
                         for name in ("NCCL_NVLS_ENABLE", "NCCL_MAX_CTAS", "NCCL_DEBUG"))
        self.assertEqual(found(1), ("0", "2", "WARN"))
        self.assertEqual(found(2), (None, None, "WARN"))
        self.assertEqual(found(1, NCCL_MAX_CTAS="8", NCCL_DEBUG="INFO"), ("0", "8", "INFO"))

    def test_cases_are_named_as_they_begin(self):
        self.assertEqual(self.variables_in(lambda made: made.figures("bandwidth", 1),
                                           GTEST_BRIEF="1")
                         ["GTEST_BRIEF"], "0")

    def test_an_extension_for_another_python(self):
        self.file("python/bluefog_cpp/_core.cpython-399-x86_64-linux-gnu.so")
        self.file("tests/cuda/training.py", "print('{}')")
        result = self.results_of(lambda made: made.compare_trainings(1))["training.np1.bits"]
        self.assertEqual(result["state"], "failed")
        self.assertIn("for Python 3.99", result["text"])
        self.assertIn(f"found Python {sys.version.split()[0]} (", result["text"])

    def test_an_extension_for_this_python(self):
        self.file(f"python/bluefog_cpp/_core{rung.describe_python(sys.executable)['suffixes'][0]}")
        self.file("tests/cuda/training.py", "print('{}')")
        result = self.results_of(lambda made: made.compare_trainings(1))["training.np1.bits"]
        self.assertEqual(result["state"], "passed")

    def test_ranks_that_are_threads_have_a_queue_for_each_stream(self):
        for program in ("cuda_device", "cuda_ranks"):
            self.program(program,
                         'printf %s "$CUDA_DEVICE_MAX_CONNECTIONS" '
                         f'>"{self.folder}/{program}.queues"')
        with mock.patch.dict(os.environ):
            os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
            self.run_rung()
        self.assertEqual((self.folder / "cuda_device.queues").read_text(), "32")
        self.assertEqual((self.folder / "cuda_ranks.queues").read_text(), "")

    def test_a_survivor_is_missing(self):
        self.arguments.ranks = [3]
        result = self.run_rung()[1]["killed.np3"]
        self.assertEqual(result["state"], "failed")
        self.assertIn("expected 2 lines of survivors", result["text"])

    def test_a_rank_that_was_not_killed(self):
        self.program("cuda_killed_rank", "echo survivor 0 heard of it")
        self.assertEqual(self.run_rung()[1]["killed.np2"]["state"], "failed")

    def test_without_a_gpu(self):
        with mock.patch.object(rung, "find_gpus", lambda: (0, "no CUDA device")), \
                contextlib.redirect_stdout(io.StringIO()) as said:
            self.assertEqual(rung.run(self.arguments), 77)
        self.assertEqual(said.getvalue(), "SKIPPED: no CUDA device\n")

    def test_ranks_are_launched(self):
        self.assertEqual(subprocess.run(rung.Rung(self.arguments, 1).launched(2, "echo", "here"),
                                        capture_output=True, text=True, check=True).stdout,
                         "here\n")

    def test_a_folder_without_nccl_is_refused(self):
        ended = subprocess.run([sys.executable, rung.__file__, "--build", str(self.folder),
                                "--nccl",
                                str(self.folder)], check=False, capture_output=True, text=True)
        self.assertEqual(ended.returncode, 2)
        self.assertIn(f"expected a folder with libnccl.so.2, found {self.folder}", ended.stderr)


if __name__ == "__main__":
    unittest.main()
