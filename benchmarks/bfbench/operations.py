"""bfbench ops: operations of this project, of gloo and of Open MPI beside a concurrent memcpy."""

import json
import pathlib

from rich.console import Console
from rich.progress import Progress

from bfbench import report
from bfbench.launch import ROOT, Launcher
from bfbench.records import add_peer_ratios, merge_starts
from bfbench.versions import versions

WIDTH_OF_FILES = 150
GRID_SIZES = [10**6, 10**7, 10**8, 10**9]
PRESETS = {
    "default": {"ranks": [2], "sizes": [4, 1 << 16, 1 << 20, 1 << 24, 100 << 20]},
    "quick": {"ranks": [2], "sizes": [4, 1 << 20]},
    "grid": {"ranks": [2, 4, 6], "sizes": GRID_SIZES},
}


def numbers(text):
    values = [int(word) for word in text.split(",")]
    if min(values) < 1:
        raise ValueError(f"expected numbers of at least 1, found {min(values)}")
    return values


def add_arguments(parser):
    parser.add_argument("--preset", choices=PRESETS, default="default")
    parser.add_argument("--ranks", type=numbers, help="numbers of ranks, by commas")
    parser.add_argument("--sizes", type=numbers, help="bytes per rank, by commas")
    parser.add_argument("--dtype", default="float32",
                        choices=("float16", "bfloat16", "float32", "float64"))
    parser.add_argument("--starts", type=int, default=7, help="fresh starts of each side")
    parser.add_argument("--seconds", type=float, default=2.0, help="time per size and start, about")
    parser.add_argument("--without", choices=("gloo",), action="append", default=[],
                        help="a peer to leave out")
    parser.add_argument("--json", type=pathlib.Path, help="file for the records")
    parser.add_argument("--report", type=pathlib.Path, help="folder for charts and report.html")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")


def measure(args, launcher, ranks_list, sizes):
    """All starts; the sides take turns, so that a machine whose speed wanders treats them alike."""
    starts = []
    jobs = [job for job in ("own_and_mpi", "gloo") if job not in args.without]
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("measuring", total=args.starts * len(ranks_list) * len(jobs))
        for _ in range(args.starts):
            for ranks in ranks_list:
                start = []
                for job in jobs:
                    progress.update(task, description=f"{ranks} ranks, {job.replace('_', ' ')}")
                    records = getattr(launcher, job)(ranks, sizes, args.dtype, args.seconds)
                    # Both sides time the memcpy: that of the first one stands in the table.
                    start += [r for r in records if job == jobs[0] or r["peer"] != "memcpy"]
                    progress.advance(task)
                starts.append(start)
    return starts


def run(args):
    launcher = Launcher(args.build)
    preset = PRESETS[args.preset]
    starts = measure(args, launcher, args.ranks or preset["ranks"], args.sizes or preset["sizes"])
    records = add_peer_ratios(merge_starts(starts))
    about = versions(launcher.bfrun)
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH_OF_FILES)
    for table in report.tables(records):
        console.print(table)
    if args.json:
        args.json.write_text(json.dumps({"versions": about, "records": records}, indent=1) + "\n")
    if args.report:
        report.write_report(args.report, "Operations", about, records)
        console.print(f"report: {args.report / 'report.html'}")
