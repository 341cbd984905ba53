"""Fails on a folder that holds too many files to be looked through (docs/decisions/0020-rooms.md).

    folders.py ROOT          count what git knows or would add; without git, what is there
    folders.py --self-test   check that a folder that is too wide is found
"""

import collections
import pathlib
import subprocess
import sys
import tempfile

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
    return collections.Counter(pathlib.PurePosixPath(name).parent.as_posix()
                               for name in files_below(root))


def too_wide(root):
    return [f"{folder}: expected at most {MOST} files, found {count}: give some that belong "
            "together a folder of their own"
            for folder, count in sizes_of(root).most_common()
            if count > MOST and folder not in LISTS]


def self_test():
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for folder, count in (("wide", MOST + 1), ("full", MOST), ("full/more", MOST)):
            (root / folder).mkdir(parents=True)
            for number in range(count):
                (root / folder / f"{number}.hpp").touch()
        found = too_wide(root)
    if len(found) != 1 or not found[0].startswith(f"wide: expected at most {MOST} files"):
        print(f"expected the folder wide, found {found}")
        return 1
    print("the folder that is too wide was found")
    return 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = pathlib.Path(sys.argv[1])
    found = too_wide(root)
    print("\n".join(found) or "widest folders: " + ", ".join(
        f"{folder} ({count})" for folder, count in sizes_of(root).most_common(3)))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
