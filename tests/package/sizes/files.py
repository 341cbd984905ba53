"""Fails on a source that is too long to be read in one go (CONTRIBUTING.md).

    files.py ROOT          count the sources that git knows or would add; without git, what is there
    files.py --self-test   check that a file that is too long is found
"""

import pathlib
import sys

from check import check
from folders import files_below

MOST = 400
SOURCES = (".hpp", ".cpp", ".cu", ".py", ".sh", ".cmake")


def lines_of(root):
    return {name: (root / name).read_bytes().count(b"\n") for name in files_below(root)
            if pathlib.PurePosixPath(name).suffix in SOURCES}


def main():
    files = {"long.cpp": MOST + 1, "full.py": MOST, "docs/long.md": 2 * MOST}
    return check("lines of the source", lines_of, lambda _: MOST,
                 "give some of it a file of its own", (files, "long.cpp"))


if __name__ == "__main__":
    sys.exit(main())
