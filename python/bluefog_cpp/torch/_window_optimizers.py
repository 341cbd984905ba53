"""Optimizers that average through windows: no rank waits for another. One that has finished is left
out by the others, which keep what it has put last.

A step puts (or fetches), combines what has come with the own parameters, and makes the local step
with the gradient that was taken before. One window for each flat bucket of parameters.

The windows go with the optimizer, when it is collected or its model is wrapped again. Their memory
is given back when that has happened on all ranks and the next optimizer is wrapped.
"""

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch

from bluefog_cpp import _arguments
from bluefog_cpp._extension import core
from bluefog_cpp.errors import InvalidArgument, WindowGoneError
from bluefog_cpp.torch import _windows
from bluefog_cpp.torch._collectives import barrier
from bluefog_cpp.torch._optimizers import WrappedOptimizer, wrap
from bluefog_cpp.torch._plans import Step, check_average
from bluefog_cpp.torch._process import in_neighbor_ranks, out_neighbor_ranks
from bluefog_cpp.torch._runtime import Runtime, current
from bluefog_cpp.torch._wrapped import steering
from bluefog_cpp.torch._wrapped.model_parts import Models
from bluefog_cpp.torch._wrapped.steering import Steering
from bluefog_cpp.torch._wrapped.window import Window


class WindowOptimizer(WrappedOptimizer):
    """The part that both kinds have in common."""

    force_barrier = Steering(False, steering.switch)
    """Whether all ranks wait for each other before they combine."""

    _transfer_weights: str
    """The attribute with the weights that values travel with."""
    _own_windows: dict[str, Window]
    _finished: set[int]

    def unregister_window(self) -> None:
        """Collective. Frees the windows; the optimizer makes only local steps from then on."""
        for name in list(self._own_windows):
            _windows.win_free(name)
        self._own_windows.clear()

    def _register_windows(self, prefix: str | None) -> None:
        runtime = current()
        number = next(runtime.window_optimizers)
        if prefix is None:
            prefix = f"{type(self).__name__} {number}"
        self._own_windows = {}
        # Windows are freed later, together: the collector comes on each rank when it likes.
        end = weakref.finalize(self, _retire, runtime, self._own_windows)
        end.atexit = False
        self._distributed.release_windows = end
        this = weakref.ref(self)
        self._distributed.make_windows = lambda: this()._register_again(prefix)
        self._distributed.average_windows = lambda call: this()._average(call, 0)
        self._register(prefix)

    def _register(self, prefix: str) -> None:
        runtime = current()
        self._finished = set()
        for place, values in enumerate(self._distributed.core.bucket_values()):
            name = f"{prefix} bucket {place}"
            if not _windows.win_create(values, name):
                raise InvalidArgument(
                    f"{self._label}: a window '{name}' exists: give each optimizer a "
                    "window_prefix of its own")
            self._own_windows[name] = runtime.windows[name]

    def _average(self, call: str, newcomers: int) -> None:
        """Collective: values become their mean over all ranks but so many new ones."""
        if self._own_windows:  # not freed by unregister_window
            runtime = current()
            values = self._distributed.core.bucket_values()
            core.average_tensors(runtime.context, [(f"bucket {place}", each) for place, each in
                                                   enumerate(values)], call, newcomers,
                                 runtime.is_new)
            self._distributed.core.note_changes()

    def _register_again(self, prefix: str) -> None:
        """Where ranks are lost or new: from the mean of those that were there."""
        self._average("shrink", current().newcomers)
        was_freed = not self._own_windows
        self._own_windows.clear()
        if not was_freed:
            self._register(prefix)

    def _check_transfer_weights(self) -> None:
        weights = getattr(self, self._transfer_weights)
        wrong = ({} if self.row_sums == "any" or not isinstance(weights, Mapping) else
                 {rank: weight for rank, weight in weights.items() if float(weight) != 1})
        if wrong:
            rank, weight = next(iter(wrong.items()))
            raise InvalidArgument(
                f"{self._label}, {self._transfer_weights}: expected weights of 1, because the "
                "topology's weights sum to 1 where values are averaged, found "
                f"{float(weight):.9g} for rank {rank}; wrap with row_sums='any' to average so")

    def _before_round(self) -> Step | None:
        self._check_transfer_weights()
        # Parameters whose memory was replaced come back into their buckets first.
        self._distributed.drain()
        for name in self._own_windows:
            self._transfer(name)
        if self.force_barrier:
            barrier()
        for name in self._own_windows:
            _windows.win_update(name, require_mutex=True)
        self._distributed.core.note_changes()
        return None

    def _transfer(self, name: str) -> None:
        raise NotImplementedError

    def _with_those_there(self, call: Callable[[Any], Any], weights: Any,
                          neighbors: list[int]) -> None:
        """`call(weights)`, without ranks that have finished; None are all `neighbors`, weight 1."""
        while True:
            chosen = weights
            if self._finished:
                asked = weights if isinstance(weights, dict) else dict.fromkeys(
                    neighbors if weights is None else weights, 1.0)
                chosen = {rank: asked[rank] for rank in asked if rank not in self._finished}
            if chosen == {} and weights != {}:
                return
            try:
                call(chosen)
                return
            except WindowGoneError as gone:  # what went to others before goes there again
                self._finished.add(gone.rank)


