"""The machine and versions that a run was measured on, and its words."""

import datetime
import importlib.metadata
import itertools
import os
import pathlib
import platform
import re
import shlex

import torch

from bfbench import open_mpi
from bfbench.launch import IS_CLONE, ROOT
from bfbench.programs import first_line, words_of

LSCPU_LINES = ("Socket", "Core(s) per", "Thread(s) per", "L1d", "L2", "L3", "NUMA node")


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def compact(tree):
    """hwloc's indented lines without the numbers of its parts; neighbours that are alike, with all
    below them, are one part that says how many."""
    parts = []
    for line in tree:
        if line.startswith(" "):
            parts[-1].append(line[2:])
        else:
            parts.append([re.sub(r" L#\d+| \(P#\d+\)|(?<=\()P#\d+ ", "", line)])
    found = []
    for (text, *below), alike in itertools.groupby([part[0], *compact(part[1:])] for part in parts):
        count = len(list(alike))
        found += [f"{count} × {text}" if count > 1 else text, *(f"  {line}" for line in below)]
    return found


def topology_of_machine():
    """The machine, as hwloc describes it, or lscpu without it; and its GPUs by nvidia-smi."""
    options = ("--no-io", "--of", "console")
    tree = words_of("lstopo-no-graphics", *options) or words_of("lstopo", *options)
    lines = compact(tree.splitlines())
    if not lines:
        lines = ["; ".join(" ".join(line.split()) for line in words_of("lscpu").splitlines()
                           if line.strip().startswith(LSCPU_LINES)) + " (lscpu; no lstopo found)"]
    return "\n".join(filter(None, [*lines, words_of("nvidia-smi", "topo", "-m")]))


def version_of(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


NOT_OPTIONS = ("run", "words")  # of what main keeps in the parsed options


def repeated_by(args):
    """All it takes to measure the same again: command line, options, environment and commit."""
    options = {name: str(value) if isinstance(value, pathlib.Path) else value
               for name, value in vars(args).items() if name not in NOT_OPTIONS}
    found = {
        "command": shlex.join(["bfbench", *args.words]),
        "options": options,
        "environment": {name: value for name, value in sorted(os.environ.items())
                        if name.startswith("BLUEFOG_")},
    }
    commit = IS_CLONE and words_of("git", "-C", str(ROOT), "describe", "--always", "--dirty")
    return {**found, "commit": commit} if commit else found


def text_of(value):
    """For a line of a table's head."""
    if isinstance(value, dict):
        return ", ".join(f"{name}={text_of(each)}" for name, each in value.items()) or "none"
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value)


def versions(launcher, args):
    """Raises LaunchFailed where the launcher has no bfrun."""
    launcher.require(launcher.bfrun)
    return repeated_by(args) | {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "bluefog_cpp": first_line(str(launcher.bfrun), "--version"),
        "torch": torch.__version__,
        "torchvision": version_of("torchvision"),
        "decent-dp": version_of("decent-dp"),
        "mpi": first_line("mpirun", "--version"),
        "mpi_components": open_mpi.components(),
        "mpi_settings": open_mpi.settings(launcher.environment),
        "mpi_single_copy": open_mpi.single_copy(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 2),
        "gpus": torch.cuda.device_count(),
        "topology": topology_of_machine(),
    }
