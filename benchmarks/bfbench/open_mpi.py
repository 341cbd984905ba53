"""Open MPI as a peer: its components and settings, and the ways to run it that may be faster."""

import ctypes
import functools
import os
import pathlib
import subprocess
import sys
from typing import NamedTuple

from bfbench.programs import words_of

# Frameworks of which components differ from one installation to another, and tell in times.
FRAMEWORKS = ("pml", "btl", "smsc", "coll")
PREFIXES = ("OMPI_MCA_", "PMIX_MCA_", "PRTE_MCA_")


class Way(NamedTuple):
    """Settings that Open MPI does not take by itself."""
    name: str
    environment: dict
    why_not: str
    """Why this machine cannot; empty if it can."""


@functools.cache
def components():
    """The names of what this Open MPI has, by framework."""
    found = {name: {} for name in FRAMEWORKS}
    for line in words_of("ompi_info", "--parsable").splitlines():
        kind, *names = line.split(":")
        if kind == "mca" and names[0] in FRAMEWORKS and names[2:3] == ["version"]:
            found[names[0]][names[1]] = None
    return {framework: list(names) for framework, names in found.items() if names}


def settings(environment):
    """The variables that tell its jobs something beside its defaults."""
    return {name: value for name, value in sorted(environment.items())
            if name.startswith(PREFIXES)}


@functools.cache
def reads_other_processes():
    """Whether a process may read the memory of one that it has not forked, as `cma` has to: its
    parent stands for that here."""
    word = ctypes.c_int64(7)
    program = ("import ctypes, os, sys; word = ctypes.c_int64(); "
               "ends = [(ctypes.c_void_p * 2)(place, 8) for place in "
               "(ctypes.addressof(word), int(sys.argv[1]))]; "
               "read = ctypes.CDLL(None, use_errno=True).process_vm_readv; "
               "sys.exit(0 if read(os.getppid(), ends[0], ctypes.c_ulong(1), ends[1], "
               "ctypes.c_ulong(1), ctypes.c_ulong(0)) == 8 and word.value == 7 else 1)")
    return subprocess.run([sys.executable, "-c", program, str(ctypes.addressof(word))], check=False,
                          capture_output=True).returncode == 0


def single_copy():
    """How a message of this Open MPI gets from one process of a host to another in one copy, or why
    it does not."""
    has = components().get("smsc", [])
    if "xpmem" in has and os.access("/dev/xpmem", os.R_OK | os.W_OK):
        return "xpmem"
    if "cma" not in has:
        return "none: it has no component of smsc that works here"
    scope = pathlib.Path("/proc/sys/kernel/yama/ptrace_scope")
    if scope.exists() and scope.read_text().strip() != "0":
        return f"none: {scope} is not 0"
    return "cma" if reads_other_processes() else "none: processes may not read each other's memory"


def ways():
    """Beside its defaults, which have the single copy that `single_copy` says."""
    why_not = "" if "xhc" in components().get("coll", []) else (
        "this Open MPI has no component xhc of coll")
    # Its priority is 0 by default: nobody takes it who does not ask for it.
    return [Way("xhc", {"OMPI_MCA_coll_xhc_priority": "100"}, why_not)]
