"""children.py BFRUN: what a rank starts is refused at once, with the reason, and the ranks go on.

Workers of data loaders, processes of multiprocessing and subprocesses, one after the other.
"""

import multiprocessing
import os
import re
import subprocess
import sys
import tempfile

import torch

import bluefog_cpp.torch as bf

NO_RANK = r"rank [01] of this launch is process \d+ already, and process \d+ was started"
GUARD = re.escape('below `if __name__ == "__main__":`')
FORKED = r"was forked from process \d+, which is rank [01] .*workers of multiprocessing"
WAYS = ("spawn", "forkserver", "subprocess", "fork", "fork")
# How often each of the two ranks has these words of a refusal.
TIMES = {f"{NO_RANK}.*{GUARD}": 2, NO_RANK: 3, FORKED: 2}


def run_child(way):
    """Whether it was refused."""
    if way == "subprocess":
        return subprocess.run([sys.executable, __file__, "--rank"],
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


def be_rank():
    for way in WAYS:
        assert run_child(way), f"{way}: expected the child to be refused"
        assert bf.allreduce(torch.ones(1), average=False).item() == bf.size()


def check(bfrun):
    # A bfrun that is killed leaves its ranks with the pipe: errors go to a file.
    with tempfile.TemporaryFile("w+") as errors:
        code = subprocess.run([bfrun, "-np", "2", sys.executable, __file__, "--rank"],
                              check=False, stdin=subprocess.DEVNULL, stderr=errors,
                              timeout=250).returncode
        errors.seek(0)
        said = errors.read()
    found = {words: len(re.findall(words, said)) for words in TIMES}
    if code != 0 or any(found[words] < 2 * times for words, times in TIMES.items()):
        sys.exit(f"expected code 0 and, for each of two ranks, {TIMES}, found code {code}, {found} "
                 f"and\n{said}")


# For every process, as in a script without a guard.
if sys.argv[1] == "--rank":
    bf.init()
if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        be_rank()
    else:
        os.environ["BLUEFOG_TIMEOUT"] = "600"  # time-outs end no refusal
        check(sys.argv[1])
