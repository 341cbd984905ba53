"""Decentralized training: each process averages its model with a few neighbours of a graph.

`import bluefog_cpp.torch as bf` offers the operations, windows and optimizers, and
`bluefog_cpp.topology_util` the graphs.
"""

import warnings
from typing import Any

from bluefog_cpp.errors import (
    ArgumentTypeError,
    CudaError,
    Error,
    InternalError,
    InvalidArgument,
    LateMismatchError,
    MismatchError,
    MpiError,
    NcclError,
    NotInitialized,
    PeerFailure,
    RankLostError,
    StateError,
    TimeoutError,
    TransportError,
    UncopyableError,
    UnsupportedError,
    WindowGoneError,
)

__version__: str

__all__ = ["ArgumentTypeError", "CudaError", "Error", "InternalError", "InvalidArgument",
           "LateMismatchError", "MismatchError", "MpiError", "NcclError", "NotInitialized",
           "PeerFailure", "RankLostError", "StateError",
           "TimeoutError", "TransportError", "UncopyableError", "UnsupportedError",
           "WindowGoneError",
           "__version__"]


def __getattr__(name: str) -> Any:
    if name == "WindowGone":
        warnings.warn("bluefog_cpp.WindowGone: use WindowGoneError", DeprecationWarning,
                      stacklevel=2)
        return WindowGoneError
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # The core has it from CMakeLists.txt. Loaded late: the errors alone take no torch.
    from bluefog_cpp._extension import core
    return core.version
