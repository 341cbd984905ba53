"""The version stands in CMakeLists.txt alone, and all that repeat it say the same. The licence too.

version_test.py ROOT --version CONFIGURED [--command PROGRAM …] [--python PYTHON]
"""

import argparse
import pathlib
import re
import subprocess
import sys

import tomllib

METADATA = """
import pathlib, tempfile
try:
    from scikit_build_core.build import prepare_metadata_for_build_wheel as prepare
except ImportError:
    raise SystemExit(77)
folder = pathlib.Path(tempfile.mkdtemp())
print((folder / prepare(str(folder)) / "METADATA").read_text())
print("LICENCE", (next(folder.glob("*/licenses/LICENSE"))).read_text())
"""


def first(pattern, text):
    found = re.search(pattern, text, re.MULTILINE)
    return found[1] if found else f"nothing that fits {pattern}"


def output_of(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode == 77:
        return None
    if done.returncode != 0:
        sys.exit(f"FAILED: {command}: {done.stdout}{done.stderr}")
    return done.stdout


def said_by_files(root):
    """Yields (place, version) of the files."""
    project = tomllib.loads((root / "pyproject.toml").read_text())
    metadata = project["tool"]["scikit-build"]["metadata"]["version"]
    if "version" in project["project"]:
        sys.exit(
            "FAILED: pyproject.toml: expected its version to be dynamic, found one written down"
        )
    yield "pyproject.toml", first(metadata["regex"], (root / metadata["input"]).read_text())
    yield "CITATION.cff", first(r"^version: (\S+)$", (root / "CITATION.cff").read_text())
    yield (
        "docs/building.md",
        first(r"^-- bluefog_cpp (\S+)$", (root / "docs/building.md").read_text()),
    )
    for page in ("README.md", "docs/python.md", "docs/building.md"):
        yield f"{page}'s wheel", first(r"bluefog_cpp-([0-9.]+)-cp", (root / page).read_text())
    changes = re.findall(r"^## (.*)", (root / "CHANGELOG.md").read_text(), re.MULTILINE)
    newest = changes[1] if changes[0] == "[Unreleased]" else changes[0]
    yield "CHANGELOG.md", first(r"^\[(\S+)\] - \d{4}-\d\d-\d\d$", newest)


def said_by_programs(arguments):
    for program in arguments.command:
        name = pathlib.Path(program).name
        yield f"{name} --version", first(rf"\A{name} (\S+)$", output_of(program, "--version"))
    if arguments.python:
        yield (
            "bluefog_cpp.__version__",
            output_of(
                arguments.python, "-c", "import bluefog_cpp; print(bluefog_cpp.__version__)"
            ).strip(),
        )


def said_by_wheel(root, python):
    """Yields (place, text) of what a wheel says; nothing where no wheel can be built."""
    text = output_of(python or sys.executable, "-c", METADATA, cwd=root)
    if text is None:
        print("scikit-build-core is not installed: a wheel's metadata was not looked at")
        return
    text, _, licence = text.partition("LICENCE ")
    yield "the wheel's version", first(r"^Version: (\S+)$", text), None
    yield "the wheel's licence", first(r"^License-Expression: (\S+)$", text), "Apache-2.0"
    yield "the wheel's LICENSE", licence.rstrip("\n"), (root / "LICENSE").read_text().rstrip("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--version", required=True)
    parser.add_argument("--command", action="append", default=[])
    parser.add_argument("--python")
    arguments = parser.parse_args()
    root, version = arguments.root, arguments.version

    said = [
        (place, found, version)
        for place, found in (*said_by_files(root), *said_by_programs(arguments))
    ]
    said += [
        (place, found, expected or version)
        for place, found, expected in said_by_wheel(root, arguments.python)
    ]
    said.append(
        (
            "CITATION.cff's licence",
            first(r"^license: (\S+)$", (root / "CITATION.cff").read_text()),
            "Apache-2.0",
        )
    )
    licence = (root / "LICENSE").read_text()
    said += [
        ("LICENSE", words in licence, True)
        for words in (
            "Apache License\n",
            "Version 2.0, January 2004",
            "END OF TERMS AND CONDITIONS",
        )
    ]
    wrong = [
        f"{place}: expected {expected}, found {found}"
        for place, found, expected in said
        if found != expected
    ]
    print("\n".join(wrong) or f"{len(said)} places say {version} and Apache-2.0")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
