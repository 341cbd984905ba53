"""Runs the tests of a build that counts lines (preset coverage), and writes what they reach.

    coverage.py BUILD PAGE

Prints the lines of each folder, and puts the table into PAGE in place of the one that is there.
"""

import argparse
import collections
import datetime
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The product's C++; lines of tests and examples say nothing of it.
FOLDERS = ("bluefog_cpp", "topology", "ops", "optimizers", "nn", "pipeline", "tools")
RUNGS = ("unit", "fabric", "mpi", "launcher")
# Eight processes reach the lines that four do, and take turns on the cores.
MANY_RANKS = "[.]np8$"
BEGIN, END = "<!-- made by make coverage -->", "<!-- end -->"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("page", type=pathlib.Path)
    return parser.parse_args()


def run_tests(build):
    """Whether all passed. Counts of an earlier run would be added to."""
    for counts in build.rglob("*.gcda"):
        counts.unlink()
    jobs = str(len(os.sched_getaffinity(0)) + 2)
    return subprocess.run(["ctest", "--test-dir", str(build), "-L", f"^({'|'.join(RUNGS)})$",
                           "-LE", "^long$", "-E", MANY_RANKS, "-j", jobs, "--output-on-failure"],
                          check=False).returncode == 0


def summary_of(build):
    """gcovr's figures, file by file."""
    command = [sys.executable, "-m", "gcovr", "--root", str(ROOT), "--object-directory", str(build),
               "--json-summary", "-", "--exclude-throw-branches", "--merge-lines",
               "--gcov-ignore-parse-errors=all",
               *(word for folder in FOLDERS for word in ("--filter", f"{ROOT}/{folder}/")),
               str(build)]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(run.stdout)["files"]


def folder_of(name):
    """The room: two folders deep where there are two."""
    parts = pathlib.PurePosixPath(name).parent.parts
    return "/".join(parts[:2])


def table_of(files):
    lines = collections.defaultdict(lambda: [0, 0])
    for file in files:
        for folder in (folder_of(file["filename"]), "all"):
            lines[folder][0] += file["line_covered"]
            lines[folder][1] += file["line_total"]
    rows = sorted(folder for folder in lines if folder != "all")
    yield "| folder | lines | reached |"
    yield "|---|---:|---:|"
    for folder in (*rows, "all"):
        covered, total = lines[folder]
        yield f"| {folder} | {total:,} | {100 * covered / total:.1f} % |"


def write_page(page, table):
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    day = datetime.date.today().isoformat()
    middle = "\n".join([BEGIN, f"On {day}, rungs {', '.join(RUNGS)}:", "", *table, END])
    page.write_text(before + middle + after)


def main():
    args = parse_arguments()
    passed = run_tests(args.build)
    table = list(table_of(summary_of(args.build)))
    print("\n".join(table))
    write_page(args.page, table)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
