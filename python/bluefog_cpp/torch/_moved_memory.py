"""Other users of the memory of parameters, which wrapping moves into buckets: they would go on
with memory that nobody uses any more."""

from collections.abc import Iterable

import torch

from bluefog_cpp.errors import InvalidArgument, StateError
from bluefog_cpp.torch._runtime import Runtime
from bluefog_cpp.torch._tensors import range_of

Named = Iterable[tuple[str, torch.Tensor]]


def check_unshared(runtime: Runtime, maker: str, parameters: Named, moves_gradients: bool,
                   buffers: Named, released: set[int]) -> None:
    """Raises StateError where a window, or a call in flight that writes, stands on the memory of a
    parameter that will move, or of its gradient, and InvalidArgument where a buffer of the model
    does.

    maker: the public function that wraps. released: the ids of windows that wrapping frees itself.
    """
    moving = [(f"parameter '{name}'", *places) for name, parameter in parameters
              if parameter.requires_grad for places in range_of(parameter)]
    if moves_gradients:
        gradients = [(name, parameter.grad) for name, parameter in parameters
                     if parameter.requires_grad and parameter.grad is not None]
        moving += [(f"the gradient of parameter '{name}'", *places) for name, gradient in gradients
                   if gradient.layout == torch.strided for places in range_of(gradient)]
    where = f"rank {runtime.rank}, {maker}"
    for name, window in sorted(runtime.windows.items()):
        parameter = None if id(window) in released else _first_on(moving, window.tensor)
        if parameter is not None:
            raise StateError(
                f"{where}: expected no window over memory of the model, which moves when its "
                f"parameters are wrapped, found window '{name}' over {parameter}; free it "
                "first, and create it again afterwards if need be")
    for place in runtime.places_written_in_flight():
        parameter = _first_at(moving, place)
        if parameter is not None:
            raise StateError(
                f"{where}: expected no call in flight that writes into the model, whose parameters "
                f"move when they are wrapped, found one that writes into {parameter}; "
                "wait for its handle first")
    for name, buffer in buffers:
        parameter = _first_on(moving, buffer)
        if parameter is not None:
            raise InvalidArgument(
                f"{where}: model: expected buffers with memory of their own, because parameters "
                f"move when they are wrapped, found that buffer '{name}' shares memory with "
                f"{parameter}")


def _first_on(moving: list[tuple[str, int, int]], tensor: torch.Tensor) -> str | None:
    """The words for the first one that lies where `tensor` does."""
    return next((what for place in range_of(tensor) if (what := _first_at(moving, place))), None)


def _first_at(moving: list[tuple[str, int, int]], place: tuple[int, int]) -> str | None:
    begin, end = place
    return next((what for what, first, last in moving if first < end and begin < last), None)
