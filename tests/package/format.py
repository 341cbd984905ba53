"""Every C++ and CUDA source is as clang-format and .clang-format have it.

    format.py ROOT [--fix]

Exit code 77, with a line that begins with "SKIPPED: ", where this Python's environment has no
clang-format: another version would lay out some lines otherwise. `--fix` lays out the sources.
"""

import pathlib
import subprocess
import sys

FOLDERS = ("benchmarks", "bluefog_cpp", "examples", "nn", "ops", "optimizers", "pipeline", "python",
           "tests", "tools", "topology")
SUFFIXES = {".cpp", ".hpp", ".h", ".cu", ".cuh"}


def sources_of(root):
    files = sorted(path for folder in FOLDERS for path in (root / folder).rglob("*")
                   if path.suffix in SUFFIXES)
    if not files:
        sys.exit(f"no sources below {root}")
    return files


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    program = pathlib.Path(sys.executable).parent / "clang-format"
    if not program.is_file():
        print(f"SKIPPED: {program} is not installed; make setup installs it")
        return 77
    mode = ["-i"] if "--fix" in sys.argv[2:] else ["--dry-run", "--Werror"]
    files = sources_of(root)
    code = subprocess.run([program, "--style=file", *mode, *files], cwd=root,
                          check=False).returncode
    if code:
        print("Lay them out: python tests/package/format.py . --fix")
    else:
        print(f"{len(files)} sources")
    return code


if __name__ == "__main__":
    sys.exit(main())
