"""The backward passes before a step of an optimizer that communicates in every k-th one."""

import weakref
from collections.abc import Callable
from typing import Any

import torch


class BackwardPasses:
    """Counts backward passes since the last step, where several may come before one. Passes that
    run inside of another one count with it; those that only hand gradients out, or that fail, do
    not count."""

    def __init__(self, step: Any, parameters: list[torch.Tensor]):
        self._passes = 0
        self._step = weakref.ref(step)
        if step.period > 1:
            for parameter in parameters:
                if parameter.requires_grad:
                    parameter.register_hook(_counter(weakref.ref(self), weakref.ref(parameter)))

    def note(self, parameter: torch.Tensor) -> None:
        step = self._step()
        if step is not None and step.counts_passes and step.core.begins_pass(parameter):
            if self._passes == 0 or not step.core.repeats_pass:
                self._passes += 1
            step.count_passes(self._passes)

    def clear(self) -> None:
        self._passes = 0


def _counter(passes: "weakref.ref[BackwardPasses]",
             of: "weakref.ref[torch.Tensor]") -> Callable[[torch.Tensor], None]:
    def count(_gradient: torch.Tensor) -> None:
        counted, parameter = passes(), of()
        if counted is not None and parameter is not None:
            counted.note(parameter)

    return count
