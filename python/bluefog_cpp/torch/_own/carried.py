"""The tensors that an algorithm of Python's carries from step to step."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from bluefog_cpp import _arguments
from bluefog_cpp.errors import InvalidArgument


class CarriedTensors(Mapping[str, torch.Tensor]):
    """Tensors by name, which checkpoints hold: a value that is assigned is copied into the one of
    that name."""

    def __init__(self, what: str, declared_in: str, tensors: Mapping[str, torch.Tensor]):
        """what: "bucket 0" or the like, for messages.
        declared_in: the attribute of the class that names them."""
        self._what, self._declared_in, self._tensors = what, declared_in, dict(tensors)

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._tensors[name]

    def __setitem__(self, name: str, value: Any) -> None:
        where = _arguments.place(f"{self._what}, {self._declared_in}")
        own = self._tensors.get(name)
        if own is None:
            raise InvalidArgument(
                f"{where}: expected a name that the algorithm's class has in "
                f"`{self._declared_in}`, {', '.join(self._tensors) or 'which names none'}, found "
                f"{_arguments.shown(name)}")
        if value is own:
            return  # as after `+=`
        if not isinstance(value, torch.Tensor):
            own.fill_(_arguments.checked(self._what, f"{self._declared_in}, {name}",
                                         _arguments.number, value))
            return
        if value.shape != own.shape:
            raise InvalidArgument(f"{where}, {name}: expected a tensor of {list(own.shape)}, found "
                                  f"{_arguments.shown(value)}")
        with torch.no_grad():
            own.copy_(value)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)
