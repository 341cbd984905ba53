#!/usr/bin/env python3
"""Runs the soak program, then kills one rank after the other in runs of their own.

    soak_test.py [--ranks 4] [--minutes 10] [--seed 1] [--launcher BFRUN] [SOAK]

A run must end well; one whose rank is killed must end with an error, by itself. Neither may leave
a process, an entry of /dev/shm or a file in the folder for temporary files behind. Where the system
allows it, all of it has a /dev/shm of its own, so that other programs do not count.
"""
import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time


def entries(folder):
    found = set()
    for parent, folders, files in os.walk(folder):
        found.update(os.path.join(parent, name) for name in folders + files)
    return found


def processes_of(program):
    """Processes that run the program."""
    found = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{name}/exe") == program:
                found.add(int(name))
        except OSError:
            pass  # it has ended, or is another user's
    return found


def enter_own_shm():
    """Starts over with an empty /dev/shm that nobody else sees, or goes on where that is
    refused."""
    if "SOAK_OWN_SHM" in os.environ or not shutil.which("unshare"):
        return
    mount = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /dev/shm && exec "$@"', "sh"]
    if subprocess.run([*mount, "true"], capture_output=True, check=False).returncode == 0:
        os.environ["SOAK_OWN_SHM"] = "1"
        os.execvp(mount[0], [*mount, sys.executable, *sys.argv])


class Watch:
    """The entries and processes that a run leaves behind."""

    def __init__(self, program, temporary):
        self.program = program
        self.folders = ["/dev/shm", temporary]
        self.before = self.now()

    def now(self):
        files = set().union(*(entries(folder) for folder in self.folders))
        return files | {f"process {p}" for p in processes_of(self.program)}

    def complain(self, what):
        deadline = time.monotonic() + 15
        while (left := self.now() - self.before) and time.monotonic() < deadline:
            time.sleep(0.2)
        if left:
            print(f"{what} left behind: {', '.join(sorted(left))}")
        return bool(left)


def start(arguments, environment, minutes):
    command = [arguments.launcher, "-np", str(arguments.ranks), arguments.program,
               "--minutes", str(minutes), "--seed", str(arguments.seed),
               "--report", str(arguments.report)]
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT)


def run_whole(arguments, environment, watch):
    run = start(arguments, environment, arguments.minutes)
    is_fine = False
    for line in run.stdout:
        print(line, end="", flush=True)
        is_fine |= "soak: fine" in line
    failed = run.wait() != 0 or not is_fine
    if failed:
        print(f"expected exit code 0 and 'soak: fine', found {run.returncode}")
    return watch.complain("a whole run") or failed


def run_killed(arguments, environment, watch, rank):
    run = start(arguments, environment, 10)
    output, process = [], None
    for line in run.stdout:
        output.append(line)
        found = re.search(r"rank (\d+) is process (\d+)", line)
        if found and int(found[1]) == rank:
            process = int(found[2])
        if process and sum("is process" in seen for seen in output) == arguments.ranks:
            time.sleep(2)  # among the calls
            os.kill(process, signal.SIGKILL)
            process = None
    failed = run.wait() == 0
    if failed:
        print("".join(output) + f"expected an error after rank {rank} was killed, found none")
    return watch.complain(f"a run whose rank {rank} was killed") or failed


def main():
    enter_own_shm()
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=float, default=30)
    build = os.path.join(os.path.dirname(__file__), "../../build/release")
    parser.add_argument("--launcher", default=os.path.join(build, "tools/bfrun/bfrun"))
    parser.add_argument("program", nargs="?", default=os.path.join(build, "tests/soak/soak"))
    arguments = parser.parse_args()
    arguments.program = os.path.realpath(arguments.program)
    with tempfile.TemporaryDirectory(prefix="soak_") as temporary:
        environment = dict(os.environ, TMPDIR=temporary)
        watch = Watch(arguments.program, temporary)
        failed = run_whole(arguments, environment, watch)
        for rank in range(arguments.ranks):
            failed |= run_killed(arguments, environment, watch, rank)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
