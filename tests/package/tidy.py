"""Runs clang-tidy over every C++ source that a build compiles, with the checks of .clang-tidy.

    tidy.py ROOT BUILD [--only REGEX] [--jobs N]
    tidy.py --self-test     check that faults are found

BUILD holds compile_commands.json. A source that a unity build includes is checked as a part of it,
so that the headers of torch are read once for eight sources; what several sources find in a header
is said once. Exit code 1 where something is found, or a source is no C++ to clang; 77 where there
is no clang-tidy.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import layers

CONFIG = pathlib.Path(__file__).resolve().parents[2] / ".clang-tidy"
FINDING = re.compile(r"^([^\s:][^:\n]*):(\d+):\d+: (?:warning|error): (.*)$", re.MULTILINE)

# Warnings stay warnings, and g++'s precompiled header is not used.
FOR_CLANG = ("--extra-arg=-Wno-error", "--extra-arg=-Wno-ignored-gch")
# Whatever else is found in headers of others is theirs.
NO_CPP = "[clang-diagnostic-error]"
# Generated units: the precompiled header, each header alone, the pages' blocks; in a unity build
# they lie in folders of their targets.
NOTHING_NEW = re.compile(r"torch_pch\.dir|tests/package/(CMakeFiles/)?(headers|readme_|\w+_page_)")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=pathlib.Path, nargs="?")
    parser.add_argument("build", type=pathlib.Path, nargs="?")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--only", default="", help="a regular expression of the units to check")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    return parser.parse_args()


def program():
    """clang-tidy of this Python's environment: it is pinned, and that of the system may be old."""
    beside = pathlib.Path(sys.executable).with_name("clang-tidy")
    return str(beside) if beside.exists() else shutil.which("clang-tidy")


def units_of(build, only):
    """The translation units, without those for GPUs and those that have nothing of their own."""
    commands = json.loads((build / "compile_commands.json").read_text())
    files = {pathlib.Path(command["directory"], command["file"]) for command in commands}
    return sorted(str(file) for file in files if file.suffix != ".cu"
                  and not NOTHING_NEW.search(str(file))
                  and re.search(only, name_of(file, build)))


def name_of(file, build):
    """The path below the build, or below the sources: both begin with the library's folder."""
    in_build = os.path.relpath(file, build)
    return re.sub(r"^(\.\./)+", "", in_build)


def findings_of(tidy, root, build, unit):
    """[(file, line, text)] of one unit; what clang cannot read is among them."""
    command = [tidy, "-p", build, f"--config-file={CONFIG}", "--quiet", *FOR_CLANG, unit]
    run = subprocess.run(command, cwd=root, check=False, capture_output=True, text=True)
    found = [(os.path.relpath(os.path.join(root, file), root), int(line), text)
             for file, line, text in FINDING.findall(run.stdout)
             if NO_CPP in text or (root / file).is_relative_to(root)]
    if run.returncode != 0 and not found:
        found.append((os.path.relpath(unit, root), 0, f"clang-tidy failed: {run.stderr.strip()}"))
    return found


def self_test(tidy):
    """A fault in a unit, in a source that a unit includes, and text that is no C++ are found."""
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(temporary).resolve()
        (root / "tools").mkdir()
        (root / "tools" / "a.cpp").write_text("int* first() { return 0; }\n")
        (root / "unity.cpp").write_text("// NOLINTNEXTLINE(bugprone-suspicious-include): as CMake\n"
                                        '#include "tools/a.cpp"\nint* second() { return 0; }\n')
        (root / "wrong.cpp").write_text("int third() { return }\n")
        (root / "right.cpp").write_text("int fourth() { return 4; }\n")
        commands = [{"directory": temporary, "file": f"{name}.cpp", "command": f"c++ -c {name}.cpp"}
                    for name in ("unity", "wrong", "right")]
        (root / "compile_commands.json").write_text(json.dumps(commands))
        found = {os.path.basename(unit): findings_of(tidy, root, root, unit)
                 for unit in units_of(root, "")}
    places = {(file, line) for file, line, _ in found["unity.cpp"]}
    assert places == {("tools/a.cpp", 1), ("unity.cpp", 3)}, found
    assert found["wrong.cpp"] and not found["right.cpp"], found
    left_out = rooms_left_out(CONFIG.parent)
    assert not left_out, f".clang-tidy: HeaderFilterRegex lacks {', '.join(left_out)}"
    print("faults are found")
    return 0


def rooms_left_out(root):
    """Folders of C++ that HeaderFilterRegex does not name: nothing is found in their sources, which
    unity builds include."""
    wanted = re.search(r"^HeaderFilterRegex: '(.*)'$", CONFIG.read_text(), re.MULTILINE)
    folders = {folder.split("/")[0] for folder, _, _ in layers.ROOMS.values()}
    return sorted(folder for folder in folders if any((root / folder).rglob("*.cpp"))
                  and not re.search(wanted[1], f"/{folder}/a.cpp"))


def main():
    args = parse_arguments()
    tidy = program()
    if tidy is None:
        print("SKIPPED: there is no clang-tidy (pip install clang-tidy)")
        return 77
    if args.self_test:
        return self_test(tidy)
    root = args.root.resolve()
    units = units_of(args.build, args.only)
    if not units:
        sys.exit(f"{args.build}: no unit to check")
    found = set()
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for some in pool.map(lambda unit: findings_of(tidy, root, args.build.resolve(), unit),
                             units):
            for finding in sorted(set(some) - found):
                print("{}:{}: {}".format(*finding), flush=True)
            found.update(some)
    checks = collections.Counter(text.rpartition("[")[2].rstrip("]") for _, _, text in found)
    print(f"{len(units)} units, {len(found)} findings",
          *(f"{count} {check}" for check, count in checks.most_common()), sep="; ")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
