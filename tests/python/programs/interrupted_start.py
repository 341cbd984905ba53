"""Ctrl-C while ranks are in `init` and one has not come: the whole job ends. A rank that is
interrupted alone, as by a notebook, may call `init` again.

    interrupted_start.py BFRUN
"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

RANK = """
import os, pathlib, sys, time
import bluefog_cpp.torch as bf
pathlib.Path(sys.argv[1], os.environ["RANK"]).write_text(str(os.getpid()))
if os.environ["RANK"] == "1":
    time.sleep(600)
bf.init()
"""


INTERRUPTED_RANK = """
import os, pathlib, signal, sys, threading, time
import bluefog_cpp.torch as bf
mark = pathlib.Path(sys.argv[1], "interrupted")
if os.environ["RANK"] == "0":
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        bf.init()
        sys.exit("expected init to be interrupted")
    except KeyboardInterrupt:
        mark.touch()
while not mark.exists():
    time.sleep(0.1)
bf.init()
bf.barrier()
"""


def is_running(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def interrupt_the_job():
    with tempfile.TemporaryDirectory() as folder:
        job = subprocess.Popen([sys.argv[1], "-np", "2", sys.executable, "-c", RANK, folder])
        marks = [pathlib.Path(folder, rank) for rank in ("0", "1")]
        while not all(mark.exists() and mark.read_text() for mark in marks):
            assert job.poll() is None, (
                f"bfrun ended with {job.returncode} before its ranks had begun")
            time.sleep(0.1)
        pids = [int(mark.read_text()) for mark in marks]
        time.sleep(0.5)  # rank 0 has most likely entered init by then
        os.kill(job.pid, signal.SIGINT)
        code = job.wait(100)
        assert code != 0, "expected bfrun to tell of the interrupt by its exit code"
        deadline = time.monotonic() + 20
        while any(map(is_running, pids)) and time.monotonic() < deadline:
            time.sleep(0.1)
        left = [pid for pid in pids if is_running(pid)]
        assert not left, f"expected the ranks to have ended, found {left}"


def interrupt_one_rank():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], "-np", "2", sys.executable, "-c", INTERRUPTED_RANK, folder],
                       check=True, timeout=100)


if __name__ == "__main__":
    interrupt_the_job()
    interrupt_one_rank()
