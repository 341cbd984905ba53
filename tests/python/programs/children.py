"""children.py BFRUN: what a rank starts is refused at once, with the reason, and the ranks go on.

Workers of data loaders, processes of multiprocessing and subprocesses, twice in a row each.
"""

import multiprocessing
import os
import re
import subprocess
import sys

import torch

import bluefog_cpp.torch as bf

TIMES = 2
NO_RANK = r"rank [01] of this launch is process \d+ already, and process \d+ was started"
GUARD = re.escape('below `if __name__ == "__main__":`')
WORDS = {
    "spawn": f"{NO_RANK}.*{GUARD}",
    "forkserver": f"{NO_RANK}.*{GUARD}",
    "fork": r"was forked from process \d+, which is rank [01] .*workers of multiprocessing",
    "subprocess": NO_RANK,
}


def run_child(way):
    """Whether it was refused."""
    if way == "subprocess":
        return subprocess.run([sys.executable, __file__, "--rank", "none"],
                              check=False).returncode == 1
    if way == "fork":
        child = multiprocessing.get_context(way).Process(target=bf.init)
        child.start()
        child.join()
        return child.exitcode == 1
    loader = torch.utils.data.DataLoader(range(4), num_workers=1, multiprocessing_context=way)
    try:
        list(loader)
    except (RuntimeError, OSError, EOFError):  # which depends on where the worker has ended
        return True
    return False


def be_rank(way):
    for _ in range(TIMES):
        assert run_child(way), "expected the child to be refused"
        assert bf.allreduce(torch.ones(1), average=False).item() == bf.size()


def check(bfrun, way):
    job = subprocess.run([bfrun, "-np", "2", sys.executable, __file__, "--rank", way], check=False,
                         stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=100)
    found = len(re.findall(WORDS[way], job.stderr))
    if job.returncode != 0 or found < 2 * TIMES:
        sys.exit(f"{way}: expected code 0 and {2 * TIMES} refusals, found code {job.returncode}, "
                 f"{found} refusals and\n{job.stderr}")


# For every process, as in a script without a guard.
if sys.argv[1] == "--rank":
    bf.init()
if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        be_rank(sys.argv[2])
    else:
        os.environ["BLUEFOG_TIMEOUT"] = "600"  # time-outs end no refusal
        for name in sys.argv[2:] or WORDS:
            check(sys.argv[1], name)
