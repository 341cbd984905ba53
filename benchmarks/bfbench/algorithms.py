"""Names of algorithms, as the project's registry has them: aliases too, hyphens as underscores.

The package bluefog_cpp is imported where a name is looked up: commands that need none, and --help,
run without a build.
"""

import argparse
import sys

from bfbench.launch import LaunchFailed

TOPOLOGIES = ("ring", "exponential", "one_peer", "full")
"""Graphs that bfbench trains on, by name."""
SCHEDULES = ("base",)
"""Further ones, of bftopo."""


def _core():
    try:
        from bluefog_cpp._extension import core
    except ImportError as error:
        raise LaunchFailed(f"expected the package bluefog_cpp, of whose registry the names of "
                           f"algorithms are, in the build folder (--build) or installed: {error}",
                           "bluefog_cpp cannot be imported") from error
    return core


def registered():
    """The rows of all registered algorithms."""
    return _core().algorithms()


def row_named(name):
    """The row of a name or an alias; raises ValueError for another one."""
    return _core().algorithm_named(name)


def load_files(paths):
    """Registers the algorithms and schedules of files; raises ValueError for one that cannot be."""
    if paths:
        _core()  # what is wrong with the package is said first
        from bluefog_cpp import algorithms
        for path in paths:
            algorithms.load(path)


def own_schedules():
    """The names of schedules that files have registered."""
    module = sys.modules.get("bluefog_cpp.torch._own.schedules")
    return module.registered_schedules() if module else []


NO_CODE = "none"


def check_code(name):
    """Raises ValueError for the name of no code, with those that there are, and for one out of its
    bounds."""
    module = sys.modules.get("bluefog_cpp.torch._own.compressions")
    own = module.registered_compressions() if module else []
    if name == NO_CODE or name in own:
        return
    try:
        _core().compression_named(name)
    except ValueError as error:
        known = ", ".join((*own, NO_CODE))
        raise ValueError(str(error).removeprefix("compression: ").replace(
            "expected one of ", f"expected one of {known}, ")) from error


def has_name(row, name):
    return name in (row.name, *row.aliases)


def one_spelling(word, own, has_others):
    """The spelling in `own` of the algorithm, or else the registered name."""
    if word.replace("-", "_") in own:
        return word.replace("-", "_")
    row = row_named(word)
    for name in own:
        if has_name(row, name):
            return name
    if not has_others:
        raise ValueError(f"found '{word}'")
    return row.name


def algorithm_list(own=(), has_others=True):
    """Names by commas, each once: words of the command's own, and those of registered algorithms;
    without `has_others` only of such as `own` has under one of their names."""
    def parse(text):
        found = {}
        for word in text.split(","):
            try:
                found[one_spelling(word, own, has_others)] = None
            except LaunchFailed as error:
                raise argparse.ArgumentTypeError(str(error)) from error
            except ValueError as error:
                known = list(own) + [row.name for row in registered() if has_others and not any(
                    has_name(row, name) for name in own)]
                meant = str(error).partition(f"found '{word}'")[2]
                raise argparse.ArgumentTypeError(f"expected names by commas out of "
                                                 f"{', '.join(known)}; found '{word}'{meant}"
                                                 ) from error
        return list(found)
    return parse


def why_not(row):
    """Why an algorithm is not measured here; empty if it is."""
    return "" if not row.uses_windows else (
        "no rank waits for another, so that what it comes to in a fixed number of steps depends on "
        "the machine's load")


def takes_graphs(row):
    """Its averages are those of the graph: it neither averages over all ranks nor brings a schedule
    of its own."""
    return bool(row.stochastic) and not row.brings_schedule
