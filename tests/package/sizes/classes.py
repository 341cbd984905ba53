"""Fails on a class of too many lines with its parts (docs/decisions/0020-rooms.md).

    classes.py ROOT           count name.hpp, name.cpp and each name_*.cpp without a header
    classes.py --self-test    check that a class that is too large is found
"""

import pathlib
import sys
import tempfile

MOST = 600
# Why these have more: docs/decisions/0020-rooms.md.
EXPLAINED = {"topology/mixing_matrix.hpp": 642}
ROOMS = ("bluefog_cpp", "topology", "ops", "optimizers", "nn", "python", "tools", "examples",
         "benchmarks")


def sources_of(header, sources):
    """Those below the header's folder: a public header's may lie in a folder beside it."""
    return [source for source in sources if source.is_relative_to(header.parent)
            and (source.stem == header.stem
                 or (source.stem.startswith(f"{header.stem}_")
                     and not source.with_suffix(".hpp").exists()))]


def sizes_of(root):
    found = {}
    for room in ROOMS:
        sources = sorted((root / room).rglob("*.cpp"))
        for header in (root / room).rglob("*.hpp"):
            files = [header, *sources_of(header, sources)]
            found[header.relative_to(root).as_posix()] = sum(
                len(file.read_text(encoding="utf-8").splitlines()) for file in files)
    return found


def too_large(sizes):
    return [f"{header}: expected at most {EXPLAINED.get(header, MOST)} lines with its sources, "
            f"found {lines}: give a part of the class's work to a class of its own"
            for header, lines in sorted(sizes.items()) if lines > EXPLAINED.get(header, MOST)]


def self_test():
    with tempfile.TemporaryDirectory() as name:
        room = pathlib.Path(name, "ops")
        room.mkdir()
        for file, lines in {"large.hpp": 2, "large.cpp": MOST - 100, "large_ending.cpp": 99,
                            "full.hpp": 1, "full.cpp": MOST - 1,
                            "full_part.hpp": 1, "full_part.cpp": 9}.items():
            (room / file).write_text("\n" * lines)
        found = too_large(sizes_of(pathlib.Path(name)))
    if len(found) != 1 or not found[0].startswith(f"ops/large.hpp: expected at most {MOST} lines"):
        print(f"expected the class large, found {found}")
        return 1
    print("the class that is too large was found")
    return 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    sizes = sizes_of(pathlib.Path(sys.argv[1]))
    found = too_large(sizes)
    largest = sorted(sizes, key=sizes.get, reverse=True)[:3]
    print("\n".join(found) or "largest classes: " + ", ".join(
        f"{header} ({sizes[header]})" for header in largest))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
