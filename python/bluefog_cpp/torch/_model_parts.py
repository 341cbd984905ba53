"""The places of parameters in a model, and whether they lie there still."""

from collections.abc import Iterator
from operator import is_
from typing import Any

import torch


class ModelParts:
    """The parameters of models by their names, as when this object was made."""

    def __init__(self, models: torch.nn.Module | list[torch.nn.Module]):
        self._models = models
        self._parameters = dict(self._named())
        self._parts = self._taken()

    def why_changed(self) -> str:
        """The part that lies where another was, for a message; empty if none does. Parts may be
        added to the model, or taken from it."""
        # A model's parts are as many as its modules: their names are made for the message alone.
        if all(_holds(module._parameters, *parameters) and _holds(module._modules, *children)
               for module, parameters, children in self._parts):
            return ""
        found = dict(self._named())
        has_new_names = not found.keys() <= self._parameters.keys()
        for name, parameter in self._parameters.items():
            if found[name] is not parameter if name in found else has_new_names:
                what = "another one" if name in found else "none"
                return (f"parameter '{name}': expected the module to hold the parameter that it "
                        f"held when the optimizer was wrapped, found {what} (a parametrization or "
                        "a pruning that was added or removed, load_state_dict(assign=True), a "
                        "submodule in its place?); wrap the optimizer again")
        self._parts = self._taken()
        return ""

    def _modules(self) -> Iterator[tuple[str, torch.nn.Module]]:
        if isinstance(self._models, torch.nn.Module):
            yield from self._models.named_modules()
        else:
            for place, model in enumerate(self._models):
                yield from model.named_modules(prefix=str(place))

    def _named(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Tied ones by each of their names."""
        for prefix, module in self._modules():
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    yield f"{prefix}.{name}" if prefix else name, parameter

    def _taken(self) -> list[tuple[torch.nn.Module, Any, Any]]:
        return [(module, _contents(module._parameters), _contents(module._modules))
                for _, module in self._modules()]


def _contents(items: dict[str, Any]) -> tuple[list[str], list[Any]]:
    return list(items), list(items.values())


def _holds(items: dict[str, Any], names: list[str], values: list[Any]) -> bool:
    return list(items) == names and all(map(is_, items.values(), values))
