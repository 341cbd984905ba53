"""What rung.py makes of what its programs say, with programs that only say it."""

import argparse
import contextlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import rung

CASES = """[ RUN      ] Sums.Whole
[       OK ] Sums.Whole (1 ms)
[ RUN      ] Sums.Half
[       OK ] Sums.Half (1 ms)
[ RUN      ] Sums.Nccl
[  SKIPPED ] Sums.Nccl (0 ms)
"""


class RungTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.arguments = argparse.Namespace(
            build=self.folder, sources=self.folder, out=self.folder / "out.json", python=sys.executable,
            ranks=[2], training=False, batch_size=4, part_timeout=30, nccl=None, libraries=None)
        for name in ("cuda_kernels", "cuda_device", "cuda_ranks"):
            self.program(name, f"cat <<'END'\n{CASES}END")
        self.program("cuda_benchmark", "echo noise; echo '{\"combine\": 1}'")
        self.program("bfrun", 'shift 2; "$@"')

    def program(self, name, body):
        path = self.folder / rung.PROGRAMS[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def run_rung(self):
        with mock.patch.object(rung, "why_no_gpu", lambda: ""), \
                contextlib.redirect_stdout(io.StringIO()) as said:
            code = rung.run(self.arguments)
        return code, json.loads(self.arguments.out.read_text())["parts"], said.getvalue()

    def test_counts_and_figures(self):
        code, parts, said = self.run_rung()
        self.assertEqual(code, 0)
        self.assertEqual(parts["device.np2"],
                         {"state": "passed", "passed": 2, "skipped": 1, "failed": 0})
        self.assertEqual(parts["bandwidth"], {"state": "passed", "figures": {"combine": 1}})
        self.assertIn("7 passed, 0 failed, 0 skipped", said)

    def test_failures_and_skips(self):
        self.program("cuda_kernels", "echo broken; exit 1")
        self.program("cuda_device", "exit 77")
        self.program("cuda_ranks", "echo '[  SKIPPED ] Sums.Whole (0 ms)'")
        self.program("cuda_benchmark", "echo no figures")
        code, parts, _ = self.run_rung()
        self.assertEqual(code, 1)
        self.assertEqual({part: result["state"] for part, result in parts.items()},
                         {"kernels": "failed", "device.threads": "skipped", "device.np2": "skipped",
                          "bandwidth": "failed", "launch.np2": "failed", "launch.np2.peer": "failed",
                          "launch.np2.host": "failed"})
        self.assertIn("broken", parts["kernels"]["text"])

    def test_a_part_that_does_not_end(self):
        self.arguments.part_timeout = 0.2
        self.program("cuda_kernels", "exec sleep 20")
        code, parts, _ = self.run_rung()
        self.assertEqual((code, parts["kernels"]["state"]), (1, "failed"))
        self.assertIn("not done after", parts["kernels"]["text"])

    def test_training_is_read(self):
        script = self.folder / "examples/python/pytorch_benchmark.py"
        script.parent.mkdir(parents=True)
        script.write_text("print('Total img/sec on 1 GPU(s): 123.4 +- 5.6')")
        made = rung.Rung(self.arguments)
        with contextlib.redirect_stdout(io.StringIO()):
            made.training(1, "neighbor_allreduce", "--atc-style")
        self.assertEqual(made.results, {"training.np1.neighbor_allreduce.atc-style":
                                        {"state": "passed", "images_per_second": [123.4, 5.6]}})

    def test_trainings_are_compared(self):
        script = self.folder / "tests/cuda/training.py"
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text("print('{\"different\": {\"win_put\": 0}}')")
        made = rung.Rung(self.arguments)
        with contextlib.redirect_stdout(io.StringIO()):
            made.compare_trainings(1)
        self.assertEqual(made.results, {"training.np1.bits":
                                        {"state": "passed", "figures": {"different": {"win_put": 0}}}})

    def test_without_a_gpu(self):
        with mock.patch.object(rung, "why_no_gpu", lambda: "no CUDA device"), \
                contextlib.redirect_stdout(io.StringIO()) as said:
            self.assertEqual(rung.run(self.arguments), 77)
        self.assertEqual(said.getvalue(), "SKIPPED: no CUDA device\n")

    def test_ranks_are_launched(self):
        self.assertEqual(subprocess.run(rung.Rung(self.arguments).launched(2, "echo", "here"),
                                        capture_output=True, text=True, check=True).stdout, "here\n")


if __name__ == "__main__":
    unittest.main()
