"""Calls that are made ready once and made many times: what does not change is looked at once."""

from collections.abc import Callable
from typing import NoReturn, ParamSpec, Protocol, TypeVar, cast

import torch

from bluefog_cpp._arguments import place
from bluefog_cpp._extension import core
from bluefog_cpp.errors import LateMismatchError, StateError
from bluefog_cpp.torch._deprecation import renamed
from bluefog_cpp.torch._plans import Step
from bluefog_cpp.torch._ranges import is_in_sight, ranged_as, uncompiled
from bluefog_cpp.torch._runtime import Runtime, current
from bluefog_cpp.torch._tensors import elements_to_write, is_plain, store

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


class PreparedCall:
    """A call of `neighbor_allreduce_` with its arguments, as its `prepare` returns it. Calling the
    object makes the call."""

    def __init__(self, tensor: torch.Tensor, name: str | None, synchronisation: str,
                 make_step: Callable[[bool], Step], is_dynamic: bool):
        """make_step: with whether the step is one of a call."""
        self._runtime = current()
        self._context = self._runtime.context
        self._tensor = tensor
        self._name = name or ""
        self._synchronisation = synchronisation
        self._make_step = make_step
        self._step = make_step(False)
        self._is_dynamic = is_dynamic
        self._topology = None if is_dynamic else self._runtime.topology
        self._graph = self._step.plan.graph
        """Of the topology; it is compared with the other ranks' before the plan is trusted."""
        self._average = (core.PreparedAverage(self._runtime.context, tensor, self._name,
                                              synchronisation)
                         if is_plain(tensor) else None)

    def __call__(self) -> torch.Tensor:
        """Averages the tensor, in place, and returns it: as `neighbor_allreduce_` with the same
        arguments, also where the topology has changed since. Raises what that raises, and
        StateError where the ranks for which it was prepared have left."""
        return self._make_in_sight() if is_in_sight() else self._make()

    @ranged_as("neighbor_allreduce_")
    def _make_in_sight(self) -> torch.Tensor:
        return self._make()

    def _make(self) -> torch.Tensor:
        runtime = current()
        if runtime.context is not self._context:
            found = "of a later init" if runtime is not self._runtime else "that are left"
            raise StateError(f"{place('neighbor_allreduce_')}: expected the ranks for which the "
                             f"call was prepared, found those {found}; prepare it again")
        step = self._step
        try:
            if self._is_dynamic:
                self._run(step, step.checked)
            elif runtime.topology is self._topology and self._is_compared():
                self._run(step, False)
            else:
                self._run_anew(runtime)
        except LateMismatchError as error:  # the call itself has done its work
            error.result = self._tensor
            raise
        return self._tensor

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(f"{place('neighbor_allreduce_')}: a prepared call is for its own tensor "
                        "and ranks, and cannot be copied or pickled; prepare another one")

    def _is_compared(self) -> bool:
        return self._topology is not None and self._topology.comparison.graph == self._graph

    def _run_anew(self, runtime: Runtime) -> None:
        step = runtime.or_refuse(lambda: self._make_step(True))
        step.run(lambda: self._run(step, step.checked))
        self._topology, self._step, self._graph = runtime.topology, step, step.plan.graph

    def _run(self, step: Step, checked: bool) -> None:
        if self._average is not None and self._average.run(step.plan, checked):
            return
        runtime, tensor = self._runtime, self._tensor
        source = runtime.source("neighbor_allreduce_", tensor, self._name, elements_to_write)
        core.neighbor_allreduce(runtime.context, source, source, step.plan, checked, self._name,
                                self._synchronisation)
        store(source, tensor)


class Preparable(Protocol[P, R_co]):
    """A function with a `prepare`, which takes the same arguments."""

    prepare: Callable[P, PreparedCall]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


def prepared_by(prepare: Callable[P, PreparedCall],
                **new_names: str) -> Callable[[Callable[P, R_co]], Preparable[P, R_co]]:
    """The function gets `prepare` as its own, which takes arguments by old names too."""

    def decorate(function: Callable[P, R_co]) -> Preparable[P, R_co]:
        prepare.__name__ = prepare.__qualname__ = f"{function.__name__}.prepare"
        preparable = cast(Preparable[P, R_co], function)
        preparable.prepare = uncompiled(renamed(**new_names)(prepare))
        return preparable

    return decorate
