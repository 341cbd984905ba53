"""A window, as a script knows it by name."""

from typing import Any

import torch

from bluefog_cpp.errors import StateError


class Window:
    """A window with the tensor that it averages."""

    def __init__(self, core_window: Any, tensor: torch.Tensor, name: str, number: int):
        self.core = core_window
        self.tensor = tensor
        self.name = name
        self.number = number
        """The same on all ranks: they create windows together."""
        self._place = self._place_of(tensor)

    def end(self) -> None:
        """Other ranks find it freed from now on, and not that its rank has left."""
        self.core = None

    @staticmethod
    def _place_of(tensor: torch.Tensor) -> tuple[int, int, torch.dtype, bool]:
        return tensor.data_ptr(), tensor.numel(), tensor.dtype, tensor.is_contiguous()

    def check_in_place(self, rank: int, name: str) -> None:
        if self._place_of(self.tensor) != self._place:
            raise StateError(
                f"rank {rank}, window '{name}': expected its tensor to keep the memory that it had "
                "when the window was created, found it resized or its data replaced; free the "
                "window and create it again")
