"""Starts neighbor_allreduce_benchmark several times and prints every start and the medians.

Processes land on cores and memory differently at each start, and a virtual machine may run the
same program twice as slow by placement alone: one start says little. The bare loop (two ranks:
copying, flagging and adding alone) is 0 where it is not timed. The hand-over column (the time
of a call without payload) tells starts apart whose cores share a cache from those whose do not.
"""

import argparse
import json
import pathlib
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "release"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=7)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--bfrun", default=BUILD / "tools" / "bfrun" / "bfrun")
    parser.add_argument("--program", default=BUILD / "benchmarks" / "neighbor_allreduce_benchmark")
    parser.add_argument("rest", nargs="*", help="options of the program, after --")
    return parser.parse_args()


def one_start(args):
    """The records of one launch, by bytes."""
    command = [args.bfrun, "-np", str(args.ranks), args.program, "--json", *args.rest]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    records = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return {record["bytes"]: record for record in records}


def row(label, bytes_, record):
    return (
        f"{label:>8} {bytes_:>11} B  {record['median_us']:>10.2f} us"
        f"  memcpy {record['memcpy_us']:>10.2f} us  ratio {record['limit_ratio']:>6.2f}"
        f"  bare loop {record['bare_loop_us']:>10.2f} us"
        f"  hand-over {record['hand_over_us']:>5.2f} us"
    )


def main():
    args = parse_arguments()
    starts = []
    for index in range(args.starts):
        starts.append(one_start(args))
        for bytes_, record in starts[-1].items():
            print(row(f"start {index + 1}", bytes_, record), flush=True)
    print()
    for bytes_ in starts[0]:
        median = {
            key: statistics.median(start[bytes_][key] for start in starts)
            for key in ("median_us", "memcpy_us", "limit_ratio", "bare_loop_us", "hand_over_us")
        }
        print(row("median", bytes_, median))


if __name__ == "__main__":
    main()
