"""Checks of sizes: a limit that nothing may pass, and a test of themselves."""

import pathlib
import sys
import tempfile


def check(what, sizes_of, limit_of, advice, example):
    """Prints what is over its limit, or the three that are largest, and gives the exit code.

    what: "lines of the class and its sources", say
    sizes_of: a dict of the sizes below a folder
    limit_of: the limit of a name
    example: files of `--self-test`, with their lines, and the one name that is over its limit
    """
    def over(sizes):
        return [f"{name}: expected at most {limit_of(name)} {what}, found {size}: {advice}"
                for name, size in sorted(sizes.items()) if size > limit_of(name)]

    if sys.argv[1:] == ["--self-test"]:
        files, too_large = example
        with tempfile.TemporaryDirectory() as folder:
            for name, lines in files.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("\n" * lines)
            found = over(sizes_of(pathlib.Path(folder)))
        is_right = len(found) == 1 and found[0].startswith(f"{too_large}: expected at most")
        print(f"{too_large} was found" if is_right else f"expected {too_large}, found {found}")
        return 0 if is_right else 1
    sizes = sizes_of(pathlib.Path(sys.argv[1]))
    found = over(sizes)
    largest = sorted(sizes, key=sizes.get, reverse=True)[:3]
    print("\n".join(found) or f"most {what}: " + ", ".join(
        f"{name} ({sizes[name]})" for name in largest))
    return 1 if found else 0
