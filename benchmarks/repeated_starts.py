"""Starts a short script many times, with and without a second thread of Python, and counts what ends well.

    python benchmarks/repeated_starts.py --bfrun PATH --starts 200

A start that has not ended after --timeout seconds counts as a deadlock. Exit code 1 if any start failed.
"""

import argparse
import collections
import statistics
import subprocess
import sys
import time

SCRIPT = """
import torch
import bluefog_cpp.torch as bf
bf.init()
x = bf.neighbor_allreduce(torch.full((1000,), float(bf.rank())))
assert x.isfinite().all() and bf.allreduce(torch.ones(1), average=False).item() == bf.size()
"""

THREAD = """
import threading
done = threading.Event()
def count():
    while not done.wait(0.0005):
        pass
threading.Thread(target=count, daemon=True).start()
"""


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bfrun", default="bfrun")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--starts", type=int, default=200, help="of each kind")
    parser.add_argument("--timeout", type=float, default=120)
    return parser.parse_args()


def start(arguments, script):
    """How the start ended, and its seconds."""
    begin = time.monotonic()
    command = [arguments.bfrun, "-np", str(arguments.ranks), sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as job:
        try:
            code = job.wait(arguments.timeout)
        except subprocess.TimeoutExpired:
            job.terminate()
            return "did not end", time.monotonic() - begin
    return ("ended well" if code == 0 else f"exit code {code}"), time.monotonic() - begin


def main():
    arguments = parse_arguments()
    failures = 0
    for title, script in (("one thread", SCRIPT), ("with a second thread", THREAD + SCRIPT)):
        ends = [start(arguments, script) for _ in range(arguments.starts)]
        counts = collections.Counter(end for end, _ in ends)
        failures += arguments.starts - counts["ended well"]
        print(f"{title}, {arguments.ranks} ranks: "
              + ", ".join(f"{count} {end}" for end, count in counts.most_common())
              + f"; median {statistics.median(seconds for _, seconds in ends):.1f} s", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
