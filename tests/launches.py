"""The launches that `make test` has, by preset: one that vanishes fails, and is not just gone.

    launches.py [PRESET …]      writes tests/launches.txt anew, from builds that are configured

A launch is listed by its name. One that cannot run on some machine stays registered there, as a
skipped test with its reason: by the same name, or by the beginning of it (`python.ranks` for
`python.ranks.np4`).
"""

import argparse
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "launches.txt"
# As run_suites.py runs them at LEVEL=ci.
CI = ("-LE", "^long$")


def read(path=LIST):
    """Names by preset."""
    names = {}
    preset = None
    for line in path.read_text().splitlines():
        if line.startswith("["):
            preset = line.strip("[]")
            names[preset] = set()
        elif line:
            names[preset].add(line)
    return names


def stands_for(skipped, name):
    """Whether a skipped launch has the beginning of that name."""
    parts = name.split(".")
    return any(".".join(parts[:count]) in skipped for count in range(1, len(parts)))


def problems(named, registered, skipped):
    """What is wrong with each launch that is on one side alone.

    skipped: those of `registered` that only say why others cannot run here.
    """
    gone = [name for name in sorted(named - registered) if not stands_for(skipped, name)]
    found = dict.fromkeys(gone, "tests/launches.txt names it, and CTest has no such launch, nor a "
                                "skipped one in its place")
    is_reduced = any(name not in registered for name in named)
    if not is_reduced:
        found |= dict.fromkeys(sorted(registered - named),
                               "tests/launches.txt does not name it: run python tests/launches.py")
    return found


def write(presets):
    texts = []
    for preset in presets:
        listed = subprocess.run(["ctest", "--preset", preset, *CI, "-N"], cwd=ROOT, check=True,
                                stdout=subprocess.PIPE, text=True).stdout
        names = sorted(line.split(": ", 1)[1].strip() for line in listed.splitlines()
                       if line.lstrip().startswith("Test") and ": " in line)
        if not names:
            sys.exit(f"launches.py: preset {preset}: expected launches, found none: configure it "
                     "first")
        texts.append("\n".join([f"[{preset}]", *names]))
    LIST.write_text("\n\n".join(texts) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="*", metavar="PRESET", default=["release", "tsan", "asan"])
    write(parser.parse_args().presets)
