"""Runs a checker of Python sources, as pyproject.toml configures it, with this Python.

    python_checks.py ruff|mypy ROOT CACHE     CACHE: a folder for what the checker remembers

Exit code 77, with a line that begins with "SKIPPED: ", where the checker or a package that it
reads is not installed.
"""

import importlib.util
import subprocess
import sys

ARGUMENTS = {
    "ruff": ("check", "--cache-dir"),
    "mypy": ("--config-file=pyproject.toml", "--cache-dir"),
}
# Types come from these: without them mypy would find errors of another machine.
NEEDED = {"ruff": ("ruff",), "mypy": ("mypy", "torch", "numpy", "networkx", "matplotlib", "rich")}


def main():
    checker, root, cache = sys.argv[1:]
    missing = [name for name in NEEDED[checker] if not importlib.util.find_spec(name)]
    if missing:
        print(f"SKIPPED: {checker}: {sys.executable} has no {', '.join(missing)}")
        return 77
    command = [sys.executable, "-m", checker, *ARGUMENTS[checker], cache]
    return subprocess.run(command, cwd=root, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
