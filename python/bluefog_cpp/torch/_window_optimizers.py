"""Optimizers that average through windows: no rank waits for another.

A step puts (or fetches), combines what has come with the own parameters, and makes the local step with
the gradient that was taken before. One window for each flat bucket of parameters.
"""

from typing import Any, Callable, List, Mapping, Optional

import torch

from bluefog_cpp.errors import InvalidArgument
from bluefog_cpp.torch import _windows
from bluefog_cpp.torch._collectives import barrier
from bluefog_cpp.torch._distributed_step import Models
from bluefog_cpp.torch._optimizers import DistributedOptimizer, wrap
from bluefog_cpp.torch._plans import DstWeights, Step
from bluefog_cpp.torch._runtime import current


class WindowOptimizer(DistributedOptimizer):
    """What both kinds have in common."""

    force_barrier: bool = False
    """Whether all ranks wait for each other before they combine."""

    _window_names: List[str] = []

    def unregister_window(self) -> None:
        """Collective. Frees the windows; the optimizer makes only local steps from then on."""
        for name in self._window_names:
            _windows.win_free(name)
        self._window_names = []
        self._distributed.holds_windows = False

    def _register_windows(self, prefix: Optional[str]) -> None:
        names = [f"{prefix or type(self).__name__} bucket {place}"
                 for place in range(self._distributed.core.bucket_count)]
        for name, values in zip(names, self._distributed.core.bucket_values()):
            if not _windows.win_create(values, name):
                raise InvalidArgument(
                    f"a window '{name}' exists: give each optimizer a window_prefix of its own")
        self._window_names = names
        self._distributed.holds_windows = True

    def _before_round(self) -> Optional[Step]:
        # Parameters whose memory was replaced come back into their buckets first.
        self._distributed.drain()
        for name in self._window_names:
            self._transfer(name)
        if self.force_barrier:
            barrier()
        for name in self._window_names:
            _windows.win_update(name, require_mutex=True)
        self._distributed.core.note_changes()
        return None

    def _transfer(self, name: str) -> None:
        raise NotImplementedError


class WinPutOptimizer(WindowOptimizer):
    """Writes its parameters into its out-neighbours' buffers."""

    dst_weights: Optional[DstWeights] = None

    def _transfer(self, name: str) -> None:
        values = current().windows[name].tensor
        _windows.win_put(values, name, dst_weights=self.dst_weights, require_mutex=True)


class PullGetOptimizer(WindowOptimizer):
    """Fetches its in-neighbours' parameters."""

    src_weights: Optional[Mapping[int, float]] = None

    def _transfer(self, name: str) -> None:
        _windows.win_get(name, src_weights=self.src_weights, require_mutex=True)


def DistributedWinPutOptimizer(optimizer: torch.optim.Optimizer, model: Models,
                               num_steps_per_communication: int = 1,
                               window_prefix: Optional[str] = None) -> Any:
    """Collective. x ← Σ_j w_j b(j) + w x, then the local step; b(j) is what in-neighbour j put last.

    Attributes: `dst_weights`, some out-neighbours for the next steps; `force_barrier`.
    """
    return _with_windows(optimizer, WinPutOptimizer, model, num_steps_per_communication, window_prefix)


def DistributedPullGetOptimizer(optimizer: torch.optim.Optimizer, model: Models,
                                num_steps_per_communication: int = 1,
                                window_prefix: Optional[str] = None) -> Any:
    """Collective. As `DistributedWinPutOptimizer`, and b(j) is what this rank fetches from j.

    Attributes: `src_weights`, some in-neighbours for the next steps; `force_barrier`.
    """
    return _with_windows(optimizer, PullGetOptimizer, model, num_steps_per_communication, window_prefix)


def _with_windows(optimizer, kind: Callable, model, num_steps_per_communication, window_prefix):
    wrapped = wrap(optimizer, kind, model, "none", num_steps_per_communication)
    wrapped._register_windows(window_prefix)
    return wrapped
