"""Fails on a folder that holds too many files to be looked through (docs/decisions/0020-rooms.md).

    folders.py ROOT          count what git knows or would add; without git, what is there
    folders.py --self-test   check that a folder that is too wide is found
"""

import collections
import pathlib
import subprocess
import sys

from check import check

MOST = 30
# Folders of numbered pages, whose list is read by its numbers.
LISTS = ("docs/decisions",)


def files_below(root):
    if (root / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=root,
                                text=True, check=True, stdout=subprocess.PIPE).stdout.splitlines()
        return [name for name in listed if (root / name).is_file()]
    names = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return [name.as_posix() for name in names
            if not name.parts[0].startswith(("build", ".")) and "__pycache__" not in name.parts]


def sizes_of(root):
    folders = collections.Counter(pathlib.PurePosixPath(name).parent.as_posix()
                                  for name in files_below(root))
    return {folder: count for folder, count in folders.items() if folder not in LISTS}


def main():
    files = {f"{folder}/{number}.hpp": 0
             for folder, count in (("wide", MOST + 1), ("full", MOST), ("full/more", MOST))
             for number in range(count)}
    return check("files in the folder", sizes_of, lambda _: MOST,
                 "give some that belong together a folder of their own", (files, "wide"))


if __name__ == "__main__":
    sys.exit(main())
