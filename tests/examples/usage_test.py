"""The tiny programs of examples/usage: what they print, and that each is there in both languages.

usage_test.py run --ranks N --bfrun BFRUN PROGRAM
usage_test.py pages ROOT
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

LINES = 60


def mean(_, size):
    return f"{(size - 1) / 2:g}"


def pair_mean(rank, size):
    return f"{(rank + (rank ^ 1)) / 2 if rank ^ 1 < size else rank:g}"


def weighted_mean(_, size):
    return f"{sum((1 + i) * i for i in range(size)) / sum(1 + i for i in range(size)):g}"


EXPECTED = {
    "neighbor_average": mean,
    "dynamic_graph": mean,
    "hierarchical": mean,
    "window_put": mean,
    "pair_gossip": pair_mean,
    "own_topology": mean,
    "timeline": lambda rank, _: f"timeline{rank}.json",
    "optimizer_atc": lambda *_: "1",
    "gradient_tracking": weighted_mean,
    "elastic_training": lambda *_: "1",
    "checkpoint": lambda *_: "resumed after step 3, the same weights",
}


def line_of(name, rank, size):
    """The lines that a rank prints."""
    return f"rank {rank}: {EXPECTED[name](rank, size)}"


def problems_of_timeline(folder, rank):
    """Yields what is wrong with a rank's file of the program timeline."""
    path = folder / f"timeline{rank}.json"
    if not path.exists():
        yield f"expected {path.name}, found {sorted(path.name for path in folder.iterdir())}"
    elif not any(event.get("name") == "NEIGHBOR_ALLREDUCE" for event in events_of(path)):
        yield f"{path.name}: expected a span NEIGHBOR_ALLREDUCE, found {path.read_text()[:300]}"


def events_of(path):
    found = json.loads(path.read_text())
    return found["traceEvents"] if isinstance(found, dict) else found


def run(arguments):
    name, size = arguments.program.name, arguments.ranks
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [arguments.bfrun, "-np", str(size), arguments.program],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        problems = (
            [] if done.returncode == 0 else [f"expected exit code 0, found {done.returncode}"]
        )
        expected = [line_of(name, rank, size) for rank in range(size)]
        if sorted(done.stdout.splitlines()) != expected:
            problems.append(f"expected {expected}, found {done.stdout.splitlines()}")
        if name == "timeline":
            for rank in range(size):
                problems += problems_of_timeline(pathlib.Path(folder), rank)
    print("\n".join(problems), done.stderr if problems else "", sep="\n")
    return bool(problems)


def pages(arguments):
    folder = arguments.root / "examples" / "usage"
    readme = (arguments.root / "examples" / "README.md").read_text()
    problems = []
    for name in sorted(
        {path.stem for suffix in ("cpp", "py") for path in folder.glob(f"*.{suffix}")}
    ):
        if name not in EXPECTED:
            problems.append(f"{name}: expected in the table of this test")
        for suffix in ("cpp", "py"):
            path = folder / f"{name}.{suffix}"
            if not path.exists():
                problems.append(f"expected {path.name} beside its twin")
            elif len(path.read_text().splitlines()) >= LINES:
                problems.append(f"{path.name}: expected fewer than {LINES} lines")
            if f"(usage/{path.name})" not in readme:
                problems.append(f"examples/README.md: expected a link to usage/{path.name}")
    problems += [
        f"{name}: expected a program" for name in EXPECTED if not (folder / f"{name}.cpp").exists()
    ]
    print("\n".join(problems))
    return bool(problems)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("run")
    command.add_argument("--ranks", type=int, required=True)
    command.add_argument("--bfrun", required=True)
    command.add_argument("program", type=pathlib.Path)
    command.set_defaults(call=run)
    command = commands.add_parser("pages")
    command.add_argument("root", type=pathlib.Path)
    command.set_defaults(call=pages)
    arguments = parser.parse_args()
    return int(arguments.call(arguments))


if __name__ == "__main__":
    sys.exit(main())
