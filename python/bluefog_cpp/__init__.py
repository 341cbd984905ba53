"""Decentralized training: each process averages its model with a few neighbours of a graph.

`import bluefog_cpp.torch as bf` offers the operations, windows and optimizers, and
`bluefog_cpp.topology_util` the graphs.
"""

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
                                StateError,
                                TimeoutError,
                                TransportError,
                                UncopyableError,
                                UnsupportedError,
                                WindowGoneError,
)

__version__ = "0.1.0"

__all__ = ["ArgumentTypeError", "CudaError", "Error", "InternalError", "InvalidArgument",
           "LateMismatchError", "MismatchError", "MpiError", "NcclError", "NotInitialized",
           "PeerFailure", "StateError",
           "TimeoutError", "TransportError", "UncopyableError", "UnsupportedError",
           "WindowGoneError",
           "__version__"]
