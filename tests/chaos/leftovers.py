"""Processes, files and sockets that a job leaves behind."""

import os
import pathlib
import shutil
import subprocess
import sys
import time

MARK = "CHAOS_JOB"
"""The variable that all processes of a job have: its folder."""
OWN = "CHAOS_OWN_PLACE"
TIME_WAIT = "06"
"""The state of TCP connections that have ended, which the system keeps for a minute."""


def enter_own_place():
    """Starts over with an empty /dev/shm and a network that nobody else uses; goes on where that is
    refused, and sockets are not looked at then."""
    if OWN in os.environ or not shutil.which("unshare") or not shutil.which("ip"):
        return
    inside = 'mount -t tmpfs tmpfs /dev/shm && ip link set lo up && exec "$@"'
    words = ["unshare", "--mount", "--net", "sh", "-c", inside, "sh"]
    if subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0:
        os.environ[OWN] = "1"
        os.execvp(words[0], [*words, sys.executable, *sys.argv])


def is_own():
    return OWN in os.environ


def files_below(folder):
    return {str(path) for path in pathlib.Path(folder).rglob("*")}


def processes(folder):
    """Processes of the job, by the variable that they were started with."""
    mark = f"{MARK}={folder}\0".encode()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark in pathlib.Path(f"/proc/{name}/environ").read_bytes():
                command = pathlib.Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
                yield f"process {name} ({b' '.join(command).decode(errors='replace')[:80]})"
        except OSError:
            pass  # it has ended, or is another user's


def sockets():
    for kind in ("tcp", "tcp6", "udp", "udp6", "unix"):
        path = pathlib.Path("/proc/net", kind)
        for line in path.read_text().splitlines()[1:] if path.exists() else []:
            words = line.split()
            if kind.startswith("unix"):
                yield f"{kind} socket {' '.join(words[6:])}"
            elif words[3] != TIME_WAIT:
                yield f"{kind} socket {words[1]} to {words[2]}, state {words[3]}"


def now(folder):
    """All that there is of the job in this folder."""
    found = {f"file {path}" for path in files_below(folder / "temporary")}
    found |= set(processes(folder))
    if is_own():
        found |= {f"file {path}" for path in files_below("/dev/shm")} | set(sockets())
    return found


def after(folder, before):
    """All that is new, and does not go within 10 s."""
    end = time.monotonic() + 10
    while (left := now(folder) - before) and time.monotonic() < end:
        time.sleep(0.2)
    return sorted(left)
