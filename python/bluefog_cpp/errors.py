"""The errors that the package raises. Each class is also the builtin one that fits it best."""

import builtins
from typing import Any


class Error(Exception):
    """Root of every exception of this package."""


class InvalidArgument(Error, ValueError):
    """An argument that the caller can correct; found before anything was sent."""


class ArgumentTypeError(InvalidArgument, TypeError):
    """An argument of another type than the call takes."""


class MismatchError(InvalidArgument):
    """Ranks made different calls, or the same one with other sizes, dtypes, names or weights.

    Raised on both ranks, with both calls in its text. The processes stay usable.
    """


class LateMismatchError(MismatchError):
    """A `MismatchError` of an earlier call, which had returned before the mismatch was heard of.

    Its text names both: the call that raises, which has done its work on this rank, and the earlier
    one. Raised once for each mismatch.
    """

    result: Any = None
    """The value that the call would have returned (`synchronize`, of a call that was started)."""


class StateError(Error, RuntimeError):
    """A call that is not possible now."""


class WindowGoneError(StateError):
    """A window of a rank that has freed it, or has ended: that rank has finished, and has not
    failed."""

    def __init__(self, message: str, rank: int = -1):
        super().__init__(message)
        self.rank = rank
        """The rank that has finished."""


class NotInitialized(StateError, ValueError):
    """`init` has not been called, or `shutdown` has."""


class UnsupportedError(Error, NotImplementedError):
    """Something that this build or machine cannot do."""


class UncopyableError(UnsupportedError, TypeError):
    """Something that stands for this rank's part of a group was to be copied or pickled."""


class TimeoutError(Error, builtins.TimeoutError):
    """A wait reached its deadline (`BLUEFOG_TIMEOUT`)."""


class PeerFailure(Error, RuntimeError):
    """Another rank refused the call, left or died."""

    def __init__(self, message: str, rank: int = -1):
        super().__init__(message)
        self.rank = rank
        """The rank that failed."""


class RankLostError(PeerFailure):
    """The ranks go on without `rank`, which is lost: `shrink` makes the smaller group.

    Raised by every call from then on, with `BLUEFOG_ON_FAILURE=shrink`, or where another rank has
    called `shrink`.
    """

    result: Any = None
    """The loss that the closure of an optimizer's step had returned."""


class TransportError(Error, RuntimeError):
    """A system call, shared memory or a transfer failed."""


class MpiError(TransportError):
    """An MPI call failed."""

    def __init__(self, message: str, code: int = 0):
        super().__init__(message)
        self.code = code
        """MPI's own error code."""


class CudaError(TransportError):
    """A call of CUDA's driver failed."""

    def __init__(self, message: str, code: int = 0):
        super().__init__(message)
        self.code = code
        """The driver's own error code (`CUresult`)."""


class NcclError(TransportError):
    """A call of NCCL failed, or NCCL reported an error of its own."""

    def __init__(self, message: str, code: int = 0):
        super().__init__(message)
        self.code = code
        """NCCL's own error code; 0 where it gave none."""


class InternalError(Error, RuntimeError):
    """A defect of this package: please report it."""