def _retire(runtime: Runtime, windows: dict[str, Window]) -> None:
    for name, window in windows.items():
        if runtime.windows.get(name) is window:
            runtime.retired_windows.append(runtime.windows.pop(name))
    windows.clear()


class WinPutOptimizer(WindowOptimizer):
    """Writes its parameters into its out-neighbours' buffers."""

    dst_weights = Steering(None, steering.receivers)
    _transfer_weights = "dst_weights"

    def _transfer(self, name: str) -> None:
        tensor = self._own_windows[name].tensor
        self._with_those_there(
            lambda ranks: _windows.win_put(tensor, name, dst_weights=ranks, require_mutex=True),
            self.dst_weights, out_neighbor_ranks())


class PullGetOptimizer(WindowOptimizer):
    """Fetches its in-neighbours' parameters."""

    src_weights = Steering(None, steering.rank_weights)
    _transfer_weights = "src_weights"

    def _transfer(self, name: str) -> None:
        self._with_those_there(
            lambda ranks: _windows.win_get(name, src_weights=ranks, require_mutex=True),
            self.src_weights, in_neighbor_ranks())


def DistributedWinPutOptimizer(optimizer: torch.optim.Optimizer, model: Models,
                               num_steps_per_communication: int = 1,
                               window_prefix: str | None = None, *, row_sums: str = "one") -> Any:
    """Collective. x ← Σ_j w_j b(j) + w x, then the local step; b(j) is what in-neighbour j put
    last.

    row_sums: "any" where weights of the topology may sum to something else than 1, or values be
    put with other weights than 1; that multiplies parameters in every round.
    window_prefix: the names of the windows begin with it; default: a name that no other has.
    Cost of a step: a `win_put` of the parameters to each out-neighbour, which no other rank waits
    for. Memory: one copy of the parameters for each in-neighbour, in shared memory.
    Raises InvalidArgument where a window of such a name exists, or weights do not sum to 1.
    Source: BlueFog.
    Attributes: `dst_weights`, some out-neighbours for the next steps; `force_barrier`.
    """
    return _with_windows(optimizer, WinPutOptimizer, "DistributedWinPutOptimizer", model,
                         num_steps_per_communication, window_prefix, row_sums)


def DistributedPullGetOptimizer(optimizer: torch.optim.Optimizer, model: Models,
                                num_steps_per_communication: int = 1,
                                window_prefix: str | None = None, *, row_sums: str = "one") -> Any:
    """Collective. Like `DistributedWinPutOptimizer`, and b(j) is what this rank fetches from j.
    Cost of a step: a `win_get` from each in-neighbour.

    Attributes: `src_weights`, some in-neighbours for the next steps; `force_barrier`.
    """
    return _with_windows(optimizer, PullGetOptimizer, "DistributedPullGetOptimizer", model,
                         num_steps_per_communication, window_prefix, row_sums)


def _with_windows(optimizer, kind: Callable, maker: str, model, num_steps_per_communication,
                  window_prefix, row_sums):
    runtime = current()
    runtime.argument(maker, "window_prefix", _arguments.name, window_prefix)
    if row_sums != "any":
        runtime.or_refuse(lambda: check_average(maker, runtime.topology))
    wrapped = wrap(optimizer, kind, maker, model, "none", num_steps_per_communication,
                   {"window_prefix": window_prefix}, row_sums)
    wrapped._register_windows(window_prefix)
    return wrapped
