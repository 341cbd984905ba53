"""What a run was measured on."""

import datetime
import os
import pathlib
import platform
import subprocess

import torch


def first_line(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.splitlines()[0] if done.stdout else "not found"
    except FileNotFoundError:
        return "not found"


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def versions(bfrun):
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "bluefog_cpp": first_line(str(bfrun), "--version"),
        "torch": torch.__version__,
        "mpi": first_line("mpirun", "--version"),
        "python": platform.python_version(),
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "gpus": torch.cuda.device_count() if torch.cuda.is_available() else 0,
    }
