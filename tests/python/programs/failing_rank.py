"""failing_rank.py BFRUN: rank 1 ends with an error; the job ends with it, and names it first.

The other rank sleeps, or waits for rank 1 in a call and dies of its end, at times before rank 1's
interpreter has ended.
"""

import atexit
import os
import re
import subprocess
import sys
import time

# "linger": the interpreter takes its time after the rank has left the others, which end at once.
WAYS = {"exit": 3, "raise": 1, "linger": 3}


def be_rank(way, other):
    if way == "linger":
        atexit.register(time.sleep, 0.5)  # the first that is registered runs last
    import torch

    import bluefog_cpp
    import bluefog_cpp.torch as bf

    bf.init()
    bf.allreduce(torch.ones(3))
    if bf.rank() == 1:
        if way == "raise":
            raise ValueError("rank 1 ends")
        sys.exit(WAYS[way])
    if other == "sleep":
        time.sleep(600)
    try:
        bf.allreduce(torch.ones(3))
    except bluefog_cpp.PeerFailure:
        if way == "linger":
            os._exit(1)
        raise


def check(bfrun, way, other):
    job = subprocess.run([bfrun, "-np", "2", sys.executable, __file__, "--rank", way, other],
                         check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                         timeout=60)
    named = re.findall(r"^bfrun: rank (\d) .* exited with code (\d+)$", job.stderr, re.MULTILINE)
    if job.returncode != WAYS[way] or named[:1] != [("1", str(WAYS[way]))]:
        sys.exit(f"{way}, {other}: expected code {WAYS[way]} and rank 1 named first, found code "
                 f"{job.returncode} and\n{job.stderr}")


if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        be_rank(*sys.argv[2:])
    else:
        for way, other in [("exit", "sleep"), ("raise", "wait"), ("linger", "sleep"),
                           ("linger", "wait")]:
            check(sys.argv[1], way, other)
