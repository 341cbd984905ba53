"""Starts a short script many times, with and without a second thread of Python, and counts what
ends well.

    python benchmarks/repeated_starts.py --bfrun PATH --starts 200

A start that has not ended after --timeout seconds counts as a deadlock; where its ranks were
shortly before is printed. Exit code 1 if any start failed.
"""

import argparse
import collections
import statistics
import subprocess
import sys
import tempfile
import time

WATCH = """
import faulthandler
faulthandler.dump_traceback_later({seconds})
"""

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
    """How the start ended, its seconds, and what it said on standard error."""
    begin = time.monotonic()
    script = WATCH.format(seconds=0.9 * arguments.timeout) + script
    command = [arguments.bfrun, "-np", str(arguments.ranks), sys.executable, "-c", script]
    with tempfile.TemporaryFile("w+") as words:
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=words) as job:
            try:
                code = job.wait(arguments.timeout)
                end = "ended well" if code == 0 else f"exit code {code}"
            except subprocess.TimeoutExpired:
                job.terminate()
                end = "did not end"
        words.seek(0)
        return end, time.monotonic() - begin, words.read()


def main():
    arguments = parse_arguments()
    failures = 0
    for title, script in (("one thread", SCRIPT), ("with a second thread", THREAD + SCRIPT)):
        ends = []
        for number in range(arguments.starts):
            ends.append(start(arguments, script))
            end, seconds, words = ends[-1]
            if end != "ended well" or (number + 1) % 10 == 0:
                print(f"{title}: start {number + 1} {end} ({seconds:.1f} s)", flush=True)
            if end != "ended well":
                print(words, flush=True)
        counts = collections.Counter(end for end, *_ in ends)
        failures += arguments.starts - counts["ended well"]
        print(f"{title}, {arguments.ranks} ranks: "
              + ", ".join(f"{count} {end}" for end, count in counts.most_common())
              + f"; median {statistics.median(seconds for _, seconds, _ in ends):.1f} s",
              flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
